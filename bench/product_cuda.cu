/* bench/product_cuda: gemm_wgmma, large products that are sums of several terms: errors, equal bits
 * when repeated, and times beside cuBLASLt in alternating rounds. thin: the narrow products of LoRA
 * by cuBLASLt, beside the time of reading the wide matrix once at 4.26 TB/s. power: power and clock
 * during long runs.
 *   product_cuda [check|time|thin|power] */
#include "backend/cuda/gemm_wgmma.cuh"
#include "study.cuh"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <algorithm>
#include <dlfcn.h>
#include <functional>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <string>
#include <vector>

typedef __nv_bfloat16 bf16;

static __global__ void fill_kernel(void *out, bool f32, int64_t n, uint32_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        if (f32)
            ((float *)out)[i] = study_noise(i, seed);
        else
            ((bf16 *)out)[i] = __float2bfloat16(study_noise(i, seed));
}

static void *numbers(int64_t n, uint32_t seed, bool f32 = false)
{
    void *p = NULL;
    if (cudaMalloc(&p, (size_t)n * (f32 ? 4 : 2)) != cudaSuccess) {
        printf("no memory\n");
        return NULL;
    }
    fill_kernel<<<1024, 256>>>(p, f32, n, seed);
    return p;
}

/* ---- check ---- */

static __global__ void reference_kernel(const gemm_problem p, double *ref, const bf16 *old)
{
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= p.m * p.n)
        return;
    int64_t row = at / p.n, col = at % p.n;
    double sum = 0;
    for (int t = 0; t < p.n_terms; t++) {
        const bf16 *a = (const bf16 *)p.term[t].a, *b = (const bf16 *)p.term[t].b;
        int64_t k = p.term[t].k;
        for (int64_t i = 0; i < k; i++)
            sum += (double)__bfloat162float(a[row * k + i]) *
                   (double)__bfloat162float(p.layout == MM_NT ? b[col * k + i] : b[i * p.n + col]);
    }
    ref[at] = sum + (p.accumulate ? (double)__bfloat162float(old[at]) : 0);
}

static int wrong;

/* The sums in double precision. `start` is what the output holds before. */
static std::vector<double> reference(const gemm_problem &p, const void *start)
{
    int64_t n = p.m * p.n;
    double *ref = NULL;
    cudaMalloc((void **)&ref, (size_t)n * 8);
    reference_kernel<<<(unsigned)((n + 255) / 256), 256>>>(p, ref, (const bf16 *)start);
    std::vector<double> want((size_t)n);
    cudaMemcpy(want.data(), ref, (size_t)n * 8, cudaMemcpyDeviceToHost);
    cudaFree(ref);
    return want;
}

/* The largest error, relative to |want| plus its root mean square; 3e9 for a NaN. */
static double largest_error(const std::vector<uint16_t> &got, const std::vector<double> &want)
{
    double square = 0, most = 0;
    for (double x : want)
        square += x * x;
    double rms = sqrt(square / (double)want.size());
    for (size_t i = 0; i < want.size(); i++) {
        uint32_t bits = (uint32_t)got[i] << 16;
        float f;
        memcpy(&f, &bits, 4);
        double off = fabs(f - want[i]) / (fabs(want[i]) + rms);
        if (!(off <= most))
            most = isnan(off) ? 3e9 : off;
    }
    return most;
}

/* Against the reference; run twice it must give the same bits, and write nothing after its
 * output. */
static void check_case(cuda_device *d, gemm_problem p, std::vector<int64_t> ks)
{
    enum { GUARD = 4096 };
    p.n_terms = (int)ks.size();
    for (int i = 0; i < p.n_terms; i++)
        p.term[i] = { numbers(p.m * ks[i], 10 + i), numbers(p.n * ks[i], 20 + i), ks[i], ks[i],
                      p.layout == MM_NT ? ks[i] : p.n };
    p.ld = p.n;
    int64_t n = p.m * p.n;
    size_t bytes = (size_t)n * 2 + GUARD;
    std::vector<uint16_t> old(bytes / 2, 0xFFFF), got[2];
    void *start = numbers(n, 3), *out = NULL;
    if (p.accumulate)
        cudaMemcpy(old.data(), start, (size_t)n * 2, cudaMemcpyDeviceToHost);
    std::vector<double> want = reference(p, start);
    cudaMalloc(&out, bytes);
    p.out = out;
    for (auto &g : got) {
        cudaMemcpy(out, old.data(), bytes, cudaMemcpyHostToDevice);
        gemm_wgmma(d, p);
        cudaError_t e = cudaDeviceSynchronize();
        if (e != cudaSuccess)
            cuda_fail(d, e, "running");
        g.resize(bytes / 2);
        cudaMemcpy(g.data(), out, bytes, cudaMemcpyDeviceToHost);
    }
    double most = largest_error(got[0], want);
    if (got[0] != got[1])
        most = 1e9;
    if (memcmp(got[0].data() + n, old.data() + n, GUARD) != 0)
        most = 2e9;
    wrong += most > 8e-3;
    printf("%s m %lld n %lld k", p.layout == MM_NT ? "NT" : "NN", (long long)p.m, (long long)p.n);
    for (int64_t k : ks)
        printf(" %lld", (long long)k);
    printf("%s: %.1e%s\n", p.accumulate ? " added" : "", most, most > 8e-3 ? " WRONG" : "");
    for (int i = 0; i < p.n_terms; i++) {
        cudaFree((void *)p.term[i].a);
        cudaFree((void *)p.term[i].b);
    }
    cudaFree(out);
    cudaFree(start);
}

