/* cmd_eval_tasks: benchmark tasks of one or several models. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/averages.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
    const options *o;
    pesc_benchmark_report *models; /* [n] */
    const char *const *names;
    size_t n;
    pesc_comm *all;
} table;

/* ---- the list of tasks ---- */

static void list_row(void *ud, const pesc_benchmark_task *t)
{
    const options *o = ud;
    if (!o->json) {
        printf("%s%-26s %6lld %6lld  %-12s %4g  %s\n", t->group[0] ? "  " : "", t->name,
               (long long)t->documents, (long long)t->shots, t->metric, t->version,
               t->present ? "" : "no data");
        return;
    }
    out_begin(NULL, '{');
    out_fields("name=%s group=%s", t->name, t->group);
    out_bool("is_group", t->is_group);
    out_fields("documents=%ld shots=%ld metric=%s version=%g", t->documents, t->shots, t->metric,
               t->version);
    out_bool("data", t->present);
    out_end();
}

pesc_status eval_list(const options *o)
{
    if (o->json)
        out_begin(NULL, '[');
    else
        printf("%-26s %6s %6s  %-12s %4s\n", "task", "docs", "shots", "metric", "version");
    TRY(pesc_benchmark_list(o->benchmark.data_dir, list_row, (void *)(uintptr_t)o));
    if (o->json)
        out_end();
    return PESC_OK;
}

static void print_name(void *ud, const pesc_benchmark_task *t)
{
    (void)ud;
    printf("%s ", t->name);
}

void eval_names(void)
{
    (void)pesc_benchmark_list(NULL, print_name, NULL);
}

/* ---- one model ---- */

/* The last part of a path, or the host of a server: the name of a model in tables and directories.
 */
static const char *short_name(const char *path)
{
    size_t n = strlen(path);
    if (pesc_benchmark_is_server(path))
        return strstr(path, "://") + 3;
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return path + n;
}

/* Several models share a directory: each has one of its own in it, numbered, since two may have
 * the same name. */
static pesc_status output_of(const options *o, size_t i, char *out, size_t cap)
{
    out[0] = '\0';
    if (!o->output)
        return PESC_OK;
    int n = o->n_models == 1
                ? snprintf(out, cap, "%s", o->output)
                : snprintf(out, cap, "%s/%zu-%.*s", o->output, i + 1,
                           (int)strcspn(short_name(o->models[i]), "/"), short_name(o->models[i]));
    return n >= 0 && (size_t)n < cap
               ? PESC_OK
               : out_fail(PESC_USAGE, "eval: --output: %s: is too long", o->output);
}

static pesc_status evaluate_model(table *t, size_t i, const char *tasks,
                                  const pesc_benchmark_options *b)
{
    const char *computes;
    open_model m = { 0 };
    options one = *t->o;
    one.model = t->o->models[i];
    pesc_status st = open_from(&m, &one);
    if (st == PESC_OK)
        st = open_computes(&m, &one, &computes);
    if (st == PESC_OK)
        st = pesc_device_join(m.device, t->all);
    if (st == PESC_OK)
        st = pesc_benchmark(m.model, tasks, b, &t->models[i]);
    progress_clear();
    open_free(&m);
    return st;
}

static pesc_status evaluate_server(table *t, size_t i, const char *tasks,
                                   const pesc_benchmark_options *b)
{
    pesc_status st =
        pesc_benchmark_server(t->o->models[i], tasks, b, progress_events(), &t->models[i]);
    progress_clear();
    return st;
}

static pesc_status evaluate(table *t, size_t i, const char *tasks)
{
    char dir[4096];
    bool server = pesc_benchmark_is_server(t->o->models[i]);
    pesc_benchmark_options b = t->o->benchmark;
    TRY(output_of(t->o, i, dir, sizeof dir));
    b.limit = t->o->eval.limit;
    b.unpack_ratio = t->o->eval.unpack_ratio;
    b.output = dir[0] ? dir : NULL;
    b.max_length = t->o->ctx;
    b.samples = t->o->samples;
    if (server || opt_given(t->o, "batch"))
        b.slots = t->o->eval.batch;
    t->models[i] = PESC_INIT(pesc_benchmark_report);
    return (server ? evaluate_server : evaluate_model)(t, i, tasks, &b);
}

