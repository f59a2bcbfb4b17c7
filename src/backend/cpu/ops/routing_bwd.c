/* routing_bwd: gradients of the router, and the balance loss.
 *
 * With c_j the scores of the chosen experts and S their sum (plus the epsilon of forward):
 *     g_j = scale c_j         ->  dc_j = scale dg_j
 *     g_j = scale c_j / S     ->  dc_j = scale (dg_j - sum_i dg_i c_i / S) / S      (renormalised)
 *     g_j = scale c_j / floor ->  dc_j = scale dg_j / floor                         (S below it)
 * and then through the score: softmax over all experts, over the chosen, or sigmoid. The choice
 * itself has no gradient; without ids all experts count as chosen. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/router_score.h"

static void raw_gradient(const topk_rule *r, float *dc, const float *dg, const float *c)
{
    float sum = r->sum_more + 1e-20f, pull = 0.0f;
    for (int32_t j = 0; j < r->k && r->renormalise; j++)
        sum += c[j];
    bool floored = sum < r->sum_floor;
    sum = floored ? r->sum_floor : sum;
    for (int32_t j = 0; j < r->k && r->renormalise && !floored; j++)
        pull += dg[j] * c[j] / sum;
    for (int32_t j = 0; j < r->k; j++)
        dc[j] = r->renormalise ? r->scale * (dg[j] - pull) / sum : r->scale * dg[j];
}

static int32_t id_of(const topk_bwd *p, int64_t t, int32_t j)
{
    return p->ids.data ? ((const int32_t *)p->ids.data)[t * p->rule.k + j] : j;
}

/* dz [n]: the gradient of the row's logits; work: 2 k + n floats. */
static void gate_row(const topk_bwd *p, int64_t t, float *dz, float *work)
{
    const topk_rule *r = &p->rule;
    int32_t n = r->n_experts, k = r->k;
    const float *z = (const float *)p->logits.data + t * n;
    float *c = work, *dc = work + k, *scores = work + 2 * k, pull = 0.0f;
    bool softmax = r->score == SCORE_SOFTMAX, all = softmax && !r->score_after_topk;
    memcpy(scores, z, (size_t)n * sizeof *scores);
    if (all)
        score_softmax(scores, n);
    for (int32_t j = 0; j < k; j++)
        c[j] = scores[id_of(p, t, j)];
    if (!softmax)
        score_sigmoid(c, k);
    else if (!all)
        score_softmax(c, k);
    raw_gradient(r, dc, (const float *)p->dgates.data + t * k, c);
    for (int32_t j = 0; j < k && softmax; j++)
        pull += c[j] * dc[j];
    for (int32_t e = 0; e < n; e++)
        dz[e] = all ? -scores[e] * pull : 0.0f;
    for (int32_t j = 0; j < k; j++)
        dz[id_of(p, t, j)] = softmax ? c[j] * (dc[j] - pull) : c[j] * (1.0f - c[j]) * dc[j];
}

static void balance_row(const topk_bwd *p, float *dz, const float *prob)
{
    int32_t n = p->rule.n_experts;
    const float *f = p->share.data;
    float factor = p->balance * (float)n / (float)tensor_rows(&p->logits), mean = 0.0f;
    for (int32_t e = 0; e < n; e++)
        mean += f[e] * prob[e];
    for (int32_t e = 0; e < n; e++)
        dz[e] += factor * prob[e] * (f[e] - mean);
}

static void z_row(const topk_bwd *p, float *dz, const float *prob, float lse)
{
    float factor = p->z * 2.0f / (float)tensor_rows(&p->logits);
    for (int32_t e = 0; e < p->rule.n_experts; e++)
        dz[e] += factor * lse * prob[e];
}

static void topk_bwd_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const topk_bwd *p = ctx;
    for (int64_t t = begin; t < end; t++) {
        int32_t n = p->rule.n_experts;
        float *dz = (float *)p->dlogits.data + t * n, *prob = scratch, lse;
        gate_row(p, t, dz, scratch);
        if (!p->share.data && p->z == 0)
            continue;
        memcpy(prob, (const float *)p->logits.data + t * n, (size_t)n * sizeof *prob);
        lse = score_softmax_lse(prob, n);
        if (p->share.data)
            balance_row(p, dz, prob);
        if (p->z != 0)
            z_row(p, dz, prob, lse);
    }
}

void OP(topk_bwd)(device *d, const topk_bwd *a)
{
    ASSERT(a->rule.n_experts <= CPU_SCRATCH / 32);
    cpu_for(cpu_of(d), tensor_rows(&a->logits), cpu_step((int64_t)a->rule.n_experts * 64),
            topk_bwd_rows, a);
}

/* ---- the balance loss ---- */

enum { PARTS = 64 }; /* P is summed in this many parts, then the parts in order */

typedef struct balance {
    const float *logits;
    float *parts; /* [PARTS][E + 1]: P of each expert, and z */
    int64_t rows, n;
} balance;

static void balance_part(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const balance *p = ctx;
    float *prob = scratch;
    for (int64_t part = begin; part < end; part++) {
        float *sum = p->parts + part * (p->n + 1);
        memset(sum, 0, (size_t)(p->n + 1) * sizeof *sum);
        for (int64_t t = part * p->rows / PARTS; t < (part + 1) * p->rows / PARTS; t++) {
            memcpy(prob, p->logits + t * p->n, (size_t)p->n * sizeof *prob);
            float lse = score_softmax_lse(prob, (int32_t)p->n);
            for (int64_t e = 0; e < p->n; e++)
                sum[e] += prob[e];
            sum[p->n] += lse * lse;
        }
    }
}

void OP(balance)(device *d, tensor share, tensor aux, tensor logits, tensor ids)
{
    cpu_device *c = cpu_of(d);
    balance p = { logits.data, (float *)c->shared, tensor_rows(&logits), tensor_cols(&logits) };
    ASSERT(p.n + 1 <= CPU_SHARED / (PARTS * 4));
    cpu_for(c, PARTS, 1, balance_part, &p);
    float *f = share.data, *mean = f + p.n, *out = aux.data, sum = 0.0f, z = 0.0f;
    const int32_t *id = ids.data;
    int64_t choices = tensor_count(&ids);
    memset(f, 0, (size_t)(2 * p.n) * sizeof *f);
    for (int64_t i = 0; i < choices; i++)
        f[id[i]] += 1.0f; /* exact: below 2^24 */
    for (int64_t e = 0; e < p.n; e++) {
        for (int64_t part = 0; part < PARTS; part++)
            mean[e] += p.parts[part * (p.n + 1) + e];
        f[e] /= (float)choices;
        mean[e] /= (float)p.rows;
        sum += f[e] * mean[e];
    }
    for (int64_t part = 0; part < PARTS; part++)
        z += p.parts[part * (p.n + 1) + p.n];
    out[0] = (float)p.n * sum;
    out[1] = z / (float)p.rows;
}
