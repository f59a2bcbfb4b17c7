/* backend: one table of plain operations. Model code computes with these and nothing else; a device
 * is such a table and some memory.
 *
 * Shapes use one set of letters everywhere: T tokens of a pass, C model width, F FFN width, H query
 * width (heads * head_dim), K key/value width, E experts, k experts of a token, V vocabulary. All
 * tensors are row-major. "act" is a tensor of activations: f32 or bf16, the dtype the pass computes
 * in.
 *
 * Rules for every device:
 * - No entry is NULL. Ops of one device are called by one thread at a time.
 * - Ops that compute return void. The device keeps the first failure; sync() and download() return
 *   it.
 * - Gradients of parameters accumulate, gradients of activations overwrite, the residual stream
 *   accumulates.
 * - Sums are accumulated in f32 or wider, in a fixed order, without atomics. Ties in top-k go to
 *   the lowest index.
 * - No op that computes allocates memory: its workspace exists before it is called.
 *
 * What results depend on (docs/numerics.md repeats this as a table, with the tests):
 * - Both: the same inputs give the same bits with the same binary, the same device and the same
 *   shapes.
 * - CPU: results do not depend on the number of threads; they differ between instruction sets
 *   (cpu/isa.h). A row does not depend on the other rows of the pass: decode gives the bits of
 *   prefill, packed sequences those of single ones.
 * - GPU: a row may depend on how many rows there are, because the number of rows chooses the
 *   kernel. Nothing is promised between two models of GPU. */
#ifndef PESC_BACKEND_BACKEND_H
#define PESC_BACKEND_BACKEND_H

#include "backend/peers.h"
#include "base/rng.h"
#include "base/status.h"
#include "tensor/tensor.h"

#include <pthread.h>

typedef struct pesc_device device;
typedef struct ops ops;

struct pesc_device {
    const ops *op;
    pthread_mutex_t lock; /* recursive; see DEVICE_CALL */
    pesc_events events;   /* of every call that uses the device */
    char name[64];        /* "cpu (8 threads, avx512_bf16)" */
    uint64_t memory;      /* bytes of its own memory; 0: it uses the host's */
    int32_t head_rows;    /* rows per chunk of head and loss in training */
    int32_t micro_tokens; /* default number of tokens of a micro-batch */
    bool has_bf16;        /* its instructions multiply bf16 */
    bool has_fp8;         /* it looks at mm.fp8_terms */
    int32_t few_choices;  /* adapters_fwd is faster than its parts for T*k up to this; 0: never */
    size_t reserved;      /* bytes of scratch, see ops.reserve */
    int32_t users;        /* models that are open on it, see device_keep */
    peers *peers;         /* the processes that it works with; NULL: it works alone */
    struct profile *profile; /* of its ops; NULL: none was asked for */
};

/* Keeps the device until one pesc_device_close() more, so that a caller may close its handle before
 * the models that use it. */
void device_keep(device *d);

/* A public function that computes on `d` states DEVICE_CALL(d) once. From there to the end of the
 * block it holds the device's lock, so that calls on one device run one after another, and the
 * device's events are those of this thread. Nests. */
typedef struct device_call {
    device *dev;
    const pesc_events *outer;
} device_call;
device_call device_enter(device *d);
void device_leave(device_call *c);
#define DEVICE_CALL(d)                                                                             \
    __attribute__((cleanup(device_leave))) device_call device_call_ = device_enter(d)

/* ACT_CLAMPED is that of gpt-oss: x sigmoid(1.702 x) with x at most 7; where it gates a GLU, the
 * other factor is limited to -7 and 7, and 1 is added to it. */
typedef enum act_kind {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_CLAMPED,
    ACT_SIGMOID, /* gates the output of attention */
} act_kind;

/* out = scale * product (+ bias row) (+ out). The shapes of one linear layer w [O,I]:
 *   MM_NT forward  out [T,O] = a [T,I] * b [O,I]^T
 *   MM_NN dX       out [T,I] = a [T,O] * b [O,I]
 *   MM_TN dW       out [O,I] = a [T,O]^T * b [T,I]
 * a: f32 or bf16. b: f32, bf16 or (NT, NN) nf4. out: f32 or bf16. When a is bf16, products of bf16
 * values are summed in f32; when a is f32 everything is f32. */
