/* bench/grouped_cuda: grouped products of experts: errors, equal bits when repeated, and times.
 *
 * check: each kernel against a sum in double precision, over routings that are even, skewed or
 * leave experts without rows; run twice it must give the same bits and write nothing beside its
 * output. time: TFLOP/s (median of rounds) for adapters at the sizes of large models, beside the
 * dense product of the same size through cuBLAS in the same run; and microseconds for the few rows
 * of decoding, beside the time of reading the experts' weights at 4.26 TB/s. grouped_cuda
 * [check|time [op|grouped_gemv|grouped_wgmma|grouped_mma|grouped_plain]] */
#include "backend/cuda/grouped.cuh"
#include "study.cuh"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

extern "C" {
#include "tensor/nf4.h"
}

typedef __nv_bfloat16 bf16;

/* ---- numbers ---- */

static __global__ void fill_kernel(void *out, dtype dt, int64_t n, uint32_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        if (dt == DT_F32)
            ((float *)out)[i] = study_noise(i, seed);
        else
            ((bf16 *)out)[i] = __float2bfloat16(study_noise(i, seed));
}

static size_t size_of(dtype dt)
{
    return dt == DT_F32 ? 4 : 2;
}

static void *numbers(dtype dt, int64_t n, uint32_t seed)
{
    void *p = NULL;
    if (cudaMalloc(&p, (size_t)n * size_of(dt)) != cudaSuccess)
        return NULL;
    fill_kernel<<<1024, 256>>>(p, dt, n, seed);
    return p;
}

static __device__ double value(const void *x, dtype dt, int64_t i)
{
    return dt == DT_F32 ? ((const float *)x)[i] : __bfloat162float(((const bf16 *)x)[i]);
}

static int64_t span_bytes(const grouped_problem &p)
{
    int64_t n = (int64_t)p.o * p.i;
    return (int64_t)nf4_codes_bytes(n) + (n + NF4_BLOCK - 1) / NF4_BLOCK * 4;
}

/* Random codes, sensible scales. */
static void *spans(const grouped_problem &p)
{
    int64_t n = (int64_t)p.o * p.i, bytes = span_bytes(p);
    std::vector<unsigned char> host((size_t)(bytes * p.experts));
    for (size_t i = 0; i < host.size(); i++)
        host[i] = (unsigned char)(study_noise(i, 5) * 100.0f);
    for (int e = 0; e < p.experts; e++)
        for (int64_t b = 0; b < (n + NF4_BLOCK - 1) / NF4_BLOCK; b++)
            nf4_scales(host.data() + e * bytes, n)[b] = 0.25f + (float)((b + e) % 7) * 0.125f;
    void *device = NULL;
    cudaMalloc(&device, host.size());
    cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice);
    return device;
}

/* What the reference needs of a problem beside itself. */
struct about {
    int64_t span, codes;
    float code[16];
};

/* Element i of expert e's w. */
static __device__ double weight(const grouped_problem &p, const about &n, int e, int64_t i)
{
    if (p.b_dt != DT_NF4) {
        double x = value(p.b, p.b_dt, (int64_t)e * p.o * p.i + i);
        return p.a_dt == DT_BF16 ? __bfloat162float(__float2bfloat16_rn((float)x)) : x;
    }
    const unsigned char *span = (const unsigned char *)p.b + e * n.span;
    int code = i % 2 ? span[i / 2] & 15 : span[i / 2] >> 4;
    float x = n.code[code] * ((const float *)(span + n.codes))[i / NF4_BLOCK];
    return p.a_dt == DT_BF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}

/* One thread for each element of out; `old` is what out held before. */
static __global__ void reference_kernel(const grouped_problem p, const about w, double *ref,
                                        const void *old, int64_t n)
{
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= n)
        return;
    int width = p.layout == MM_NT ? p.o : p.i, row = (int)(at / width), col = (int)(at % width);
    double sum = 0;
    if (p.layout == MM_TN) {
        int e = row / p.o, o = row % p.o;
        for (int64_t r = p.offsets[e]; r < p.offsets[e + 1]; r++)
            sum += value(p.a, p.a_dt, r * p.o + o) * value(p.b, p.b_dt, r * p.i + col);
        ref[at] = value(old, p.out_dt, at) + p.scale * sum;
        return;
    }
    int e = 0, depth = p.layout == MM_NT ? p.i : p.o;
    while (row >= p.offsets[e + 1])
        e++;
    for (int64_t k = 0; k < depth; k++)
        sum += value(p.a, p.a_dt, (int64_t)row * depth + k) *
               weight(p, w, e, p.layout == MM_NT ? col * (int64_t)p.i + k : k * p.i + col);
    ref[at] = p.scale * sum;
}

