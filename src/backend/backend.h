/* backend: the narrow waist. One table of plain operations; a device is a table and some memory.
 *
 * Shapes use one set of letters everywhere: T tokens of a pass, C model width, F FFN width, H query
 * width (heads * head_dim), K key/value width, E experts, k experts a token, V vocabulary. All are
 * row-major. "act" is a tensor of activations: f32 or bf16, whichever the pass computes in.
 *
 * Rules, stated once. Math ops return void and keep the first failure in the device; sync() and
 * download() return it. Parameter gradients accumulate, activation gradients overwrite, the
 * residual stream accumulates. Accumulation is in f32 at least, in an order that depends on shapes
 * only: never on the number of threads, nor on what else is in the batch. Ties in top-k go to the
 * lowest index. No op allocates device memory. No entry is NULL. */
#ifndef PESC_BACKEND_BACKEND_H
#define PESC_BACKEND_BACKEND_H

#include "base/rng.h"
#include "base/status.h"
#include "tensor/tensor.h"

typedef struct pesc_device device;
typedef struct ops ops;

struct pesc_device {
    const ops *op;
    char name[64];        /* "cpu (8 threads, avx512_bf16)" */
    uint64_t memory;      /* bytes it has; 0: it is the host's */
    int32_t head_rows;    /* rows that meet the head at a time in training: enough to be busy */
    int32_t micro_tokens; /* tokens of one forward in training where nobody says */
};

typedef enum act_kind { ACT_SILU, ACT_GELU, ACT_GELU_TANH, ACT_RELU } act_kind;

/* out = scale * product (+ bias row) (+ out). The shapes of one linear layer w [O,I]:
 *   MM_NT forward  out [T,O] = a [T,I] * b [O,I]^T
 *   MM_NN dX       out [T,I] = a [T,O] * b [O,I]
 *   MM_TN dW       out [O,I] = a [T,O]^T * b [T,I]
 * a: f32 or bf16. b: f32, bf16 or (NT, NN) nf4. out: f32 or bf16. When a is bf16, products of bf16
 * values are summed in f32; when a is f32 everything is f32. */
typedef enum mm_layout { MM_NT, MM_NN, MM_TN } mm_layout;

/* Two matrices to multiply. One that is columns of a wider matrix has the width of that as its
 * `ld`; 0: it is whole. NF4 is always whole. */
typedef struct mm_pair {
    tensor a, b;
    int64_t a_ld, b_ld;
} mm_pair;

/* With `more` the product is a sum of several of one layout, added up in this order, a b last:
 *   out = scale * (more[0].a more[0].b + ... + a b) (+ bias row) (+ out).
 * Whether `out` holds the sums in between, rounded to its type, is up to the device. */
typedef struct mm {
    mm_layout layout;
    tensor out, a, b;
    int64_t out_ld, a_ld, b_ld; /* as in mm_pair */
    const mm_pair *more;
    int n_more;
    tensor bias; /* [O] f32 or bf16, NT only; absent: none */
    float scale;
    bool accumulate;
} mm;

/* The same product for each expert e over its own rows [offsets[e], offsets[e+1]) of the
 * sorted activations: NT out [N,O] = a [N,I] * b[e] [O,I]^T; NN; TN out[e] [O,I] += a^T b
 * (accumulates). offsets is an i32 tensor [E+1] that lives on the device. Its first number need not
 * be 0: with a slice of it, and of the stack, some experts run alone on the same rows. */
typedef struct grouped_mm {
    mm_layout layout;
    tensor out, a, b;
    tensor offsets;
    float scale;
    bool fresh; /* TN: out[e] = instead; zeros where an expert has no rows */
} grouped_mm;

/* How a router's logits [T,E] become k experts and gates. */
typedef enum score_kind { SCORE_SOFTMAX, SCORE_SIGMOID } score_kind;
typedef struct topk_rule {
    int32_t n_experts, k;
    score_kind score;
    bool score_after_topk;      /* softmax over the k chosen logits (PESC, Mixtral) */
    bool renormalise;           /* gates divided by their sum */
    float scale;                /* times the gates at the end (routed_scaling_factor) */
    int32_t n_groups, k_groups; /* DeepSeek: only experts of the k best groups compete; 1,1: all */
} topk_rule;