typedef enum mm_layout { MM_NT, MM_NN, MM_TN } mm_layout;

/* Two matrices to multiply. `ld` (leading dimension) is the number of elements from row to row
 * where a matrix is some columns of a wider one; 0: rows are contiguous, as they always are in NF4.
 */
typedef struct mm_pair {
    tensor a, b;
    int64_t a_ld, b_ld;
} mm_pair;

/* With `more` the result is the sum of several products of one layout, in this order, a b last:
 *   out = scale * (more[0].a more[0].b + ... + a b) (+ bias row) (+ out).
 * A device may round the partial sums to the dtype of `out`. */
typedef struct mm {
    mm_layout layout;
    tensor out, a, b;
    int64_t out_ld, a_ld, b_ld; /* as in mm_pair */
    const mm_pair *more;
    int n_more;
    tensor bias; /* [O] f32 or bf16, NT only; absent: none */
    float scale;
    bool accumulate;
    /* NN with bf16 alone: the last this many terms may have both operands rounded to fp8 (e4m3). A
     * device without has_fp8 does not, nor does any where the shape does not suit it. */
    int fp8_terms;
} mm;

/* Grouped GEMM: one product for each expert e over its own rows [offsets[e], offsets[e+1]) of the
 * sorted activations: NT out [N,O] = a [N,I] * b[e] [O,I]^T; NN; TN out[e] [O,I] += a^T b
 * (accumulates). offsets is an i32 tensor [E+1] in device memory. offsets[0] need not be 0: a slice
 * of offsets and of the stacked weights computes some of the experts only. */
typedef struct grouped_mm {
    mm_layout layout;
    tensor out, a, b;
    tensor offsets;
    float scale;
    bool fresh; /* TN: overwrite out[e] instead; zeros where an expert has no rows */
} grouped_mm;

/* How a router's logits [T,E] become k experts and gates. */
typedef enum score_kind { SCORE_SOFTMAX, SCORE_SIGMOID } score_kind;
typedef struct topk_rule {
    int32_t n_experts, k;
    score_kind score;
    bool score_after_topk;      /* softmax over the k chosen logits (PESC, Mixtral) */
    bool renormalise;           /* gates divided by their sum */
    float sum_floor;            /* and at least by this (ERNIE 4.5); 0: by the sum alone */
    float sum_more;             /* added to their sum (LFM2), as 1e-20 always is */
    float scale;                /* multiplies the gates at the end (routed_scaling_factor) */
    int32_t n_groups, k_groups; /* DeepSeek: only experts of the k_groups best groups can be chosen;
                                   1, 1: all can */
} topk_rule;

/* Causal attention of packed sequences. Query row t of sequence s has position pos[t] and attends
 * to keys of its own sequence at positions (pos - window, pos]. Without a KV cache the keys are the
 * rows of k, v of the same sequence. With one, the op first stores the rows of k, v at their
 * positions, then reads positions 0..pos from the pages. The softmax is computed in f32. */
typedef struct kv_pages {
    tensor k, v;  /* this layer: [n_pages, page_tokens, K] in f32 or bf16 */
    tensor table; /* i32 [n_seq, max_pages]: page numbers of each sequence of this pass */
} kv_pages;
typedef struct attention {
    tensor q, k, v,
        out;       /* [T, heads*qk_dim] [T, kv_heads*qk_dim] [T, kv_heads*v_dim] [T, heads*v_dim] */
    tensor starts; /* i32 [n_seq + 1]: rows of each sequence */
    tensor pos;    /* i32 [T] */
    const kv_pages *kv; /* NULL: no cache */
    tensor lse;         /* f32 [T, heads] log-sum-exp for backward; absent: not wanted */
    tensor cos, sin;    /* as in rope: q and k are rotated first, which may overwrite them; absent:
                           they are rotated already */
    bool interleaved;
    int32_t n_heads, n_kv_heads, qk_dim, v_dim;
    int32_t window; /* 0: unlimited */
    float scale;
    float softcap; /* a scaled score s becomes softcap tanh(s / softcap); 0: it does not */
} attention;

/* Rotates columns [offset, offset + rot_dim) of each head of x [T, n_heads*head_dim] in place.
 * Half-split pairs (i, i + rot/2), or neighbours (2i, 2i+1) when interleaved. cos, sin [T, rot/2]
 * come from rope_table. inverse: rotate back (the backward). */
