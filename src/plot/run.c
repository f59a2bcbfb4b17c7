/* run: pictures of a run, drawn from its log files. So they do not depend on whether the run was
 * stopped and resumed, and runs of other programs that write these files can be drawn too.
 *
 * A long run has more lines than a picture has points. Every n-th line is read, so that drawing
 * costs the same at step 10,000 and at step 10,000,000. */
#include "base/args.h"
#include "base/mem.h"
#include "base/str.h"
#include "run/runlog.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_POINTS = 2000, LOAD_LINES = 10 };

/* ---- curves ---- */

typedef struct points {
    const char *key; /* of the value */
    double *x, *y;
    size_t n, cap;
} points;

static void points_free(points *p)
{
    mem_free(p->x);
    mem_free(p->y);
}

static pesc_status add_point(void *ud, json_where w)
{
    points *p = ud;
    double step = NAN, value = NAN; /* null: the step had none */
    TRY(json_get_f64(w, "step", true, &step));
    TRY(json_get_f64(w, p->key, false, &value));
    if (p->n < p->cap) {
        p->x[p->n] = step;
        p->y[p->n++] = value;
    }
    return PESC_OK;
}

static pesc_status read_points(points *p, const char *run, const char *file)
{
    runlog l;
    pesc_status s = runlog_open(&l, run, file);
    size_t stride = l.n / MOST_POINTS + 1;
    p->cap = l.n / stride + 2;
    if (s == PESC_OK) {
        p->x = mem_alloc(p->cap, sizeof *p->x);
        p->y = mem_alloc(p->cap, sizeof *p->y);
        s = p->x && p->y ? runlog_each(&l, 0, stride, add_point, p)
                         : fail_nomem("the points of a plot", p->cap * 2 * sizeof *p->x);
    }
    runlog_close(&l);
    return s;
}

/* A moving average over a fiftieth of the points. */
static pesc_status smooth(const points *raw, points *out)
{
    const size_t half = raw->n / 100 + 1;
    *out = (points){ .x = mem_alloc(raw->n + 1, sizeof *out->x),
                     .y = mem_alloc(raw->n + 1, sizeof *out->y) };
    if (!out->x || !out->y)
        return fail_nomem("the points of a plot", raw->n * 2 * sizeof *out->x);
    for (size_t i = 0; i < raw->n; i++) {
        size_t from = i > half ? i - half : 0, last = i + half < raw->n ? i + half : raw->n - 1;
        size_t n = 0;
        double sum = 0;
        for (size_t k = from; k <= last; k++)
            if (isfinite(raw->y[k])) {
                sum += raw->y[k];
                n++;
            }
        out->x[i] = raw->x[i];
        out->y[i] = n ? sum / (double)n : NAN;
    }
    out->n = raw->n;
    return PESC_OK;
}

/* ---- expert load ---- */

typedef struct load {
    double *sum; /* [layers, experts] */
    size_t layers, experts, lines;
    double first, last; /* steps */
} load;

static pesc_status add_load(void *ud, json_where w)
{
    load *l = ud;
    TRY(json_get_f64(w, "step", true, &l->last));
    TRY(runlog_shape(w, &l->layers, &l->experts));
    if (!l->sum) {
        l->first = l->last;
        l->sum = mem_zalloc(l->layers * l->experts, sizeof *l->sum);
    }
    if (!l->sum)
        return fail_nomem("the load of experts", l->layers * l->experts * 8);
    for (size_t i = 0; i < l->layers * l->experts; i++)
        l->sum[i] += runlog_share(w, i / l->experts, i % l->experts);
    l->lines++;
    return PESC_OK;
}

/* ---- pictures ---- */

/* Draws as SVG and as PNG: NAME.svg beside NAME.png. */
typedef pesc_status (*draw_fn)(const char *path, const void *what);

static pesc_status draw_both(const char *run, const char *name, draw_fn draw, const void *what)
{
    static const char *const endings[] = { "svg", "png" };
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < 2; i++) {
        str path = { 0 };
        str_printf(&path, "%s/plots/%s.%s", run, name, endings[i]);
        s = str_ok(&path) ? draw(path.p, what) : fail_nomem(run, path.n);
        str_free(&path);
    }
    return s;
}

static pesc_status draw_lines(const char *path, const void *what)
{
    return pesc_plot_lines(path, what);
}

static pesc_status draw_heat(const char *path, const void *what)
{
    return pesc_plot_heat(path, what);
}

static bool any_value(const points *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (isfinite(p->y[i]))
            return true;
    return false;
}

/* ---- preferences ---- */

enum { MEASURES = 3 }; /* of a picture, at most */

/* What a run on preferences measures, by the names of metrics.jsonl; on validation data these begin
 * with eval_. */
typedef struct picture {
    const char *file, *title, *y_label;
    struct {
        const char *name, *key, *held;
    } of[MEASURES];
} picture;

static const picture pictures[] = {
    { "rewards",
      "Rewards",
      "reward",
      { { "chosen", "rewards/chosen", "eval_rewards/chosen" },
        { "rejected", "rewards/rejected", "eval_rewards/rejected" },
        { "margin", "rewards/margins", "eval_rewards/margins" } } },
    { "accuracy",
      "Pairs whose chosen answer has the higher reward",
      "part of the pairs",
      { { "accuracy", "rewards/accuracies", "eval_rewards/accuracies" } } },
    { "logps",
      "Log-probabilities of the answers",
      "nats",
      { { "chosen", "logps/chosen", "eval_logps/chosen" },
        { "rejected", "logps/rejected", "eval_logps/rejected" } } },
};

