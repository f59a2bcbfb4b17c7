#include "backend/cpu/matmul.h"

#include "backend/cpu/gemm_amx.h"
#include "backend/cpu/gemm_simd.h"
#include "backend/cpu/ops/ops.h"
#include "base/num.h"
#include "tensor/bf16.h"
#include "tensor/nf4.h"
#include "tensor/quants.h"

#include <stdio.h>
#include <string.h>

void mm_multiply(cpu_device *d, const mm_group *group)
{
    if (group->engine->row_panel)
        gemm_amx(d, group);
    else
        gemm_simd(d, group);
}

const float *mm_bias(const tensor *bias, int64_t first, int64_t n, float *buffer)
{
    if (!bias->data)
        return NULL;
    const char *at = (const char *)bias->data + first * (bias->dt == DT_F32 ? 4 : 2);
    if (bias->dt == DT_F32)
        memcpy(buffer, at, (size_t)n * sizeof *buffer);
    else
        bf16_decode(buffer, at, n);
    return buffer;
}

mm_operand mm_operand_of(const tensor *t, bool k_contiguous)
{
    int64_t rows = tensor_rows(t), cols = tensor_cols(t);
    bool blocks = quants_is(t->dt);
    ASSERT(t->dt == DT_F32 || t->dt == DT_BF16 || t->dt == DT_NF4 || blocks);
    ASSERT(!blocks || cols % (int64_t)dtype_block(t->dt) == 0);
    return (mm_operand){ .data = t->data,
                         .scales = t->dt == DT_NF4 ? nf4_scales(t->data, rows * cols) : NULL,
                         .dt = t->dt,
                         .k_contiguous = k_contiguous,
                         .ld = cols,
                         .n = k_contiguous ? rows : cols,
                         .k = k_contiguous ? cols : rows };
}

const mm_engine *mm_engine_of(cpu_isa isa, dtype activations)
{
    ASSERT(activations == DT_F32 || activations == DT_BF16);
    return cpu_levels[isa].engines[activations == DT_BF16];
}

/* One row: the kernel for few rows, or the one for any number. */
static pesc_kernel_row describe(cpu_isa isa, dtype activations, bool few_rows)
{
    const mm_engine *e = mm_engine_of(isa, activations);
    pesc_kernel_row r = { .device = "cpu", .op = "matmul" };
    snprintf(r.name, sizeof r.name, "%s",
             few_rows       ? "few_rows"
             : e->row_panel ? "gemm_amx"
                            : "gemm_simd");
    if (few_rows)
        snprintf(r.rows, sizeof r.rows, "1-%d", MM_FEW_ROWS);
    else
        snprintf(r.rows, sizeof r.rows, "any");
    snprintf(r.layouts, sizeof r.layouts, "%s", few_rows ? "NT" : "NT NN TN");
    snprintf(r.types, sizeof r.types, "%s x f32|bf16|nf4%s -> f32|bf16", dtype_name(activations),
             few_rows && !e->few_rows_blocks ? "" : "|gguf");
    snprintf(r.hardware, sizeof r.hardware, "%s", cpu_isa_name(isa));
    snprintf(r.detail, sizeof r.detail, "%s%s",
             few_rows && e->few_rows_blocks ? "weights read as they are; gguf up to 64 rows"
             : few_rows                     ? "weights read as they are"
             : e->row_panel                 ? "tiles of 16x16 pairs of bf16"
                                            : "weights packed into panels",
             isa == cpu_isa_best() ? "; this machine" : "");
    return r;
}

size_t cpu_kernels(pesc_kernel_row *rows, size_t cap)
{
    static const dtype activations[] = { DT_F32, DT_BF16 };
    size_t n = 0;
    for (cpu_isa isa = CPU_BASE; isa < cpu_level_count; isa++)
        for (int i = 0; i < 2; i++) {
            bool has_few = mm_engine_of(isa, activations[i])->few_rows_supports != NULL;
            for (int few = has_few; few >= 0; few--, n++)
                if (n < cap)
                    rows[n] = describe(isa, activations[i], few);
        }
    return n;
}

static mm_operand operand_with_ld(const tensor *t, int64_t ld, bool k_contiguous)
{
    mm_operand x = mm_operand_of(t, k_contiguous);
    ASSERT(!ld || (ld >= x.ld && dtype_block(t->dt) == 1));
    x.ld = ld ? ld : x.ld;
    return x;
}

static mm_operands operands_of(const mm *a, const mm_pair *pair)
{
    mm_operands x = { operand_with_ld(&pair->a, pair->a_ld, a->layout != MM_TN),
                      operand_with_ld(&pair->b, pair->b_ld, a->layout == MM_NT) };
    ASSERT(x.a.k == x.b.k && tensor_rows(&a->out) == x.a.n && tensor_cols(&a->out) == x.b.n);
    return x;
}

/* Products, with the terms that are added to them. */
enum { TOGETHER = 4 };
typedef struct products {
    mm_product of[TOGETHER];
    mm_operands more[TOGETHER][MM_MAX_TERMS - 1];
} products;

static void get_product(const void *ctx, int64_t i, mm_product *p)
{
    *p = ((const products *)ctx)->of[i];
}

static void describe_product(const mm *a, mm_product *p, mm_operands *more)
{
    mm_operands last = operands_of(a, &(mm_pair){ a->a, a->b, a->a_ld, a->b_ld });
    ASSERT(a->n_more < MM_MAX_TERMS && (!a->bias.data || tensor_count(&a->bias) == last.b.n));
    for (int i = 0; i < a->n_more; i++)
        more[i] = operands_of(a, &a->more[i]);
    *p = (mm_product){ .a = last.a,
                       .b = last.b,
                       .out = a->out.data,
                       .ld = a->out_ld ? a->out_ld : tensor_cols(&a->out),
                       .more = more,
                       .n_more = a->n_more,
                       .bias = a->bias };
}

/* Whether two products can be of one group. */
static bool alike(const mm *a, const mm *b)
{
    return a->a.dt == b->a.dt && a->out.dt == b->out.dt && a->scale == b->scale &&
           a->accumulate == b->accumulate;
}

/* Threads wait for each other once for a group of products, not once for each. gemm_amx packs
 * panels for one product at a time, in the memory that all threads share. */
void cpu_matmuls(device *d, const mm *a, int n)
{
    cpu_device *c = cpu_of(d);
    products p;
    for (int first = 0, count; first < n; first += count, a += count) {
        const mm_engine *engine = mm_engine_of(c->isa, a->a.dt);
        int most = (int)num_min(engine->row_panel ? 1 : TOGETHER, n - first);
        for (count = 0; count < most && alike(a, a + count); count++)
            describe_product(a + count, &p.of[count], p.more[count]);
        mm_multiply(c, &(mm_group){ .engine = engine,
                                    .count = count,
                                    .get = get_product,
                                    .ctx = &p,
                                    .out_dt = a->out.dt,
                                    .scale = a->scale,
                                    .accumulate = a->accumulate });
    }
}

void cpu_matmul(device *d, const mm *a)
{
    cpu_matmuls(d, a, 1);
}
