/* Training against a float64 PyTorch reference (tests/golden/make/golden_train.py, and for ESFT on
 * every family with experts tests/golden/make/golden_esft.py): twelve optimiser steps of every
 * method, and of what changes the gradient of routers, each a packed forward of four records. AdamW
 * here is the reference's own formula in double, so that what is tested is the loss and its
 * gradients. What does not train must not change by one bit. */
#include "arch/bind.h"
#include "model/loss.h"
#include "support/training.h"
#include "train/params.h"
#include "train/router_bias.h"

#include "support/check.h"
#include "support/golden.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 256, MAX_SEQS = 16 };

static pesc_device *dev;

static const char *const runs[] = {
    "train/lora",           "train/pesc-a",          "train/pesc-b",       "train/full",
    "train/upcycle",        "train/molora",          "train/pesc-choices", "train/qlora",
    "train/pesc-bias",      "train/pesc-dense",      "train/pesc-beside",  "train/full-shared",
    "train/upcycle-fine",   "train/upcycle-dense",   "esft/mixtral",       "esft/olmoe",
    "esft/qwen2_moe",       "esft/qwen3_moe",        "esft/deepseek_v2",   "esft/deepseek_v2-aux",
    "esft/deepseek_v2-all", "esft/qwen2_moe-shared",
};

static const char *file_of(const char *run, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%s", run, file);
    return golden_path(name);
}

/* ---- the records ---- */

typedef struct records {
    json_t *lines[64];
    size_t n;
} records;

static records read_records(const char *path)
{
    records r = { 0 };
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    json_t *v;
    while (r.n < 64 && (v = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)))
        r.lines[r.n++] = v;
    fclose(f);
    return r;
}

static void free_records(records *r)
{
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->lines[i]);
}

/* A packed forward of some records. */
typedef struct packed {
    int32_t ids[MAX_TOKENS], rows[MAX_TOKENS], targets[MAX_TOKENS];
    float weights[MAX_TOKENS];
    token_seq seqs[MAX_SEQS];
    train_input in;
} packed;

static void pack(packed *b, json_t *const *lines, int32_t n, bool by_sequence)
{
    int32_t at = 0, targets = 0, counts[MAX_SEQS] = { 0 }, owner[MAX_TOKENS];
    for (int32_t s = 0; s < n; s++) {
        json_t *ids = json_object_get(lines[s], "input_ids");
        json_t *labels = json_object_get(lines[s], "labels");
        int32_t len = (int32_t)json_array_size(ids);
        b->seqs[s] = (token_seq){ .ids = b->ids + at, .n = len };
        for (int32_t i = 0; i < len; i++)
            b->ids[at + i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        for (int32_t i = 0; i + 1 < len; i++) {
            int32_t label = (int32_t)json_integer_value(json_array_get(labels, (size_t)i + 1));
            if (label < 0)
                continue;
            owner[targets] = s;
            b->rows[targets] = at + i;
            b->targets[targets++] = label;
            counts[s]++;
        }
        at += len;
    }
    for (int32_t i = 0; i < targets; i++)
        b->weights[i] = by_sequence ? 1.0F / (float)(n * counts[owner[i]]) : 1.0F / (float)targets;
    b->in = (train_input){ .seqs = b->seqs,
                           .n_seqs = n,
                           .rows = b->rows,
                           .targets = b->targets,
                           .weights = b->weights,
                           .n_targets = targets };
}

/* ---- a run ---- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static bool says(const json_t *options, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(options, key));
    return value && strcmp(value, text) == 0;
}

static train_spec spec_of(const json_t *options)
{
    const char *method = json_string_value(json_object_get(options, "method"));
    bool pesc = strcmp(method, "pesc") == 0, upcycle = strcmp(method, "upcycle") == 0;
    bool full = strcmp(method, "full") == 0;
    train_spec s = { .adapters = pesc || full,
                     .routers = pesc || upcycle || full,
                     .experts = upcycle || full,
                     .base = full,
                     .dense_router = says(options, "router_gradient", "dense"),
                     .balance_bias = says(options, "balance", "bias"),
                     .lora_r = (int32_t)number(options, "lora_r"),
                     .lora_alpha = (float)number(options, "lora_alpha"),
                     .lora_targets = TARGET_ALL,
                     .seed = (uint64_t)number(options, "seed") };
    if (strcmp(method, "molora") == 0) {
        s.molora_experts = (int32_t)number(options, "experts");
        s.molora_k = (int32_t)number(options, "top_k");
    }
    return s;
}

/* ESFT's models are those of the families. */
static const char *model_of(const char *run, const json_t *golden)
{
    const char *name = json_string_value(json_object_get(golden, "model"));
    return name ? golden_path(name) : file_of(run, "model");
}

/* Every tensor that does not train is what its file holds. */
static void frozen_is_untouched(pesc_model *m, const train_spec *spec)
{
    int64_t seen = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        const weight *w = bind_find(&m->shape.cfg, m->dir->ws, &s);
        tensor t = bind_tensor(&m->shape.w, &s);
        if (params_trains(spec, &s))
            continue;
        assert_int_equal(t.dt, w->dt);
        void *bytes = malloc(w->bytes);
        must(dev->op->download(dev, bytes, t.data, w->bytes));
        assert_memory_equal(bytes, w->data, w->bytes);
        free(bytes);
        seen++;
    }
    assert_true(seen > 0);
}