static void check(cuda_device *d)
{
    for (int layout = MM_NT; layout <= MM_NN; layout++)
        for (int added = 0; added < 2; added++) {
            gemm_problem p = {};
            p.layout = (mm_layout)layout;
            p.accumulate = added;
            p.m = 512, p.n = 512;
            check_case(d, p, { 256 });
            p.m = 300, p.n = 520;
            check_case(d, p, { 1000, 64 });
            p.m = 129, p.n = 72;
            check_case(d, p, { 200, 8, 320 });
            p.m = 8192, p.n = 1024;
            check_case(d, p, { 512, 64 });
            if (study_failures != 0)
                return;
        }
    printf("%d wrong\n", wrong);
}

/* ---- cuBLASLt ---- */

static cublasLtHandle_t lt;
static void *workspace;
enum { WORKSPACE = 64 << 20 };

/* out [m,n] = op(a) op(b) in row-major terms, with the algorithms that cuBLASLt proposes. */
struct lt_product {
    mm_layout layout;
    int64_t m, n, k;
    bool f32_out, add;
    void *out;
    const void *a, *b;
    int64_t ld_a, ld_b, ld_out; /* 0: whole */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lo;
    std::vector<cublasLtMatmulHeuristicResult_t> found;
};

static void prepare(lt_product *p, int most)
{
    static const cublasOperation_t T = CUBLAS_OP_T, N = CUBLAS_OP_N;
    static const cublasOperation_t op[3][2] = { { T, N }, { N, N }, { N, T } };
    bool a_t = p->layout == MM_TN, b_t = p->layout == MM_NT;
    cudaDataType_t out = p->f32_out ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op[p->layout][0],
                                   sizeof T);
    cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op[p->layout][1],
                                   sizeof T);
    int64_t br = b_t ? p->k : p->n, bc = b_t ? p->n : p->k;
    int64_t ar = a_t ? p->m : p->k, ac = a_t ? p->k : p->m;
    cublasLtMatrixLayoutCreate(&p->lb, CUDA_R_16BF, br, bc, p->ld_b ? p->ld_b : br);
    cublasLtMatrixLayoutCreate(&p->la, CUDA_R_16BF, ar, ac, p->ld_a ? p->ld_a : ar);
    cublasLtMatrixLayoutCreate(&p->lo, out, p->n, p->m, p->ld_out ? p->ld_out : p->n);
    cublasLtMatmulPreference_t want;
    cublasLtMatmulPreferenceCreate(&want);
    size_t bytes = WORKSPACE;
    cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof bytes);
    p->found.resize(most);
    int n = 0;
    cublasLtMatmulAlgoGetHeuristic(lt, p->desc, p->lb, p->la, p->lo, p->lo, want, most,
                                   p->found.data(), &n);
    p->found.resize(n);
}

static void multiply(cuda_device *d, lt_product *p, size_t which)
{
    float one = 1, beta = p->add;
    cublasStatus_t s =
        cublasLtMatmul(lt, p->desc, &one, p->b, p->lb, p->a, p->la, &beta, p->out, p->lo, p->out,
                       p->lo, &p->found[which].algo, workspace, WORKSPACE, d->stream);
    if (s)
        printf("cuBLASLt: %s\n", cublasLtGetStatusString(s));
}

/* ---- times ---- */

struct entry {
    std::string name;
    std::function<void()> run;
    std::vector<float> ms;
    double median()
    {
        std::sort(ms.begin(), ms.end());
        return ms[ms.size() / 2];
    }
};

