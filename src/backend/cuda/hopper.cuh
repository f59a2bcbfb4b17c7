/* hopper: instructions of sm_90a as functions, one each: mbarriers, TMA copies, wgmma, clusters,
 * setmaxnreg. Only code compiled for sm_90a may call the device functions. */
#ifndef PESC_BACKEND_CUDA_HOPPER_CUH
#define PESC_BACKEND_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t hopper_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* ---- mbarriers: a phase ends when all arrivals and all expected bytes are there ---- */

static __device__ __forceinline__ void hopper_barrier_init(uint64_t *bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(hopper_address(bar)), "r"(arrivals)
                 : "memory");
}

/* After all inits, before other threads or TMA use the barriers. */
static __device__ __forceinline__ void hopper_barrier_publish(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void hopper_arrive(uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(hopper_address(bar)) : "memory");
}

static __device__ __forceinline__ void hopper_arrive_expecting(uint64_t *bar, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(hopper_address(bar)),
        "r"(bytes)
        : "memory");
}

/* Waits until the phase with this parity has ended. */
static __device__ __forceinline__ void hopper_wait(uint64_t *bar, int parity)
{
    int done;
    do
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(hopper_address(bar)), "r"(parity)
                     : "memory");
    while (!done);
}

/* Orders this thread's ordinary writes to shared memory before later accesses by TMA and wgmma. */
static __device__ __forceinline__ void hopper_fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- TMA: copies of a box of a tensor at column x, row y, matrix z; zeros outside ---- */

static __device__ __forceinline__ void hopper_load(void *to, const CUtensorMap *map, uint64_t *bar,
                                                   int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(hopper_address(to)),
                 "l"(map), "r"(hopper_address(bar)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Multicast: the same into every block of the cluster whose bit is set in `blocks`, at the same
 * offset of its shared memory, counted by the barrier at the same offset. */
static __device__ __forceinline__ void hopper_load_multicast(void *to, const CUtensorMap *map,
                                                             uint64_t *bar, int x, int y,
                                                             uint16_t blocks)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(hopper_address(to)),
        "l"(map), "r"(hopper_address(bar)), "r"(x), "r"(y), "r"(0), "h"(blocks)
        : "memory");
}

/* Stores a box; what is outside the tensor is not written. */
static __device__ __forceinline__ void hopper_store(const CUtensorMap *map, const void *from, int x,
                                                    int y)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
            map),
        "r"(hopper_address(from)), "r"(x), "r"(y), "r"(0)
        : "memory");
}

/* Adds a box to the tensor. */
static __device__ __forceinline__ void hopper_store_add(const CUtensorMap *map, const void *from,
                                                        int x, int y)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(hopper_address(from)), "r"(x), "r"(y), "r"(0)
                 : "memory");
}