typedef struct moments {
    double *m, *v;
} moments;

static float *fetch(const params *p, tensor t)
{
    float *x = malloc((size_t)p->n * sizeof *x);
    must(dev->op->download(dev, x, t.data, (size_t)p->n * sizeof *x));
    return x;
}

static void adam(const params *p, moments *s, int t, double lr)
{
    float *w = fetch(p, p->master), *g = fetch(p, p->grad);
    for (int64_t i = 0; i < p->n; i++) {
        double gi = (double)g[i];
        s->m[i] = 0.9 * s->m[i] + 0.1 * gi;
        s->v[i] = 0.999 * s->v[i] + 0.001 * gi * gi;
        double m = s->m[i] / (1 - pow(0.9, t)), v = s->v[i] / (1 - pow(0.999, t));
        w[i] = (float)((double)w[i] - lr * m / (sqrt(v) + 1e-8));
    }
    dev->op->upload(dev, p->master.data, w, (size_t)p->n * sizeof *w);
    free(w);
    free(g);
}

static double norm_of(const params *p)
{
    float *g = fetch(p, p->grad);
    double sum = 0;
    for (int64_t i = 0; i < p->n; i++)
        sum += (double)g[i] * (double)g[i];
    free(g);
    return sqrt(sum);
}

static void near(const char *run, int step, const char *what, double got, double want)
{
    double allowed = dev->op->host_memory(dev) ? 1e-5 : 1e-4; /* other devices sum elsewise */
    if (!(fabs(got - want) <= allowed * fabs(want)))
        fail_msg("%s: step %d: %s is %.9g, expected %.9g (relative %.2g)", run, step, what, got,
                 want, fabs(got - want) / fabs(want));
}

/* A run that is open for training: its model, with the adapter that it starts from if it has one.
 */
typedef struct opened {
    pesc_model *m;
    params *p;
    pass *t;
    train_spec spec;
    expertcfg own; /* the experts that the run trains, in runs of ESFT */
    moments s;
    router_bias bias; /* of balance bias */
} opened;

