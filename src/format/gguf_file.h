/* gguf_file: what a GGUF file says, before anything is translated. For the gguf_*.c files only.
 *
 * The file is walked once and every count, length and offset in it is compared with the bytes that
 * are there; afterwards each pointer below may be followed without another look. Nothing is
 * aligned: numbers are read with the getters or memcpy. */
#ifndef PESC_FORMAT_GGUF_FILE_H
#define PESC_FORMAT_GGUF_FILE_H

#include "base/io.h"
#include "format/gguf.h"
#include "format/gguf_delta.h"
#include "tensor/dtype.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} gguf_type;

typedef struct gguf_text {
    const char *p; /* not NUL-terminated */
    size_t n;
} gguf_text;

typedef struct gguf_value {
    gguf_text key;
    gguf_type type; /* of the value, or of the elements of an array */
    bool array;
    size_t count; /* elements; 1 unless array */
    const unsigned char *data;
} gguf_value;

typedef struct gguf_tensor {
    gguf_text name;
    dtype dt;
    int32_t nd;
    int64_t ne[4]; /* in PyTorch's order */
    const unsigned char *data;
    size_t bytes;
    const char *path; /* of the file it is in */
} gguf_tensor;

struct gguf {
    io_map *map;
    bool lent; /* the map and those of the parts belong to a table of weights by now */
    const char *path;
    gguf_value *values; /* sorted by key */
    size_t n_values;
    gguf_tensor *tensors; /* in the order of the file, then of the parts after it */
    size_t n_tensors;
    gguf **rest; /* the other parts of a split model, for their maps */
    size_t n_rest;
};

/* One file, without the parts that may belong to it. */
pesc_status gguf_open_file(gguf **out, const char *path);

/* Opens the other parts when the file is the first of several, and appends their tensors
 * (gguf_split.c). */
pesc_status gguf_join_parts(gguf *g);

/* Metadata by key; NULL when absent. */
const gguf_value *gguf_find(const gguf *g, const char *key);
const char *gguf_type_name(gguf_type t);
bool gguf_text_is(gguf_text t, const char *s);

/* By GGUF's name; NULL when absent. Walks them all. */
const gguf_tensor *gguf_tensor_find(const gguf *g, const char *name);

/* Typed getters (gguf_get.c). An absent key leaves *out as it was unless required. A wrong type or
 * a value out of range is PESC_FORMAT, naming the key. Integers may have any width. A number that
 * may differ from layer to layer may be an array of n_layers equal ones; n_layers 0: it may not. */
typedef struct gguf_range {
    bool required;
    int64_t min, max;
    int64_t n_layers;
} gguf_range;
pesc_status gguf_get_int(const gguf *g, const char *key, gguf_range r, int64_t *out);
pesc_status gguf_get_real(const gguf *g, const char *key, bool required, double *out);
pesc_status gguf_get_bool(const gguf *g, const char *key, bool *out);
pesc_status gguf_get_text(const gguf *g, const char *key, bool required, gguf_text *out);
/* A number or a truth value a layer, or one for all; nothing where the key is absent. */
pesc_status gguf_get_layers(const gguf *g, const char *key, int64_t n_layers, int64_t *out);