static __device__ __forceinline__ void hopper_store_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most N of this thread's committed groups of stores still read shared memory. */
template <int N> static __device__ __forceinline__ void hopper_store_wait(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* ---- clusters ---- */

static __device__ __forceinline__ int hopper_cluster_rank(void)
{
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of all blocks of the cluster. */
static __device__ __forceinline__ void hopper_cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* Arrives at the barrier at the same offset of block `rank`'s shared memory. */
static __device__ __forceinline__ void hopper_arrive_at(uint64_t *bar, int rank)
{
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(hopper_address(bar)),
                 "r"(rank)
                 : "memory");
}

/* stmatrix: stores four 8x8 matrices of 16-bit elements from a warp's registers; lanes 8i..8i+7
 * hold the addresses of the rows of matrix i. */
static __device__ __forceinline__ void hopper_store_matrices(void *row, uint32_t a, uint32_t b,
                                                             uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     hopper_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

/* ---- wgmma: d [64, N] (+)= A [64, 16] B [N, 16]^T by a warpgroup; a thread has N / 2 of d ---- */

/* The descriptor of an operand in shared memory: rows of 128 bytes in TMA's 128-byte swizzle, eight
 * rows in a group, groups 1024 bytes apart. A k-last operand has an m (or n) in a row, 64 of k
 * wide. A transposed one (A_T or B_T is 1) has a k in a row, 64 of m wide; the next 64 of m are
 * `next` bytes away. */
static __device__ __forceinline__ uint64_t hopper_operand(const void *shared, int next)
{
    return (uint64_t)(hopper_address(shared) & 0x3FFFF) >> 4 | (uint64_t)(next >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void hopper_multiply_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void hopper_multiply_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N committed groups are unfinished. */
template <int N> static __device__ __forceinline__ void hopper_multiply_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define R8(how, d, i)                                                                              \
    how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3]), how(d[i + 4]), how(d[i + 5]),          \
        how(d[i + 6]), how(d[i + 7])

/* FIRST: d is written, not added to. */
template <bool FIRST, int A_T, int B_T>
static __device__ __forceinline__ void hopper_multiply(float (&d)[32], uint64_t a, uint64_t b)
{
    if constexpr (FIRST)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, 0, 1, 1, %34, %35;"
            : R8("=f", d, 0), R8("=f", d, 8), R8("=f", d, 16), R8("=f", d, 24)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
    else
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "%32, %33, 1, 1, 1, %34, %35;"
            : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
}

template <bool FIRST, int A_T, int B_T>
static __device__ __forceinline__ void hopper_multiply(float (&d)[64], uint64_t a, uint64_t b)
{
    if constexpr (FIRST)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, 0, 1, 1, %66, %67;"
            : R8("=f", d, 0), R8("=f", d, 8), R8("=f", d, 16), R8("=f", d, 24), R8("=f", d, 32),
              R8("=f", d, 40), R8("=f", d, 48), R8("=f", d, 56)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
    else
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, 1, 1, 1, %66, %67;"
            : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24), R8("+f", d, 32),
              R8("+f", d, 40), R8("+f", d, 48), R8("+f", d, 56)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
}

template <bool FIRST, int A_T, int B_T>
static __device__ __forceinline__ void hopper_multiply(float (&d)[128], uint64_t a, uint64_t b)
{
    if constexpr (FIRST)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
            "%111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
            "%126, %127}, "
            "%128, %129, 0, 1, 1, %130, %131;"
            : R8("=f", d, 0), R8("=f", d, 8), R8("=f", d, 16), R8("=f", d, 24), R8("=f", d, 32),
              R8("=f", d, 40), R8("=f", d, 48), R8("=f", d, 56), R8("=f", d, 64), R8("=f", d, 72),
              R8("=f", d, 80), R8("=f", d, 88), R8("=f", d, 96), R8("=f", d, 104), R8("=f", d, 112),
              R8("=f", d, 120)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
    else
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
            "%111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
            "%126, %127}, "
            "%128, %129, 1, 1, 1, %130, %131;"
            : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24), R8("+f", d, 32),
              R8("+f", d, 40), R8("+f", d, 48), R8("+f", d, 56), R8("+f", d, 64), R8("+f", d, 72),
              R8("+f", d, 80), R8("+f", d, 88), R8("+f", d, 96), R8("+f", d, 104), R8("+f", d, 112),
              R8("+f", d, 120)
            : "l"(a), "l"(b), "n"(A_T), "n"(B_T));
}

/* The same of fp8 (e4m3), 32 of k: both operands are k-last, 128 of k wide. */
template <bool FIRST>
static __device__ __forceinline__ void hopper_multiply_fp8(float (&d)[128], uint64_t a, uint64_t b)
{
    if constexpr (FIRST)
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
            "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
            "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
            "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
            "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "
            "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "
            "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "
            "%119, %120, %121, %122, %123, %124, %125, %126, %127}, "
            "%128, %129, 0, 1, 1;"
            : R8("=f", d, 0), R8("=f", d, 8), R8("=f", d, 16), R8("=f", d, 24), R8("=f", d, 32),
              R8("=f", d, 40), R8("=f", d, 48), R8("=f", d, 56), R8("=f", d, 64), R8("=f", d, 72),
              R8("=f", d, 80), R8("=f", d, 88), R8("=f", d, 96), R8("=f", d, 104), R8("=f", d, 112),
              R8("=f", d, 120)
            : "l"(a), "l"(b));
    else
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
            "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
            "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
            "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
            "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "
            "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "
            "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "
            "%119, %120, %121, %122, %123, %124, %125, %126, %127}, "
            "%128, %129, 1, 1, 1;"
            : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24), R8("+f", d, 32),
              R8("+f", d, 40), R8("+f", d, 48), R8("+f", d, 56), R8("+f", d, 64), R8("+f", d, 72),
              R8("+f", d, 80), R8("+f", d, 88), R8("+f", d, 96), R8("+f", d, 104), R8("+f", d, 112),
              R8("+f", d, 120)
            : "l"(a), "l"(b));
}

