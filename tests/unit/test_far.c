/* test_far: models run and train on a device whose memory the host cannot touch, with the bits of
 * the CPU. A stray read or write of a device address ends this program. */
#include "model/forward.h"
#include "support/check.h"
#include "support/far.h"
#include "support/files.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 24, STEPS = 3 };

static device *open_device(bool is_far)
{
    device *d = NULL;
    if (is_far)
        return far_open(0);
    must(backend_open(&d, "cpu:2"));
    return d;
}

/* What a run gives: the logits of a prompt, the tokens it goes on with, the losses of training. */
typedef struct numbers {
    float *logits;
    size_t n_logits;
    int32_t ids[TOKENS];
    double loss[2 * STEPS];
} numbers;

static void speak(device *d, const char *path, const pesc_load_options *opt, numbers *out)
{
    pesc_model *m;
    pesc_session *s;
    pesc_generation g = PESC_INIT(pesc_generation);
    pesc_sample_options sample = pesc_sample_defaults();
    int32_t prompt[TOKENS];
    must(pesc_model_open(&m, d, path, opt));
    for (int32_t i = 0; i < TOKENS; i++)
        prompt[i] = (i * 37 + 11) % m->shape.cfg.vocab;
    out->n_logits = (size_t)TOKENS * (size_t)m->shape.cfg.vocab;
    out->logits = calloc(out->n_logits, sizeof *out->logits);
    must(pesc_logits(m, prompt, TOKENS, out->logits));
    sample.max_tokens = TOKENS;
    sample.ignore_eos = true;
    must(pesc_session_open(&s, m, 0));
    must(pesc_session_complete(s, prompt, TOKENS, &sample, NULL, NULL, &g));
    assert_int_equal(g.n_ids, TOKENS);
    memcpy(out->ids, g.ids, sizeof out->ids);
    pesc_generation_free(&g);
    pesc_session_close(s);
    pesc_model_close(m);
}

