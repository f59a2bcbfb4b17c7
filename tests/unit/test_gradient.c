/* The gradient of a step in one process: which additions are made, and what they take; and the
 * window that sharded gradients have. Several processes are compared in tests/cli/processes.bats.
 */
#include "train/gradient.h"

#include "support/check.h"
#include "support/files.h"
#include "support/training.h"

#include <stdio.h>

static training on;
static params *ps;

static int open_all(void **state)
{
    const train_spec spec = { .base = true };
    (void)state;
    on = training_open("cpu:1", "train/full/model", &spec);
    ps = on.ps;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    training_close(&on);
    return 0;
}

/* Micro-batch i adds values[i] to every gradient. */
static void add_values(gradient *g, int32_t n, const float *values)
{
    float *grad = ps->grad.data;
    gradient_time time;
    micro_range own;
    must(gradient_begin(g, n, true, &own));
    assert_int_equal(micro_count(own), n);
    for (int32_t i = own.first; i < own.end; i += own.step) {
        bool first;
        must(gradient_start(g, i, &first));
        for (int64_t k = 0; k < ps->n; k++)
            grad[k] += values[i];
    }
    must(gradient_finish(g, NULL, &time));
}

static float sum_of(gradient_shape shape, int32_t n, const float *values)
{
    gradient *g;
    must(gradient_open(&g, ps, &shape));
    assert_int_equal(g->bytes, gradient_bytes(&shape, ps->n));
    for (int turn = 0; turn < 2; turn++) /* a step does not remember the one before */
        add_values(g, n, values);
    gradient_close(g);
    const float *sum = ps->grad.data;
    for (int64_t k = 1; k < ps->n; k++)
        assert_true(sum[k] == sum[0]);
    return sum[0];
}

/* 1e8 + 1 is 1e8 in f32, so the sums say who was added to whom. */
static void the_tree_says_who_is_added_first(void **state)
{
    float three[] = { 1, 1e8f, -1e8f }, five[] = { 1e8f, 1, -1e8f, 1, 0 };
    gradient_shape groups = { .groups = 8, .micros = 8, .processes = 1 }, rounds = groups;
    (void)state;
    rounds.rounds = true;
    assert_true(sum_of(groups, 3, three) == 1); /* a + (b + c) */
    assert_true(sum_of(rounds, 3, three) == 0); /* (a + b) + c */
    assert_true(sum_of(rounds, 5, five) == 0);  /* ((a + b) + (c + d)) + e */
    groups.groups = 1;
    assert_true(sum_of(groups, 3, three) == 0); /* one after another */
}

