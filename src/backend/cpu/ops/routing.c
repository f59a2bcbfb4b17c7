/* routing: the choice of experts for each token, and the order of rows sorted by expert.
 *
 * Experts are ranked by logit (softmax and sigmoid keep the order, and rounding in them cannot make
 * ties); with a bias by score + bias. Ties go to the lowest index. A NaN ranks below everything,
 * -infinity included: comparisons with it are false, and an argmax that relies on `>` would leave
 * its index unset. So k different experts are always chosen, and only gates computed from a NaN are
 * NaN.
 *
 * Groups (DeepSeek): experts are divided into n_groups equal groups of neighbours, and only those
 * of the k_groups best groups can be chosen. A group's score is that of its best expert
 * (group_limited_greedy of V2); with a bias, the sum of its two best (noaux_tc of V3). */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/router_score.h"

typedef struct topk {
    int32_t *ids;
    float *gates;
    const float *logits, *bias;
    topk_rule rule;
} topk;

static bool beats(float a, float b)
{
    return a == a && (b != b || a > b);
}

/* The best of x[0..n) that is not taken, by value, then by index; -1: all are taken. */
static int32_t best(const float *x, const bool *taken, int32_t n)
{
    int32_t top = -1;
    for (int32_t i = 0; i < n; i++)
        if (!taken[i] && (top < 0 || beats(x[i], x[top])))
            top = i;
    return top;
}

static void score(float *x, int32_t n, score_kind kind)
{
    (kind == SCORE_SOFTMAX ? score_softmax : score_sigmoid)(x, n);
}

/* Marks as taken the experts of all but the k_groups best groups. */
static void limit_groups(const topk *p, const float *rank, bool *taken, float *group_score)
{
    int32_t n_groups = p->rule.n_groups, size = p->rule.n_experts / n_groups;
    bool *chosen = taken + p->rule.n_experts; /* [n_groups], after those of the experts */
    for (int32_t g = 0; g < n_groups; g++) {
        bool *mine = taken + g * size;
        int32_t first = best(rank + g * size, mine, size), second = -1;
        group_score[g] = rank[g * size + first];
        if (p->bias && size > 1) {
            mine[first] = true;
            second = best(rank + g * size, mine, size);
            mine[first] = false;
            group_score[g] += rank[g * size + second];
        }
        chosen[g] = false;
    }
    for (int32_t i = 0; i < p->rule.k_groups; i++)
        chosen[best(group_score, chosen, n_groups)] = true;
    for (int32_t e = 0; e < p->rule.n_experts; e++)
        taken[e] = !chosen[e / size];
}

static void topk_row(const topk *p, int64_t t, float *work)
{
    const topk_rule *r = &p->rule;
    int32_t n = r->n_experts, *ids = p->ids + t * r->k;
    float *gates = p->gates + t * r->k, *scores = work, *rank = work + n;
    bool *taken = (bool *)(work + 3 * n);
    bool score_all = !r->score_after_topk;
    memcpy(scores, p->logits + t * n, (size_t)n * sizeof *scores);
    memcpy(rank, scores, (size_t)n * sizeof *rank);
    memset(taken, 0, (size_t)n * sizeof *taken);
    if (score_all)
        score(scores, n, r->score);
    for (int32_t e = 0; p->bias && e < n; e++)
        rank[e] = scores[e] + p->bias[e];
    if (r->n_groups > 1)
        limit_groups(p, rank, taken, work + 2 * n);
    for (int32_t slot = 0; slot < r->k; slot++) {
        ids[slot] = best(rank, taken, n);
        taken[ids[slot]] = true;
        gates[slot] = scores[ids[slot]];
    }
    if (!score_all)
        score(gates, r->k, r->score);
    float sum = 0.0f;
    for (int32_t slot = 0; slot < r->k; slot++)
        sum += gates[slot];
    sum += r->sum_more + 1e-20f; /* the sum of sigmoids may be 0 */
    float factor = r->scale / (!r->renormalise ? 1.0f : sum < r->sum_floor ? r->sum_floor : sum);
    for (int32_t slot = 0; slot < r->k; slot++)
        gates[slot] *= factor;
}

static void topk_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    for (int64_t t = begin; t < end; t++)
        topk_row(ctx, t, scratch);
}

void OP(topk_fwd)(device *d, tensor ids, tensor gates, tensor logits, const topk_rule *rule,
                  tensor bias)
{
    topk p = { ids.data, gates.data, logits.data, bias.data, *rule };
    int32_t n = rule->n_experts, groups = rule->n_groups;
    ASSERT(rule->k >= 1 && rule->k <= n && n <= CPU_SCRATCH / 32);
    ASSERT(groups <= 1 || (n % groups == 0 && rule->k <= n / groups * rule->k_groups));
    ASSERT(groups <= 1 || rule->k_groups <= groups);
    cpu_for(cpu_of(d), tensor_rows(&logits), cpu_step((int64_t)n * 64), topk_rows, &p);
}

void OP(expert_remap)(device *d, tensor out, tensor ids, tensor table, tensor rows)
{
    (void)d;
    int32_t *to = out.data;
    const int32_t *id = ids.data, *row = rows.data, *entry = table.data;
    int64_t n = tensor_rows(&ids), k = tensor_cols(&ids), n_experts = tensor_cols(&table);
    for (int64_t t = 0; t < n; t++) {
        ASSERT(row[t] >= 0 && row[t] < tensor_rows(&table));
        for (int64_t slot = t * k; slot < (t + 1) * k; slot++) {
            ASSERT(id[slot] >= 0 && id[slot] < n_experts);
            to[slot] = entry[row[t] * n_experts + id[slot]];
        }
    }
}

/* A counting sort: stable, so an expert's rows stay in the order of the tokens. */
void OP(expert_sort)(device *d, tensor order, tensor inverse, tensor offsets, tensor ids,
                     int32_t n_experts)
{
    (void)d;
    int32_t *start = offsets.data, *row = order.data, *place = inverse.data;
    const int32_t *id = ids.data;
    int32_t n = (int32_t)tensor_count(&ids);
    memset(start, 0, (size_t)(n_experts + 1) * sizeof *start);
    for (int32_t i = 0; i < n; i++) {
        ASSERT(id[i] >= 0 && id[i] < n_experts);
        start[id[i] + 1]++;
    }
    for (int32_t e = 0; e < n_experts; e++)
        start[e + 1] += start[e];
    /* start[e] advances to the end of expert e, where e + 1 starts; it is shifted back afterwards
     */
    for (int32_t i = 0; i < n; i++) {
        place[i] = start[id[i]]++;
        row[place[i]] = i;
    }
    memmove(start + 1, start, (size_t)n_experts * sizeof *start);
    start[0] = 0;
}
