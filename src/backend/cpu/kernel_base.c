/* kernel_base: the engines in plain C. They define what the other engines compute, up to the order
 * of sums within a k block. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/packing.h"
#include "tensor/bf16.h"
#include "tensor/quants.h"

#include <string.h>

enum { TILE_ROWS = 4 };

static void micro_kernel(const mm_tile *t)
{
    float sums[TILE_ROWS][MM_NR] = { 0 };
    for (int64_t e = 0; e < t->n_elements; e++) {
        float b[MM_NR];
        memcpy(b, t->panel + e * MM_NR, sizeof b);
        for (int64_t i = 0; i < t->n_rows; i++) {
            float a;
            memcpy(&a, t->rows + i * t->row_stride + e, sizeof a);
            for (int j = 0; j < MM_NR; j++)
                sums[i][j] += a * b[j];
        }
    }
    for (int64_t i = 0; i < t->n_rows; i++) {
        float *out = t->sums + i * t->ld;
        for (int j = 0; j < MM_NR; j++)
            out[j] = t->add ? out[j] + sums[i][j] : sums[i][j];
    }
}

static void epilogue_row(const mm_epilogue *o, int64_t i)
{
    float *f32 = (float *)o->out + i * o->ld;
    uint16_t *bf16 = (uint16_t *)o->out + i * o->ld;
    const float *sums = o->sums + i * o->sums_ld;
    for (int64_t j = 0; j < o->n; j++) {
        float y = o->scale * sums[j];
        if (o->bias)
            y += o->bias[j];
        if (o->accumulate)
            y += o->dt == DT_F32 ? f32[j] : bf16_to_f32(bf16[j]);
        if (o->dt == DT_F32)
            f32[j] = y;
        else
            bf16[j] = bf16_from_f32(y);
    }
}

static void epilogue(const mm_epilogue *o)
{
    for (int64_t i = 0; i < o->n_rows; i++)
        epilogue_row(o, i);
}

#define PLAIN                                                                                      \
    .tile_rows = TILE_ROWS, .pack_rows = packing_rows, .pack_panel = packing_panel,                \
    .micro_kernel = micro_kernel, .epilogue = epilogue, .unpack = quants_unpack
const mm_engine kernel_base_f32 = { .format = MM_F32, PLAIN };
const mm_engine kernel_base_bf16 = { .format = MM_BF16_WIDENED, PLAIN };