typedef struct rope {
    tensor x, cos, sin;
    int32_t n_heads, head_dim, offset, rot_dim;
    bool interleaved, inverse;
} rope;

/* For each row t and head h: copies n columns from src[t, src_head*h + src_col ...] to
 * dst[t, dst_head*h + dst_col ...]. Splits the output of one product into tensors of their own, and
 * joins them (MLA). */
typedef struct copy_heads {
    tensor dst, src;
    int32_t n_heads, n;
    int32_t dst_head, dst_col, src_head, src_col;
    bool accumulate; /* dst += the heads in order; with dst_head 0 the sum over heads (backward) */
} copy_heads;

/* A causal depthwise convolution along the rows of each packed sequence, w [W,1,taps]:
 *   s[t] = bias + sum_i w[i] z[t - taps + 1 + i], i from 0 up
 *   gated:  z = b u, out = c s, where x [T,3W] = b | c | u (LFM2)
 *   else:   z = x [T,W], out = act(s) (the delta net)
 * Rows of z before the first of a sequence are those that `state` holds for it, or zero where it
 * holds none: without a state, and where pos of the first row is 0. Forward leaves there the last
 * taps - 1 rows of the sequence. */
enum { CONV_TAPS = 16 }; /* at most; at least 2 */
typedef struct conv {
    tensor out, x;       /* act [T,W]; act [T,3W] or [T,W] */
    tensor w, bias;      /* f32 [W,1,taps]; f32 [W] or absent */
    tensor starts, pos;  /* as in attention */
    tensor state, slots; /* f32 [n,(taps-1)*W]; i32 [n_seq]: a sequence's row of it; absent: none */
    bool gated;
    act_kind act; /* where it is not gated */
} conv;

/* The gated delta rule (Qwen3.5) along the rows of each packed sequence. A row of x has the queries
 * of k_heads heads of k_dim columns, their keys, then the values of v_heads heads of v_dim; a key
 * head serves v_heads / k_heads neighbouring value heads. q and k are divided by their length,
 * sqrt(sum of squares + 1e-6), and q by sqrt(k_dim). Token by token, with S [k_dim,v_dim] of each
 * value head in f32:
 *   decay = exp(-exp(a_log) softplus(a + dt_bias)), beta = sigmoid(b)
 *   S = decay S; e = beta (v - S^T k); S += k e^T; out = S^T q
 * Before the first row of a sequence S is what `state` holds for it, or zero, as in conv; forward
 * leaves there that after the last. */
typedef struct delta_rule {
    tensor out, x;         /* act [T, v_heads*v_dim] [T, 2*k_heads*k_dim + v_heads*v_dim] */
    tensor b, a;           /* act [T,v_heads] */
    tensor a_log, dt_bias; /* f32 [v_heads] */
    tensor starts, pos;    /* as in attention */
    tensor state, slots;   /* f32 [n, v_heads*k_dim*v_dim]; i32 [n_seq]; absent: none */
    int32_t k_heads, v_heads, k_dim, v_dim;
} delta_rule;

/* Backward keeps the state before every L-th row, and before each of L rows. */
static inline int64_t delta_span(int64_t rows)
{
    int64_t n = 2;
    while (n * n < rows)
        n++;
    return n;
}
static inline int64_t delta_states(int64_t rows) /* of each head, in delta_bwd.work */
{
    return 2 * delta_span(rows) + 1;
}

/* RMS norm of rows as wide as w: out = (w + shift) x rstd. Two neighbours can be fused with it:
 *   prologue: x + add + sum_slot rows[inverse[t*k+slot]] (slots in order) is normalised instead of
 *             x, and written to `sum`
 *   epilogue: logits = router ((w + shift) x rstd), from the f32 values before out rounds them */
typedef struct norm_fwd {
    tensor out; /* absent: not wanted */
    tensor x, w;
    tensor rstd; /* f32 [rows]; absent: not wanted */
    float eps, shift;
    tensor sum;            /* like x, f32, and may be x; absent: nothing is added */
    tensor add;            /* act [T,C]; absent: none */
    tensor rows, inverse;  /* act [T*k,C], i32 [T*k]; absent: none */
    tensor logits, router; /* f32 [T,E] [E,C]; absent: none */
} norm_fwd;

