/* The gradient of routers from all experts: what it is for the chosen experts and for all of them,
 * that it changes nothing but routers and what is below them, and the gradient that it stands for:
 * that of a layer in which every expert is chosen. Its last step, through the softmax, is compared
 * with difference quotients in tests/ops (topk_bwd_all). */
#include "arch/bind.h"
#include "model/pass.h"
#include "support/training.h"
#include "train/params.h"

#include "support/check.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMON                                                                                     \
    "\"hidden_size\":36,\"num_attention_heads\":6,\"num_key_value_heads\":3,"                      \
    "\"intermediate_size\":52,\"vocab_size\":67,\"max_position_embeddings\":256,"                  \
    "\"initializer_range\":0.2"

typedef struct row {
    const char *name, *config; /* with %d for layers and for experts a token */
} row;

enum { EXPERTS = 5, V = 67, TOKENS = 40 };

static const row rows[] = {
    { "camelidae",
      "{\"model_type\":\"camelidae\",\"num_hidden_layers\":%d,\"topk\":%d,\"num_experts\":5,"
      "\"adapter_dim\":7,\"moe_scaling\":0.25," COMMON "}" },
    { "mixtral", "{\"model_type\":\"mixtral\",\"num_hidden_layers\":%d,\"num_experts_per_tok\":%d,"
                 "\"num_local_experts\":5," COMMON "}" },
    { "qwen2_moe",
      "{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":%d,\"num_experts_per_tok\":%d,"
      "\"num_experts\":5,\"moe_intermediate_size\":20,\"shared_expert_intermediate_size\":"
      "28," COMMON "}" },
    { "beside", "{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":%d,\"adapter_top_k\":%d,"
                "\"adapter_experts\":5,\"adapter_dim\":7,\"moe_scaling\":0.25,\"num_experts\":6,"
                "\"moe_intermediate_size\":20,\"shared_expert_intermediate_size\":28," COMMON "}" },
};

static pesc_device *dev;
static int32_t ids[TOKENS], out_rows[TOKENS], targets[TOKENS];
static float shares[TOKENS];

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, "cpu:2"));
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 31 + i * i * 7) % V;
        targets[i] = (i * 17 + 5) % V;
        shares[i] = (float)(1 + i % 3) / 200;
        out_rows[i] = i;
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_device_close(dev);
    return 0;
}

typedef struct trial {
    pesc_model *m;
    params *p;
    pass *t;
} trial;

typedef struct setup {
    int layers, k;
    bool dense, all; /* all: experts train too */
    int keep;
} setup;

static trial run(const row *r, setup s)
{
    char text[600], name[64];
    trial t;
    snprintf(text, sizeof text, r->config, s.layers, s.k);
    snprintf(name, sizeof name, "%s.json", r->name);
    files_clear();
    must(pesc_new(files_text(name, text), files_path(r->name), NULL, "f32", 7, NULL));
    must(pesc_model_open(&t.m, dev, files_path(r->name), NULL));
    train_spec spec = { .adapters = s.all,
                        .experts = s.all,
                        .routers = true,
                        .dense_router = s.dense,
                        .lora_r = 3,
                        .lora_alpha = 6,
                        .lora_targets = TARGET_ALL | TARGET_EXPERTS,
                        .seed = 5 };
    must(params_open(&t.p, t.m, &spec));
    for (slot at = slot_first(); slot_next(&t.m->shape.cfg, &at);) {
        tensor w = bind_tensor(&t.m->shape.w, &at);
        for (int64_t j = 0; strstr(at.name, "adapter_up") && j < tensor_count(&w); j++)
            ((float *)w.data)[j] =
                0.2F * rng_normal((rng_key){ 9, (uint64_t)at.expert }, (uint64_t)j);
    }
    for (size_t i = 0; i < t.p->n_list; i++) {
        const param *q = &t.p->list[i];
        float *w = (float *)t.p->master.data + q->at;
        for (int64_t j = 0; strstr(q->name, "lora_B") && j < q->ne[0] * q->ne[1]; j++)
            w[j] = 0.2F * rng_normal((rng_key){ 9, i }, (uint64_t)j);
    }
    params_refresh(t.p);
    training_zero_grads(t.p);
    token_seq seq = { .ids = ids, .n = TOKENS };
    train_input in = { .seqs = &seq,
                       .n_seqs = 1,
                       .rows = out_rows,
                       .targets = targets,
                       .weights = shares,
                       .n_targets = TOKENS };
    train_output out;
    must(pass_open_train(&t.t, t.m, (pass_limits){ TOKENS, 1, TOKENS }, &t.p->mirror,
                         (keep_counts){ .all = s.keep }));
    must(model_train(t.m, t.t, &in, &out));
    assert_true(out.finite);
    return t;
}