/* ---- the table ---- */

static bool is_shown(const table *t, size_t row)
{
    const pesc_benchmark_score *s = &t->models[0].scores[row];
    if (!s->reference)
        return true;
    /* the reference's figure is shown where it differs from ours */
    for (size_t k = 0; k < t->n; k++) {
        const pesc_benchmark_report *r = &t->models[k];
        for (size_t i = 0; i < r->n_scores; i++) {
            const pesc_benchmark_score *a = &r->scores[i], *b = &r->scores[row];
            if (!a->reference && strcmp(a->task, b->task) == 0 &&
                strcmp(a->metric, b->metric) == 0 && strcmp(a->filter, b->filter) == 0 &&
                a->mean != b->mean)
                return true;
        }
    }
    return false;
}

/* Where a row stands: groups, tasks of no group that has a row, then the members of groups. */
typedef enum row_rank { ROW_GROUP, ROW_TASK, ROW_MEMBER, ROW_RANKS } row_rank;

static row_rank rank_of_row(const pesc_benchmark_report *r, size_t row)
{
    const pesc_benchmark_score *s = &r->scores[row];
    if (s->is_group)
        return ROW_GROUP;
    for (size_t i = 0; s->group[0] && i < r->n_scores; i++)
        if (r->scores[i].is_group && averages_named(&r->scores[i], s->group))
            return ROW_MEMBER;
    return ROW_TASK;
}

static void print_row(const table *t, size_t row)
{
    const pesc_benchmark_score *s = &t->models[0].scores[row];
    char metric[64];
    snprintf(metric, sizeof metric, "%s%s%s%s", s->metric,
             strcmp(s->filter, "none") == 0 ? "" : " ",
             strcmp(s->filter, "none") == 0 ? "" : s->filter, s->reference ? " (reference)" : "");
    printf("%-26s %5lld  %-28s %6llu", s->task, (long long)s->shots, metric,
           (unsigned long long)s->n);
    for (size_t k = 0; k < t->n; k++)
        averages_value(t->models[k].scores[row].mean, t->models[k].scores[row].error, "", s->full);
    for (size_t k = 1; k < t->n; k++) {
        double mean = NAN, error = NAN;
        (void)pesc_benchmark_difference(&t->models[k].scores[row], s, &mean, &error);
        averages_value(mean, error, "+", s->full);
    }
    putchar('\n');
}

static void print_head(const table *t)
{
    printf("%-26s %5s  %-28s %6s", "task", "shots", "metric, in percent", "docs");
    for (size_t k = 0; k < t->n; k++)
        printf("  %-15.*s", (int)strcspn(short_name(t->names[k]), "/"), short_name(t->names[k]));
    for (size_t k = 1; k < t->n; k++)
        printf("  %zu - 1          ", k + 1);
    putchar('\n');
}

static void print_table(const table *t)
{
    size_t members = 0;
    print_head(t);
    for (int rank = 0; rank < ROW_RANKS; rank++)
        for (size_t i = 0; i < t->models[0].n_scores; i++) {
            if (rank_of_row(&t->models[0], i) != (row_rank)rank || !is_shown(t, i))
                continue;
            if (rank < ROW_MEMBER || t->o->subtasks)
                print_row(t, i);
            else
                members++;
        }
    if (members)
        printf("%zu figures of the tasks of groups are not shown; --subtasks shows them\n",
               members);
    averages_print(t->models, t->n);
    for (size_t k = 0; k < t->n; k++) {
        const pesc_benchmark_report *r = &t->models[k];
        if (r->tokens_requested && !t->o->quiet)
            fprintf(stderr, "%s: %.1f s, %llu tokens computed of %llu requested (%.3f)\n",
                    t->names[k], r->seconds, (unsigned long long)r->tokens_computed,
                    (unsigned long long)r->tokens_requested,
                    (double)r->tokens_computed / (double)r->tokens_requested);
    }
}

