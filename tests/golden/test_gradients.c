/* Gradients of every family against central differences of the loss. For each trained tensor the
 * slope of the loss is measured along two directions: the gradient itself, and random signs. A
 * gradient that is wrong anywhere cannot predict both. Everything trains: base weights, routers,
 * experts, adapters and LoRA on every linear (with B drawn at random, so that A has a gradient). */
#include "model/loss.h"
#include "support/training.h"
#include "train/params.h"

#include "support/check.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct fixture {
    const char *name;
    bool frozen; /* held in nf4: only LoRA trains */
    float dropout;
    int32_t molora;
    int expert_lora; /* LoRA on full experts, whose own weights are frozen: on all, or on SOME */
} fixture;

enum { SOME = 2 };

static const fixture fixtures[] = {
    { "llama", false, 0, 0, 0 },
    { "llama", false, 0.3F, 0, 0 },
    { "llama", false, 0.3F, 4, 0 },
    { "llama3", false, 0, 0, 0 },
    { "mistral", false, 0, 0, 0 },
    { "qwen2", false, 0, 0, 0 },
    { "qwen2-window", false, 0, 0, 0 },
    { "qwen3", false, 0, 0, 0 },
    { "camelidae", false, 0, 0, 0 },
    { "camelidae", false, 0.2F, 0, 0 },
    { "qwen2idae", false, 0, 0, 0 },
    { "mixtral", false, 0, 0, 0 },
    { "granitemoe", false, 0, 0, 0 },
    { "flex_olmo", false, 0, 0, 0 },
    { "afmoe", false, 0, 0, 0 },
    { "qwen2_moe-adapters", false, 0, 0, 0 },
    { "qwen2_moe-adapters", .dropout = 0.2F, .expert_lora = true },
    { "qwen2_moe-adapters", .expert_lora = SOME },
    { "deepseek_v3-adapters", false, 0, 0, 0 },
    { "flex_olmo-adapters", false, 0, 0, 0 },
    { "exaone4", false, 0, 0, 0 },
    { "qwen2_moe", false, 0, 0, 0 },
    { "qwen3_moe", false, 0, 0, 0 },
    { "olmoe", false, 0, 0, 0 },
    { "deepseek_v2", false, 0, 0, 0 },
    { "deepseek_v2-yarn", false, 0, 0, 0 },
    { "deepseek_v3", false, 0, 0, 0 },
    { "deepseek_v3-yarn", false, 0, 0, 0 },
    { "glm4_moe_lite", false, 0, 0, 0 },
    { "dots1", false, 0, 0, 0 },
    { "seed_oss", false, 0, 0, 0 },
    { "ernie4_5", false, 0, 0, 0 },
    { "ernie4_5_moe", false, 0, 0, 0 },
    { "solar_open", false, 0, 0, 0 },
    { "deepseek", false, 0, 0, 0 },
    { "smollm3", false, 0, 0, 0 },
    { "granite", false, 0, 0, 0 },
    { "granite", false, 0.3F, 4, 0 },
    { "ministral3", false, 0, 0, 0 },
    { "hunyuan_v1_dense", false, 0, 0, 0 },
    { "gpt_oss", false, 0, 0, 0 },
    { "gpt_oss-mxfp4", .expert_lora = true },
    { "olmo2", false, 0, 0, 0 },
    { "olmo3", false, 0, 0, 0 },
    { "gemma2", false, 0, 0, 0 },
    { "gemma3", false, 0, 0, 0 },
    { "gemma3", false, 0.3F, 4, 0 },
    { "gemma4", false, 0, 0, 0 },
    { "gemma4", false, 0.3F, 4, 0 },
    { "gemma4-shared", false, 0, 0, 0 },
    { "gemma4-shared", false, 0.3F, 4, 0 },
    { "gemma4-inputs", false, 0, 0, 0 },
    { "gemma4-inputs", false, 0.3F, 4, 0 },
    { "gemma4-moe", false, 0, 0, 0 },
    { "gemma4-moe", .expert_lora = true },
    { "olmo2", false, 0.3F, 4, 0 },
    { "phi3", false, 0.3F, 4, 0 },
    { "phi3-long", false, 0, 0, 0 },
    { "glm4", false, 0, 0, 0 },
    { "lfm2", false, 0, 0, 0 },
    { "lfm2", false, 0.3F, 4, 0 },
    { "lfm2_moe", false, 0, 0, 0 },
    { "qwen3_5", false, 0, 0, 0 },
    { "qwen3_5", false, 0.3F, 4, 0 },
    { "qwen3_5_moe", false, 0, 0, 0 },
    { "qwen3_next", false, 0, 0, 0 },
    { "bnb", true, 0, 0, 0 },
    { "mixtral", .dropout = 0.3F, .expert_lora = true },
    { "mixtral", .expert_lora = true },
    { "qwen2_moe", .expert_lora = true },
    { "qwen3_moe", .expert_lora = true },
    { "olmoe", .expert_lora = true },
    { "deepseek_v2", .expert_lora = true },
    { "mixtral", .dropout = 0.3F, .expert_lora = SOME },
    { "qwen2_moe", .expert_lora = SOME },
    { "deepseek_v2", .expert_lora = SOME },
    { "gpt_oss", .expert_lora = SOME },
    { "qwen3_5_moe", .expert_lora = SOME },
    { "lfm2_moe", .expert_lora = SOME },
};

