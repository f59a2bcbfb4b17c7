/* Several domains in one run: tokens of a domain add to the gradients of the experts that it chose,
 * exactly as they would without domains, and to no other expert's; whatever else trains gets the
 * gradient of all. The gradients themselves are compared with difference quotients in
 * tests/golden/test_gradients. */
#include "train/domains.h"

#include "support/training.h"

#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model[] =
    "{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":2,\"num_experts_per_tok\":2,"
    "\"num_experts\":5,\"moe_intermediate_size\":20,\"shared_expert_intermediate_size\":28,"
    "\"hidden_size\":36,\"num_attention_heads\":6,\"num_key_value_heads\":3,"
    "\"intermediate_size\":52,\"vocab_size\":67,\"max_position_embeddings\":256,"
    "\"initializer_range\":0.2}";

static const char *const choices[] = {
    "{\"experts\": {\"0\": [3, 0], \"1\": [1]}, \"shared_experts\": true}",
    "{\"experts\": {\"0\": [4, 3], \"1\": [2, 0]}, \"shared_experts\": true}"
};

enum { TOKENS = 40, V = 67 };

static pesc_device *dev;

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, "cpu:2"));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_device_close(dev);
    return 0;
}

/* The union of the two choices, with the domains a and b. */
static expertcfg both(void)
{
    expertcfg all = { 0 };
    for (int d = 0; d < 2; d++) {
        expertcfg one;
        must(expertcfg_parse(&one, choices[d], strlen(choices[d]), "choice"));
        must(expertcfg_add_domain(&all, d ? "b" : "a", &one));
        expertcfg_free(&one);
    }
    return all;
}

typedef struct result {
    pesc_model *m;
    params *p;
} result;

/* The gradients of one micro-batch whose tokens are of this domain (a bit). */
static result run(const expertcfg *own, bool on_lora, uint64_t domain)
{
    result r;
    pass *t;
    int32_t ids[TOKENS], rows[TOKENS], targets[TOKENS];
    float shares[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 31 + i * i * 7) % V;
        targets[i] = (i * 17 + 5) % V;
        shares[i] = 0.02F;
        rows[i] = i;
    }
    files_clear();
    must(pesc_new(files_text("m.json", model), files_path("m"), NULL, "f32", 7, NULL));
    must(pesc_model_open(&r.m, dev, files_path("m"), NULL));
    train_spec spec = { .own = on_lora ? NULL : own,
                        .lora_own = on_lora ? own : NULL,
                        .lora_r = on_lora ? 3 : 0,
                        .lora_alpha = 6,
                        .lora_targets = TARGET_ALL | TARGET_EXPERTS,
                        .seed = 5 };
    must(params_open(&r.p, r.m, &spec));
    for (size_t i = 0; i < r.p->n_list; i++) {
        const param *q = &r.p->list[i];
        float *w = (float *)r.p->master.data + q->at;
        for (int64_t j = 0; strstr(q->name, "lora_B") && j < q->ne[0] * q->ne[1]; j++)
            w[j] = 0.2F * rng_normal((rng_key){ 9, i }, (uint64_t)j);
    }
    params_refresh(r.p);
    training_zero_grads(r.p);
    token_seq seq = { .ids = ids, .n = TOKENS };
    train_input in = { .seqs = &seq,
                       .n_seqs = 1,
                       .rows = rows,
                       .targets = targets,
                       .weights = shares,
                       .n_targets = TOKENS,
                       .domain = domain };
    train_output out;
    must(pass_open_train(&t, r.m, (pass_limits){ TOKENS, 1, TOKENS }, &r.p->mirror,
                         (keep_counts){ .all = 1 }));
    must(model_train(r.m, t, &in, &out));
    pass_close(t);
    return r;
}

static void close_result(result *r)
{
    params_close(r->p);
    pesc_model_close(r->m);
}

/* Which domains chose the expert that a parameter is of; all, where it is of none. */
static uint64_t domains_of(const expertcfg *own, const char *name)
{
    int layer, expert;
    if (sscanf(name, "model.layers.%d.mlp.experts.%d.", &layer, &expert) != 2)
        return UINT64_MAX;
    const expertcfg_layer *l = expertcfg_find(own, layer);
    int32_t i = 0;
    while (l->ids[i] != expert)
        i++;
    return l->domains[i];
}

static void tokens_train_the_experts_of_their_domain(void **state)
{
    (void)state;
    for (int on_lora = 0; on_lora < 2; on_lora++) {
        expertcfg own = both(), mixed = both();
        for (size_t i = 0; i < mixed.n_layers; i++) { /* the same experts, of no domain */
            free(mixed.layers[i].domains);
            mixed.layers[i].domains = NULL;
        }
        result want = run(&mixed, on_lora, 0);
        for (uint64_t domain = 1; domain < 3; domain++) {
            int trained = 0, left = 0;
            result got = run(&own, on_lora, domain);
            assert_true(got.p->n == want.p->n && got.p->n_list == want.p->n_list);
            for (size_t i = 0; i < got.p->n_list; i++) {
                const param *q = &got.p->list[i];
                const float *g = params_grad(got.p, q).data;
                const float *w = params_grad(want.p, &want.p->list[i]).data;
                const bool mine = domains_of(&own, q->name) & domain;
                for (int64_t k = 0; k < q->ne[0] * q->ne[1]; k++) {
                    if (g[k] != (mine ? w[k] : 0))
                        fail_msg("%s: domain %d: %g, expected %g", q->name, (int)domain,
                                 (double)g[k], mine ? (double)w[k] : 0);
                    trained += mine && g[k] != 0;
                    left += !mine && w[k] != 0;
                }
            }
            assert_true(trained > 0 && left > 0);
            close_result(&got);
        }
        close_result(&want);
        expertcfg_free(&own);
        expertcfg_free(&mixed);
    }
}

static void a_union_knows_whose_experts_are_whose(void **state)
{
    (void)state;
    expertcfg all = both();
    const expertcfg_layer *l = expertcfg_find(&all, 0);
    const int32_t ids[] = { 0, 3, 4 }, listed[] = { 3, 0, 4 };
    const uint64_t domains[] = { 1, 3, 2 };
    assert_int_equal(l->n, 3);
    assert_memory_equal(l->ids, ids, sizeof ids);
    assert_memory_equal(l->listed, listed, sizeof listed);
    assert_memory_equal(l->domains, domains, sizeof domains);
    assert_int_equal(expertcfg_total(&all), 6);
    assert_true(all.shared_experts && !all.non_expert_modules && all.n_domains == 2);
    assert_string_equal(all.domains[1], "b");
    expertcfg_free(&all);
}

static void the_option_is_read(void **state)
{
    (void)state;
    char *text = NULL, given[1200];
    const char *file = files_text("choice.json", choices[0]);
    assert_int_equal(domains_count(NULL), 0);
    assert_int_equal(domains_count(""), 0);
    assert_int_equal(domains_count("a=x,b=y"), 2);
    snprintf(given, sizeof given, "a=%s,b=%s", file, file);
    must(domains_absolute(&text, given));
    assert_string_equal(text, given);
    free(text);
    static const char *const bad[] = { "a", "=x", "a=", "a=/,,b=/", ",a=/", "a=/,b" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        text = NULL;
        must_fail(domains_absolute(&text, bad[i]), PESC_USAGE, "expected NAME=FILE");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_train_the_experts_of_their_domain),
        cmocka_unit_test(a_union_knows_whose_experts_are_whose),
        cmocka_unit_test(the_option_is_read),
    };
    return cmocka_run_group_tests_name("domains", tests, open_all, close_all);
}
