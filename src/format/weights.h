/* weights: the named tensors of a model, whatever files they came from.
 *
 * Readers (safetensors, gguf, torchbin) fill one table; bind.c, the only consumer of names, asks by
 * name. Names are Hugging Face's in every case: the GGUF reader translates, and the table itself
 * drops PEFT's "base_model.model." and the prefixes of weights.c's table, and writes sparsetral's
 * "moe_adapter.experts.3." as Camelidae's "moe_adapter.experts.expert_3.". Nothing here touches
 * weight bytes until a weights_read_ function is asked for them; they may be at any address, so no
 * other code may cast w->data without looking at its alignment. */
#ifndef PESC_FORMAT_WEIGHTS_H
#define PESC_FORMAT_WEIGHTS_H

#include "base/io.h"
#include "base/json.h"
#include "tensor/dtype.h"

enum {
    WEIGHTS_MAX = 1 << 18, /* tensors of one model: bounds what a hostile header can make us keep */
    WEIGHTS_MAX_DIMS = 8,
    WEIGHTS_MAX_NAME = 512, /* bytes */
};

/* Where the scales of an NF4 weight come from. The arrays are in the mapped file, at any address:
 * one f32 a block, or with double quantisation one 8-bit code a block, worth
 * nested_map[code] * nested_absmax[i / nested_block] + offset. */
typedef struct bnb_scales {
    int64_t block; /* elements that share a scale: a multiple of NF4_BLOCK */
    int64_t nested_block;
    const unsigned char *absmax;
    const unsigned char *nested_absmax; /* NULL: absmax is f32 */
    float nested_map[256];
    float offset;
} bnb_scales;

typedef struct weight {
    const char *name; /* owned by the table */
    dtype dt;
    int32_t nd;
    int64_t ne[WEIGHTS_MAX_DIMS];
    const unsigned char *data; /* inside a mapped file; NF4: packed codes, unpadded */
    size_t bytes;              /* at data */
    const bnb_scales *scales;  /* NF4 only, owned by the table */
    int32_t unpermute_heads; /* > 0: rows are in GGUF's interleaved-RoPE order for so many heads */
    const char *file;        /* for messages */
    /* Not NULL: put together from other tensors when asked for; then unpermute_heads is -1, so that
     * no reader takes `data` for the numbers. */
    pesc_status (*read)(const struct weight *w, int64_t first, int64_t n, float *out);
    const void *parts; /* for read; owned by the table */
    bool trained;      /* by the run that is opened: see holding.h */
    bool patched;      /* it took the place of one that was stored in `before` */
    dtype before;
} weight;

typedef struct weights weights;

int64_t weights_elements(const weight *w);

/* Reads elements [first, first + n) of the row-major tensor as f32, in Hugging Face's row order.
 * Every dtype can be read; a block scale that is not finite is refused by name. */
pesc_status weights_read_f32(const weight *w, int64_t first, int64_t n, float *out);

/* Block formats of a GGUF only: the blocks of row i, in Hugging Face's order of rows; and whether
 * all scales are finite, refused by name as by weights_read_f32(). */
const unsigned char *weights_row(const weight *w, int64_t i);
pesc_status weights_check_blocks(const weight *w);

/* NF4 only: fills a span of nf4.h with the whole tensor: codes, padding, one f32 scale a block of
 * 64. */
pesc_status weights_read_nf4(const weight *w, void *span);

/* The table. weights_find is a hash look-up; NULL when absent. */
const weight *weights_find(const weights *ws, const char *name);
const weight *weights_find_raw(const weights *ws, const char *name); /* as a file may write it */
size_t weights_count(const weights *ws);
const weight *weights_at(const weights *ws, size_t i);
uint64_t weights_bytes(const weights *ws); /* in the files, scales included */
size_t weights_files(const weights *ws);
/* Over names, dtypes, shapes and all stored bytes, for tables of a part of a model: tensors that
 * are put together, as a whole GGUF may have them, are not allowed. */
uint64_t weights_hash(const weights *ws);
/* Fails when a mapped file was cut short while in use, or when bytes do not have the checksum that
 * their file states (computed once, by the first call): to be called after weights were read. */
pesc_status weights_check(const weights *ws);
void weights_close(weights *ws); /* NULL is allowed */

/* For the readers. A pointer from weights_at() or weights_find() holds until the next add. */
pesc_status weights_new(weights **out);
/* Owns the map from here on, also when it fails. */
pesc_status weights_add_file(weights *ws, io_map *map);
/* Copies the name (canonical, see above); refuses a name that is there already. */
pesc_status weights_add(weights *ws, const weight *w);

/* The same for a part of a tensor that is there already, whose bytes are counted. */
pesc_status weights_add_part(weights *ws, const weight *w);

/* Keeps the list as it is now: the tensors as files have them, before parts take the place of some.
 * Of a table that has no such list weights_stored_ functions are the plain ones. */
pesc_status weights_keep_stored(weights *ws);
size_t weights_stored_count(const weights *ws);
const weight *weights_stored_at(const weights *ws, size_t i);

/* Bytes of a file and their CRC-32, for weights_check(). `what` names them in messages; it is
 * copied.
 */
pesc_status weights_add_sum(weights *ws, const unsigned char *data, size_t bytes, uint32_t crc,
                            const char *what);

/* The same, looked at now. */
pesc_status weights_check_sum(const unsigned char *data, size_t bytes, uint32_t crc,
                              const char *what);

/* For bnb.c, which makes one weight of several. */
weight *weights_edit(weights *ws, size_t i);
/* Memory that lives as long as the table; NULL when there is none. */
void *weights_take(weights *ws, size_t bytes);
/* Removes every entry i with drop[i] != 0; their bytes still count in weights_bytes(). */
void weights_drop(weights *ws, const unsigned char *drop);

#endif