static void time_in_rounds(cuda_device *d, std::vector<entry> &all, int rounds, int repeat)
{
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    for (int r = -1; r < rounds; r++)
        for (entry &e : all) {
            float t;
            cudaEventRecord(from, d->stream);
            for (int i = 0; i < (r < 0 ? 2 : repeat); i++)
                e.run();
            cudaEventRecord(to, d->stream);
            cudaEventSynchronize(to);
            cudaEventElapsedTime(&t, from, to);
            if (r >= 0)
                e.ms.push_back(t / repeat);
        }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
}

static void time_case(cuda_device *d, mm_layout layout, int64_t m, int64_t n, int64_t k)
{
    void *out = numbers(m * n, 1), *a = numbers(m * k, 2), *b = numbers(n * k, 3);
    void *a2 = numbers(m * 64, 4), *b2 = numbers(n * 64, 5);
    lt_product lib = { layout, m, n, k, false, false, out, a, b }, add = lib, thin = lib;
    add.add = true;
    thin.a = a2;
    thin.b = b2;
    thin.k = 64;
    prepare(&lib, 1);
    prepare(&add, 1);
    prepare(&thin, 1);
    int64_t b_ld = layout == MM_NT ? k : n, b2_ld = layout == MM_NT ? 64 : n;
    gemm_problem p = { layout, out, m, n, n, 1, { { a, b, k, k, b_ld }, { a2, b2, 64, 64, b2_ld } },
                       false },
                 two = p, sum = p;
    two.n_terms = 2;
    sum.accumulate = true;
    std::vector<entry> all;
    all.push_back({ "cuBLASLt", [&] { multiply(d, &lib, 0); }, {} });
    all.push_back({ "cuBLASLt, added", [&] { multiply(d, &add, 0); }, {} });
    all.push_back(
        { "cuBLASLt, LoRA before", [&] { multiply(d, &thin, 0), multiply(d, &add, 0); }, {} });
    all.push_back({ "own", [&] { gemm_wgmma(d, p); }, {} });
    all.push_back({ "own, added", [&] { gemm_wgmma(d, sum); }, {} });
    all.push_back({ "own, LoRA with it", [&] { gemm_wgmma(d, two); }, {} });
    time_in_rounds(d, all, 5, 10);
    double flop = 2.0 * m * n * k, base = all[0].median();
    printf("%s [%lld,%lld] depth %lld\n", layout == MM_NT ? "NT" : "NN", (long long)m, (long long)n,
           (long long)k);
    for (entry &e : all)
        printf("   %7.1f us %5.0f TFLOP/s %5.1f %%  %s\n", e.median() * 1e3,
               flop * 1e-9 / e.median(), 100 * base / e.median(), e.name.c_str());
    for (void *x : { out, a, b, a2, b2 })
        cudaFree(x);
}

/* A narrow product of LoRA, which reads or writes one wide matrix. */
struct narrow {
    const char *what;
    mm_layout layout;
    int64_t m, n, k;
    bool grad;            /* added to f32 */
    int64_t ld_b, ld_out; /* 0: whole */
};

static void thin_case(cuda_device *d, const narrow &z)
{
    int64_t ld_b = z.ld_b ? z.ld_b : z.n, ld_out = z.ld_out ? z.ld_out : z.n;
    void *out = numbers(z.m * ld_out, 1, z.grad), *a = numbers(z.m * z.k, 2);
    void *b = numbers(ld_b * z.k, 3);
    lt_product p = { z.layout, z.m, z.n, z.k, z.grad, z.grad, out, a, b, 0, z.ld_b, z.ld_out };
    prepare(&p, 8);
    std::vector<entry> all;
    for (size_t i = 0; i < p.found.size(); i++)
        all.push_back({ "", [&, i] { multiply(d, &p, i); }, {} });
    time_in_rounds(d, all, 5, 10);
    double first = all[0].median(), best = first;
    for (entry &e : all)
        best = std::min(best, e.median());
    double bytes = 2.0 * (z.m + z.n) * z.k + (z.grad ? 8.0 : 2.0) * z.m * z.n;
    printf("%-24s %5.1f us, best of 8 proposals %5.1f, bound %5.1f\n", z.what, first * 1e3,
           best * 1e3, bytes / 4.26e6);
    for (void *x : { out, a, b })
        cudaFree(x);
}