/* Causal attention of packed sequences. Query row t of sequence s sits at position pos[t] and sees
 * keys of its own sequence at positions (pos - window, pos]. Without a cache the keys are the rows
 * of k, v of the same sequence. With one, the op first stores the rows of k, v at their positions,
 * then reads positions 0..pos from the pages. Softmax in f32 over key blocks of 64 counted from
 * position 0, so decoding one token gives the bits that prefill gave. */
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
    tensor cos, sin; /* as rope has them: q and k are rotated first, and are then used up; absent:
                        they are as they should be */
    bool interleaved;
    int32_t n_heads, n_kv_heads, qk_dim, v_dim;
    int32_t window; /* 0: unlimited */
    float scale;
} attention;

/* Rotates columns [offset, offset + rot_dim) of each head of x [T, n_heads*head_dim] in place.
 * Half-split pairs (i, i + rot/2), or neighbours (2i, 2i+1) when interleaved. cos, sin [T, rot/2]
 * come from rope_table. inverse: rotate back (the backward). */
typedef struct rope {
    tensor x, cos, sin;
    int32_t n_heads, head_dim, offset, rot_dim;
    bool interleaved, inverse;
} rope;

/* For each row t and head h: n columns from src[t, src_head*h + src_col ...] to
 * dst[t, dst_head*h + dst_col ...], where rows are the tensors' own widths. Splits and joins what
 * one product made for several uses (MLA). */
typedef struct copy_heads {
    tensor dst, src;
    int32_t n_heads, n;
    int32_t dst_head, dst_col, src_head, src_col;
    bool accumulate; /* dst +=, heads in order: with dst_head 0 the sum over heads (backward) */
} copy_heads;

/* out = w x rstd, for rows as wide as w. What a block does just before and behind it happens in the
 * same walk where it is asked for:
 *   x + add + sum_slot rows[inverse[t*k+slot]] (slots in order) is normed, and kept in `sum`
 *   logits = router (w x rstd), from the f32 numbers that out rounds */
typedef struct norm_fwd {
    tensor out; /* absent: not wanted */
    tensor x, w;
    tensor rstd; /* f32 [rows]; absent: not wanted */
    float eps;
    tensor sum;            /* like x, f32, and may be x; absent: nothing is added */
    tensor add;            /* act [T,C]; absent: none */
    tensor rows, inverse;  /* act [T*k,C], i32 [T*k]; absent: none */
    tensor logits, router; /* f32 [T,E] [E,C]; absent: none */
} norm_fwd;

/* scale gates[order[r]] on row r of act_fwd's result and in its backward. */
typedef struct row_gates {
    tensor gates, order; /* f32 [T,k], i32 [T*k] */
    float scale;
    tensor dgates; /* f32 [T,k]: backward writes it */
} row_gates;

/* ---- backward and training ---- */

/* dx = rstd (w d - x rstd^2 mean(w d x)), where d is dy, plus dlogits router where these are given;
 * dy may then be used up. dx may be dy. */
typedef struct norm_bwd {
    tensor dx;              /* absent: not wanted */
    tensor dy, x, w, rstd;  /* rstd f32 [rows], as forward gave it */
    tensor dw;              /* f32 [w], accumulates; absent: not wanted */
    tensor dlogits, router; /* f32 [T,E] [E,C]; absent: none */
    tensor drouter;         /* f32 [E,C], accumulates; absent: not wanted */
    tensor copy;            /* act: dx once more, rounded; absent: not wanted */
    bool accumulate;        /* dx +=: the input was the residual stream */
} norm_bwd;

/* dgate may be gate or dy, dup may be up. */
typedef struct glu_bwd {
    tensor dgate, dup, dy, gate, up;
    tensor glu; /* as forward gave it, once more; absent: not wanted */
    act_kind act;
} glu_bwd;