/* ---- cases ---- */

enum { EVEN, SKEWED, ONE_HOT, HOLES, RANDOM };
static const char *const routing_name[] = { "even", "skewed 10:1", "one 10x", "holes", "random" };
static const char *const layout_name[] = { "NT", "NN", "TN" };

struct shape {
    int rows, d, inner, experts, routing;
};

/* Offsets: skewed falls evenly on a log scale from 10 to 1. */
static std::vector<int> offsets_of(const shape &s)
{
    std::vector<double> share(s.experts);
    for (int e = 0; e < s.experts; e++) {
        double x = s.experts > 1 ? (double)((e * 5 + 3) % s.experts) / (s.experts - 1) : 0;
        share[e] = s.routing == EVEN      ? 1
                   : s.routing == SKEWED  ? pow(10, x)
                   : s.routing == ONE_HOT ? (e == s.experts / 2 ? 10 : 1)
                   : s.routing == HOLES   ? (e % 3 == 1 ? 1 + e % 5 : 0)
                                          : 1 + 0.05 * study_noise(e, 77);
    }
    double all = 0, sum = 0;
    for (double x : share)
        all += x;
    std::vector<int> offsets(s.experts + 1);
    for (int e = 0; e <= s.experts; e++) {
        offsets[e] = all > 0 ? (int)(s.rows * (sum / all) + 0.5) : 0;
        sum += e < s.experts ? share[e] : 0;
    }
    offsets[s.experts] = s.rows;
    return offsets;
}

/* The op as the model calls it. */
static void run_op(cuda_device *d, const grouped_problem &p)
{
    bool tn = p.layout == MM_TN, nt = p.layout == MM_NT;
    tensor a = { (void *)p.a, p.a_dt, 2, { p.rows, nt ? p.i : p.o } };
    tensor b = { (void *)p.b, p.b_dt, 2, { p.rows, p.i } };
    tensor out = { p.out, p.out_dt, 2, { p.rows, nt ? p.o : p.i } };
    tensor &w = tn ? out : b;
    w = { w.data, w.dt, 3, { p.experts, p.o, p.i } };
    tensor offsets = { (void *)p.offsets, DT_I32, 1, { p.experts + 1 } };
    grouped_mm g = { p.layout, out, a, b, offsets, p.scale };
    cuda_grouped_matmul(&d->base, &g);
}

static const char *const paths[] = { "op", "grouped_plain", "grouped_mma", "grouped_wgmma",
                                     "grouped_gemv" };

/* The op, or the kernel with this name, if it serves the problem. */
static bool run_path(cuda_device *d, const char *name, const grouped_problem &p)
{
    if (strcmp(name, "op") == 0) {
        run_op(d, p);
        return true;
    }
    for (int i = 0; i < n_grouped_kernels; i++) {
        const grouped_kernel &k = grouped_kernels[i];
        if (strcmp(k.traits.name, name) == 0 && grouped_serves(k, d, p)) {
            k.launch(d, p);
            return true;
        }
    }
    return false;
}

static int *device_offsets(const shape &s)
{
    std::vector<int> host = offsets_of(s);
    int *p = NULL;
    cudaMalloc((void **)&p, host.size() * sizeof *p);
    cudaMemcpy(p, host.data(), host.size() * sizeof *p, cudaMemcpyHostToDevice);
    return p;
}

static int64_t out_count(const grouped_problem &p)
{
    return p.layout == MM_TN ? (int64_t)p.experts * p.o * p.i
                             : (int64_t)p.rows * (p.layout == MM_NT ? p.o : p.i);
}