/* A in registers: d [64, N] (+)= A [64, 16] B [N, 16]^T. d is only added to where `add` is not 0.
 */
static __device__ __forceinline__ void hopper_multiply(float (&d)[32], const uint32_t (&a)[4],
                                                       uint64_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}"
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* After a wait for d's products: the compiler moves no use of d before this. */
static __device__ __forceinline__ void hopper_multiplied(float (&d)[32])
{
    asm volatile("" : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)::"memory");
}

static __device__ __forceinline__ void hopper_multiply(float (&d)[48], const uint32_t (&a)[4],
                                                       uint64_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %53, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
                 "{%48, %49, %50, %51}, %52, add, 1, 1, 0;\n}"
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24),
                   R8("+f", d, 32), R8("+f", d, 40)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

static __device__ __forceinline__ void hopper_multiplied(float (&d)[48])
{
    asm volatile(""
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24),
                   R8("+f", d, 32), R8("+f", d, 40)::"memory");
}

static __device__ __forceinline__ void hopper_multiply(float (&d)[64], const uint32_t (&a)[4],
                                                       uint64_t b, int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, add, 1, 1, 0;\n}"
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24),
                   R8("+f", d, 32), R8("+f", d, 40), R8("+f", d, 48), R8("+f", d, 56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

static __device__ __forceinline__ void hopper_multiplied(float (&d)[64])
{
    asm volatile(""
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24),
                   R8("+f", d, 32), R8("+f", d, 40), R8("+f", d, 48), R8("+f", d, 56)::"memory");
}

#undef R8

/* ---- setmaxnreg: producers give registers up, consumers take them; N a thread ---- */

template <int N> static __device__ __forceinline__ void hopper_registers_release(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void hopper_registers_acquire(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- host: tensor maps for TMA ---- */

/* A bf16 tensor [matrices, rows, cols], rows `ld` elements apart. Boxes have `high` rows of 64
 * elements (128-byte swizzle), or with `half` of 32 (64-byte swizzle). With `bytes` elements are
 * bytes, 128 in a row of a box. */
typedef struct hopper_matrix {
    const void *data;
    int64_t matrices, rows, cols, ld;
    unsigned high;
    bool half, bytes;
} hopper_matrix;

static inline cudaError_t hopper_map_of(CUtensorMap *map, hopper_matrix m)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                  const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                  const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_fn encode; /* of the driver, which is not linked: found by name */
    if (!encode) {
        void *found = NULL;
        cudaDriverEntryPointQueryResult result;
        cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &result);
        if (e != cudaSuccess || !found)
            return e != cudaSuccess ? e : cudaErrorNotSupported;
        encode = (encode_fn)found;
    }
    cuuint64_t sizes[3] = { (cuuint64_t)m.cols, (cuuint64_t)m.rows, (cuuint64_t)m.matrices };
    cuuint64_t size = m.bytes ? 1 : 2;
    cuuint64_t strides[2] = { (cuuint64_t)m.ld * size, (cuuint64_t)(m.rows * m.ld) * size };
    cuuint32_t box[3] = { (m.half ? 64u : 128u) / (cuuint32_t)size, m.high, 1 };
    cuuint32_t steps[3] = { 1, 1, 1 };
    CUresult r =
        encode(map, m.bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
               (void *)m.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               m.half ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/* The same for whole matrices, with boxes of 64x64. */
static inline cudaError_t hopper_map(CUtensorMap *map, const void *data, int64_t matrices,
                                     int64_t rows, int64_t cols)
{
    return hopper_map_of(map,
                         (hopper_matrix){ data, matrices, rows, cols, cols, 64, false, false });
}

#endif