/* act_fwd multiplies row r of its result by scale gates[order[r]]; act_bwd accounts for it. */
typedef struct row_gates {
    tensor gates, order; /* f32 [T,k], i32 [T*k] */
    float scale;
    tensor dgates; /* f32 [T,k]: backward writes it */
} row_gates;

/* PESC's adapters on a few tokens. The k experts of a token are those with its largest logits, as
 * topk_fwd chooses them, and the gates are the softmax of these logits:
 *   x[t] += f[t] + scale sum_slot gate up[e] gelu(down[e] f[t]).
 * Products are those of bf16 values: weights in f32 may be rounded. */
enum { ADAPTER_CHOICES = 128 };
typedef struct adapters_fwd {
    tensor x;        /* f32 [T,C]: the residual stream */
    tensor f;        /* bf16 [T,C]: the output of the FFN */
    tensor logits;   /* f32 [T,E] */
    tensor down, up; /* [E,D,C] [E,C,D], both f32 or both bf16 */
    tensor mid;      /* bf16 [T*k,D]: receives scale gate gelu(down[e] f[t]) */
    int32_t k;
    float scale;
} adapters_fwd;

/* Full experts in inference, on rows that are sorted by expert:
 *   x[t] += sum_slot gates[t,slot] down[e] (act(gate[e] h[t]) * (up[e] h[t])).
 * A device adds the slots of a token in any fixed order. */
typedef struct experts_fwd {
    tensor x;                              /* f32 [T,C]: the residual stream */
    tensor h;                              /* act [T,C] */
    tensor gate, up, down;                 /* [E,M,C] [E,M,C] [E,C,M] f32, bf16 or nf4 */
    tensor gates, order, inverse, offsets; /* as topk_fwd and expert_sort write them */
    tensor in, out, gate_out, up_out, mid; /* act [T*k,C] twice, [T*k,M] three times: workspace */
    act_kind act;
} experts_fwd;

/* ---- backward and training ---- */

/* dx = rstd (w d - x rstd^2 mean(w d x)) with w + shift for w, where d = dy (+ dlogits router,
 * where dlogits is given; dy may then be overwritten). dx may be dy. */
typedef struct norm_bwd {
    tensor dx;              /* absent: not wanted */
    tensor dy, x, w, rstd;  /* rstd f32 [rows], from forward */
    tensor dw;              /* f32 [w], accumulates; absent: not wanted */
    tensor dlogits, router; /* f32 [T,E] [E,C]; absent: none */
    tensor drouter;         /* f32 [E,C], accumulates; absent: not wanted */
    tensor copy;            /* act: receives dx too, rounded; absent: not wanted */
    bool accumulate;        /* dx +=: the input was the residual stream */
    float shift;
} norm_bwd;

/* dgate may be gate or dy, dup may be up or dy. */
typedef struct glu_bwd {
    tensor dgate, dup, dy, gate, up;
    tensor glu; /* receives the result of forward again; absent: not wanted */
    act_kind act;
} glu_bwd;

typedef struct attention_bwd {
    attention fwd; /* the arguments of forward, without pages; lse set */
    tensor dout, dq, dk, dv;
    tensor delta; /* f32 [T, heads]: receives the product of dout and out of each head */
} attention_bwd;

typedef struct conv_bwd {
    conv fwd;         /* the arguments of forward, without a state; out is not read */
    tensor dout, dx;  /* like out and x */
    tensor dw, dbias; /* f32, accumulate; absent: not wanted */
} conv_bwd;

typedef struct delta_bwd {
    delta_rule fwd;          /* the arguments of forward, without a state; out, pos are not read */
    tensor dout, dx, db, da; /* like out, x, b, a */
    tensor da_log, ddt_bias; /* f32, accumulate; absent: not wanted */
    tensor work;             /* f32 [delta_states(T), v_heads*k_dim*v_dim]: workspace */
    tensor dqk;              /* f32 [T, v_heads*2*k_dim]: workspace */
} delta_bwd;

/* dlogits from dgates through the rule, plus `balance` times the gradient of the layer's aux value
 * (see ops.balance): balance E/T p_j (f_j - sum_i f_i p_i), plus `z` times that of its z value: 2
 * z/T lse p_j. */