/* Each measure as the mean of neighbouring steps, and on validation data as dots. */
static pesc_status draw_curves(const char *run, const picture *p, const points mean[MEASURES],
                               const points held[MEASURES])
{
    pesc_series all[2 * MEASURES];
    char names[MEASURES][32];
    size_t n = 0;
    for (size_t i = 0; i < MEASURES; i++) {
        if (any_value(&mean[i]))
            all[n++] = (pesc_series){
                .name = p->of[i].name, .x = mean[i].x, .y = mean[i].y, .n = mean[i].n
            };
        if (!any_value(&held[i]))
            continue;
        snprintf(names[i], sizeof names[i], "%s, held out", p->of[i].name);
        all[n++] = (pesc_series){
            .name = names[i], .x = held[i].x, .y = held[i].y, .n = held[i].n, .dots = true
        };
    }
    pesc_lines lines = { .size = sizeof(pesc_lines),
                         .title = p->title,
                         .note = "means of neighbouring steps",
                         .x_label = "step",
                         .y_label = p->y_label,
                         .series = all,
                         .n_series = n };
    return n ? draw_both(run, p->file, draw_lines, &lines) : PESC_OK;
}

/* *any: the run has some of these measures. */
static pesc_status draw_picture(const char *run, const picture *p, bool *any)
{
    points mean[MEASURES] = { { 0 } }, held[MEASURES] = { { 0 } };
    pesc_status s = PESC_OK;
    for (int i = 0; i < MEASURES && p->of[i].key && s == PESC_OK; i++) {
        points raw = { .key = p->of[i].key };
        held[i].key = p->of[i].held;
        s = read_points(&raw, run, "metrics.jsonl");
        if (s == PESC_OK)
            s = smooth(&raw, &mean[i]);
        if (s == PESC_OK)
            s = read_points(&held[i], run, "eval.jsonl");
        *any = *any || any_value(&raw);
        points_free(&raw);
    }
    if (s == PESC_OK)
        s = draw_curves(run, p, mean, held);
    for (int i = 0; i < MEASURES; i++) {
        points_free(&mean[i]);
        points_free(&held[i]);
    }
    return s;
}

/* *any: the run is one on preferences. */
static pesc_status draw_preferences(const char *run, bool *any)
{
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures && s == PESC_OK; i++)
        s = draw_picture(run, &pictures[i], any);
    return s;
}

static pesc_status draw_loss(const char *run, bool of_preferences)
{
    points raw = { .key = "ce" }, mean = { 0 }, held = { .key = "eval_loss" };
    pesc_status s = read_points(&raw, run, "metrics.jsonl");
    if (s == PESC_OK)
        s = smooth(&raw, &mean);
    if (s == PESC_OK)
        s = read_points(&held, run, "eval.jsonl");
    if (s == PESC_OK && raw.n) {
        pesc_series all[] = {
            { .x = raw.x, .y = raw.y, .n = raw.n, .faint = true },
            { .name = "training (mean of neighbouring steps)",
              .x = mean.x,
              .y = mean.y,
              .n = mean.n },
            { .name = "held out", .x = held.x, .y = held.y, .n = held.n, .dots = true },
        };
        pesc_lines p = { .size = sizeof(pesc_lines),
                         .title = "Loss",
                         .note = of_preferences ? "of preferences, without the balance loss"
                                                : "cross-entropy of the trained tokens",
                         .x_label = "step",
                         .y_label = of_preferences ? "loss" : "nats per token",
                         .series = all,
                         .n_series = held.n ? 3 : 2 };
        s = draw_both(run, "loss", draw_lines, &p);
    }
    points_free(&raw);
    points_free(&mean);
    points_free(&held);
    return s;
}

static pesc_status draw_experts(const char *run)
{
    runlog l;
    load sum = { 0 };
    pesc_status s = runlog_open(&l, run, "routing.jsonl");
    if (s == PESC_OK)
        s = runlog_each(&l, l.n > LOAD_LINES ? l.n - LOAD_LINES : 0, 1, add_load, &sum);
    for (size_t i = 0; sum.lines && i < sum.layers * sum.experts; i++)
        sum.sum[i] /= (double)sum.lines;
    if (s == PESC_OK && sum.lines) {
        char note[128];
        snprintf(note, sizeof note, "part of a layer's choices, steps %.0f to %.0f; even is %.3g",
                 sum.first, sum.last, 1 / (double)sum.experts);
        pesc_heat p = { .size = sizeof(pesc_heat),
                        .title = "Load of the experts",
                        .note = note,
                        .x_label = "expert",
                        .y_label = "sparse layer",
                        .n_panels = 1,
                        .rows = sum.layers,
                        .cols = sum.experts,
                        .cells = sum.sum };
        s = draw_both(run, "experts", draw_heat, &p);
    }
    mem_free(sum.sum);
    runlog_close(&l);
    return s;
}

pesc_status pesc_plot_run(const char *run_dir)
{
    status_clear();
    NEED(run_dir);
    char *dir = io_join(run_dir, "plots");
    pesc_status s = dir ? io_make_dir(dir) : fail_nomem(run_dir, 64);
    mem_free(dir);
    bool of_preferences = false;
    if (s == PESC_OK)
        s = draw_preferences(run_dir, &of_preferences);
    if (s == PESC_OK)
        s = draw_loss(run_dir, of_preferences);
    return s == PESC_OK ? draw_experts(run_dir) : s;
}
