/* cmd_cost: parameters, FLOP and bytes of models by part, and with --measure their time and memory.
 */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/plots.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What --measure runs. */
static const int64_t lengths[] = { 64, 512, 2048 }, batches[] = { 1, 8 };
enum {
    N_LENGTHS = sizeof lengths / sizeof *lengths,
    N_BATCHES = sizeof batches / sizeof *batches,
    N_PHASES = 3,
    N_RUNS = N_PHASES * N_BATCHES * N_LENGTHS
};
static const char *const phases[N_PHASES] = {
    [PESC_COST_PREFILL] = "prefill", [PESC_COST_DECODE] = "decode", [PESC_COST_TRAIN] = "train"
};

typedef struct model_cost {
    const char *path, *name;
    pesc_cost_report report;
    pesc_cost_run runs[N_RUNS];
} model_cost;

typedef struct costs {
    const options *o;
    pesc_cost_options how;
    model_cost *models;
    size_t n;
} costs;

static void plan_runs(pesc_cost_run *runs)
{
    for (int i = 0; i < N_RUNS; i++)
        runs[i] = (pesc_cost_run){ .phase = (pesc_cost_phase)(i / (N_BATCHES * N_LENGTHS)),
                                   .sequences = batches[i / N_LENGTHS % N_BATCHES],
                                   .tokens = lengths[i % N_LENGTHS] };
}

/* Tokens that a run computes. */
static double tokens_of(const pesc_cost_run *r)
{
    return (double)(r->sequences * (r->phase == PESC_COST_DECODE ? 1 : r->tokens));
}

/* ---- text ---- */

static void print_parts(const pesc_cost_report *r)
{
    printf("%-12s %10s %10s %10s %12s %12s %12s\n", "", "parameters", "activated", "trained",
           "inference", "forward", "backward");
    for (size_t i = 0; i <= r->n_parts; i++) {
        const pesc_cost_part *p = i < r->n_parts ? &r->parts[i] : &r->total;
        uint64_t n = (uint64_t)r->tokens;
        out_number a, b, c, d, e, f;
        printf("%-12s %10s %10s %10s %12s %12s %12s\n", p->name, out_count(a, p->params),
               out_count(b, p->activated), out_count(c, p->trained), out_flop(d, p->inference / n),
               out_flop(e, p->forward / n), out_flop(f, p->backward / n));
    }
}

static void print_bytes(const pesc_cost_report *r)
{
    const struct {
        const char *what;
        uint64_t bytes;
    } rows[] = {
        { "weights", r->weight_bytes },
        { "KV cache, a token", r->kv_bytes },
        { "activations, inference", r->inference_bytes },
        { "activations, training", r->activation_bytes },
        { "trained weights, gradients, moments", r->trained_bytes },
    };
    out_number b;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-36s %s\n", rows[i].what, out_bytes(b, rows[i].bytes));
}

static void print_runs(const pesc_cost_run *runs)
{
    printf("%-8s %9s %7s %12s %12s %10s %10s\n", "", "sequences", "tokens", "time", "tokens/s",
           "FLOP/s", "memory");
    for (int i = 0; i < N_RUNS; i++) {
        const pesc_cost_run *r = &runs[i];
        out_number rate, bytes;
        printf("%-8s %9lld %7lld ", phases[r->phase], (long long)r->sequences,
               (long long)r->tokens);
        if (isnan(r->seconds)) {
            puts("does not fit into memory");
            continue;
        }
        printf("%10.2fms %12.0f %10s %10s%s\n", 1e3 * r->seconds, tokens_of(r) / r->seconds,
               out_flop(rate, (uint64_t)((double)r->flop / r->seconds)), out_bytes(bytes, r->bytes),
               r->recomputed ? "  layers are recomputed" : "");
    }
}

static void print_summary(const costs *c)
{
    const pesc_cost_part *first = &c->models[0].report.total;
    int width = 24;
    if (c->n < 2)
        return;
    for (size_t i = 0; i < c->n; i++)
        width = (int)strlen(c->models[i].path) > width ? (int)strlen(c->models[i].path) : width;
    printf("\n%-*s %-8s %10s %10s %12s %12s\n", width, "against the first", "", "parameters",
           "activated", "inference", "training");
    for (size_t i = 0; i < c->n; i++) {
        const pesc_cost_part *t = &c->models[i].report.total;
        out_number a, b;
        printf("%-*s %-8s %10s %10s %11.3fx %11.3fx\n", width, c->models[i].path,
               c->models[i].report.kind, out_count(a, t->params), out_count(b, t->activated),
               (double)t->inference / (double)first->inference,
               (double)(t->forward + t->backward) / (double)(first->forward + first->backward));
    }
}

