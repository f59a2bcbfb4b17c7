/* attention_cuda: errors and rates of the attention kernels.
 *
 * errors: many shapes against a naive reference in double precision on the GPU, as |got - want| /
 * |want| over all elements; every shape is repeated and must give the same bits. Outputs are filled
 * with NaN before each run. rates: TFLOP/s, where causal FLOPs are counted once and backward counts
 * as 2.5 times forward. decode: bytes of keys and values over time.
 *   attention_cuda errors|run|rates|decode [80|90]
 * 80 restricts it to the kernels without Hopper's instructions. */
#include "attention_naive.cuh"
#include "backend/cuda/attention.cuh"
#include "study.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void check(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) {
        printf("FAILED %s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}

static std::vector<void *> owned;

static tensor make(dtype dt, int64_t rows, int64_t cols)
{
    tensor t = { NULL, dt, 2, { rows, cols } };
    size_t bytes = (size_t)(rows * cols) * (dt == DT_BF16 ? 2 : 4);
    check(cudaMalloc(&t.data, bytes + 16), "cudaMalloc");
    check(cudaMemset(t.data, 0xff, bytes), "cudaMemset");
    owned.push_back(t.data);
    return t;
}

static void release(void)
{
    for (void *p : owned)
        cudaFree(p);
    owned.clear();
}

static tensor make_ints(const std::vector<int32_t> &x, int32_t nd, int64_t n0, int64_t n1)
{
    tensor t = make(DT_I32, 1, (int64_t)x.size());
    cudaMemcpy(t.data, x.data(), x.size() * 4, cudaMemcpyHostToDevice);
    t.nd = nd;
    t.ne[0] = n0;
    t.ne[1] = n1;
    return t;
}

__device__ static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

__global__ void fill_normal(void *x, int64_t n, bool is_bf16, uint32_t seed)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t a = mix((uint32_t)i * 2u + seed * 0x9e3779b9u), b = mix(a ^ 0x5bd1e995u);
    float u = ((float)(a >> 8) + 1.0f) / 16777217.0f, v = (float)(b >> 8) / 16777216.0f;
    attn_store(x, i, is_bf16, sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
}

static void fill(tensor t, uint32_t seed)
{
    int64_t n = t.ne[0] * t.ne[1];
    fill_normal<<<(unsigned)((n + 255) / 256), 256>>>(t.data, n, t.dt == DT_BF16, seed);
}

/* ---- problems ---- */

typedef struct shape {
    dtype act, cache;
    int heads, kv, dk, dv, window, page;
    std::vector<int> len, past;
} shape;

typedef struct problem {
    attention a;
    attention_bwd b;
    kv_pages pages;
    tensor flat_k, flat_v, flat_at; /* all keys of all sequences; where each sequence begins */
    double *out, *lse, *delta, *dq, *dk, *dv;
} problem;

typedef struct key_copy {
    const void *flat; /* [all keys, width], of the cache's type */
    const int *flat_at;
    void *pages, *rows; /* pages of the cache; rows of the pass [T, width] */
    int width;
    bool cache_bf16, act_bf16;
} key_copy;

/* Copies flat keys to the pages (past ones) or to the rows of the pass (new ones). */
__global__ void copy_keys(attn_args a, key_copy c)
{
    int seq = blockIdx.y, j = blockIdx.x, n = c.flat_at[seq + 1] - c.flat_at[seq];
    if (j >= n)
        return;
    int fresh = a.starts[seq + 1] - a.starts[seq], past = n - fresh;
    for (int i = threadIdx.x; i < c.width; i += blockDim.x) {
        float x = attn_load(c.flat, (int64_t)(c.flat_at[seq] + j) * c.width + i, c.cache_bf16);
        if (j < past)
            attn_store(c.pages, attn_keys_of(a, seq, 0).row(j) * c.width + i, c.cache_bf16, x);
        else
            attn_store(c.rows, (int64_t)(a.starts[seq] + j - past) * c.width + i, c.act_bf16, x);
    }
}

/* Where the rows of the pass and the flat keys of each sequence begin. */
typedef struct rows_plan {
    std::vector<int32_t> starts = { 0 }, pos, flat_at = { 0 };
    int rows = 0, most = 0; /* rows of the pass; keys of the longest sequence */
} rows_plan;

static rows_plan plan_rows(const shape &s)
{
    rows_plan r;
    for (size_t i = 0; i < s.len.size(); i++) {
        int past = s.page ? s.past[i] : 0;
        for (int j = 0; j < s.len[i]; j++)
            r.pos.push_back(past + j);
        r.starts.push_back(r.rows += s.len[i]);
        r.flat_at.push_back(r.flat_at.back() + past + s.len[i]);
        r.most = std::max(r.most, past + s.len[i]);
    }
    return r;
}

static attention make_attention(const shape &s, const rows_plan &r)
{
    int n_seq = (int)s.len.size(), t = r.rows;
    attention a = {};
    a.q = make(s.act, t, s.heads * s.dk);
    a.k = make(s.act, t, s.kv * s.dk);
    a.v = make(s.act, t, s.kv * s.dv);
    a.out = make(s.act, t, s.heads * s.dv);
    a.lse = make(DT_F32, t, s.heads);
    a.starts = make_ints(r.starts, 1, n_seq + 1, 0);
    a.pos = make_ints(r.pos, 1, t, 0);
    a.n_heads = s.heads;
    a.n_kv_heads = s.kv;
    a.qk_dim = s.dk;
    a.v_dim = s.dv;
    a.window = s.window;
    a.scale = 1.0f / sqrtf((float)s.dk);
    fill(a.q, 1);
    return a;
}

/* Pages of the cache; those of a sequence are in reverse order and interleaved with the others'. */
static void make_pages(problem *p, const shape &s, int most)
{
    int n_seq = (int)s.len.size(), max_pages = (most + s.page - 1) / s.page + 1,
        n_pages = n_seq * max_pages;
    std::vector<int32_t> table;
    for (int i = 0; i < n_seq; i++)
        for (int g = 0; g < max_pages; g++)
            table.push_back((max_pages - 1 - g) * n_seq + i);
    p->pages.k = make(s.cache, (int64_t)n_pages * s.page, s.kv * s.dk);
    p->pages.v = make(s.cache, (int64_t)n_pages * s.page, s.kv * s.dv);
    p->pages.k.nd = p->pages.v.nd = 3;
    p->pages.k.ne[0] = p->pages.v.ne[0] = n_pages;
    p->pages.k.ne[1] = p->pages.v.ne[1] = s.page;
    p->pages.k.ne[2] = s.kv * s.dk;
    p->pages.v.ne[2] = s.kv * s.dv;
    p->pages.table = make_ints(table, 2, n_seq, max_pages);
    p->a.kv = &p->pages;
}

static void make_backward(problem *p, const shape &s, int t)
{
    p->b.fwd = p->a;
    p->b.dout = make(s.act, t, s.heads * s.dv);
    p->b.dq = make(s.act, t, s.heads * s.dk);
    p->b.dk = make(s.act, t, s.kv * s.dk);
    p->b.dv = make(s.act, t, s.kv * s.dv);
    p->b.delta = make(DT_F32, t, s.heads);
    fill(p->b.dout, 4);
}

static problem *set_up(const shape &s)
{
    problem *p = new problem();
    rows_plan r = plan_rows(s);
    int n_seq = (int)s.len.size();
    attention *a = &p->a;
    *a = make_attention(s, r);
    dtype store = s.page ? s.cache : s.act;
    p->flat_k = make(store, r.flat_at.back(), s.kv * s.dk);
    p->flat_v = make(store, r.flat_at.back(), s.kv * s.dv);
    p->flat_at = make_ints(r.flat_at, 1, n_seq + 1, 0);
    fill(p->flat_k, 2);
    fill(p->flat_v, 3);
    if (s.page)
        make_pages(p, s, r.most);
    attn_args args = attn_args_of(a);
    dim3 grid((unsigned)r.most, (unsigned)n_seq);
    key_copy k = { p->flat_k.data, (int *)p->flat_at.data, p->pages.k.data, a->k.data,
                   s.kv * s.dk,    store == DT_BF16,       s.act == DT_BF16 },
             v = { p->flat_v.data, (int *)p->flat_at.data, p->pages.v.data, a->v.data,
                   s.kv * s.dv,    store == DT_BF16,       s.act == DT_BF16 };
    copy_keys<<<grid, 128>>>(args, k);
    copy_keys<<<grid, 128>>>(args, v);
    if (!s.page)
        make_backward(p, s, r.rows);
    check(cudaDeviceSynchronize(), "set up");
    return p;
}

/* ---- the reference ---- */

static double *doubles(int64_t n)
{
    void *p;
    check(cudaMalloc(&p, (size_t)n * 8), "cudaMalloc");
    owned.push_back(p);
    return (double *)p;
}

static naive reference(problem *p)
{
    attn_args a = attn_args_of(&p->a);
    int64_t rows = (int64_t)a.n_tokens * a.n_heads, keys = (int64_t)a.n_tokens * a.n_kv_heads;
    naive w = { a,
                p->flat_k.data,
                p->flat_v.data,
                p->b.dout.data,
                (int *)p->flat_at.data,
                p->flat_k.dt == DT_BF16 };
    w.out = doubles(rows * a.v_dim);
    w.lse = doubles(rows);
    w.delta = doubles(rows);
    naive_fwd<<<(unsigned)((rows + 63) / 64), 64>>>(w);
    if (w.dout) {
        w.dq = doubles(rows * a.qk_dim);
        w.dk = doubles(keys * a.qk_dim);
        w.dv = doubles(keys * a.v_dim);
        naive_dq<<<(unsigned)((rows + 63) / 64), 64>>>(w);
        naive_dkv<<<(unsigned)((keys + 63) / 64), 64>>>(w);
    }
    check(cudaDeviceSynchronize(), "reference");
    return w;
}

/* ---- errors ---- */

static std::vector<unsigned char> download(tensor t)
{
    std::vector<unsigned char> x((size_t)(t.ne[0] * t.ne[1]) * (t.dt == DT_BF16 ? 2 : 4));
    cudaMemcpy(x.data(), t.data, x.size(), cudaMemcpyDeviceToHost);
    return x;
}

static double error_of(tensor t, const double *want)
{
    std::vector<unsigned char> got = download(t);
    size_t n = (size_t)(t.ne[0] * t.ne[1]);
    std::vector<double> ref(n);
    cudaMemcpy(ref.data(), want, n * 8, cudaMemcpyDeviceToHost);
    double diff = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        float x;
        if (t.dt == DT_BF16) {
            uint32_t u = (uint32_t)((uint16_t *)got.data())[i] << 16;
            memcpy(&x, &u, 4);
        } else {
            x = ((float *)got.data())[i];
        }
        diff += (x - ref[i]) * (x - ref[i]);
        norm += ref[i] * ref[i];
    }
    return sqrt(diff / (norm + 0.1 * (double)n)); /* gradients of a single key are 0 */
}