static grouped_problem make(const shape &s, mm_layout layout, dtype in, dtype w, dtype out)
{
    grouped_problem p = {};
    p.layout = layout;
    p.a_dt = in;
    p.b_dt = w;
    p.out_dt = out;
    p.experts = s.experts;
    p.rows = s.rows;
    p.o = s.inner;
    p.i = s.d;
    p.scale = 0.75f;
    p.add = layout == MM_TN;
    int64_t a_cols = layout == MM_NT ? p.i : p.o;
    int64_t b_count = layout == MM_TN ? (int64_t)p.rows * p.i : (int64_t)p.experts * p.o * p.i;
    p.a = numbers(in, p.rows * a_cols, 1);
    p.b = w == DT_NF4 ? spans(p) : numbers(w, b_count, 2);
    p.offsets = device_offsets(s);
    return p;
}

static void drop(const grouped_problem &p)
{
    cudaFree((void *)p.a);
    cudaFree((void *)p.b);
    cudaFree((void *)p.offsets);
}

/* Runs a kernel on a fresh copy of `old` followed by a guard, and brings all of it back. */
static bool run_once(cuda_device *d, const char *path, grouped_problem p,
                     const std::vector<char> &old, std::vector<char> *got)
{
    got->resize(old.size());
    cudaMalloc(&p.out, old.size());
    cudaMemcpy(p.out, old.data(), old.size(), cudaMemcpyHostToDevice);
    bool taken = run_path(d, path, p);
    cudaError_t e = cudaDeviceSynchronize();
    if (e != cudaSuccess)
        cuda_fail(d, e, "running");
    cudaMemcpy(got->data(), p.out, old.size(), cudaMemcpyDeviceToHost);
    cudaFree(p.out);
    return taken;
}