enum { N_SEQS = 3, MAX_COUNTS = 256 };

static pesc_device *dev;

typedef struct trial {
    expertcfg chosen;
    pesc_model *m;
    params *p;
    pass *t;
    int32_t *ids, rows[64], targets[64];
    float weights[64];
    token_seq seqs[N_SEQS];
    train_input in;
    int64_t counts[MAX_COUNTS], settled[MAX_COUNTS]; /* choices of the last run, of the first */
} trial;

static int64_t count_of(const param *q)
{
    return q->ne[0] * (q->nd > 1 ? q->ne[1] : 1);
}

/* Experts 0, 1, 3, 5 ... of each layer; the last layer has one. */
static void choose_some(trial *t)
{
    const config *c = &t->m->shape.cfg;
    t->chosen = (expertcfg){ .shared_experts = true, .non_expert_modules = true };
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t ids[MAX_COUNTS] = { 0 }, n = 1;
        for (int32_t e = 1; l + 1 < c->n_layers && e < c->moe.topk.n_experts; e += 2)
            ids[n++] = e;
        if (t->m->shape.w.blocks[l].sparse)
            must(expertcfg_add(&t->chosen, l, ids, n));
    }
}

static void open_model(trial *t, const fixture *f)
{
    pesc_load_options opt = pesc_load_defaults();
    if (!f->frozen)
        opt.base_dtype = "f32";
    must(pesc_model_open(&t->m, dev, golden_path(f->name), &opt));
    if (f->expert_lora == SOME)
        choose_some(t);
    train_spec spec = { .adapters = !f->frozen,
                        .routers = !f->frozen,
                        .experts = !f->frozen && !f->expert_lora,
                        .base = !f->frozen,
                        .lora_r = 3,
                        .lora_alpha = 6,
                        .lora_dropout = f->dropout,
                        .adapter_dropout = f->dropout,
                        .lora_targets = TARGET_ALL | (f->expert_lora ? TARGET_EXPERTS : 0),
                        .lora_own = f->expert_lora == SOME ? &t->chosen : NULL,
                        .molora_experts = f->molora,
                        .molora_k = 2,
                        .seed = 5 };
    must(params_open(&t->p, t->m, &spec));
}

/* The matrices that start at zero, whose inputs would have no gradient. */
static void fill_zeros(trial *t)
{
    float *w = t->p->master.data;
    for (size_t i = 0; i < t->p->n_list; i++) {
        const param *q = &t->p->list[i];
        if (strstr(q->name, "lora_B") || strstr(q->name, "adapter_up"))
            for (int64_t j = 0; j < q->ne[0] * q->ne[1]; j++)
                w[q->at + j] = 0.2F * rng_normal((rng_key){ 9, i }, (uint64_t)j);
    }
    params_refresh(t->p);
}

/* Three sequences of the first n tokens; all or every other one of their rows has a target. */
static void set_input(trial *t, int32_t n)
{
    const int32_t cuts[N_SEQS + 1] = { 0, 9, 10, n };
    int32_t k = 0;
    for (int s = 0; s < N_SEQS; s++) {
        t->seqs[s] = (token_seq){ .ids = t->ids + cuts[s], .n = cuts[s + 1] - cuts[s] };
        for (int32_t i = cuts[s]; i + 1 < cuts[s + 1]; i += 1 + s % 2) {
            t->rows[k] = i;
            t->targets[k] = t->ids[i + 1];
            t->weights[k++] = 0.02F + 0.001F * (float)i;
        }
    }
    t->in = (train_input){ .seqs = t->seqs,
                           .n_seqs = N_SEQS,
                           .rows = t->rows,
                           .targets = t->targets,
                           .weights = t->weights,
                           .n_targets = k,
                           .aux_weight = 0.3F,
                           .z_weight = 0.02F };
}

static void open_trial(trial *t, const fixture *f)
{
    *t = (trial){ 0 };
    size_t n;
    char ids[512];
    snprintf(ids, sizeof ids, "%s/ids.json", f->name);
    t->ids = golden_ids(golden_path(ids), NULL, &n);
    n = n < 28 ? n : 28;
    open_model(t, f);
    fill_zeros(t);
    set_input(t, (int32_t)n);
    must(pass_open_train(&t->t, t->m, (pass_limits){ (int32_t)n, N_SEQS, 64 }, &t->p->mirror,
                         (keep_counts){ .all = 1 }));
}

static void close_trial(trial *t)
{
    pass_close(t->t);
    params_close(t->p);
    pesc_model_close(t->m);
    expertcfg_free(&t->chosen);
    free(t->ids);
}

