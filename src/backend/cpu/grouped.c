/* grouped: grouped GEMM, one product for each expert. Rows are sorted by expert. All experts form
 * one group of products, so that experts with few rows are packed and multiplied together. */
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops/ops.h"
#include "backend/experts.h"

static tensor rows_of(const tensor *t, int64_t first, int64_t n)
{
    tensor flat = tensor_view2(t, tensor_rows(t), tensor_cols(t));
    return tensor_slice(&flat, first, n);
}

static tensor expert_matrix(const tensor *stack, int64_t e)
{
    tensor one = tensor_slice(stack, e, 1);
    return tensor_view2(&one, stack->ne[1], stack->ne[2]);
}

static void get_expert(const void *ctx, int64_t e, mm_product *p)
{
    const grouped_mm *g = ctx;
    const int32_t *offsets = g->offsets.data;
    int64_t first = offsets[e], n = offsets[e + 1] - first;
    bool dw = g->layout == MM_TN;
    tensor a = rows_of(&g->a, first, n);
    tensor b = dw ? rows_of(&g->b, first, n) : expert_matrix(&g->b, e);
    *p = (mm_product){ .a = mm_operand_of(&a, !dw), .b = mm_operand_of(&b, g->layout == MM_NT) };
    p->out = dw ? expert_matrix(&g->out, e).data : rows_of(&g->out, first, n).data;
    p->ld = p->b.n;
}

/* Zeroes the results of experts without rows: their products have nothing to write. */
static void clear_empty_experts(device *d, const grouped_mm *a)
{
    const int32_t *offsets = a->offsets.data;
    for (int64_t e = 0; e < tensor_count(&a->offsets) - 1; e++)
        if (offsets[e] == offsets[e + 1]) {
            tensor out = expert_matrix(&a->out, e);
            cpu_zero(d, out.data, tensor_bytes(&out));
        }
}

void cpu_grouped_matmul(device *d, const grouped_mm *a)
{
    ASSERT(a->offsets.dt == DT_I32 && tensor_count(&a->offsets) >= 1);
    ASSERT((a->layout == MM_TN ? a->out.nd : a->b.nd) == 3);
    if (a->fresh)
        clear_empty_experts(d, a);
    mm_multiply(cpu_of(d), &(mm_group){ .engine = mm_engine_of(cpu_of(d)->isa, a->a.dt),
                                        .count = tensor_count(&a->offsets) - 1,
                                        .get = get_expert,
                                        .ctx = a,
                                        .out_dt = a->out.dt,
                                        .scale = a->scale,
                                        .accumulate = a->layout == MM_TN && !a->fresh });
}

void cpu_experts_fwd(device *d, const experts_fwd *a)
{
    experts_by_parts(d, a);
}