typedef struct topk_bwd {
    tensor dlogits, dgates, ids, logits; /* f32 [T,E] [T,k], i32 [T,k], f32 [T,E]; ids absent: k is
                                            E, and all experts are chosen in their order */
    tensor share;                        /* from balance(); absent: no balance loss */
    topk_rule rule;
    float balance;
    float z; /* 0: no z-loss */
} topk_bwd;

/* dx[inverse[t*k+slot]] = scale gates[t,slot] dy[t]; dgates[t,slot] = scale <dy[t], x[inverse]>.
 * dx may be x. */
typedef struct scatter_bwd {
    tensor dx, dgates, dy, x, gates, inverse;
    float scale;
} scatter_bwd;

/* One step of AdamW (decoupled weight decay, bias correction) over flat buffers of n parameters.
 * Moments are f32, or u8: dynamic 8-bit codes (code8.h) with one scale for each 256. With `sumsq`,
 * the squared norm of the gradient, the gradient is clipped to norm `clip` (0: it is not), and
 * nothing changes if sumsq is not finite. */
typedef struct adamw {
    tensor w, grad;          /* f32 [n]: master weights */
    tensor m, v;             /* f32 or u8 [n]; all zeros before the first step */
    tensor m_scale, v_scale; /* f32 [n / 256, rounded up], for u8 */
    tensor copy;             /* bf16 [n]: the working weights, rounded from w; absent: none */
    tensor sumsq;            /* f32 [1]; absent: no clipping, no check */
    float clip, lr, beta1, beta2, eps, weight_decay;
    int32_t step; /* from 1 */
} adamw;

/* The largest shapes that the ops of some work will be called with, by which a device plans its
 * scratch. A field that is 0: there are no such ops. */
typedef struct work_limits {
    dtype act;            /* of activations */
    int64_t tokens, seqs; /* of a pass */
    int64_t dim, widest;  /* columns: of the residual stream, of the widest activation */
    int64_t heads, v_dim; /* of attention */
    int64_t cached;       /* positions that a sequence's pages can hold */
    int64_t experts, k;   /* of a router, and of a token */
    int64_t converted;    /* elements of weights that one product, with all its terms, reads in
                             another dtype than its activations */
    int64_t fp8_weights;  /* elements of weights, and columns of activations, that one product */
    int64_t fp8_columns;  /* reads as fp8 (mm.fp8_terms) */
    int64_t trained;      /* parameters of one optimiser step */
    int64_t quantised;    /* matrices of one quantize_nf4() */
    bool train;           /* backward too */
} work_limits;

enum { DEVICE_MARKS = 32 };

struct ops {
    /* memory */
    pesc_status (*alloc)(device *d, size_t bytes, void **out); /* 64-byte aligned, not zeroed */
    pesc_status (*alloc_host)(device *d, size_t bytes, void **out);
    /* host memory that ops can access too: pinned and mapped, where the device has its own memory
     */
    void (*free)(device *d, void *p); /* memory of either kind; NULL is allowed */
    void (*upload)(device *d, void *dst, const void *src, size_t bytes);
    pesc_status (*download)(device *d, void *dst, const void *src, size_t bytes);
    void (*copy)(device *d, void *dst, const void *src, size_t bytes);
    void (*zero)(device *d, void *dst, size_t bytes);
    pesc_status (*sync)(device *d);
    bool (*host_memory)(const device *d); /* whether the host may read device addresses */
    uint64_t (*room)(device *d);
    /* bytes that alloc() can still give; UINT64_MAX: the host's memory is the limit */

    /* Scratch: memory that an op works in while it runs. It is planned like all other memory:
     * scratch_bytes() says how much the ops of some work need at most, and reserve() makes that
     * much available from then on, before the work begins. An op that needs more than is reserved
     * fails. reserve() waits for ops that still run and never gives anything back. */
    size_t (*scratch_bytes)(const device *d, const work_limits *w);
    pesc_status (*reserve)(device *d, size_t bytes);
    void (*close)(device *d);

    /* Work beside this device's. open_side() opens a device that works on the same memory at the
     * same time, for another thread; it is closed first. mark() sets mark i after all work so far,
     * and wait_mark() returns when that work is done; it may be called by any thread. follow()
     * returns at once: all work of d from now on begins when mark i of `other` is reached. */
    pesc_status (*open_side)(device *d, device **out);
    void (*mark)(device *d, int i); /* i: 0 to DEVICE_MARKS - 1 */
    pesc_status (*wait_mark)(device *d, int i);
    void (*follow)(device *d, device *other, int i);