static void print_text(const costs *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const pesc_cost_report *r = &c->models[i].report;
        printf("%s%s: %s, trained with method %s; FLOP of a token, mean over %lld tokens\n",
               i ? "\n" : "", c->models[i].path, r->kind, r->method, (long long)r->tokens);
        print_parts(r);
        print_bytes(r);
        if (c->o->measure)
            print_runs(c->models[i].runs);
    }
    print_summary(c);
}

/* ---- JSON ---- */

static void json_part(const pesc_cost_part *p)
{
    out_object(
        NULL, "part=%s params=%ld activated=%ld trained=%ld inference=%ld forward=%ld backward=%ld",
        p->name, p->params, p->activated, p->trained, p->inference, p->forward, p->backward);
}

static void json_runs(const pesc_cost_run *runs)
{
    out_begin("measured", '[');
    for (int i = 0; i < N_RUNS; i++) {
        const pesc_cost_run *r = &runs[i];
        out_begin(NULL, '{');
        out_fields("phase=%s sequences=%ld tokens=%ld seconds=%.6g", phases[r->phase], r->sequences,
                   r->tokens, r->seconds);
        if (r->phase == PESC_COST_TRAIN)
            out_measure("update_seconds", r->update_seconds);
        out_fields("flop=%ld bytes=%ld", r->flop, r->bytes);
        out_bool("recomputed", r->recomputed);
        out_end();
    }
    out_end();
}

static void json_model(const model_cost *m, bool measured)
{
    const pesc_cost_report *r = &m->report;
    out_begin(NULL, '{');
    out_fields("model=%s kind=%s method=%s lora_r=%ld tokens=%ld", m->path, r->kind, r->method,
               r->lora_r, r->tokens);
    out_begin("parts", '[');
    for (size_t i = 0; i < r->n_parts; i++)
        json_part(&r->parts[i]);
    json_part(&r->total);
    out_end();
    out_object("bytes", "weights=%ld kv_token=%ld inference=%ld activations=%ld trained=%ld",
               r->weight_bytes, r->kv_bytes, r->inference_bytes, r->activation_bytes,
               r->trained_bytes);
    if (measured)
        json_runs(m->runs);
    out_end();
}

/* ---- pictures ---- */

/* A table of bars: one series a model. */
typedef struct picture {
    const char *file, *title, *note;
    const char **groups, **series;
    size_t n_groups;
    double *values;
} picture;

static pesc_status draw(const costs *c, const picture *p, plot_files *files)
{
    pesc_bars bars = { .size = sizeof bars,
                       .title = p->title,
                       .note = p->note,
                       .groups = p->groups,
                       .n_groups = p->n_groups,
                       .series = p->series,
                       .n_series = c->n,
                       .values = p->values };
    TRY(plots_open(files, c->o->output, p->file));
    for (int i = 0; i < PLOT_FILES; i++)
        TRY(pesc_plot_bars(files->path[i], &bars));
    return PESC_OK;
}

static const pesc_cost_part *find_part(const pesc_cost_report *r, const char *name)
{
    for (size_t i = 0; i < r->n_parts; i++)
        if (strcmp(r->parts[i].name, name) == 0)
            return &r->parts[i];
    return strcmp(name, r->total.name) == 0 ? &r->total : NULL;
}

/* FLOP of a token in one picture or the other; 0: the model does not have the part. */
static double flop_of(const pesc_cost_report *r, const char *part, bool training)
{
    const pesc_cost_part *p = find_part(r, part);
    uint64_t flop = !p ? 0 : training ? p->forward + p->backward : p->inference;
    return (double)flop / (double)r->tokens;
}

/* The parts that compute something in any model, and the total. */
static void name_groups(const costs *c, picture *p, bool training)
{
    p->n_groups = 0;
    for (size_t m = 0; m < c->n; m++)
        for (size_t i = 0; i < c->models[m].report.n_parts; i++) {
            const char *name = c->models[m].report.parts[i].name;
            bool known = !(flop_of(&c->models[m].report, name, training) > 0);
            for (size_t g = 0; g < p->n_groups; g++)
                known = known || strcmp(p->groups[g], name) == 0;
            if (!known)
                p->groups[p->n_groups++] = name;
        }
    p->groups[p->n_groups++] = c->models[0].report.total.name;
}

static void fill_flop(const costs *c, picture *p, bool training, double unit)
{
    for (size_t m = 0; m < c->n; m++)
        for (size_t g = 0; g < p->n_groups; g++) {
            double flop = flop_of(&c->models[m].report, p->groups[g], training);
            p->values[m * p->n_groups + g] = flop > 0 ? flop / unit : NAN;
        }
}

static void fill_times(const costs *c, picture *p, char (*names)[32])
{
    p->n_groups = N_RUNS;
    for (size_t g = 0; g < N_RUNS; g++) {
        const pesc_cost_run *first = &c->models[0].runs[g];
        snprintf(names[g], sizeof names[g], "%s %lld x %lld", phases[first->phase],
                 (long long)first->sequences, (long long)first->tokens);
        p->groups[g] = names[g];
        for (size_t m = 0; m < c->n; m++)
            p->values[m * N_RUNS + g] = c->models[m].runs[g].seconds / first->seconds;
    }
}