/* The architectures pesc reads, one bit each for the tables of names and keys. */
typedef uint64_t gguf_archs;
#define ARCH_LLAMA (UINT64_C(1) << 0)
#define ARCH_MIXTRAL (UINT64_C(1) << 1)
#define ARCH_QWEN2 (UINT64_C(1) << 2)
#define ARCH_QWEN3 (UINT64_C(1) << 3)
#define ARCH_QWEN2MOE (UINT64_C(1) << 4)
#define ARCH_QWEN3MOE (UINT64_C(1) << 5)
#define ARCH_OLMOE (UINT64_C(1) << 6)
#define ARCH_DEEPSEEK2 (UINT64_C(1) << 7)
#define ARCH_PESC (UINT64_C(1) << 8)
#define ARCH_GRANITE (UINT64_C(1) << 9)
#define ARCH_GRANITEMOE (UINT64_C(1) << 10)
#define ARCH_SMOLLM3 (UINT64_C(1) << 11)
#define ARCH_SEED (UINT64_C(1) << 12)
#define ARCH_ERNIE (UINT64_C(1) << 13)
#define ARCH_ERNIEMOE (UINT64_C(1) << 14)
#define ARCH_OLMO2 (UINT64_C(1) << 15)
#define ARCH_GLM4 (UINT64_C(1) << 16)
#define ARCH_GLM4MOE (UINT64_C(1) << 17)
#define ARCH_DOTS1 (UINT64_C(1) << 18)
#define ARCH_HUNYUAN (UINT64_C(1) << 19)
#define ARCH_HUNYUANMOE (UINT64_C(1) << 20)
#define ARCH_MINIMAX (UINT64_C(1) << 21)
#define ARCH_EXAONE4 (UINT64_C(1) << 22)
#define ARCH_DEEPSEEK (UINT64_C(1) << 23)
#define ARCH_MISTRAL3 (UINT64_C(1) << 24)
#define ARCH_GEMMA2 (UINT64_C(1) << 25)
#define ARCH_GEMMA3 (UINT64_C(1) << 26)
#define ARCH_PHI3 (UINT64_C(1) << 27)
#define ARCH_GPTOSS (UINT64_C(1) << 28)
#define ARCH_AFMOE (UINT64_C(1) << 29)
#define ARCH_BAILING2 (UINT64_C(1) << 30)
#define ARCH_QWEN (UINT64_C(1) << 31)
#define ARCH_LFM2 (UINT64_C(1) << 32)
#define ARCH_LFM2MOE (UINT64_C(1) << 33)
#define ARCH_QWEN35 (UINT64_C(1) << 34)
#define ARCH_QWEN35MOE (UINT64_C(1) << 35)
#define ARCH_QWEN3NEXT (UINT64_C(1) << 36)
#define ARCH_GEMMA4 (UINT64_C(1) << 37)
#define ARCH_ANY UINT64_MAX
/* Layers with a short convolution; with a gated delta net, in two of whose architectures the heads
 * of the values are in another order (gguf_delta.h). */
#define ARCH_LFM2S (ARCH_LFM2 | ARCH_LFM2MOE)
#define ARCH_TILED (ARCH_QWEN35 | ARCH_QWEN35MOE)
#define ARCH_DELTAS (ARCH_TILED | ARCH_QWEN3NEXT)
/* Whose norms are stored with 1 added, and whose window some layers have. */
#define ARCH_GEMMAS (ARCH_GEMMA2 | ARCH_GEMMA3)
#define ARCH_SHIFTED (ARCH_GEMMAS | ARCH_DELTAS)
#define ARCH_WINDOWS                                                                               \
    (ARCH_GEMMAS | ARCH_GEMMA4 | ARCH_OLMO2 | ARCH_EXAONE4 | ARCH_GPTOSS | ARCH_AFMOE)
/* A part of whose heads rotates. */
#define ARCH_PARTIAL                                                                               \
    (ARCH_PHI3 | ARCH_GLM4 | ARCH_GLM4MOE | ARCH_MINIMAX | ARCH_BAILING2 | ARCH_DELTAS)

typedef struct gguf_arch {
    const char *name; /* general.architecture */
    gguf_archs bit;
    const char *model_type; /* Hugging Face's */
    bool experts;           /* of two rows with one name: which has expert_count > 0 */
    bool permuted;          /* rows of q and k are in the order of interleaved RoPE */
} gguf_arch;

pesc_status gguf_arch_of(const gguf_arch **out, const gguf *g);