    /* Recording (CUDA graphs). The ops between begin() and end() are the same ops on the same
     * memory whenever `name` is the same, and nothing is allocated between. begin() returns false
     * when it has replayed a recording: the caller then skips the ops and end(). */
    bool (*begin)(device *d, uint64_t name);
    void (*end)(device *d);

    /* linear */
    void (*matmul)(device *d, const mm *a);
    void (*matmuls)(device *d, const mm *a, int n); /* independent of each other */
    void (*grouped_matmul)(device *d, const grouped_mm *a);

    /* position and attention */
    void (*rope_table)(device *d, tensor cos, tensor sin, tensor pos, tensor inv_freq, float scale);
    void (*rope)(device *d, const rope *a);
    void (*attention_fwd)(device *d, const attention *a);
    void (*copy_heads)(device *d, const copy_heads *a);
    void (*sink_fwd)(device *d, tensor out, tensor lse, tensor sinks);
    /* after attention_fwd: a logit for each head joins the softmax and is dropped. out [T,heads*v]
     * times sigmoid(lse - sink); lse [T,heads] becomes that of keys and sink; sinks f32 [heads] */

    void (*conv_fwd)(device *d, const conv *a);
    void (*delta_fwd)(device *d, const delta_rule *a);

    /* pointwise and rows */
    void (*embed)(device *d, tensor out, tensor table, tensor ids); /* out f32 [T,C] */
    void (*rmsnorm_fwd)(device *d, const norm_fwd *a);
    void (*glu_fwd)(device *d, tensor out, tensor gate, tensor up, act_kind act);
    void (*act_fwd)(device *d, tensor out, tensor x, act_kind act,
                    const row_gates *g);                     /* g NULL: none */
    void (*add)(device *d, tensor y, tensor x, float scale); /* y += scale * x */
    void (*scale_rows)(device *d, tensor y, tensor rows, float scale);
    /* y[t] *= scale rows[t]; rows f32 [T], or [1], that of all rows; absent: ones. Also its own
     * backward */
    void (*add_gated)(device *d, tensor y, tensor x,
                      tensor logit); /* y[t] += sigmoid(logit[t]) x[t] */
    void (*add_bias)(device *d, tensor y, tensor bias, tensor offsets);
    /* y[r] += bias[e] in the rows [offsets[e], offsets[e+1]) of expert e; bias f32 [E,n], offsets
     * as in grouped_mm; absent: bias f32 [n] is that of all rows */
    void (*convert)(device *d, tensor out, tensor x); /* f32, bf16: either to either */
    void (*gather_rows)(device *d, tensor out, tensor x, tensor rows, int32_t div);
    /* out[r] = x[rows[r] / div] */

    /* routing */
    void (*topk_fwd)(device *d, tensor ids, tensor gates, tensor logits, const topk_rule *rule,
                     tensor bias); /* ids i32 [T,k], gates f32 [T,k], logits f32 [T,E]; bias [E] or
                                      absent: added for choosing only */
    void (*expert_remap)(device *d, tensor out, tensor ids, tensor table, tensor rows);
    /* out[t,slot] = table[rows[t], ids[t,slot]]; i32 [T,k] twice, [n,E] and [T] */
    void (*expert_sort)(device *d, tensor order, tensor inverse, tensor offsets, tensor ids,
                        int32_t n_experts); /* stable: order[r] = t*k+slot, inverse[t*k+slot] = r */
    void (*scatter_add)(device *d, tensor y, tensor x, tensor gates, tensor inverse, float scale);
    /* y[t] += scale * sum_slot gates[t,slot] * x[inverse[t*k+slot]], slots in order */

    /* y = cap tanh(y / cap), f32; dx = dy (1 - (y / cap)^2) with the y of forward; dx may be dy */
    void (*softcap)(device *d, tensor y, float cap);
    void (*softcap_bwd)(device *d, tensor dx, tensor dy, tensor y, float cap);

    /* loss: per row, -log softmax(logits)[target]; target -100 gives 0 */
    void (*xent_fwd)(device *d, tensor loss, tensor logits, tensor targets);