typedef struct attention_bwd {
    attention fwd; /* as forward ran, without pages; lse set */
    tensor dout, dq, dk, dv;
    tensor delta; /* f32 [T, heads]: room to work in */
} attention_bwd;

/* dlogits from dgates through the rule, plus `balance` times the gradient of the layer's aux value
 * (see ops.balance): balance E/T p_j (f_j - sum_i f_i p_i). */
typedef struct topk_bwd {
    tensor dlogits, dgates, ids, logits; /* f32 [T,E] [T,k], i32 [T,k], f32 [T,E] */
    tensor share;                        /* as balance() gave it; absent: no balance loss */
    topk_rule rule;
    float balance;
} topk_bwd;

/* dx[inverse[t*k+slot]] = scale gates[t,slot] dy[t]; dgates[t,slot] = scale <dy[t], x[inverse]>.
 * dx may be x. */
typedef struct scatter_bwd {
    tensor dx, dgates, dy, x, gates, inverse;
    float scale;
} scatter_bwd;

/* One step of AdamW (decoupled decay, bias-corrected) over flat buffers of n numbers. Moments are
 * f32, or u8: dynamic 8-bit codes (code8.h) with one scale for each 256. Where `sumsq` is given,
 * the gradient is clipped to norm `clip` (0: not), and nothing at all changes when it is not
 * finite. */
typedef struct adamw {
    tensor w, grad;          /* f32 [n]: master weights */
    tensor m, v;             /* f32 or u8 [n]; all zeros before the first step */
    tensor m_scale, v_scale; /* f32 [n / 256, rounded up], for u8 */
    tensor copy;             /* bf16 [n]: the working weights, rounded from w; absent: none */
    tensor sumsq;            /* f32 [1]; absent: neither clip nor check */
    float clip, lr, beta1, beta2, eps, weight_decay;
    int32_t step; /* from 1 */
} adamw;

struct ops {
    /* memory */
    pesc_status (*alloc)(device *d, size_t bytes, void **out); /* 64-byte aligned, not zeroed */
    pesc_status (*alloc_host)(device *d, size_t bytes, void **out);
    /* memory of the host that ops reach as well, as fast as the way there is */
    void (*free)(device *d, void *p); /* of either kind */
    void (*upload)(device *d, void *dst, const void *src, size_t bytes);
    pesc_status (*download)(device *d, void *dst, const void *src, size_t bytes);
    void (*copy)(device *d, void *dst, const void *src, size_t bytes);
    void (*zero)(device *d, void *dst, size_t bytes);
    pesc_status (*sync)(device *d);
    bool (*host_memory)(const device *d); /* whether the host may read device addresses */
    uint64_t (*room)(
        device *d); /* bytes left to take; UINT64_MAX: the host's memory is the limit */
    void (*close)(device *d);

    /* Work that repeats: what stands between begin() and end() is the same ops on the same memory
     * whenever it has the same name, and no memory is taken in between. False: it has been run
     * from a recording and is to be left out. */
    bool (*begin)(device *d, uint64_t name);
    void (*end)(device *d);

    /* linear */
    void (*matmul)(device *d, const mm *a);
    void (*matmuls)(device *d, const mm *a, int n); /* none needs what another of them gives */
    void (*grouped_matmul)(device *d, const grouped_mm *a);

    /* position and attention */
    void (*rope_table)(device *d, tensor cos, tensor sin, tensor pos, tensor inv_freq, float scale);
    void (*rope)(device *d, const rope *a);
    void (*attention_fwd)(device *d, const attention *a);
    void (*copy_heads)(device *d, const copy_heads *a);