static void partial_sums_are_counted(void **state)
{
    enum { N = 1 << 20 };
    static const struct {
        gradient_shape shape;
        int64_t elements;
    } rows[] = {
        { { 8, 1, 1, false, 8 }, 0 },        { { 8, 8, 1, false, 8 }, 3 * N },
        { { 8, 64, 1, false, 8 }, 3 * N },   { { 8, 8, 4, false, 8 }, N },
        { { 8, 8, 8, false, 8 }, 0 },        { { 8, 8, 1, true, 8 }, 3 * N },
        { { 8, 8, 2, true, 8 }, 2 * N / 2 }, /* 4 rounds */
        { { 8, 8, 4, true, 8 }, N / 4 },     /* 2 rounds */
        { { 8, 8, 8, true, 8 }, N / 8 },     /* 1 round: the gradient itself */
        { { 8, 5, 4, true, 8 }, N / 4 },     { { 16, 16, 2, true, 16 }, 3 * N / 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(gradient_bytes(&rows[i].shape, N), rows[i].elements * 4);
}

/* ---- the window ---- */

#define SHAPE                                                                                      \
    "\"hidden_size\":24,\"num_hidden_layers\":5,\"num_attention_heads\":4,"                        \
    "\"num_key_value_heads\":2,\"intermediate_size\":28,\"vocab_size\":31,"                        \
    "\"max_position_embeddings\":64"
static const char *const configs[] = {
    "{\"model_type\":\"llama\"," SHAPE "}",
    "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," SHAPE "}",
    "{\"model_type\":\"mixtral\",\"num_local_experts\":3," SHAPE "}",
};

static pesc_model *new_model(const char *json)
{
    static int n;
    char name[16];
    pesc_model *m;
    snprintf(name, sizeof name, "model%d", n++);
    must(pesc_new(files_text("config.json", json), files_path(name), NULL, "f32", 3, NULL));
    must(pesc_model_open(&m, on.dev, files_path(name), NULL));
    return m;
}

/* A window: stages that follow each other do not overlap, and runs cover the flat buffers. */
static void check_window(const params *p, const pesc_model *m)
{
    const grad_stage *s = p->stages;
    int32_t last = p->n_stages - 1;
    int64_t at = 0, all = 0;
    assert_int_equal(p->n_stages, m->shape.cfg.n_layers + 2);
    for (int32_t i = 0; i <= last; i++) {
        int64_t next = i < last ? s[i + 1].at : s[i].at + s[i].n;
        all += s[i].n;
        assert_true(s[i].at >= 0 && s[i].at + s[i].n <= p->n_grad);
        assert_true(s[i].at + s[i].n <= next || (i < last && next + s[i + 1].n <= s[i].at));
        if (m->shape.cfg.tie_embeddings &&
            i < last) /* the embeddings are there from first to last */
            assert_true(s[last].at + s[last].n <= s[i].at);
    }
    assert_int_equal(all, p->n);
    for (size_t i = 0; i < p->n_runs; at = p->runs[i++].flat.end) {
        const grad_run *r = &p->runs[i];
        const grad_stage *of = &s[r->stage];
        assert_int_equal(r->flat.first, at);
        assert_true(r->at >= of->at && r->at + r->flat.end - at <= of->at + of->n);
    }
    assert_int_equal(at, p->n);
    for (size_t i = 0, run = 0; i < p->n_list; i++) {
        const param *q = &p->list[i];
        while (q->at >= p->runs[run].flat.end)
            run++;
        assert_int_equal(q->grad_at - p->runs[run].at, q->at - p->runs[run].flat.first);
        assert_ptr_equal(params_grad(p, q).data, (float *)p->grad.data + q->grad_at);
    }
}

static void a_window_holds_two_stages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        pesc_model *m = new_model(configs[i]);
        bool mixture =
            m->shape.cfg.moe.kind == EXPERT_FFN; /* as upcycle: with LoRA, whose B come last */
        train_spec s = { .adapters = true, .routers = true, .experts = true, .base = !mixture };
        s.lora_r = mixture ? 2 : 0;
        s.lora_targets = TARGET_ALL;
        s.window = true;
        params *p;
        params_size z;
        must(params_open(&p, m, &s));
        params_measure(&z, &m->shape.cfg, &s);
        assert_int_equal(z.n_grad, p->n_grad);
        assert_true(p->n_grad < p->n);
        check_window(p, m);
        if (mixture)
            assert_true(p->n_runs > (size_t)m->shape.cfg.n_layers);
        params_close(p);
        pesc_model_close(m);
    }
}

static void a_stage_is_zeroed_alone(void **state)
{
    (void)state;
    pesc_model *m = new_model(configs[1]);
    train_spec s = { .base = true, .window = true };
    params *p;
    must(params_open(&p, m, &s));
    float *g = p->grad.data;
    const grad_stage *tied = &p->stages[p->n_stages - 1];
    for (int32_t i = 0; i < p->n_stages; i++) {
        for (int64_t k = 0; k < p->n_grad; k++)
            g[k] = 1;
        params_start_stage(p, i);
        for (int64_t k = 0; k < p->n_grad; k++) {
            const grad_stage *t = &p->stages[i];
            bool own = i + 1 < p->n_stages && k >= t->at && k < t->at + t->n;
            bool with_first = i == 0 && k >= tied->at && k < tied->at + tied->n;
            assert_true(g[k] == (own || with_first ? 0 : 1));
        }
    }
    params_close(p);
    pesc_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tree_says_who_is_added_first),
        cmocka_unit_test(partial_sums_are_counted),
        cmocka_unit_test(a_window_holds_two_stages),
        cmocka_unit_test(a_stage_is_zeroed_alone),
    };
    return cmocka_run_group_tests_name("gradient", tests, open_all, close_all);
}