enum { N_PICTURES = 3, MOST_GROUPS = 2 * PESC_COST_PARTS > N_RUNS ? 2 * PESC_COST_PARTS : N_RUNS };

static pesc_status draw_all(const costs *c, picture *p, plot_files *files)
{
    char names[N_RUNS][32];
    double flop = (double)c->models[0].report.total.inference / (double)c->models[0].report.tokens;
    bool large = flop >= 1e9;
    for (size_t m = 0; m < c->n; m++)
        p->series[m] = c->models[m].name;
    for (int training = 0; training < 2; training++) {
        char title[64];
        snprintf(title, sizeof title, "%s of a token, %s", large ? "GFLOP" : "MFLOP",
                 training ? "forward and backward of training" : "inference");
        p->title = title;
        p->note = "Matrix products of one sequence, mean over its tokens.";
        p->file = training ? "cost-training" : "cost";
        name_groups(c, p, training);
        fill_flop(c, p, training, large ? 1e9 : 1e6);
        TRY(draw(c, p, &files[training]));
    }
    if (!c->o->measure)
        return PESC_OK;
    p->title = "Measured time, relative to the first model";
    p->note = "sequences x tokens; decode: one token of each after so many in the cache.";
    p->file = "cost-measured";
    fill_times(c, p, names);
    return draw(c, p, &files[2]);
}

static pesc_status make_pictures(const costs *c, plot_files *files)
{
    picture p = { .groups = calloc(MOST_GROUPS, sizeof *p.groups),
                  .series = calloc(c->n, sizeof *p.series),
                  .values = calloc(c->n * MOST_GROUPS, sizeof *p.values) };
    pesc_status st =
        p.groups && p.series && p.values ? draw_all(c, &p, files) : out_nomem("the pictures");
    free(p.groups);
    free(p.series);
    free(p.values);
    return st;
}

/* ---- the command ---- */

static const char *last_word(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Where no rank is given, the LoRA that training adds to a model has that of the first run among
 * them, so that a base and its run are counted alike. */
static pesc_status take_rank(costs *c)
{
    c->how = c->o->cost;
    for (size_t i = 0; c->n > 1 && !opt_given(c->o, "lora_r") && i < c->n; i++) {
        pesc_run_info r = PESC_INIT(pesc_run_info);
        TRY(pesc_run_describe(c->o->models[i], NULL, &r));
        if (!r.checkpoint[0] || !r.lora_r)
            continue;
        c->how.lora_r = r.lora_r;
        if (!c->o->quiet)
            fprintf(stderr,
                    "pesc: note: training is counted with LoRA of rank %lld, that of %s; --lora-r "
                    "gives models without one another\n",
                    (long long)r.lora_r, c->o->models[i]);
        return PESC_OK;
    }
    return PESC_OK;
}

static pesc_status count_all(const costs *c, pesc_device *dev)
{
    for (size_t i = 0; i < c->n; i++) {
        model_cost *m = &c->models[i];
        m->path = c->o->models[i];
        m->name = last_word(m->path);
        m->report = PESC_INIT(pesc_cost_report);
        plan_runs(m->runs);
        TRY(pesc_cost(dev, m->path, &c->how, &m->report));
        if (c->o->measure)
            TRY(pesc_cost_measure(dev, m->path, &c->how, m->runs, N_RUNS));
    }
    progress_clear();
    return PESC_OK;
}

static void show(const costs *c, const plot_files *files)
{
    int n = c->o->measure ? N_PICTURES : N_PICTURES - 1;
    if (!c->o->json) {
        print_text(c);
        putchar('\n');
        for (int i = 0; i < n; i++)
            plots_print(&files[i]);
        return;
    }
    out_begin(NULL, '{');
    out_begin("models", '[');
    for (size_t i = 0; i < c->n; i++)
        json_model(&c->models[i], c->o->measure);
    out_end();
    out_begin("plots", '[');
    for (int i = 0; i < n; i++)
        plots_json(&files[i]);
    out_end();
    out_end();
}

pesc_status cmd_cost(const options *o)
{
    costs c = { .o = o, .n = o->n_models };
    plot_files files[N_PICTURES] = { 0 };
    pesc_device *dev = NULL;
    c.models = calloc(c.n, sizeof *c.models);
    pesc_status st = c.models ? take_rank(&c) : out_nomem("the counts");
    if (st == PESC_OK)
        st = open_device(&dev, o);
    if (st == PESC_OK)
        st = count_all(&c, dev);
    if (st == PESC_OK)
        st = make_pictures(&c, files);
    if (st == PESC_OK)
        show(&c, files);
    for (int i = 0; i < N_PICTURES; i++)
        plots_free(&files[i]);
    pesc_device_close(dev);
    free(c.models);
    return st;
}
