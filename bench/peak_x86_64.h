/* peak_x86_64: loops of one instruction alone, for bench/matmul. The widest form comes first. */
#include <immintrin.h>

__attribute__((target("avx512f,avx512bf16"))) static void dot_peak(const void *ctx, int64_t begin,
                                                                   int64_t end, void *scratch)
{
    (void)ctx, (void)begin, (void)end;
    __m512 sum[12];
    for (int i = 0; i < 12; i++)
        sum[i] = _mm512_setzero_ps();
    __m512bh x = (__m512bh)_mm512_set1_epi16(0x3F81);
    for (int k = 0; k < 1000000; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
    for (int i = 0; i < 12; i++)
        _mm512_storeu_ps((float *)scratch + 16 * i, sum[i]);
}

__attribute__((target("avx512f"))) static void fma512_peak(const void *ctx, int64_t begin,
                                                           int64_t end, void *scratch)
{
    (void)ctx, (void)begin, (void)end;
    __m512 sum[12], x = _mm512_set1_ps(0.999f);
    for (int i = 0; i < 12; i++)
        sum[i] = _mm512_set1_ps((float)i);
    for (int k = 0; k < 1000000; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = _mm512_fmadd_ps(sum[i], x, x);
    for (int i = 0; i < 12; i++)
        _mm512_storeu_ps((float *)scratch + 16 * i, sum[i]);
}

__attribute__((target("avx2,fma"))) static void fma256_peak(const void *ctx, int64_t begin,
                                                            int64_t end, void *scratch)
{
    (void)ctx, (void)begin, (void)end;
    __m256 sum[12], x = _mm256_set1_ps(0.999f);
    for (int i = 0; i < 12; i++)
        sum[i] = _mm256_set1_ps((float)i);
    for (int k = 0; k < 1000000; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = _mm256_fmadd_ps(sum[i], x, x);
    for (int i = 0; i < 12; i++)
        _mm256_storeu_ps((float *)scratch + 8 * i, sum[i]);
}

static const peak_loop loops[] = {
    { "f32 multiply-adds", "avx512", fma512_peak, 32 },
    { "f32 multiply-adds", "avx2", fma256_peak, 16 },
    { "bf16 dot products", "avx512_bf16", dot_peak, 64 },
};