    /* scores of tokens. pairs i32 [n,2]: a row of logits f32 [T,V] and a token. logprob f32 [n] =
     * log softmax(logits[row])[token]; best i32 [n]: the column of the row's largest logit, the
     * lowest of several, -1 if a logit of the row is not finite. Only the row decides the bits. */
    void (*token_score)(device *d, tensor logprob, tensor best, tensor logits, tensor pairs);

    /* backward */
    void (*rmsnorm_bwd)(device *d, const norm_bwd *a);
    void (*glu_bwd)(device *d, const glu_bwd *a);
    void (*act_bwd)(device *d, tensor dx, tensor dy, tensor x, act_kind act,
                    const row_gates *g); /* dx may be dy or x */
    void (*attention_bwd)(device *d, const attention_bwd *a);
    void (*sink_bwd)(device *d, tensor dsinks, tensor delta, tensor lse, tensor sinks);
    /* after attention_bwd; lse as sink_fwd left it; dsinks f32 [heads] += */
    void (*conv_bwd)(device *d, const conv_bwd *a);
    void (*delta_bwd)(device *d, const delta_bwd *a);
    void (*add_bias_bwd)(device *d, tensor dbias, tensor dy, tensor offsets); /* dbias += */
    void (*embed_bwd)(device *d, tensor dtable, tensor dout, tensor ids);     /* dtable f32, += */
    void (*gather_rows_bwd)(device *d, tensor dx, tensor dout, tensor inverse, int32_t k,
                            bool accumulate);
    /* dx[t] (+)= sum_slot dout[inverse[t*k+slot]], slots in order */
    void (*add_gated_bwd)(device *d, tensor dx, tensor dlogit, tensor dy, tensor x, tensor logit);
    void (*sum_rows)(device *d, tensor out, tensor x); /* out f32 [cols] += the rows of x */
    void (*topk_bwd)(device *d, const topk_bwd *a);
    void (*scatter_add_bwd)(device *d, const scatter_bwd *a);
    void (*balance)(device *d, tensor share, tensor aux, tensor logits, tensor ids);
    /* share f32 [2,E]: f_i, the part of all choices that fell on i, and P_i, the mean softmax;
     * aux f32 [2]: E sum_i f_i P_i, 1 when balanced, and z, the mean of logsumexp(logits)^2 */
    void (*xent_bwd)(device *d, tensor loss, tensor dlogits, tensor logits, tensor targets,
                     tensor weight);
    /* loss as xent_fwd; dlogits = (softmax - onehot) weight[row], and may be logits */

    /* training */
    void (*dropout)(device *d, tensor out, tensor x, rng_key key, float p);
    /* out[i] = uniform(key, i) < p ? 0 : x[i] / (1 - p); also its own backward; out may be x */
    void (*sumsq)(device *d, tensor out, tensor x); /* out f32 [m]: of m equal parts of x */
    void (*adamw)(device *d, const adamw *a);

    /* quantisation: w f32 to NF4 (tensor/nf4.h) */
    void (*quantize_nf4)(device *d, tensor out, tensor w, bool double_quant);

    /* decoding: several ops in one */
    void (*adapters_fwd)(device *d, const adapters_fwd *a); /* T*k at most ADAPTER_CHOICES */
    void (*experts_fwd)(device *d, const experts_fwd *a);

    /* training routers from all experts */
    void (*dot_rows)(device *d, tensor y, tensor a, tensor b, int32_t column, float scale);
    /* y f32 [T,E]: y[t,column] += scale <a[t], b[t]> */
};

/* Opens "cpu", "cpu:N" (N threads), "cuda" or "cuda:N" (the Nth GPU). PESC_DEVICE: there is no such
 * device, and the message says what is missing. *out is NULL on failure; close with op->close(). */
pesc_status backend_open(device **out, const char *spec);
pesc_status cpu_open(device **out, int n_threads); /* 0: one thread per usable core */
pesc_status cuda_open(device **out, int index);

/* Write at most cap rows about the kernels of matrix products, and return how many there are. No
 * device is needed. */
size_t cpu_kernels(pesc_kernel_row *rows, size_t cap);
size_t cuda_kernels(pesc_kernel_row *rows, size_t cap);

#endif