static double host_value(const std::vector<char> &x, dtype dt, int64_t i)
{
    if (dt == DT_F32)
        return ((const float *)x.data())[i];
    uint32_t bits = (uint32_t)((const uint16_t *)x.data())[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The largest |got - ref| over |ref| + rms, a large number where bits differ or memory beside the
 * output is written, or -1 where the kernel does not serve the problem. */
static double worst(cuda_device *d, const char *path, const grouped_problem &p,
                    const std::vector<char> &old, const std::vector<double> &ref)
{
    std::vector<char> once, twice;
    if (!run_once(d, path, p, old, &once))
        return -1;
    run_once(d, path, p, old, &twice);
    if (once != twice)
        return 1e9;
    size_t used = ref.size() * size_of(p.out_dt);
    if (memcmp(once.data() + used, old.data() + used, old.size() - used) != 0)
        return 2e9;
    double square = 1e-30, most = 0;
    for (double x : ref)
        square += x * x;
    double rms = sqrt(square / (double)ref.size());
    for (size_t i = 0; i < ref.size(); i++) {
        double off = fabs(host_value(once, p.out_dt, (int64_t)i) - ref[i]) / (fabs(ref[i]) + rms);
        if (!(off <= most))
            most = isnan(off) ? 3e9 : off;
    }
    return most;
}

static int failures;
static const char *only; /* this kernel; NULL: all */

static bool wanted(const char *name)
{
    return !only || strcmp(only, name) == 0;
}

static void check_case(cuda_device *d, const shape &s, mm_layout layout, dtype in, dtype w,
                       dtype out)
{
    enum { GUARD = 4096 };
    grouped_problem p = make(s, layout, in, w, out);
    int64_t n = out_count(p);
    std::vector<char> old((size_t)n * size_of(out) + GUARD, (char)0xFF); /* NaN: must be written */
    void *start = numbers(out, n, 3);
    if (layout == MM_TN)
        cudaMemcpy(old.data(), start, (size_t)n * size_of(out), cudaMemcpyDeviceToHost);
    double *ref = NULL;
    cudaMalloc((void **)&ref, (size_t)n * sizeof *ref);
    about nf4 = { span_bytes(p), (int64_t)nf4_codes_bytes((int64_t)p.o * p.i), {} };
    memcpy(nf4.code, nf4_code, sizeof nf4.code);
    reference_kernel<<<(unsigned)((n + 255) / 256), 256>>>(p, nf4, ref, start, n);
    std::vector<double> expected((size_t)n);
    cudaMemcpy(expected.data(), ref, (size_t)n * sizeof *ref, cudaMemcpyDeviceToHost);
    printf("%s %5d rows, d %4d, inner %3d, E %3d %-11s %s*%s>%s:", layout_name[layout], s.rows, s.d,
           s.inner, s.experts, routing_name[s.routing], dtype_name(in), dtype_name(w),
           dtype_name(out));
    for (const char *path : paths) {
        if (!wanted(path))
            continue;
        double off = worst(d, path, p, old, expected), limit = out == DT_F32 ? 2e-5 : 5e-3;
        failures += off > limit;
        if (off < 0)
            printf("  %s -", path);
        else
            printf("  %s %.1e%s", path, off, off > limit ? " WRONG" : "");
    }
    printf("\n");
    cudaFree(ref);
    cudaFree(start);
    drop(p);
}

static void check(cuda_device *d)
{
    static const shape shapes[] = { { 1, 1, 1, 1, EVEN },           { 40, 65, 33, 5, SKEWED },
                                    { 100, 64, 32, 8, HOLES },      { 2, 64, 32, 64, HOLES },
                                    { 300, 128, 64, 4, ONE_HOT },   { 1000, 256, 128, 7, SKEWED },
                                    { 777, 520, 264, 3, SKEWED },   { 2048, 1024, 512, 8, ONE_HOT },
                                    { 1500, 768, 200, 16, RANDOM }, { 1024, 512, 64, 256, RANDOM },
                                    { 16, 4096, 512, 8, SKEWED },   { 4096, 512, 512, 8, RANDOM } };
    static const struct {
        dtype a, w, out;
    } types[] = { { DT_F32, DT_F32, DT_F32 },    { DT_BF16, DT_BF16, DT_F32 },
                  { DT_BF16, DT_BF16, DT_BF16 }, { DT_BF16, DT_F32, DT_BF16 },
                  { DT_F32, DT_BF16, DT_F32 },   { DT_F32, DT_NF4, DT_F32 },
                  { DT_BF16, DT_NF4, DT_BF16 } };
    for (const shape &s : shapes)
        for (int layout = MM_NT; layout <= MM_TN; layout++)
            for (auto &t : types) {
                if (layout == MM_TN && (t.a != t.w || t.out != DT_F32))
                    continue;
                check_case(d, s, (mm_layout)layout, t.a, t.w, t.out);
                if (study_failures != 0)
                    return;
            }
    printf("%d wrong\n", failures);
}

/* ---- times ---- */

enum { ROUNDS = 7, REPEAT = 8 };

template <typename F> static double seconds(cuda_device *d, F run)
{
    cudaEvent_t from, to;
    cudaEventCreate(&from);
    cudaEventCreate(&to);
    std::vector<float> ms(ROUNDS);
    run();
    for (float &t : ms) {
        cudaEventRecord(from, d->stream);
        for (int i = 0; i < REPEAT; i++)
            run();
        cudaEventRecord(to, d->stream);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&t, from, to);
    }
    std::sort(ms.begin(), ms.end());
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return ms[ROUNDS / 2] * 1e-3 / REPEAT;
}

/* All rows against one expert's matrix; TN adds to f32, as the grouped one does. */
static void dense(cublasHandle_t h, const grouped_problem &p)
{
    const float one = 1, zero = 0;
    const cudaDataType in = CUDA_R_16BF, out = p.out_dt == DT_F32 ? CUDA_R_32F : CUDA_R_16BF;
    const cublasComputeType_t sum = CUBLAS_COMPUTE_32F;
    cublasGemmAlgo_t algo = CUBLAS_GEMM_DEFAULT;
    if (p.layout == MM_NT)
        cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, p.o, p.rows, p.i, &one, p.b, in, p.i, p.a, in,
                     p.i, &zero, p.out, out, p.o, sum, algo);
    else if (p.layout == MM_NN)
        cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, p.i, p.rows, p.o, &one, p.b, in, p.i, p.a, in,
                     p.o, &zero, p.out, out, p.i, sum, algo);
    else
        cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_T, p.i, p.o, p.rows, &one, p.b, in, p.i, p.a, in,
                     p.o, &one, p.out, out, p.i, sum, algo);
}