/* ---- the picture ---- */

/* The first score of each task and group, as bars. */
typedef struct picture {
    const char **tasks, **models; /* names */
    size_t n_tasks;
    double *values, *errors; /* in percent */
} picture;

static bool is_first(const pesc_benchmark_report *r, size_t i)
{
    return i == 0 || strcmp(r->scores[i].task, r->scores[i - 1].task) != 0;
}

static void fill_picture(picture *p, const table *t)
{
    const pesc_benchmark_report *first = &t->models[0];
    for (size_t i = 0; i < first->n_scores; i++)
        p->n_tasks += is_first(first, i);
    for (size_t k = 0; k < t->n; k++) {
        size_t at = k * p->n_tasks;
        p->models[k] = short_name(t->names[k]);
        for (size_t i = 0; i < first->n_scores; i++) {
            const pesc_benchmark_score *s = &t->models[k].scores[i];
            if (!is_first(first, i))
                continue;
            p->tasks[at - k * p->n_tasks] = s->task;
            p->values[at] = 100 * s->mean / s->full;
            p->errors[at++] = 100 * s->error / s->full;
        }
    }
}

static pesc_status write_picture(const picture *p, const table *t, const char *ending)
{
    char path[4096];
    pesc_bars bars = { .size = sizeof bars,
                       .title = "Benchmarks, in percent",
                       .note = "The first metric of each task; lines are standard errors.",
                       .groups = p->tasks,
                       .n_groups = p->n_tasks,
                       .series = p->models,
                       .n_series = t->n,
                       .values = p->values,
                       .errors = p->errors };
    snprintf(path, sizeof path, "%s/scores.%s", t->o->output, ending);
    return pesc_plot_bars(path, &bars);
}

static pesc_status draw(const table *t)
{
    size_t most = t->models[0].n_scores;
    picture p = { .tasks = calloc(most + 1, sizeof *p.tasks),
                  .models = calloc(t->n, sizeof *p.models),
                  .values = calloc(t->n * most + 1, sizeof *p.values),
                  .errors = calloc(t->n * most + 1, sizeof *p.errors) };
    bool enough = p.tasks && p.models && p.values && p.errors;
    pesc_status st = enough ? PESC_OK : out_nomem("the picture");
    if (st == PESC_OK) {
        fill_picture(&p, t);
        st = write_picture(&p, t, "svg");
    }
    if (st == PESC_OK)
        st = write_picture(&p, t, "png");
    if (st == PESC_OK)
        st = averages_draw(t->o->output, t->models, p.models, t->n);
    free(p.tasks);
    free(p.models);
    free(p.values);
    free(p.errors);
    return st;
}

/* ---- all models ---- */

static void print_json(const table *t)
{
    if (t->n == 1) {
        averages_json(&t->models[0]);
        return;
    }
    fputs("[\n", stdout);
    for (size_t k = 0; k < t->n; k++) {
        averages_json(&t->models[k]);
        fputs(k + 1 < t->n ? ",\n" : "]\n", stdout);
    }
}

pesc_status eval_tasks(const options *o, const char *tasks, pesc_comm *all)
{
    table t = { .o = o, .names = o->models, .n = o->n_models, .all = all };
    bool leads = pesc_comm_rank(all) == 0;
    if (o->samples && !o->output)
        return out_fail(PESC_USAGE, "eval: --samples of tasks are written to files; give --output");
    t.models = calloc(t.n, sizeof *t.models);
    pesc_status st = t.models ? PESC_OK : out_nomem("the results");
    for (size_t i = 0; st == PESC_OK && i < t.n; i++)
        st = evaluate(&t, i, tasks);
    if (st == PESC_OK && leads && o->output)
        st = draw(&t);
    if (st == PESC_OK && leads && o->json)
        print_json(&t);
    else if (st == PESC_OK && leads)
        print_table(&t);
    for (size_t i = 0; t.models && i < t.n; i++)
        pesc_benchmark_free(&t.models[i]);
    free(t.models);
    return st;
}