static void models_run(void **state)
{
    (void)state;
    static const struct {
        const char *name, *base, *compute;
    } cases[] = {
        { "llama", "", "f32" },         { "llama", "bf16", "bf16" }, { "llama", "nf4", "bf16" },
        { "qwen2", "", "f32" },         { "camelidae", "", "f32" },  { "camelidae", "nf4", "bf16" },
        { "deepseek_v2", "", "f32" },   { "qwen2_moe", "", "f32" },  { "gemma4", "", "f32" },
        { "gemma4-shared", "", "f32" }, { "gemma4-moe", "", "f32" }, { "bnb", "", "f32" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        numbers got[2] = { 0 };
        pesc_load_options opt = pesc_load_defaults();
        opt.base_dtype = cases[i].base;
        opt.compute_dtype = cases[i].compute;
        for (int is_far = 0; is_far < 2; is_far++) {
            device *d = open_device(is_far);
            speak(d, golden_path(cases[i].name), &opt, &got[is_far]);
            d->op->close(d);
        }
        assert_memory_equal(got[0].logits, got[1].logits, got[0].n_logits * sizeof(float));
        assert_memory_equal(got[0].ids, got[1].ids, sizeof got[0].ids);
        free(got[0].logits);
        free(got[1].logits);
    }
}

/* STEPS steps, then as many more by a run that resumes the first one's checkpoint. */
static void train(device *d, const char *path, pesc_train_options o, double *loss)
{
    for (int part = 0; part < 2; part++) {
        pesc_model *m;
        pesc_trainer *t;
        pesc_load_options load = pesc_load_defaults();
        must(pesc_train_load(&o, &load));
        o.steps = STEPS * (part + 1);
        o.resume = part > 0;
        must(pesc_model_open(&m, d, path, &load));
        must(pesc_trainer_open(&t, m, &o));
        for (int i = 0; i < STEPS; i++) {
            pesc_step step = PESC_INIT(pesc_step);
            must(pesc_trainer_step(t, &step));
            loss[part * STEPS + i] = step.loss;
        }
        pesc_trainer_close(t);
        pesc_model_close(m);
    }
}

typedef struct training {
    const char *run, *method, *base, *compute, *optimizer;
} training;

/* A short run of it on a device. The paths are good until the next call. */
static pesc_train_options options_of(const training *c, char *model, size_t size)
{
    static char data[512];
    static const char *list[] = { data };
    char name[64];
    snprintf(name, sizeof name, "train/%s/data.jsonl", c->run);
    snprintf(data, sizeof data, "%s", golden_path(name));
    snprintf(name, sizeof name, "train/%s/model", c->run);
    snprintf(model, size, "%s", golden_path(name));
    pesc_train_options o = pesc_train_defaults();
    o.output = files_path("run");
    o.data = list;
    o.n_data = 1;
    o.method = c->method;
    o.base_dtype = c->base;
    o.compute_dtype = c->compute;
    o.optimizer = c->optimizer;
    o.seq_len = 32;
    o.batch = 4;
    o.lora_r = 2;
    return o;
}

static void must_agree(const training *c, const numbers got[2])
{
    for (int s = 0; s < 2 * STEPS; s++)
        if (!(got[0].loss[s] == got[1].loss[s]))
            fail_msg("%s, step %d: loss %.9g near, %.9g far", c->run, s + 1, got[0].loss[s],
                     got[1].loss[s]);
}

static void models_train(void **state)
{
    (void)state;
    static const training cases[] = {
        { "pesc-a", "pesc", "", "f32", "adamw" },
        { "pesc-a", "pesc", "nf4", "bf16", "adamw8" },
        { "full", "full", "", "f32", "adamw" },
        { "molora", "molora", "", "bf16", "adamw" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        numbers got[2] = { 0 };
        char model[512];
        for (int is_far = 0; is_far < 2; is_far++) {
            files_clear();
            pesc_train_options o = options_of(&cases[i], model, sizeof model);
            device *d = open_device(is_far);
            train(d, model, o, got[is_far].loss);
            d->op->close(d);
        }
        must_agree(&cases[i], got);
    }
}

/* A model of more layers than there are buffers, in the place of `model`. */
static void deep(char *model, size_t size)
{
    static const char text[] =
        "{\"model_type\":\"llama\",\"hidden_size\":24,\"intermediate_size\":40,"
        "\"num_hidden_layers\":5,\"num_attention_heads\":3,\"num_key_value_heads\":1,"
        "\"vocab_size\":53,\"max_position_embeddings\":64}";
    char out[512];
    snprintf(out, sizeof out, "%s", files_path("deep"));
    must(pesc_new(files_text("deep.json", text), out, NULL, "f32", 1, NULL));
    snprintf(model, size, "%s", out);
}

/* A base in the host's memory: the same bits, and of the layers' matrices the device holds two. */
static void layers_are_streamed(void **state)
{
    (void)state;
    static const training cases[] = { { "full", "lora", "nf4", "f32", "adamw" },
                                      { "pesc-a", "pesc", "nf4", "bf16", "adamw8" },
                                      { "pesc-a", "lora", "bf16", "bf16", "adamw" },
                                      { "molora", "molora", "", "bf16", "adamw" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        numbers got[2] = { 0 };
        char model[512];
        uint64_t held[2], streamed = 0;
        for (int host = 0; host < 2; host++) {
            pesc_plan_report plan = PESC_INIT(pesc_plan_report);
            files_clear();
            pesc_train_options o = options_of(&cases[i], model, sizeof model);
            o.shard = host ? "host" : "none";
            device *d = far_open(0);
            if (i == 0)
                deep(model, sizeof model);
            must(pesc_plan(d, model, &o, &plan));
            held[host] = plan.model;
            streamed = plan.streamed;
            train(d, model, o, got[host].loss);
            assert_true(far_host_bytes(d) >= 2 * plan.streamed); /* two runs */
            d->op->close(d);
        }
        must_agree(&cases[i], got);
        assert_true(streamed > 0 && (i > 0 || held[1] < held[0]));
    }
}

/* What cannot be: a base that trains, and any use of the model but training. */
static void streamed_layers_only_train(void **state)
{
    (void)state;
    static const training c = { "full", "full", "", "f32", "adamw" };
    char model[512];
    pesc_load_options load = pesc_load_defaults();
    pesc_session *s;
    pesc_trainer *t;
    pesc_model *m;
    pesc_train_options o = options_of(&c, model, sizeof model);
    o.shard = "host";
    load.host_base = true;
    device *d = far_open(0);
    must(pesc_model_open(&m, d, model, &load));
    must_fail(pesc_session_open(&s, m, 0), PESC_USAGE, "can only be trained");
    must_fail(pesc_trainer_open(&t, m, &o), PESC_USAGE, "shard: found host with method full");
    pesc_model_close(m);
    d->op->close(d);
}

/* A device that holds all but the moments: they go to the host, and nothing else changes. */
static void moments_are_paged(void **state)
{
    (void)state;
    static const training cases[] = { { "pesc-a", "pesc", "", "f32", "adamw" },
                                      { "pesc-a", "pesc", "nf4", "bf16", "adamw8" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        numbers got[2] = { 0 };
        pesc_plan_report plan = PESC_INIT(pesc_plan_report);
        char model[512];
        files_clear();
        pesc_train_options o = options_of(&cases[i], model, sizeof model);
        device *d = far_open(0);
        train(d, model, o, got[0].loss);
        assert_int_equal(far_host_bytes(d), 0);
        must(pesc_plan(d, model, &o, &plan));
        assert_false(plan.paged);
        d->op->close(d);
        d = far_open(1);
        must(pesc_plan(d, model, &o, &plan)); /* the least it can take */
        assert_true(plan.paged && !plan.fits);
        d->op->close(d);

        files_clear();
        d = far_open((size_t)(plan.total + plan.optimizer / 2));
        o = options_of(&cases[i], model, sizeof model);
        must(pesc_plan(d, model, &o, &plan));
        assert_true(plan.paged && plan.fits);
        assert_true(plan.total + plan.optimizer > plan.available);
        train(d, model, o, got[1].loss);
        /* two runs; the sums of the norm's segments, 4 KiB each time, stay on the device */
        assert_true(far_host_bytes(d) + 3 * 4096 > 2 * plan.optimizer);
        d->op->close(d);
        must_agree(&cases[i], got);
    }
}

/* With less and less memory less is kept, then forwards shrink, then moments go; what is said to
 * fit does. */
static void memory_decides(void **state)
{
    (void)state;
    static const training c = { "pesc-a", "pesc", "nf4", "bf16", "adamw8" };
    char model[512];
    files_clear();
    pesc_train_options o = options_of(&c, model, sizeof model);
    pesc_plan_report all = PESC_INIT(pesc_plan_report), last = PESC_INIT(pesc_plan_report);
    o.batch = 16;
    o.seq_len = 512;
    o.grad_groups = 1; /* no partial sums of gradients, which grow with the micro-batches */
    device *d = far_open(0);
    d->micro_tokens = 8192;
    must(pesc_plan(d, model, &o, &all));
    assert_true(all.fits && all.micro_tokens == 8192 && all.kept_layers == all.layers);
    d->op->close(d);
    last = all;
    for (uint64_t memory = all.total * 5 / 4; memory > all.total / 16; memory -= memory / 16) {
        pesc_plan_report now = PESC_INIT(pesc_plan_report);
        d = far_open((size_t)memory);
        d->micro_tokens = 8192;
        must(pesc_plan(d, model, &o, &now));
        assert_true(now.fits == (now.total <= memory));
        assert_true(now.total <= last.total && now.micro_tokens <= last.micro_tokens);
        assert_true(now.kept_layers <= last.kept_layers || now.micro_tokens < last.micro_tokens);
        assert_true(now.fits || (now.paged && now.micro_tokens == 2048 && now.kept_layers == 1));
        d->op->close(d);
        last = now;
    }
    assert_false(last.fits);
    assert_true(last.trained < all.trained);
}

static size_t open_and_close(pesc_model *m, int32_t tokens)
{
    pass *p;
    must(pass_open(&p, m, (pass_limits){ tokens, 1, 1 }, NULL));
    pass_close(p);
    return m->dev->reserved;
}

/* A pass reserves the scratch of its ops when it opens; the device keeps the most it was asked
 * for. And the plan of a run counts it. */
static void scratch_is_reserved(void **state)
{
    (void)state;
    static const training c = { "pesc-a", "pesc", "", "f32", "adamw" };
    char model[512];
    pesc_load_options opt = pesc_load_defaults();
    pesc_plan_report plan[2] = { PESC_INIT(pesc_plan_report), PESC_INIT(pesc_plan_report) };
    pesc_model *m;
    device *d = far_open(0), *cpu = open_device(false);
    pesc_train_options o = options_of(&c, model, sizeof model);
    must(pesc_plan(d, model, &o, &plan[0]));
    must(pesc_plan(cpu, model, &o, &plan[1]));
    assert_int_equal(plan[0].micro_tokens, plan[1].micro_tokens);
    assert_int_equal(plan[0].activations,
                     plan[1].activations + (uint64_t)plan[0].micro_tokens * FAR_SCRATCH);
    must(pesc_model_open(&m, d, model, &opt));
    assert_int_equal(open_and_close(m, 8), 8 * FAR_SCRATCH);
    assert_int_equal(open_and_close(m, 32), 32 * FAR_SCRATCH);
    assert_int_equal(open_and_close(m, 16), 32 * FAR_SCRATCH);
    pesc_model_close(m);
    d->op->close(d);
    cpu->op->close(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_run),          cmocka_unit_test(models_train),
        cmocka_unit_test(layers_are_streamed), cmocka_unit_test(streamed_layers_only_train),
        cmocka_unit_test(moments_are_paged),   cmocka_unit_test(memory_decides),
        cmocka_unit_test(scratch_is_reserved),
    };
    return cmocka_run_group_tests_name("far", tests, NULL, NULL);
}