/* fresh: dW that is written, not added; the dense product beside it still adds. */
static void time_case(cuda_device *d, cublasHandle_t h, shape s, mm_layout layout, const char *what,
                      bool fresh = false)
{
    dtype out = layout == MM_TN ? DT_F32 : DT_BF16;
    static const int routings[] = { EVEN, RANDOM, SKEWED, ONE_HOT };
    grouped_problem p = make(s, layout, DT_BF16, DT_BF16, out);
    p.add = p.add && !fresh;
    p.out = numbers(out, out_count(p), 3);
    double flop = 2.0 * s.rows * s.d * s.inner;
    double rate = flop * 1e-12 / seconds(d, [&] { dense(h, p); });
    printf("%-14s %5d rows, d %4d, inner %4d, E %3d: dense %4.0f |", what, s.rows, s.d, s.inner,
           s.experts, rate);
    for (int routing : routings) {
        if (!wanted("grouped_wgmma"))
            break;
        s.routing = routing;
        cudaFree((void *)p.offsets);
        p.offsets = device_offsets(s);
        double t = seconds(d, [&] { grouped_wgmma_launch(d, p); });
        printf(" %s %4.0f (%3.0f%%)", routing_name[routing], flop * 1e-12 / t,
               100 * flop * 1e-12 / t / rate);
    }
    if (wanted("grouped_mma"))
        printf(" | mma %4.0f", flop * 1e-12 / seconds(d, [&] { grouped_mma_launch(d, p); }));
    printf("\n");
    cudaFree(p.out);
    drop(p);
}

static void time_few(cuda_device *d, int rows, int o, int i)
{
    shape s = { rows, i, o, 8, rows < 8 ? HOLES : EVEN };
    double busy = rows < 8 ? rows : 8;
    printf("few %3d rows, w [%4d,%4d]:", rows, o, i);
    for (dtype w : { DT_BF16, DT_NF4 }) {
        grouped_problem p = make(s, MM_NT, DT_BF16, w, DT_BF16);
        p.out = numbers(DT_BF16, out_count(p), 3);
        printf("  %s bound %4.1f", dtype_name(w),
               busy * o * i * (w == DT_NF4 ? 0.5625 : 2) / 4.26e6);
        for (const char *path : { "op", "grouped_wgmma", "grouped_gemv" })
            if (run_path(d, path, p))
                printf(" %s %5.1f", path, 1e6 * seconds(d, [&] { run_path(d, path, p); }));
        cudaFree(p.out);
        drop(p);
    }
    printf(" us\n");
}

static void time_all(cuda_device *d)
{
    for (int rows : { 2, 8, 16, 32, 128 }) {
        time_few(d, rows, 512, 4096);
        time_few(d, rows, 4096, 512);
        time_few(d, rows, 4096, 14336);
    }
    static const shape shapes[] = { { 16384, 4096, 512, 8, EVEN },  { 16384, 7168, 512, 8, EVEN },
                                    { 16384, 4096, 512, 16, EVEN }, { 16384, 4096, 512, 64, EVEN },
                                    { 4096, 4096, 512, 8, EVEN },   { 16384, 4096, 64, 8, EVEN } };
    cublasHandle_t h;
    cublasCreate(&h);
    cublasSetStream(h, d->stream);
    printf("TFLOP/s\n");
    for (const shape &s : shapes) {
        shape up = s;
        std::swap(up.d, up.inner);
        time_case(d, h, s, MM_NT, "down");
        time_case(d, h, up, MM_NT, "up");
        time_case(d, h, s, MM_NN, "down dX");
        time_case(d, h, up, MM_NN, "up dX");
        time_case(d, h, s, MM_TN, "down dW");
        time_case(d, h, up, MM_TN, "up dW");
        time_case(d, h, s, MM_TN, "down dW, fresh", true);
        time_case(d, h, up, MM_TN, "up dW, fresh", true);
        if (study_failures != 0)
            break;
    }
    cublasDestroy(h);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0); /* what is said before a hang is seen */
    only = argc > 2 ? argv[2] : NULL;
    cuda_device d = {};
    if (!study_open(&d))
        return 1;
    if (argc < 2 || strcmp(argv[1], "time") != 0)
        check(&d);
    if (argc < 2 || strcmp(argv[1], "check") != 0)
        time_all(&d);
    return failures > 0 || study_failures != 0;
}