/* Where there is dropout, the forward of training has the same masks each time. */
static double loss_of(trial *t, bool train)
{
    train_output out;
    if (train || t->p->spec.lora_dropout > 0)
        must(model_train(t->m, t->t, &t->in, &out));
    else
        must(model_loss(t->m, t->t, &t->in, &out));
    size_t n = (size_t)(t->m->shape.cfg.n_layers * t->m->shape.cfg.moe.topk.n_experts);
    if (out.counts)
        memcpy(t->counts, out.counts, n * sizeof *out.counts);
    return out.ce + (double)t->in.aux_weight * out.aux + (double)t->in.z_weight * out.z;
}

/* The slope along `direction` (of length 1) at parameter q. False: a token went to another expert
 * on the way, where the loss jumps. */
static bool slope_of(trial *t, const param *q, const float *direction, double h, double *slope)
{
    int64_t n = count_of(q), counts[MAX_COUNTS] = { 0 };
    float *w = (float *)t->p->master.data + q->at, *old = malloc((size_t)n * sizeof *old);
    double side[2];
    bool same = true;
    memcpy(old, w, (size_t)n * sizeof *old);
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < n; i++)
            w[i] = (float)((double)old[i] + (s ? -h : h) * (double)direction[i]);
        side[s] = loss_of(t, false);
        same &= memcmp(t->counts, t->settled, sizeof counts) == 0;
    }
    memcpy(w, old, (size_t)n * sizeof *old);
    free(old);
    *slope = (side[0] - side[1]) / (2 * h);
    return same;
}

static double length_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The noise of f32 in the loss grows as steps shrink, and is allowed for. */
static void check_direction(trial *t, const fixture *f, const param *q, const float *g,
                            const float *direction)
{
    int64_t n = count_of(q);
    double want = dot(g, direction, n), got = 0, allowed = 0;
    double size = fmax(length_of((const float *)t->p->master.data + q->at, n), 0.1);
    for (double h = 4e-3 * size; h > 4e-6 * size; h /= 2) {
        bool smooth = slope_of(t, q, direction, h, &got);
        allowed = 1e-2 * fabs(want) + 2e-6 / h;
        if (smooth && fabs(got - want) <= allowed)
            return;
    }
    fail_msg("%s: %s: the loss rises by %.6g, the gradient says %.6g (allowed %.2g)", f->name,
             q->name, got, want, allowed);
}

/* The loss must not know a tensor whose gradient is 0 everywhere: of an expert without tokens. */
static void check_unused(trial *t, const fixture *f, const param *q, const float *direction)
{
    double got = 0;
    if (slope_of(t, q, direction, 0.1, &got) && got != 0)
        fail_msg("%s: %s: the loss rises by %.6g, the gradient is 0", f->name, q->name, got);
}

static void gradients_equal_differences(void **state)
{
    const fixture *f = *state;
    trial t;
    open_trial(&t, f);
    training_zero_grads(t.p);
    loss_of(&t, true);
    memcpy(t.settled, t.counts, sizeof t.counts);
    float *grad = malloc((size_t)t.p->n * sizeof *grad), *direction = malloc((size_t)t.p->n * 4);
    memcpy(grad, t.p->grad.data, (size_t)t.p->n * sizeof *grad);
    size_t alive = 0;
    for (size_t i = 0; i < t.p->n_list; i++) {
        const param *q = &t.p->list[i];
        const float *g = grad + q->at;
        int64_t n = count_of(q);
        double length = length_of(g, n);
        for (int64_t j = 0; j < n; j++)
            direction[j] = (float)((double)g[j] / length);
        if (length > 0)
            check_direction(&t, f, q, g, direction);
        alive += length > 0;
        for (int64_t j = 0; j < n; j++) {
            bool up = rng_u32((rng_key){ 3, i }, (uint64_t)j) & 1;
            direction[j] = (float)((up ? 1 : -1) / sqrt((double)n));
        }
        check_direction(&t, f, q, g, direction);
        if (length == 0)
            check_unused(&t, f, q, direction);
    }
    assert_true(alive * 10 > t.p->n_list * 9);
    free(grad);
    free(direction);
    close_trial(&t);
}

int main(void)
{
    enum { N = sizeof fixtures / sizeof *fixtures };
    static struct CMUnitTest tests[N];
    static char names[N][96];
    if (pesc_device_open(&dev, "cpu:1") != PESC_OK)
        return 1;
    for (size_t i = 0; i < N; i++) {
        const fixture *f = &fixtures[i];
        snprintf(names[i], sizeof names[i], "%s%s%s%s: gradients equal differences", f->name,
                 f->dropout > 0 ? ", dropout" : "", f->molora ? ", mixture of LoRA" : "",
                 f->expert_lora == SOME ? ", LoRA on some experts"
                 : f->expert_lora       ? ", LoRA on experts"
                                        : "");
        tests[i] = (struct CMUnitTest){ .name = names[i],
                                        .test_func = gradients_equal_differences,
                                        .initial_state = (void *)(uintptr_t)f };
    }
    int failed = _cmocka_run_group_tests("gradients", tests, N, NULL, NULL);
    pesc_device_close(dev);
    return failed;
}