    /* pointwise and rows */
    void (*embed)(device *d, tensor out, tensor table, tensor ids); /* out f32 [T,C] */
    void (*rmsnorm_fwd)(device *d, const norm_fwd *a);
    void (*glu_fwd)(device *d, tensor out, tensor gate, tensor up, act_kind act);
    void (*act_fwd)(device *d, tensor out, tensor x, act_kind act,
                    const row_gates *g);                     /* g NULL: none */
    void (*add)(device *d, tensor y, tensor x, float scale); /* y += scale * x */
    void (*add_gated)(device *d, tensor y, tensor x,
                      tensor logit);                  /* y[t] += sigmoid(logit[t]) x[t] */
    void (*convert)(device *d, tensor out, tensor x); /* f32, bf16: either to either */
    void (*gather_rows)(device *d, tensor out, tensor x, tensor rows, int32_t div);
    /* out[r] = x[rows[r] / div] */

    /* routing */
    void (*topk_fwd)(device *d, tensor ids, tensor gates, tensor logits, const topk_rule *rule,
                     tensor bias); /* ids i32 [T,k], gates f32 [T,k], logits f32 [T,E]; bias [E] or
                                      absent: added for choosing only */
    void (*expert_sort)(device *d, tensor order, tensor inverse, tensor offsets, tensor ids,
                        int32_t n_experts); /* stable: order[r] = t*k+slot, inverse[t*k+slot] = r */
    void (*scatter_add)(device *d, tensor y, tensor x, tensor gates, tensor inverse, float scale);
    /* y[t] += scale * sum_slot gates[t,slot] * x[inverse[t*k+slot]], slots in order */

    /* loss: per row, -log softmax(logits)[target]; target -100 gives 0 */
    void (*xent_fwd)(device *d, tensor loss, tensor logits, tensor targets);

    /* backward */
    void (*rmsnorm_bwd)(device *d, const norm_bwd *a);
    void (*glu_bwd)(device *d, const glu_bwd *a);
    void (*act_bwd)(device *d, tensor dx, tensor dy, tensor x, act_kind act,
                    const row_gates *g); /* dx may be dy or x */
    void (*attention_bwd)(device *d, const attention_bwd *a);
    void (*embed_bwd)(device *d, tensor dtable, tensor dout, tensor ids); /* dtable f32, += */
    void (*gather_rows_bwd)(device *d, tensor dx, tensor dout, tensor inverse, int32_t k,
                            bool accumulate);
    /* dx[t] (+)= sum_slot dout[inverse[t*k+slot]], slots in order */
    void (*add_gated_bwd)(device *d, tensor dx, tensor dlogit, tensor dy, tensor x, tensor logit);
    void (*sum_rows)(device *d, tensor out, tensor x); /* out f32 [cols] += the rows of x */
    void (*topk_bwd)(device *d, const topk_bwd *a);
    void (*scatter_add_bwd)(device *d, const scatter_bwd *a);
    void (*balance)(device *d, tensor share, tensor aux, tensor logits, tensor ids);
    /* share f32 [2,E]: f_i, the part of all choices that fell on i, and P_i, the mean softmax;
     * aux f32 [1] = E sum_i f_i P_i, 1 when balanced */
    void (*xent_bwd)(device *d, tensor loss, tensor dlogits, tensor logits, tensor targets,
                     tensor weight);
    /* loss as xent_fwd; dlogits = (softmax - onehot) weight[row], and may be logits */

    /* training */
    void (*dropout)(device *d, tensor out, tensor x, rng_key key, float p);
    /* out[i] = uniform(key, i) < p ? 0 : x[i] / (1 - p); its own backward; out may be x */
    void (*sumsq)(device *d, tensor out, tensor x); /* out f32 [1] */
    void (*adamw)(device *d, const adamw *a);

    /* quantisation: w f32 -> nf4 span */
    void (*quantize_nf4)(device *d, tensor out, tensor w, bool double_quant);
};

/* "cpu", "cpu:N" (N threads), "cuda", "cuda:N" (the Nth GPU). PESC_DEVICE says what is missing. */
pesc_status backend_open(device **out, const char *spec);
pesc_status cpu_open(device **out, int n_threads);
pesc_status cuda_open(device **out, int index);

#endif