/* "<architecture>.<key>", for the getters. */
typedef struct gguf_key {
    char text[96];
} gguf_key;
gguf_key gguf_arch_key(const gguf_arch *a, const char *key);

/* Facts that both the configuration and the weights need. */
typedef struct gguf_sizes {
    int64_t layers, heads, kv_heads;
    int64_t predicting; /* layers of multi-token prediction after these, which are not read */
} gguf_sizes;
pesc_status gguf_config_sizes(const gguf *g, const gguf_arch *a, gguf_sizes *out);

/* Takes the value, which may be NULL for want of memory. */
pesc_status gguf_config_put(json_t *object, const char *key, json_t *value);

/* rope_scaling as config.json has it, put into `config`; nothing when there is no scaling. */
pesc_status gguf_rope(json_t *config, const gguf *g, const gguf_arch *a, double theta,
                      int64_t rope_dim);

/* Of architectures whose layers with and without a window differ: the keys that have a number for
 * each layer or each kind, as config.json has them. */
pesc_status gguf_kinds(json_t *config, const gguf *g, const gguf_arch *a, int64_t n_layers);

/* A tensor's name, translated. */
enum {
    NAME_QUERY = 1 << 0,    /* rows may be permuted, by the heads of the queries */
    NAME_KEY = 1 << 1,      /* the same, by those of the keys */
    NAME_ROW = 1 << 2,      /* a matrix of one row, stored as a vector */
    NAME_SKIP = 1 << 3,     /* not a weight */
    NAME_STACKED = 1 << 4,  /* all experts of a layer in one tensor */
    NAME_ROUTER = 1 << 5,   /* its layer is sparse */
    NAME_BARE = 1 << 6,     /* Hugging Face's name has no ".weight" or ".bias"; GGUF's is whole */
    NAME_JOINED = 1 << 7,   /* rows of several tensors; how it is written alone */
    NAME_NORM = 1 << 8,     /* of some architectures stored with 1 added */
    NAME_CONV = 1 << 9,     /* of a convolution: without the dimension of 1 in the middle */
    NAME_QKV = 1 << 10,     /* rows of a delta net's queries, keys and values */
    NAME_VALUES = 1 << 11,  /* rows of its values */
    NAME_HEADS = 1 << 12,   /* rows of its values' heads, one each */
    NAME_COLUMNS = 1 << 13, /* columns instead */
    NAME_DECAY = 1 << 14,   /* stored as -exp of Hugging Face's numbers */
};
typedef struct gguf_name {
    const char *pattern;   /* Hugging Face's, with # for the layer and * for the expert */
    int64_t layer, expert; /* -1: it has none */
    gguf_text suffix;      /* ".weight", ".bias" */
    uint32_t flags;
} gguf_name;
bool gguf_name_of(gguf_name *out, gguf_text name, const gguf_arch *a); /* false: unknown */
int64_t gguf_name_layer(gguf_text name); /* of any tensor "blk.N...."; -1: of no layer */
void gguf_name_write(char *out, size_t cap, const gguf_name *n, int64_t expert);

/* What a gated delta net's tensors are arranged by (gguf_arrange.c). */
typedef struct gguf_arranging {
    gguf_delta d;
    const int32_t *order[4]; /* by delta_rows; those of one in_proj_qkvz at DELTA_ROWS_PLAIN: where
                                the file has each of Hugging Face's rows; owned by the table */
} gguf_arranging;
pesc_status gguf_arrange_open(gguf_arranging *out, const gguf *g, const gguf_arch *a);
/* Turns a tensor of the file into Hugging Face's: its order where that is another, its numbers. */
pesc_status gguf_arrange(gguf_arranging *r, weights *ws, weight *w, const gguf_arch *a,
                         uint32_t flags);
/* attn_qkv and attn_gate as one in_proj_qkvz of this name. */
pesc_status gguf_arrange_joined(gguf_arranging *r, weights *ws, const weight *qkv, const weight *z,
                                const char *name);

#endif
