/* kernel_base: the engines in plain C. They define what the others must give, up to the order of
 * sums within a block. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/pack.h"
#include "tensor/bf16.h"

#include <string.h>

enum { ROWS = 4 };

static void tile(const mm_tile *t)
{
    float sums[ROWS][MM_LANES] = { 0 };
    for (int64_t w = 0; w < t->nw; w++) {
        float lanes[MM_LANES];
        memcpy(lanes, t->lanes + w * MM_LANES, sizeof lanes);
        for (int64_t i = 0; i < t->n_rows; i++) {
            float a;
            memcpy(&a, t->rows + i * t->row + w, sizeof a);
            for (int j = 0; j < MM_LANES; j++)
                sums[i][j] += a * lanes[j];
        }
    }
    for (int64_t i = 0; i < t->n_rows; i++) {
        float *out = t->sums + i * t->ld;
        for (int j = 0; j < MM_LANES; j++)
            out[j] = t->add ? out[j] + sums[i][j] : sums[i][j];
    }
}

static void store_row(const mm_out *o, int64_t i)
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

static void store(const mm_out *o)
{
    for (int64_t i = 0; i < o->n_rows; i++)
        store_row(o, i);
}

#define PLAIN                                                                                      \
    .rows = ROWS, .pack_rows = pack_rows, .pack_lanes = pack_lanes, .tile = tile, .store = store
const mm_engine kernel_base_f32 = { .words = MM_F32, PLAIN };
const mm_engine kernel_base_bf16 = { .words = MM_BF16_AS_F32, PLAIN };