static void close_trial(trial *t)
{
    pass_close(t->t);
    params_close(t->p);
    pesc_model_close(t->m);
}

static void near(const float *a, const float *b, int64_t n, double tolerance)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * (most + 1e-6)))
            fail_msg("element %lld: %.9g, expected %.9g", (long long)i, (double)a[i], (double)b[i]);
}

/* The gates of the chosen experts have the gradient that they have without it. */
static void chosen_experts_have_their_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int all = 0; all < 2; all++) {
            trial t = run(&rows[i], (setup){ .layers = 1, .k = 2, .dense = true, .all = all });
            const moe_grads *d = &t.t->train->grads.moe;
            const int32_t *id = t.t->acts.moe.ids.data;
            const float *gates = d->gates.data, *every = d->all.data;
            float got[2 * TOKENS];
            for (int k = 0; k < 2 * TOKENS; k++)
                got[k] = every[k / 2 * EXPERTS + id[k]];
            near(got, gates, 2 * TOKENS, 1e-4);
            close_trial(&t);
        }
}

/* Where each token gets all experts, both gradients are the same, all the way down. */
static void all_experts_chosen_is_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int keep = 0; keep < 3; keep++) {
            setup s = { .layers = 2, .k = EXPERTS, .dense = true, .all = true, .keep = keep };
            trial dense = run(&rows[i], s);
            int64_t n = dense.p->n;
            float *g = malloc((size_t)n * sizeof *g);
            memcpy(g, dense.p->grad.data, (size_t)n * sizeof *g);
            close_trial(&dense);
            s.dense = false;
            trial chosen = run(&rows[i], s);
            near(g, chosen.p->grad.data, n, 1e-4);
            close_trial(&chosen);
            free(g);
        }
}

/* The gradient of an unchosen expert's gate is not zero, and the router learns from it. */
static void routers_learn_from_unchosen_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial dense = run(&rows[i], (setup){ .layers = 1, .k = 1, .dense = true });
        const moe_grads *d = &dense.t->train->grads.moe;
        const float *every = d->all.data, *dz = d->logits.data;
        for (int k = 0; k < TOKENS * EXPERTS; k++) {
            double sum = 0, p[EXPERTS], total = 0;
            const float *z = (const float *)dense.t->acts.moe.logits.data + k / EXPERTS * EXPERTS;
            for (int e = 0; e < EXPERTS; e++)
                total += p[e] = exp((double)z[e]);
            for (int e = 0; e < EXPERTS; e++)
                sum += p[e] / total * (double)every[k / EXPERTS * EXPERTS + e];
            double want = p[k % EXPERTS] / total * ((double)every[k] - sum);
            assert_true(every[k] != 0);
            assert_true(fabs((double)dz[k] - want) <= 1e-5 * fabs(want) + 1e-8);
        }
        close_trial(&dense);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_experts_have_their_gradient),
        cmocka_unit_test(all_experts_chosen_is_the_same),
        cmocka_unit_test(routers_learn_from_unchosen_experts),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
