#include "train/preference.h"

#include <math.h>

static double sigmoid(double z)
{
    return z < 0 ? exp(z) / (1 + exp(z)) : 1 / (1 + exp(-z));
}

static double log_sigmoid(double z)
{
    return z < 0 ? z - log1p(exp(z)) : -log1p(exp(-z));
}

/* A loss of the difference z of two scores, and its slope. */
typedef struct score_loss {
    double loss, slope;
} score_loss;

/* Robust DPO, which without smoothing is DPO. */
static score_loss robust(double z, double smoothing)
{
    double part = 1 - 2 * smoothing;
    return (score_loss){
        (-(1 - smoothing) * log_sigmoid(z) + smoothing * log_sigmoid(-z)) / part,
        (-(1 - smoothing) * sigmoid(-z) - smoothing * sigmoid(z)) / part,
    };
}

/* With the label turned round in a part of the pairs, as TRL has it for SimPO. */
static score_loss conservative(double z, double smoothing)
{
    return (score_loss){
        -(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z),
        -(1 - smoothing) * sigmoid(-z) + smoothing * sigmoid(z),
    };
}

/* log(1 - e^x), without cancellation on either side of -log 2. */
static double log_rest(double x)
{
    return x < -0.6931471805599453 ? log1p(-exp(x)) : log(-expm1(x));
}

/* The log of the odds of an answer whose tokens have the mean log-probability x. One of
 * probability 1 has no odds; x is kept a rounding of f32 away from it. */
static double log_odds(double x, double *slope)
{
    x = fmin(x, -1e-12);
    *slope = -1 / expm1(x);
    return x - log_rest(x);
}

preference_value preference_pair(const preference_rule *r, const preference_answer of[2])
{
    preference_value v = { 0 };
    double score[2], unit[2] = { 1, 1 }, slope[2] = { 1, 1 }; /* of a score, by logp */
    score_loss s;
    for (int i = 0; i < 2; i++) {
        bool mean = r->kind != PREFERENCE_DPO;
        score[i] = of[i].logp - (preference_has_reference(r->kind) ? of[i].reference : 0);
        unit[i] = mean ? 1.0 / of[i].tokens : 1;
        v.logp[i] = preference_has_reference(r->kind) ? of[i].logp : of[i].logp * unit[i];
        v.reward[i] = r->beta * score[i];
        score[i] *= unit[i];
    }
    if (r->kind == PREFERENCE_DPO) {
        s = robust(r->beta * (score[0] - score[1]), r->smoothing);
        s.slope *= r->beta;
    } else if (r->kind == PREFERENCE_IPO) {
        double gap = score[0] - score[1] - 1 / (2 * r->beta);
        s = (score_loss){ gap * gap, 2 * gap };
    } else if (r->kind == PREFERENCE_SIMPO) {
        s = conservative(r->beta * (score[0] - score[1]) - r->gamma, r->smoothing);
        s.slope *= r->beta;
    } else {
        double z = log_odds(score[0], &slope[0]) - log_odds(score[1], &slope[1]);
        s = (score_loss){ -r->lambda * log_sigmoid(z), -r->lambda * sigmoid(-z) };
    }
    if (!preference_has_reference(r->kind))
        for (int i = 0; i < 2; i++)
            v.reward[i] = (r->kind == PREFERENCE_ORPO ? r->lambda : r->beta) * score[i];
    v.loss = s.loss;
    v.slope[0] = s.slope * slope[0] * unit[0];
    v.slope[1] = -s.slope * slope[1] * unit[1];
    return v;
}

preference_value preference_labelled(const preference_rule *r, const preference_answer *of,
                                     bool desirable, double kl)
{
    double ratio = of->logp - of->reference, sign = desirable ? 1 : -1;
    double weight = desirable ? r->desirable : r->undesirable;
    double miss = sigmoid(-sign * r->beta * (ratio - kl)); /* 1 - sigmoid(...) */
    preference_value v = { .loss = weight * miss };
    int at = desirable ? 0 : 1;
    v.slope[at] = -sign * weight * r->beta * miss * (1 - miss);
    v.reward[at] = r->beta * ratio;
    v.logp[at] = of->logp;
    return v;
}
