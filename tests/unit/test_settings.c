#include "train/settings.h"

#include "support/check.h"

static const char *const files[] = { "/data/a b.jsonl", "/data/\"c\".jsonl" };

static pesc_train_options usual(void)
{
    pesc_train_options o = pesc_train_defaults();
    o.output = "run";
    o.data = files;
    o.n_data = 2;
    return o;
}

static void writes_yaml(void **state)
{
    (void)state;
    pesc_train_options o = usual();
    str out = { 0 };
    o.lr = 0.1;
    o.eps = 1e-8;
    o.shuffle = false;
    settings_yaml(&o, "/m", &out);
    assert_true(str_ok(&out));
    static const char *const lines[] = {
        "model: \"/m\"\n",
        "method: \"pesc\"\n",
        "lr: 0.1\n",
        "eps: 1e-8\n",
        "shuffle: false\n",
        "keep: auto\n",
        "lora_r: 64\n",
        "clip: 0.3\n",
        "data: [\"/data/a b.jsonl\", \"/data/\\\"c\\\".jsonl\"]\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(out.p, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], out.p);
    assert_null(strstr(out.p, "eval_data")); /* what is absent is not written */
    assert_null(strstr(out.p, "init_from"));
    str_free(&out);
}

/* What decides the numbers is in the hash, what does not is not. */
static void hashes_what_decides_the_numbers(void **state)
{
    (void)state;
    pesc_train_options o = usual(), p = o;
    uint64_t h = settings_hash(&o);
    const size_t doubles[] = { offsetof(pesc_train_options, lr),
                               offsetof(pesc_train_options, clip),
                               offsetof(pesc_train_options, aux_coef),
                               offsetof(pesc_train_options, beta1),
                               offsetof(pesc_train_options, lora_alpha),
                               offsetof(pesc_train_options, eps),
                               offsetof(pesc_train_options, adapter_dropout) };
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        p = o;
        *(double *)(void *)((char *)&p + doubles[i]) += 1e-9;
        assert_true(settings_hash(&p) != h);
    }
    const size_t counts[] = {
        offsetof(pesc_train_options, seed),         offsetof(pesc_train_options, batch),
        offsetof(pesc_train_options, seq_len),      offsetof(pesc_train_options, lora_r),
        offsetof(pesc_train_options, micro_tokens), offsetof(pesc_train_options, warmup_steps)
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        p = o;
        *(int64_t *)(void *)((char *)&p + counts[i]) += 1;
        assert_true(settings_hash(&p) != h);
    }
    p = o;
    p.method = "lora";
    assert_true(settings_hash(&p) != h);
    p = o;
    p.shuffle = !p.shuffle;
    assert_true(settings_hash(&p) != h);
    p = o; /* when and where */
    p.save_every = p.log_every = p.eval_every = p.keep_checkpoints = p.verify_every = 7;
    p.output = "elsewhere";
    p.keep = 3;
    assert_true(settings_hash(&p) == h);
    p = o; /* a constant rate does not see the end, a cosine does */
    p.steps = 99;
    assert_true(settings_hash(&p) == h);
    p.schedule = o.schedule = "cosine";
    assert_true(settings_hash(&p) != settings_hash(&o));
}

static void checks_ranges_and_choices(void **state)
{
    (void)state;
    pesc_train_options o = usual(), r;
    must(settings_take(&r, &o));
    o.optimizer = "sgd";
    must_fail(settings_take(&r, &o), PESC_USAGE,
              "optimizer: found \"sgd\", expected adamw or adamw8");
    o = usual();
    o.optimizer = "adam"; /* a beginning is not the whole */
    must_fail(settings_take(&r, &o), PESC_USAGE, "optimizer: found \"adam\"");
    o = usual();
    o.batch = 0;
    must_fail(settings_take(&r, &o), PESC_USAGE,
              "batch: found 0, expected a whole number from 1 to 1048576");
    o = usual();
    o.epochs = 0;
    must_fail(settings_take(&r, &o), PESC_USAGE, "one of them must say how long the run is");
    o = usual();
    o.n_data = 0;
    must_fail(settings_take(&r, &o), PESC_USAGE, "data: is missing");
    o = usual();
    o.output = "";
    must_fail(settings_take(&r, &o), PESC_USAGE, "output: is missing");
}

static void presets(void **state)
{
    (void)state;
    pesc_train_options o = pesc_train_defaults();
    assert_true(o.lr == 2e-4 && o.clip == 0.3 && o.aux_coef == -1 && o.adapter_scale == 1);
    assert_true(o.seq_len == 2048 && o.batch == 128 && o.warmup_ratio == 0.03 && o.lora_r == 64);
    must(pesc_train_preset(&o, "published"));
    assert_true(o.aux_coef == 0 && o.adapter_scale == 0.25);
    assert_string_equal(o.loss, "sequence");
    must_fail(pesc_train_preset(&o, "mine"), PESC_USAGE, "expected paper, published or esft");
    static const struct {
        const char *method;
        double lr;
    } rates[] = { { "esft", 1e-5 }, { "full", 3e-5 }, { "lora", 1e-4 } };
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        o.method = rates[i].method;
        must(pesc_train_preset(&o, "esft"));
        assert_true(o.lr == rates[i].lr && o.clip == 1 && o.beta2 == 0.95 && o.weight_decay == 0.1);
        assert_true(o.batch == 32 && o.seq_len == 4096 && o.lora_r == 8 && o.lora_alpha == 16);
    }
    o.method = "pesc";
    must_fail(pesc_train_preset(&o, "esft"), PESC_USAGE,
              "esft is for method esft, full or lora, and has no settings for pesc");
    o.method = "qlora";
    pesc_load_options load = pesc_load_defaults();
    must(pesc_train_load(&o, &load));
    assert_string_equal(load.base_dtype, "nf4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_yaml),
        cmocka_unit_test(hashes_what_decides_the_numbers),
        cmocka_unit_test(checks_ranges_and_choices),
        cmocka_unit_test(presets),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