static void fill_nan(cuda_device *c, tensor t)
{
    cudaMemsetAsync(t.data, 0xff, (size_t)(t.ne[0] * t.ne[1]) * (t.dt == DT_BF16 ? 2 : 4),
                    c->stream);
}

static void run_all(cuda_device *c, problem *p)
{
    fill_nan(c, p->a.out);
    fill_nan(c, p->a.lse);
    cuda_attention_fwd(&c->base, &p->a);
    if (!p->a.kv) {
        fill_nan(c, p->b.dq);
        fill_nan(c, p->b.dk);
        fill_nan(c, p->b.dv);
        cuda_attention_bwd(&c->base, &p->b);
    }
    cudaError_t e = cudaStreamSynchronize(c->stream);
    check(e, "run");
}

static bool errors(cuda_device *c, const shape &s, const char *name)
{
    problem *p = set_up(s);
    naive w = reference(p);
    run_all(c, p);
    std::vector<tensor> t = { p->a.out, p->a.lse };
    std::vector<const double *> want = { w.out, w.lse };
    if (!p->a.kv) {
        t.insert(t.end(), { p->b.dq, p->b.dk, p->b.dv });
        want.insert(want.end(), { w.dq, w.dk, w.dv });
    }
    std::vector<std::vector<unsigned char>> first;
    double limit = s.act == DT_BF16 ? 8e-3 : 2e-6, worst = 0;
    printf("%-34s %-5s", name, s.act == DT_BF16 ? "bf16" : "f32");
    for (size_t i = 0; i < t.size(); i++) {
        double e = error_of(t[i], want[i]);
        worst = e > worst || e != e ? e : worst;
        printf(" %8.1e", e);
        first.push_back(download(t[i]));
    }
    bool equal = true;
    for (int again = 0; again < 3; again++) {
        run_all(c, p);
        for (size_t i = 0; i < t.size(); i++)
            equal = equal && download(t[i]) == first[i];
    }
    bool ok = worst <= limit && equal && study_failures == 0;
    printf("  %s%s\n", ok ? "ok" : "WRONG", equal ? "" : " (repeats differ)");
    fflush(stdout);
    release();
    delete p;
    return ok;
}

