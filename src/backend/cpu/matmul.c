#include "backend/cpu/matmul.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/panels.h"
#include "backend/cpu/tiles.h"
#include "tensor/bf16.h"
#include "tensor/nf4.h"

#include <string.h>

void mm_run(cpu_device *d, const mm_set *set)
{
    if (set->engine->strip)
        panels_run(d, set);
    else
        tiles_run(d, set);
}

const float *mm_bias(const tensor *bias, int64_t first, int64_t n, float *room)
{
    if (!bias->data)
        return NULL;
    const char *at = (const char *)bias->data + first * (bias->dt == DT_F32 ? 4 : 2);
    if (bias->dt == DT_F32)
        memcpy(room, at, (size_t)n * sizeof *room);
    else
        bf16_decode(room, at, n);
    return room;
}

mm_side mm_side_of(const tensor *t, bool k_last)
{
    int64_t rows = tensor_rows(t), cols = tensor_cols(t);
    ASSERT(t->dt == DT_F32 || t->dt == DT_BF16 || t->dt == DT_NF4);
    return (mm_side){ .data = t->data,
                      .scales = t->dt == DT_NF4 ? nf4_scales(t->data, rows * cols) : NULL,
                      .dt = t->dt,
                      .k_last = k_last,
                      .ld = cols,
                      .n = k_last ? rows : cols,
                      .k = k_last ? cols : rows };
}

const mm_engine *mm_engine_of(cpu_isa isa, dtype activations)
{
    static const mm_engine *const engines[CPU_ISA_COUNT][2] = {
        [CPU_BASE] = { &kernel_base_f32, &kernel_base_bf16 },
        [CPU_AVX2] = { &kernel_avx2_f32, &kernel_avx2_bf16 },
        [CPU_AVX512] = { &kernel_avx512_f32, &kernel_avx512_bf16 },
        [CPU_AVX512_BF16] = { &kernel_avx512_f32, &kernel_avx512_pairs },
        [CPU_AMX] = { &kernel_avx512_f32, &kernel_amx },
    };
    ASSERT(activations == DT_F32 || activations == DT_BF16);
    return engines[isa][activations == DT_BF16];
}

static void whole(const void *ctx, int64_t i, mm_product *p)
{
    (void)i;
    *p = *(const mm_product *)ctx;
}

static mm_side pitched(const tensor *t, int64_t ld, bool k_last)
{
    mm_side s = mm_side_of(t, k_last);
    ASSERT(!ld || (ld >= s.ld && t->dt != DT_NF4));
    s.ld = ld ? ld : s.ld;
    return s;
}

static mm_sides sides_of(const mm *a, const mm_pair *q)
{
    mm_sides s = { pitched(&q->a, q->a_ld, a->layout != MM_TN),
                   pitched(&q->b, q->b_ld, a->layout == MM_NT) };
    ASSERT(s.a.k == s.b.k && tensor_rows(&a->out) == s.a.n && tensor_cols(&a->out) == s.b.n);
    return s;
}

static void multiply_sides(cpu_device *d, const mm *a, mm_product p, tensor bias, bool accumulate)
{
    p.out = a->out.data;
    p.ld = a->out_ld ? a->out_ld : tensor_cols(&a->out);
    mm_run(d, &(mm_set){ .engine = mm_engine_of(d->isa, a->a.dt),
                         .count = 1,
                         .get = whole,
                         .ctx = &p,
                         .bias = bias,
                         .out_dt = a->out.dt,
                         .scale = a->scale,
                         .accumulate = accumulate });
}

/* What is added up is computed together, or, few rows of engines that cannot, one by one. */
void cpu_matmul(device *d, const mm *a)
{
    cpu_device *c = cpu_of(d);
    mm_sides more[MM_TERMS - 1], last = sides_of(a, &(mm_pair){ a->a, a->b, a->a_ld, a->b_ld });
    ASSERT(a->n_more < MM_TERMS && (!a->bias.data || tensor_count(&a->bias) == last.b.n));
    for (int i = 0; i < a->n_more; i++)
        more[i] = sides_of(a, &a->more[i]);
    mm_product p = { .a = last.a, .b = last.b };
    if (mm_engine_of(c->isa, a->a.dt)->strip || last.a.n > MM_FEW) {
        p.more = more;
        p.n_more = a->n_more;
        multiply_sides(c, a, p, a->bias, a->accumulate);
        return;
    }
    for (int i = 0; i < a->n_more; i++)
        multiply_sides(c, a, (mm_product){ .a = more[i].a, .b = more[i].b }, (tensor){ 0 },
                       a->accumulate || i > 0);
    multiply_sides(c, a, p, a->bias, a->accumulate || a->n_more > 0);
}

void cpu_matmuls(device *d, const mm *a, int n)
{
    for (int i = 0; i < n; i++)
        cpu_matmul(d, a + i);
}
