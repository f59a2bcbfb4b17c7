/* pass: the inside of model.h's pass: the tokens of one forward and the memory it runs in.
 *
 * The layout depends on the number of tokens alone and grows with it. pass_open() measures it at
 * the limits and takes that much; pass_set() lays out the same span anew for the current tokens, so
 * every tensor has exactly the shape of this forward and nothing is cut or allocated later.
 *
 * What training needs beside it is in train_state.h. The layers' code is the same for all phases;
 * where a phase differs, the code asks one of the questions at the end of this file. */
#ifndef PESC_MODEL_PASS_H
#define PESC_MODEL_PASS_H

#include "model/block.h"
#include "model/train_state.h"

typedef enum pass_phase {
    PHASE_INFER,     /* forward of a pass without train_state */
    PHASE_EVALUATE,  /* forward for a loss without gradients, hence without dropout */
    PHASE_FORWARD,   /* forward for a loss with gradients, with dropout */
    PHASE_RECOMPUTE, /* one layer, for the activations that its backward reads */
    PHASE_BACKWARD,  /* gradients of one layer */
} pass_phase;

/* Tokens of one sequence that are rotated alike, up to the next span. */
typedef struct rope_span {
    int32_t first;
    int64_t length; /* the length that their frequencies are for */
} rope_span;

/* Small host arrays. Those in the first `bytes` of host_memory are how pass_set() hands its tokens
 * to the device. */
typedef struct pass_host {
    int32_t *ids, *pos;      /* [T] */
    int32_t *adapter_of_row; /* [T]; NULL: no served adapter is a patch */
    int32_t *starts;         /* [n_seq + 1] */
    int32_t *rows;           /* [n_out] */
    int32_t *table;          /* [n_seq, max_pages] */
    int32_t *timelines;      /* [n_seq]: of the cache; NULL: no layer has a state */
    float *inv_freq;         /* [n_ropes, n_spans, rot/2 of the widest] */
    float *ones;             /* [D of the widest head]; NULL: every norm has a weight */
    float *q_scale;          /* [T]; NULL: queries are not scaled by their position */
    size_t bytes;
    int32_t *kv_seq;         /* [n_seq] */
    int32_t *adapter_of_seq; /* [n_seq] */
    bool any_adapter;        /* one of them is not 0 */
    rope_span *spans;        /* [n_spans + 1], with dynamic rope; the last is the end */
} pass_host;

/* The residual stream as a sublayer leaves it. The sublayer's output is not added yet: the next
 * norm adds it while it reads the stream anyway. */
typedef struct residual {
    tensor x;             /* f32 [T,C] */
    tensor add;           /* [T,C] to add; absent: nothing, like rows */
    tensor rows, inverse; /* [T*k,C], i32 [T*k]: outputs of experts to add, as in moe_acts */
} residual;

struct pass {
    const model_shape *m; /* borrowed, like kv */
    device *dev;
    layer_hook *hook; /* in training: the model's, or NULL */
    kvcache *kv;      /* NULL: none */
    pass_limits lim;
    uint64_t id;              /* unique among the passes of this process */
    int32_t n, n_seqs, n_out; /* of the tokens that are set */
    int32_t n_spans;          /* with dynamic rope, else 1 */
    pass_phase phase;
    void *memory, *host_memory;
    size_t bytes;
    pass_host host;
    tensor ids, pos, adapter_of_row, starts, rows, table; /* host's arrays on the device */
    tensor timelines;
    tensor inv_freq;                                     /* f32 [n_ropes * n_spans, rot/2] */
    tensor ones;                                         /* f32 [D]: of norms without a weight */
    tensor q_scale;                                      /* f32 [T] or absent */
    tensor cos[CONFIG_MAX_ROPES], sin[CONFIG_MAX_ROPES]; /* f32 [T, rot/2] of each table */
    tensor x; /* f32 [T,C]: the residual stream, where no layer keeps its input */
    residual stream;
    tensor mid;                     /* [T,LINEARS * lora_rank]: A x, where it is not kept */
    tensor bank_mid;                /* [T,LINEARS * bank_columns]: the same of served adapters */
    shared_kv shared[SHARED_KINDS]; /* as activations; absent: no layers share them */
    layer_input_rows inputs;
    block_acts acts;       /* activations of the current layer */
    tensor last, last_h;   /* [n_out,C]: rows that meet the head, f32 and normed */
    tensor logits;         /* f32 [n_out,V]; training: of a chunk of rows */
    train_state *train;    /* NULL: inference */
    struct routes *routes; /* what keeps the choices of the routers, borrowed; NULL: nothing */
};

/* The key of one tensor's dropout mask in this micro-batch. */
static inline rng_key pass_key(const pass *p, uint64_t tensor_stream)
{
    rng_key k = p->train->key;
    return (rng_key){ k.seed, rng_stream(k.stream, tensor_stream, 0) };
}

/* ---- what differs between phases ---- */

/* Dropout is on: in the forward of training, and in what repeats or differentiates it. */
static inline bool pass_has_dropout(const pass *p)
{
    return p->phase >= PHASE_FORWARD;
}

/* A layer is recomputed for its own backward; no other layer reads its output. */
static inline bool pass_recomputes(const pass *p)
{
    return p->phase == PHASE_RECOMPUTE;
}

/* The layer is recomputed and what its partial activation checkpoint holds is still there. */
static inline bool pass_has_partial(const pass *p)
{
    return pass_recomputes(p) && p->train->keep == KEEP_PARTIAL;
}

/* Backward of a layer that did not compute glu last: glu is scratch that all slots share, so
 * another layer's is in it now. */
static inline bool pass_lost_glu(const pass *p)
{
    layer_keep keep = p->train->keep;
    return p->phase == PHASE_BACKWARD && (keep == KEEP_ALL || keep == KEEP_PARTIAL);
}

#endif