static std::string name_of(const shape &s)
{
    char x[96];
    int t = 0;
    for (int n : s.len)
        t += n;
    snprintf(x, sizeof x, "%dx T%d %d/%d %d/%d%s%s%s", (int)s.len.size(), t, s.heads, s.kv, s.dk,
             s.dv, s.window ? " w" : "", s.page ? " pages" : "",
             s.page && s.cache == DT_BF16 && s.act == DT_F32 ? " bf16" : "");
    return x;
}

static std::vector<shape> all_shapes(void)
{
    std::vector<shape> shapes;
    const int dims[][2] = { { 64, 64 }, { 80, 80 }, { 96, 96 }, { 128, 128 }, { 192, 128 } };
    for (dtype act : { DT_BF16, DT_F32 })
        for (auto d : dims) {
            shapes.push_back({ act, act, 2, 2, d[0], d[1], 0, 0, { 1 }, {} });
            shapes.push_back({ act, act, 2, 1, d[0], d[1], 0, 0, { 300 }, {} });
            shapes.push_back({ act, act, 9, 3, d[0], d[1], 0, 0, { 1, 65, 0, 130, 257, 4 }, {} });
            shapes.push_back({ act, act, 4, 2, d[0], d[1], 100, 0, { 500, 37, 129 }, {} });
            shapes.push_back({ act, act, 3, 3, d[0], d[1], 7, 0, { 200 }, {} });
            shapes.push_back({ act, act, 9, 3, d[0], d[1], 0, 64, { 1, 22, 1 }, { 1000, 100, 0 } });
            shapes.push_back(
                { act, act, 4, 4, d[0], d[1], 300, 16, { 1, 200, 1, 5 }, { 999, 450, 77, 64 } });
        }
    for (dtype act : { DT_BF16, DT_F32 }) {
        shapes.push_back({ act, act, 4, 2, 20, 36, 0, 0, { 1, 65, 130, 4 }, {} });
        shapes.push_back({ act, act, 4, 1, 8, 8, 5, 0, { 90, 33 }, {} });
        shapes.push_back({ act, act, 2, 1, 1, 1, 0, 0, { 10 }, {} });
        shapes.push_back({ act, act, 4, 2, 12, 20, 90, 7, { 1, 20, 3 }, { 250, 100, 0 } });
    }
    shapes.push_back({ DT_F32, DT_BF16, 4, 2, 128, 128, 0, 64, { 1, 20 }, { 250, 100 } });
    shapes.push_back({ DT_BF16, DT_BF16, 56, 8, 128, 128, 0, 0, { 300, 324 }, {} });
    shapes.push_back({ DT_BF16, DT_BF16, 32, 32, 128, 128, 0, 0, { 500, 400 }, {} });
    shapes.push_back({ DT_BF16, DT_BF16, 4, 4, 64, 64, 0, 0, std::vector<int>(70, 17), {} });
    shapes.push_back({ DT_BF16, DT_BF16, 56, 8, 128, 128, 0, 64, { 1, 1, 1 }, { 3000, 17, 640 } });
    shapes.push_back({ DT_BF16, DT_BF16, 40, 2, 64, 64, 0, 64, { 1, 1 }, { 3000, 17 } });
    for (dtype act : { DT_BF16, DT_F32 }) /* past 4096 keys, one row and several */
        shapes.push_back({ act, act, 8, 2, 128, 128, 0, 64, { 1, 1, 40 }, { 9000, 4096, 5000 } });
    shapes.push_back({ DT_BF16, DT_BF16, 4, 2, 64, 64, 0, 64, { 0, 3, 0, 1 }, { 0, 126, 0, 200 } });
    return shapes;
}

