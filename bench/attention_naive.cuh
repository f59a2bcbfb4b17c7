/* attention_naive: attention and its gradients from their definitions in double precision, a thread
 * for each row and head: the reference of attention_cuda. It shares nothing with the kernels but
 * how an element is loaded. */
#ifndef PESC_BENCH_ATTENTION_NAIVE_CUH
#define PESC_BENCH_ATTENTION_NAIVE_CUH

#include "backend/cuda/attention.cuh"

typedef struct naive {
    attn_args a;
    const void *k, *v, *dout; /* k, v: all keys and values of all sequences */
    const int *flat_at;
    bool kv_bf16;
    double *out, *lse, *delta, *dq, *dk, *dv;
} naive;

__device__ static double dot(const void *x, int64_t i, bool xb, const void *y, int64_t j, bool yb,
                             int n)
{
    double s = 0;
    for (int c = 0; c < n; c++)
        s += (double)attn_load(x, i * n + c, xb) * attn_load(y, j * n + c, yb);
    return s;
}

__global__ void naive_fwd(naive w)
{
    const attn_args &a = w.a;
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (int64_t)a.n_tokens * a.n_heads)
        return;
    int t = (int)(index / a.n_heads), h = (int)(index % a.n_heads), seq = 0;
    while (a.starts[seq + 1] <= t)
        seq++;
    int n = w.flat_at[seq + 1] - w.flat_at[seq];
    int last = n - (a.starts[seq + 1] - t), low = a.window > 0 ? max(0, last - a.window + 1) : 0;
    double top = -INFINITY, sum = 0;
    for (int j = low; j <= last; j++)
        top = fmax(top, a.scale * dot(a.q, index, a.q_bf16, w.k,
                                      (int64_t)(w.flat_at[seq] + j) * a.n_kv_heads + h / a.group,
                                      w.kv_bf16, a.qk_dim));
    for (int c = 0; c < a.v_dim; c++)
        w.out[index * a.v_dim + c] = 0;
    for (int j = low; j <= last; j++) {
        int64_t at = (int64_t)(w.flat_at[seq] + j) * a.n_kv_heads + h / a.group;
        double e = exp(a.scale * dot(a.q, index, a.q_bf16, w.k, at, w.kv_bf16, a.qk_dim) - top);
        sum += e;
        for (int c = 0; c < a.v_dim; c++)
            w.out[index * a.v_dim + c] += e * attn_load(w.v, at * a.v_dim + c, w.kv_bf16);
    }
    double delta = 0;
    for (int c = 0; c < a.v_dim; c++) {
        w.out[index * a.v_dim + c] /= sum;
        if (w.dout)
            delta += w.out[index * a.v_dim + c] * attn_load(w.dout, index * a.v_dim + c, a.q_bf16);
    }
    w.lse[index] = top + log(sum);
    w.delta[index] = delta;
}

__global__ void naive_dq(naive w)
{
    const attn_args &a = w.a;
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (int64_t)a.n_tokens * a.n_heads)
        return;
    int t = (int)(index / a.n_heads), h = (int)(index % a.n_heads), seq = 0;
    while (a.starts[seq + 1] <= t)
        seq++;
    int low = a.window > 0 ? max(a.starts[seq], t - a.window + 1) : a.starts[seq];
    for (int c = 0; c < a.qk_dim; c++)
        w.dq[index * a.qk_dim + c] = 0;
    for (int u = low; u <= t; u++) {
        int64_t at = (int64_t)u * a.n_kv_heads + h / a.group;
        double p =
            exp(a.scale * dot(a.q, index, a.q_bf16, w.k, at, w.kv_bf16, a.qk_dim) - w.lse[index]);
        double ds = p * a.scale *
                    (dot(w.dout, index, a.q_bf16, w.v, at, w.kv_bf16, a.v_dim) - w.delta[index]);
        for (int c = 0; c < a.qk_dim; c++)
            w.dq[index * a.qk_dim + c] += ds * attn_load(w.k, at * a.qk_dim + c, w.kv_bf16);
    }
}

__global__ void naive_dkv(naive w)
{
    const attn_args &a = w.a;
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (int64_t)a.n_tokens * a.n_kv_heads)
        return;
    int u = (int)(index / a.n_kv_heads), kvh = (int)(index % a.n_kv_heads), seq = 0;
    while (a.starts[seq + 1] <= u)
        seq++;
    int end = a.window > 0 ? (int)min((int64_t)a.starts[seq + 1], (int64_t)u + a.window)
                           : a.starts[seq + 1];
    for (int c = 0; c < a.qk_dim; c++)
        w.dk[index * a.qk_dim + c] = 0;
    for (int c = 0; c < a.v_dim; c++)
        w.dv[index * a.v_dim + c] = 0;
    for (int t = u; t < end; t++)
        for (int h = kvh * a.group; h < (kvh + 1) * a.group; h++) {
            int64_t at = (int64_t)t * a.n_heads + h;
            double p =
                exp(a.scale * dot(a.q, at, a.q_bf16, w.k, index, w.kv_bf16, a.qk_dim) - w.lse[at]);
            double ds = p * a.scale *
                        (dot(w.dout, at, a.q_bf16, w.v, index, w.kv_bf16, a.v_dim) - w.delta[at]);
            for (int c = 0; c < a.qk_dim; c++)
                w.dk[index * a.qk_dim + c] += ds * attn_load(a.q, at * a.qk_dim + c, a.q_bf16);
            for (int c = 0; c < a.v_dim; c++)
                w.dv[index * a.v_dim + c] += p * attn_load(w.dout, at * a.v_dim + c, a.q_bf16);
        }
}

#endif