static void time_thin(cuda_device *d)
{
    enum { T = 8192, C = 4096, F = 11008, R = 64 };
    static const narrow cases[] = {
        { "A x", MM_NT, T, R, C },
        { "A x, two at once", MM_NT, T, 2 * R, C },
        { "A x, three at once", MM_NT, T, 3 * R, C },
        { "A x of down", MM_NT, T, R, F },
        { "B^T dy", MM_NN, T, R, C },
        { "B^T dy, one of three", MM_NN, T, R, C, false, 0, 3 * R },
        { "B^T dy of gate, up", MM_NN, T, R, F, false, 0, 2 * R },
        { "dB", MM_TN, C, R, T, true },
        { "dB, one of three", MM_TN, C, R, T, true, 3 * R },
        { "dB of gate, up", MM_TN, F, R, T, true, 2 * R },
        { "dA", MM_TN, R, C, T, true },
        { "dA, two at once", MM_TN, 2 * R, C, T, true },
        { "dA, three at once", MM_TN, 3 * R, C, T, true },
        { "dA of down", MM_TN, R, F, T, true },
    };
    for (const narrow &z : cases)
        thin_case(d, z);
}

/* ---- power: NVML's readings of a long run ---- */

static struct {
    int (*init)(void);
    int (*handle)(unsigned, void **);
    int (*energy)(void *, unsigned long long *);
    int (*clock)(void *, int, unsigned *);
    void *gpu;
} nvml;

static bool nvml_open(void)
{
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!so)
        return false;
    *(void **)&nvml.init = dlsym(so, "nvmlInit_v2");
    *(void **)&nvml.handle = dlsym(so, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.energy = dlsym(so, "nvmlDeviceGetTotalEnergyConsumption");
    *(void **)&nvml.clock = dlsym(so, "nvmlDeviceGetClockInfo");
    return nvml.init && nvml.init() == 0 && nvml.handle(0, &nvml.gpu) == 0;
}

static void measure(cuda_device *d, const char *name, double flop, std::function<void()> run)
{
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    float ms = 0, total = 0;
    for (int i = 0; i < 20; i++)
        run();
    cudaStreamSynchronize(d->stream);
    unsigned long long before = 0, after = 0;
    unsigned clock = 0;
    nvml.energy(nvml.gpu, &before);
    int n = 0;
    while (total < 700) {
        cudaEventRecord(from, d->stream);
        for (int i = 0; i < 50; i++, n++)
            run();
        cudaEventRecord(to, d->stream);
        nvml.clock(nvml.gpu, 1, &clock);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&ms, from, to);
        total += ms;
    }
    nvml.energy(nvml.gpu, &after);
    double joule = (double)(after - before) * 1e-3;
    printf("   %-16s %7.1f us %5.0f TFLOP/s %5.0f W %4u MHz\n", name, 1e3 * total / n,
           flop * n * 1e-9 / total, joule * 1e3 / total, clock);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
}

static void power(cuda_device *d)
{
    if (!nvml_open()) {
        printf("no NVML\n");
        return;
    }
    int64_t m = 8192, n = 4096, k = 11008;
    void *out = numbers(m * k, 1), *a = numbers(m * k, 2), *b = numbers(n * k, 3);
    double flop = 2.0 * m * n * k;
    for (mm_layout layout : { MM_NT, MM_NN }) {
        lt_product lib = { layout, m, n, k, false, false, out, a, b };
        prepare(&lib, 1);
        gemm_problem p = { layout, out, m, n, n, 1, { { a, b, k, k, layout == MM_NT ? k : n } },
                           false };
        printf("%s\n", layout == MM_NT ? "NT" : "NN");
        for (int turn = 0; turn < 2; turn++) {
            measure(d, "cuBLASLt", flop, [&] { multiply(d, &lib, 0); });
            measure(d, "own", flop, [&] { gemm_wgmma(d, p); });
        }
    }
    measure(d, "copy of 90 MB", 0,
            [&] { cudaMemcpyAsync(out, a, m * k, cudaMemcpyDeviceToDevice, d->stream); });
    for (void *x : { out, a, b })
        cudaFree(x);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0); /* what is said before a hang is seen */
    const char *what = argc > 1 ? argv[1] : "all";
    bool all = strcmp(what, "all") == 0;
    cuda_device d = {};
    if (!study_open(&d))
        return 1;
    cublasLtCreate(&lt);
    cudaMalloc(&workspace, WORKSPACE);
    if (all || strcmp(what, "check") == 0)
        check(&d);
    if ((all || strcmp(what, "time") == 0) && study_failures == 0)
        for (mm_layout layout : { MM_NT, MM_NN }) {
            time_case(&d, layout, 8192, 4096, 4096);
            time_case(&d, layout, 8192, 11008, 4096);
            time_case(&d, layout, 8192, 4096, 11008);
        }
    if (all || strcmp(what, "thin") == 0)
        time_thin(&d);
    if (all || strcmp(what, "power") == 0)
        power(&d);
    return wrong > 0 || study_failures != 0;
}