static int all_errors(cuda_device *c)
{
    std::vector<shape> shapes = all_shapes();
    printf("%-34s %-5s %8s %8s %8s %8s %8s\n", "errors", "", "out", "lse", "dq", "dk", "dv");
    int bad = 0;
    for (const shape &s : shapes)
        bad += !errors(c, s, name_of(s).c_str());
    printf("errors: %d of %d wrong (cc %d)\n", bad, (int)shapes.size(), c->cc);
    return bad;
}

/* Every shape once, without a reference: for compute-sanitizer. */
static void run_shapes(cuda_device *c)
{
    for (const shape &s : all_shapes()) {
        problem *p = set_up(s);
        run_all(c, p);
        release();
        delete p;
    }
}

/* ---- rates ---- */

enum { CALLS = 8 }; /* in a row, so that launch latency is hidden, as in a training step */

template <typename F> static double median_ms(cuda_device *c, F work)
{
    std::vector<float> times;
    cudaEvent_t a, b;
    cudaEventCreate(&a);
    cudaEventCreate(&b);
    for (int i = 0; i < 15; i++) {
        cudaEventRecord(a, c->stream);
        for (int j = 0; j < CALLS; j++)
            work();
        cudaEventRecord(b, c->stream);
        check(cudaEventSynchronize(b), "timing");
        float ms;
        cudaEventElapsedTime(&ms, a, b);
        if (i >= 3)
            times.push_back(ms / CALLS);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

typedef struct batch {
    int n_seq, len, heads, kv, dk, dv, window;
} batch;

static void rate(cuda_device *c, const batch &b)
{
    shape s = { DT_BF16, DT_BF16, b.heads, b.kv, b.dk, b.dv, b.window, 0, {}, {} };
    s.len.assign((size_t)b.n_seq, b.len);
    problem *p = set_up(s);
    double pairs = 0.5 * b.len * b.len * b.n_seq;
    if (b.window)
        pairs = ((double)b.len * b.window - 0.5 * b.window * b.window) * b.n_seq;
    double flops = 2.0 * pairs * (b.dk + b.dv) * b.heads;
    double fwd = median_ms(c, [&] { cuda_attention_fwd(&c->base, &p->a); });
    double bwd = median_ms(c, [&] { cuda_attention_bwd(&c->base, &p->b); });
    printf(
        "cc %d  %2d x %5d  %2d/%-2d  %3d/%-3d w %-5d fwd %8.3f ms %6.1f TF/s   bwd %8.3f ms %6.1f "
        "TF/s\n",
        c->cc, b.n_seq, b.len, b.heads, b.kv, b.dk, b.dv, b.window, fwd, flops / fwd * 1e-9, bwd,
        2.5 * flops / bwd * 1e-9);
    fflush(stdout);
    release();
    delete p;
}

static void all_rates(cuda_device *c)
{
    static const batch batches[] = {
        { 4, 2048, 32, 32, 128, 128, 0 },   { 1, 8192, 32, 32, 128, 128, 0 },
        { 4, 2048, 56, 8, 128, 128, 0 },    { 16, 512, 32, 32, 128, 128, 0 },
        { 8, 2048, 9, 3, 64, 64, 0 },       { 4, 2048, 32, 32, 80, 80, 0 },
        { 4, 2048, 32, 32, 96, 96, 0 },     { 4, 2048, 16, 16, 192, 128, 0 },
        { 2, 8192, 32, 8, 128, 128, 1024 },
    };
    for (const batch &b : batches)
        rate(c, b);
}

enum { LAYERS = 32 }; /* calls in one CUDA graph, as in decoding */

static void decode_rate(cuda_device *c, int n_seq, int past, int heads, int kv, int dim)
{
    problem *p =
        set_up({ DT_BF16, DT_BF16, heads, kv, dim, dim, 0, 64, std::vector<int>((size_t)n_seq, 1),
                 std::vector<int>((size_t)n_seq, past) });
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_attention_fwd(&c->base, &p->a);
    check(cudaStreamSynchronize(c->stream), "first");
    check(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAYERS; i++)
        cuda_attention_fwd(&c->base, &p->a);
    check(cudaStreamEndCapture(c->stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    double ms = median_ms(c, [&] { cudaGraphLaunch(exec, c->stream); }) / LAYERS;
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    double bytes = (double)n_seq * past * kv * dim * 2 * 2;
    printf("decode %2d x %5d keys  %2d/%-2d  %3d   %8.4f ms  %7.1f GB/s\n", n_seq, past, heads, kv,
           dim, ms, bytes / ms * 1e-6);
    fflush(stdout);
    release();
    delete p;
}

static void all_decodes(cuda_device *c)
{
    decode_rate(c, 1, 512, 32, 32, 128);
    decode_rate(c, 1, 2048, 32, 32, 128);
    decode_rate(c, 1, 16384, 32, 32, 128);
    decode_rate(c, 64, 1024, 32, 32, 128);
    decode_rate(c, 64, 4096, 56, 8, 128);
    decode_rate(c, 64, 1024, 9, 3, 64);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "errors";
    cuda_device c = {};
    if (!study_open(&c))
        return 1;
    c.cc = argc > 2 ? std::stoi(argv[2]) : c.cc;
    int bad = 0;
    if (!strcmp(what, "errors"))
        bad = all_errors(&c);
    else if (!strcmp(what, "run"))
        run_shapes(&c);
    else if (!strcmp(what, "rates"))
        all_rates(&c);
    else
        all_decodes(&c);
    return bad != 0 || study_failures != 0;
}
