#include "train/objective.h"

#include <math.h>
#include <string.h>

static preference_kind kind_of(const char *name)
{
    static const char *const names[] = { "sft", "dpo", "ipo", "orpo", "simpo", "kto" };
    int i = 0;
    while (strcmp(names[i], name) != 0)
        i++; /* the options take no other */
    return (preference_kind)i;
}

void objective_take(objective *o, const pesc_train_options *opt)
{
    *o = (objective){ .rule = { .kind = kind_of(opt->objective),
                                .beta = opt->beta,
                                .smoothing = opt->label_smoothing,
                                .gamma = opt->simpo_gamma,
                                .lambda = opt->orpo_lambda,
                                .desirable = opt->kto_desirable,
                                .undesirable = opt->kto_undesirable,
                                .sft = opt->sft_coef },
                      .loss = strcmp(opt->loss, "token") == 0 ? LOSS_TOKEN : LOSS_SEQUENCE };
}

int32_t objective_answers(const pesc_train_options *opt)
{
    return preference_has_pairs(kind_of(opt->objective)) ? 2 : 1;
}

void preference_sums_add(preference_sums *to, const preference_sums *more)
{
    to->loss += more->loss;
    to->right += more->right;
    for (int i = 0; i < 2; i++) {
        to->n[i] += more->n[i];
        to->reward[i] += more->reward[i];
        to->logp[i] += more->logp[i];
    }
    to->ce += more->ce;
    to->ce_n += more->ce_n;
    to->whole += more->whole;
    to->whole_n += more->whole_n;
    to->moved += more->moved;
}

/* ---- answers ---- */

double objective_logp(const float *losses, const pack_span *span, int32_t first, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum -= (double)losses[span->first_target + first + i];
    return sum;
}

static preference_answer read_answer(const objective *o, const float *losses, const pack_span *at)
{
    const batch_answer *a = batch_answer_of(o->batch, at);
    preference_answer out = { .logp = objective_logp(losses, at, a->first, a->n), .tokens = a->n };
    if (o->ref && o->ref->rows) {
        const reference_row *row = &o->ref->rows[a->record];
        bool second = preference_has_pairs(o->rule.kind) && a->role == ANSWER_REJECTED;
        out.reference = second ? row->other : row->answer;
    }
    return out;
}

/* Counts the cross-entropy of n targets of a chosen answer: as they are, or as one mean. */
static void add_entropy(const objective *o, double *sum, double *count, double entropy, int32_t n)
{
    bool token = o->loss == LOSS_TOKEN;
    *sum += token ? entropy : entropy / n;
    *count += token ? n : 1;
}

/* The weight of each of n targets in a mean over all chosen answers of the batch. */
static double mean_weight(const objective *o, int64_t all, int32_t n)
{
    return o->loss == LOSS_TOKEN ? 1.0 / (double)all
                                 : 1.0 / ((double)batch_count(o->batch).chosen * n);
}

/* The cross-entropy of a chosen answer: of its own tokens, and with ORPO of all. */
static void measure_entropy(objective *o, const float *losses, const pack_span *at, bool weigh)
{
    const batch_answer *a = batch_answer_of(o->batch, at);
    batch_counts all = batch_count(o->batch);
    bool whole = o->rule.kind == PREFERENCE_ORPO;
    float *weights = o->micro.weights + at->first_target;
    double own = o->rule.sft * mean_weight(o, all.chosen_tokens, a->n);
    double every = whole ? mean_weight(o, all.chosen_targets, at->n_targets) : 0;
    add_entropy(o, &o->sums.ce, &o->sums.ce_n, -objective_logp(losses, at, a->first, a->n), a->n);
    if (whole)
        add_entropy(o, &o->sums.whole, &o->sums.whole_n,
                    -objective_logp(losses, at, 0, at->n_targets), at->n_targets);
    for (int32_t i = 0; weigh && i < at->n_targets; i++) {
        bool answer = i >= a->first && i < a->first + a->n;
        weights[i] += (float)(every + (answer ? own : 0));
    }
}

/* The weights of an answer's targets: -slope, because a loss is the negative log-probability. */
static void put_weights(const objective *o, const pack_span *at, double slope)
{
    const batch_answer *a = batch_answer_of(o->batch, at);
    batch_counts all = batch_count(o->batch);
    bool pairs = preference_has_pairs(o->rule.kind);
    double n = (double)(pairs ? all.chosen : all.chosen + all.rejected);
    float *weights = o->micro.weights + at->first_target;
    memset(weights, 0, (size_t)at->n_targets * sizeof *weights);
    for (int32_t i = 0; i < a->n; i++)
        weights[a->first + i] = (float)(-slope / n);
}

/* One span of a labelled answer, two of a pair: the chosen one is side 0. */
static void measure(objective *o, const float *losses, const pack_span *at, bool weigh)
{
    bool pair = preference_has_pairs(o->rule.kind);
    preference_answer of[2] = { read_answer(o, losses, at) };
    int side = !pair && batch_answer_of(o->batch, at)->role == ANSWER_REJECTED;
    preference_value v;
    if (pair) {
        of[1] = read_answer(o, losses, at + 1);
        v = preference_pair(&o->rule, of);
        o->sums.right += v.reward[0] > v.reward[1];
    } else {
        v = preference_labelled(&o->rule, of, side == 0, o->kl);
        o->sums.moved += o->kl;
    }
    o->sums.loss += v.loss;
    for (int i = pair ? 0 : side; i < (pair ? 2 : side + 1); i++) {
        o->sums.n[i]++;
        o->sums.reward[i] += v.reward[i];
        o->sums.logp[i] += v.logp[i];
        if (weigh)
            put_weights(o, at + (pair ? i : 0), v.slope[i]);
    }
    if (side == 0)
        measure_entropy(o, losses, at, weigh);
}

void objective_measure(objective *o, const float *losses, bool weigh)
{
    int32_t step = preference_has_pairs(o->rule.kind) ? 2 : 1;
    o->sums = (preference_sums){ 0 };
    for (int32_t s = 0; s < o->micro.n_seqs; s += step)
        measure(o, losses, &o->micro.spans[s], weigh);
}

double objective_moved(const objective *o, const float *losses)
{
    double sum = 0;
    for (int32_t s = 0; s < o->micro.n_seqs; s++) {
        const pack_span *at = &o->micro.spans[s];
        sum += objective_logp(losses, at, 0, at->n_targets) - o->ref->rows[at->tag].other;
    }
    return sum;
}

/* ---- what is reported ---- */

double objective_value(const objective *o, const preference_sums *s, pesc_preference *out)
{
    bool pairs = preference_has_pairs(o->rule.kind);
    double n = pairs ? s->n[0] : s->n[0] + s->n[1];
    *out = (pesc_preference){ .answers = (int64_t)(s->n[0] + s->n[1]),
                              .reward_chosen = s->reward[0] / s->n[0],
                              .reward_rejected = s->reward[1] / s->n[1],
                              .logp_chosen = s->logp[0] / s->n[0],
                              .logp_rejected = s->logp[1] / s->n[1],
                              .accuracy = pairs ? s->right / n : NAN,
                              .kl = o->rule.kind == PREFERENCE_KTO ? s->moved / n : NAN };
    out->margin = out->reward_chosen - out->reward_rejected;
    double loss = s->loss / n;
    if (s->ce_n > 0)
        loss += o->rule.sft * s->ce / s->ce_n;
    return s->whole_n > 0 ? loss + s->whole / s->whole_n : loss;
}
