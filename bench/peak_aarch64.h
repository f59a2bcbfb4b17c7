/* peak_aarch64: loops of one instruction alone, for bench/matmul. */
#include <arm_neon.h>

__attribute__((target("arch=armv8.2-a+bf16"))) static void dot_peak(const void *ctx, int64_t begin,
                                                                    int64_t end, void *scratch)
{
    (void)ctx, (void)begin, (void)end;
    float32x4_t sum[12];
    for (int i = 0; i < 12; i++)
        sum[i] = vdupq_n_f32(0.0f);
    bfloat16x8_t x = vreinterpretq_bf16_u16(vdupq_n_u16(0x3F81));
    for (int k = 0; k < 1000000; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = vbfdotq_f32(sum[i], x, x);
    for (int i = 0; i < 12; i++)
        vst1q_f32((float *)scratch + 4 * i, sum[i]);
}

static void fma_peak(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)ctx, (void)begin, (void)end;
    float32x4_t sum[12], x = vdupq_n_f32(0.999f);
    for (int i = 0; i < 12; i++)
        sum[i] = vdupq_n_f32((float)i);
    for (int k = 0; k < 1000000; k++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            sum[i] = vfmaq_f32(x, sum[i], x);
    for (int i = 0; i < 12; i++)
        vst1q_f32((float *)scratch + 4 * i, sum[i]);
}

static const peak_loop loops[] = {
    { "f32 multiply-adds", "neon", fma_peak, 8 },
    { "bf16 dot products", "neon_bf16", dot_peak, 16 },
};