static void open_run(opened *o, const char *run, const json_t *golden)
{
    pesc_load_options opt = pesc_load_defaults();
    const json_t *options = json_object_get(golden, "options");
    opt.compute_dtype = "f32";
    opt.base_dtype = json_string_value(json_object_get(options, "base_dtype"));
    char adapter[512];
    snprintf(adapter, sizeof adapter, "%s", file_of(run, "lora"));
    FILE *there = fopen(file_of(run, "lora/adapter_config.json"), "r");
    opt.lora = there ? adapter : NULL;
    if (there)
        fclose(there);
    *o = (opened){ .spec = spec_of(options) };
    if (json_object_get(golden, "model")) {
        must(expertcfg_read(&o->own, file_of(run, "expert_cfg.json")));
        o->spec.own = &o->own;
    }
    must(pesc_model_open(&o->m, dev, model_of(run, golden), &opt));
    must(params_open(&o->p, o->m, &o->spec));
    must(pass_open_train(&o->t, o->m, (pass_limits){ MAX_TOKENS, MAX_SEQS, MAX_TOKENS },
                         &o->p->mirror, (keep_counts){ .all = 1 }));
    must(router_bias_open(&o->bias, o->p));
    size_t n = (size_t)o->p->n;
    o->s = (moments){ calloc(n, sizeof(double)), calloc(n, sizeof(double)) };
}

static void close_run(opened *o)
{
    free(o->s.m);
    free(o->s.v);
    router_bias_close(&o->bias, dev);
    pass_close(o->t);
    params_close(o->p);
    pesc_model_close(o->m);
    expertcfg_free(&o->own);
}

/* All layers of these models are sparse. */
static void move_bias(opened *o, const train_output *out, double rate)
{
    const step_totals loads = { .chosen = (int64_t *)(uintptr_t)out->counts };
    must(router_bias_move(&o->bias, o->p, &loads, rate));
}

static void trajectory_equals_torch(void **state)
{
    const char *run = *state;
    json_t *golden = json_load_file(file_of(run, "golden.json"), 0, NULL);
    json_t *options = json_object_get(golden, "options"), *steps = json_object_get(golden, "steps");
    records data = read_records(file_of(run, "data.jsonl"));
    opened o;
    open_run(&o, run, golden);
    size_t each = (size_t)number(options, "batch"), n = json_array_size(steps);
    double coef = number(options, "aux_coef"), z_coef = number(options, "router_z_coef");
    bool by_sequence = strcmp(json_string_value(json_object_get(options, "loss")), "sequence") == 0;
    assert_int_equal(data.n, n * each);
    assert_int_equal(n, 12);
    for (size_t i = 0; i < n; i++) {
        packed b;
        train_output out;
        json_t *want = json_array_get(steps, i);
        pack(&b, data.lines + i * each, (int32_t)each, by_sequence);
        b.in.aux_weight = (float)coef;
        b.in.z_weight = (float)z_coef;
        training_zero_grads(o.p);
        must(model_train(o.m, o.t, &b.in, &out));
        assert_true(out.finite);
        near(run, (int)i, "ce", out.ce, number(want, "ce"));
        near(run, (int)i, "aux", out.aux, number(want, "aux"));
        near(run, (int)i, "loss", out.ce + coef * out.aux + z_coef * out.z, number(want, "loss"));
        near(run, (int)i, "grad_norm", norm_of(o.p), number(want, "grad_norm"));
        must(router_bias_read(&o.bias, o.m));
        adam(o.p, &o.s, (int)i + 1, number(options, "lr"));
        move_bias(&o, &out, number(options, "bias_rate"));
        params_refresh(o.p);
    }
    if (o.spec.own)
        frozen_is_untouched(o.m, &o.spec);
    close_run(&o);
    free_records(&data);
    json_decref(golden);
}

int main(void)
{
    enum { N = sizeof runs / sizeof *runs };
    static struct CMUnitTest tests[N];
    static char names[N][64];
    if (pesc_device_open(&dev, golden_device()) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return 1;
    }
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%s: twelve steps equal PyTorch", runs[i]);
        tests[i] = (struct CMUnitTest){ .name = names[i],
                                        .test_func = trajectory_equals_torch,
                                        .initial_state = (void *)(uintptr_t)runs[i] };
    }
    int failed = _cmocka_run_group_tests("train", tests, N, NULL, NULL);
    pesc_device_close(dev);
    return failed;
}
