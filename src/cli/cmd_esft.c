/* cmd_esft: scores the experts that a task uses (score), selects the best (select), and writes a
 * model with a patch of tuned experts (apply). */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/processes.h"
#include "cli/show/progress.h"
#include "cli/opt/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pesc_status needs(const options *o, const char *what, const char *usage)
{
    return out_fail(PESC_USAGE, "esft %s: %s is missing; usage: pesc esft %s %s", o->action, what,
                    o->action, usage);
}

/* ---- score ---- */

static const char score_usage[] = "MODEL --data FILE... -o DIR";

static void print_score(const options *o, const pesc_esft_score_report *r)
{
    double speed = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    if (o->json) {
        out_object(NULL,
                   "path=%s tokens=%ld records=%ld layers=%ld experts=%ld top_k=%ld gate_sum=%g "
                   "seconds=%.6g tokens_per_second=%.6g",
                   o->output, r->tokens, r->records, r->layers, r->experts, r->top_k, r->gate_sum,
                   r->seconds, speed);
        return;
    }
    printf("%s/summary.json: %" PRIu64 " tokens", o->output, r->tokens);
    if (r->records)
        printf(" of %" PRIu64 " records", r->records);
    printf(", %" PRId64 " layers of %" PRId64 " experts, %" PRId64 " a token\n", r->layers,
           r->experts, r->top_k);
    printf("the gates of a token sum to %.3f on average%s\n", r->gate_sum,
           r->gate_sum > 0.99 ? ": choose by gate with --p-relative" : "");
    if (!o->from_logs)
        printf("%.1f tokens/s\n", speed);
}

static pesc_status score_model(options *o, pesc_comm *all, pesc_esft_score_report *r)
{
    o->data.seq_len = o->score.seq_len ? o->score.seq_len : INT32_MAX;
    open_model m = { 0 };
    pesc_data *d = NULL;
    o->model = o->inputs[0];
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_device_join(m.device, all);
    if (st == PESC_OK)
        st = pesc_data_open(&d, o->model, &o->data, progress_events());
    if (st == PESC_OK)
        st = pesc_esft_score(m.model, d, o->output, &o->score, r);
    pesc_data_close(d);
    open_free(&m);
    return st;
}

/* In several processes, if there are several. */
static pesc_status score_together(options *o, pesc_esft_score_report *r, bool *leads)
{
    pesc_comm *all = NULL;
    TRY(processes_start(o));
    TRY(processes_join(&all, o));
    *leads = pesc_comm_rank(all) == 0;
    pesc_status st = score_model(o, all, r);
    processes_leave(all, st);
    return st;
}

static pesc_status score(options *o)
{
    pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
    bool leads = true;
    if (o->n_inputs > 1)
        return out_fail(PESC_USAGE, "esft score: unexpected argument \"%s\"; one model is scored",
                        o->inputs[1]);
    if (o->n_inputs == 0 && !o->from_logs)
        return needs(o, "MODEL", score_usage);
    if (o->data.n_data == 0 && !o->from_logs)
        return needs(o, "--data", score_usage);
    if (o->data.n_data && o->from_logs)
        return out_fail(PESC_USAGE, "esft score: --data and --from-logs exclude each other");
    if (!o->output)
        return needs(o, "-o DIR", score_usage);
    if (o->from_logs) {
        o->score.model = o->n_inputs ? o->inputs[0] : NULL;
        TRY(pesc_esft_score_logs(o->from_logs, o->output, &o->score, progress_events(), &r));
    } else {
        TRY(score_together(o, &r, &leads));
    }
    if (leads)
        print_score(o, &r);
    return PESC_OK;
}

/* ---- select: what is shown ---- */

enum { NAME = 32, LAYER_NAME = 12 };

/* The experts that were selected for tasks. */
typedef struct chosen {
    const options *o;
    const char *metric;
    const pesc_esft_choice *all;   /* what was written */
    const pesc_esft_choice *tasks; /* one for each summary, over the same layers */
    size_t n;
    const pesc_esft_counts *counts; /* NULL: no model was given */
} chosen;

/* What is shown of a choice; all of it is allocated. */
typedef struct shown {
    const chosen *c;
    size_t *rows;        /* [layers]: indices of layers in the order of their numbers */
    char (*names)[NAME]; /* [tasks] */
    char (*layer_names)[LAYER_NAME];
    const char **task_ptrs, **layer_ptrs;
    double *cells; /* [tasks, layers, experts] */
    bool *marked;
    double *overlap; /* [tasks, tasks]: experts in common / experts of either */
    int64_t *common; /* [tasks, tasks] */
} shown;

static void free_shown(shown *s)
{
    free(s->rows);
    free(s->names);
    free(s->layer_names);
    free(s->task_ptrs);
    free(s->layer_ptrs);
    free(s->cells);
    free(s->marked);
    free(s->overlap);
    free(s->common);
}

/* scores/law/summary.json, scores/law and law.json are all "law". */
static void name_task(char out[NAME], const char *path)
{
    static const char file[] = "summary.json", end[] = ".json";
    size_t n = strlen(path);
    if (n > sizeof file - 1 && strcmp(path + n - (sizeof file - 1), file) == 0 &&
        path[n - sizeof file] == '/')
        n -= sizeof file;
    else if (n > sizeof end - 1 && strcmp(path + n - (sizeof end - 1), end) == 0)
        n -= sizeof end - 1;
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    snprintf(out, NAME, "%.*s", (int)(n - start), path + start);
}

static void compare_tasks(shown *s)
{
    const chosen *c = s->c;
    size_t cells = c->all->n_layers * c->all->n_experts;
    for (size_t a = 0; a < c->n; a++)
        for (size_t b = 0; b < c->n; b++) {
            int64_t common = 0;
            for (size_t i = 0; i < cells; i++)
                common += c->tasks[a].chosen[i] && c->tasks[b].chosen[i];
            int64_t both = c->tasks[a].total + c->tasks[b].total - common;
            s->common[a * c->n + b] = common;
            s->overlap[a * c->n + b] = both ? (double)common / (double)both : 0;
        }
}

static void sort_layers(shown *s)
{
    const int32_t *layers = s->c->all->layers;
    size_t n = s->c->all->n_layers;
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && layers[s->rows[at - 1]] > layers[i]; at--)
            s->rows[at] = s->rows[at - 1];
        s->rows[at] = i;
    }
}

static void fill_cells(shown *s)
{
    size_t layers = s->c->all->n_layers, experts = s->c->all->n_experts;
    for (size_t t = 0; t < s->c->n; t++)
        for (size_t r = 0; r < layers; r++) {
            size_t to = (t * layers + r) * experts, from = s->rows[r] * experts;
            memcpy(s->cells + to, s->c->tasks[t].scores + from, experts * sizeof *s->cells);
            memcpy(s->marked + to, s->c->tasks[t].chosen + from, experts * sizeof *s->marked);
        }
}

static pesc_status open_shown(shown *s)
{
    const chosen *c = s->c;
    size_t layers = c->all->n_layers, cells = c->n * layers * c->all->n_experts;
    s->rows = calloc(layers, sizeof *s->rows);
    s->names = calloc(c->n, sizeof *s->names);
    s->layer_names = calloc(layers, sizeof *s->layer_names);
    s->task_ptrs = calloc(c->n, sizeof *s->task_ptrs);
    s->layer_ptrs = calloc(layers, sizeof *s->layer_ptrs);
    s->cells = calloc(cells, sizeof *s->cells);
    s->marked = calloc(cells, sizeof *s->marked);
    s->overlap = calloc(c->n * c->n, sizeof *s->overlap);
    s->common = calloc(c->n * c->n, sizeof *s->common);
    if (!s->rows || !s->names || !s->layer_names || !s->task_ptrs || !s->layer_ptrs || !s->cells ||
        !s->marked || !s->overlap || !s->common)
        return out_nomem("the chosen experts");
    for (size_t i = 0; i < c->n; i++) {
        name_task(s->names[i], c->o->inputs[i]);
        s->task_ptrs[i] = s->names[i];
    }
    sort_layers(s);
    for (size_t i = 0; i < layers; i++) {
        snprintf(s->layer_names[i], LAYER_NAME, "%d", c->all->layers[s->rows[i]]);
        s->layer_ptrs[i] = s->layer_names[i];
    }
    fill_cells(s);
    compare_tasks(s);
    return PESC_OK;
}

/* The output's name with another ending instead of .json; for free(). */
static char *beside(const char *output, const char *ending)
{
    size_t n = strlen(output), m = strlen(ending);
    if (n > 5 && strcmp(output + n - 5, ".json") == 0)
        n -= 5;
    char *path = malloc(n + m + 1);
    if (path) {
        memcpy(path, output, n);
        memcpy(path + n, ending, m + 1);
    }
    return path;
}

static pesc_status draw(const shown *s, const pesc_heat *p, const char *const endings[2])
{
    for (int i = 0; i < 2; i++) {
        char *path = beside(s->c->o->output, endings[i]);
        if (!path)
            return out_nomem("a picture");
        pesc_status st = pesc_plot_heat(path, p);
        free(path);
        TRY(st);
    }
    return PESC_OK;
}

static pesc_status draw_all(const shown *s)
{
    const chosen *c = s->c;
    char title[128], note[128];
    static const char *const experts[] = { ".svg", ".png" };
    static const char *const overlap[] = { ".overlap.svg", ".overlap.png" };
    snprintf(title, sizeof title, "experts by %s score", c->metric);
    snprintf(note, sizeof note, "framed: %" PRId64 " of %zu are chosen", c->all->total,
             c->all->n_layers * c->all->n_experts);
    TRY(draw(s,
             &(pesc_heat){ .size = sizeof(pesc_heat),
                           .title = title,
                           .note = note,
                           .x_label = "expert",
                           .y_label = "layer",
                           .panels = s->task_ptrs,
                           .n_panels = c->n,
                           .rows = c->all->n_layers,
                           .cols = c->all->n_experts,
                           .row_names = s->layer_ptrs,
                           .cells = s->cells,
                           .marked = s->marked },
             experts));
    if (c->n == 1)
        return PESC_OK;
    return draw(s,
                &(pesc_heat){ .size = sizeof(pesc_heat),
                              .title = "experts that tasks have in common",
                              .note = "fraction of the experts of either task",
                              .n_panels = 1,
                              .rows = c->n,
                              .cols = c->n,
                              .row_names = s->task_ptrs,
                              .col_names = s->task_ptrs,
                              .cells = s->overlap,
                              .max = 1 },
                overlap);
}

static void print_layers(const shown *s)
{
    const pesc_esft_choice *a = s->c->all;
    printf("layer  experts\n");
    for (size_t r = 0; r < a->n_layers; r++) {
        size_t l = s->rows[r];
        printf("%5d %4d ", a->layers[l], a->counts[l]);
        for (int32_t i = 0; i < a->counts[l]; i++)
            printf(" %d", a->order[l * a->n_experts + (size_t)i]);
        puts("");
    }
}

static void print_overlap(const shown *s)
{
    size_t n = s->c->n;
    printf("\nexperts in common, and as a fraction of the experts of either task\n%-16s", "");
    for (size_t b = 0; b < n; b++)
        printf(" %15.15s", s->names[b]);
    puts("");
    for (size_t a = 0; a < n; a++) {
        printf("%-16.16s", s->names[a]);
        for (size_t b = 0; b < n; b++)
            printf(" %8" PRId64 "  %5.3f", s->common[a * n + b], s->overlap[a * n + b]);
        puts("");
    }
}

static void print_text(const shown *s)
{
    const chosen *c = s->c;
    const pesc_esft_choice *a = c->all;
    out_number some, whole, bytes;
    print_layers(s);
    if (c->n > 1)
        print_overlap(s);
    printf("\n%s: %" PRId64 " of %zu experts in %zu layers, %.2f a layer\n", c->o->output, a->total,
           a->n_layers * a->n_experts, a->n_layers, (double)a->total / (double)a->n_layers);
    if (c->counts)
        printf("trainable: %s of %s parameters (%.2f %%), %s\n",
               out_count(some, c->counts->trainable), out_count(whole, c->counts->total),
               100 * (double)c->counts->trainable / (double)c->counts->total,
               out_bytes(bytes, c->counts->bytes));
    else
        puts("trainable: --model MODEL counts the parameters");
}

static void json_tasks(const shown *s)
{
    const chosen *c = s->c;
    out_begin("tasks", '[');
    for (size_t t = 0; t < c->n; t++) {
        out_begin(NULL, '{');
        out_fields("name=%s path=%s experts=%ld", s->names[t], c->o->inputs[t], c->tasks[t].total);
        out_begin("common", '[');
        for (size_t b = 0; b < c->n; b++)
            out_int(NULL, s->common[t * c->n + b]);
        out_end();
        out_begin("overlap", '[');
        for (size_t b = 0; b < c->n; b++)
            out_real(NULL, s->overlap[t * c->n + b]);
        out_end();
        out_end();
    }
    out_end();
}

static void print_json(const shown *s)
{
    const chosen *c = s->c;
    const pesc_esft_choice *a = c->all;
    out_begin(NULL, '{');
    out_fields("path=%s metric=%s experts=%ld experts_per_layer=%g", c->o->output, c->metric,
               a->total, (double)a->total / (double)a->n_layers);
    out_begin("layers", '[');
    for (size_t r = 0; r < a->n_layers; r++) {
        size_t l = s->rows[r];
        out_begin(NULL, '{');
        out_int("layer", a->layers[l]);
        out_ids("experts", a->order + l * a->n_experts, (size_t)a->counts[l]);
        out_end();
    }
    out_end();
    if (c->counts) {
        out_fields("trainable=%ld params=%ld bytes=%ld", c->counts->trainable, c->counts->total,
                   c->counts->bytes);
    }
    json_tasks(s);
    out_end();
}

/* Prints the choice (as JSON with --json) and draws it next to the output: OUT.svg and OUT.png, the
 * scores of all experts with the chosen ones framed; of several tasks also OUT.overlap.svg and
 * .png. */
static pesc_status show_choice(const chosen *c)
{
    shown s = { .c = c };
    pesc_status st = open_shown(&s);
    if (st == PESC_OK)
        st = draw_all(&s);
    if (st == PESC_OK)
        (c->o->json ? print_json : print_text)(&s);
    free_shown(&s);
    return st;
}

/* ---- select ---- */

static const char select_usage[] = "SUMMARY... -o expert_cfg.json";

static pesc_status select_all(const options *o, const pesc_esft_select_options *opt,
                              pesc_esft_choice *tasks, const pesc_esft_choice **list)
{
    pesc_esft_choice all = PESC_INIT(pesc_esft_choice);
    pesc_esft_counts counts = PESC_INIT(pesc_esft_counts);
    for (size_t i = 0; i < o->n_inputs; i++) {
        tasks[i] = PESC_INIT(pesc_esft_choice);
        list[i] = &tasks[i];
        TRY(pesc_esft_select(o->inputs[i], opt, progress_events(), &tasks[i]));
        tasks[i].shared_experts = o->shared_experts;
        tasks[i].non_expert_modules = o->non_expert_modules;
    }
    TRY(pesc_esft_unite(list, o->n_inputs, &all));
    chosen c = { .o = o, .metric = opt->metric, .all = &all, .tasks = tasks, .n = o->n_inputs };
    pesc_status st = PESC_OK;
    if (o->model) {
        st = pesc_esft_count(o->model, &all, progress_events(), &counts);
        c.counts = &counts;
    }
    if (st == PESC_OK)
        st = pesc_esft_write(&all, o->output);
    if (st == PESC_OK)
        st = show_choice(&c);
    pesc_esft_choice_free(&all);
    return st;
}

static pesc_status select_experts(options *o)
{
    pesc_esft_select_options opt = o->select;
    if (o->n_inputs == 0)
        return needs(o, "SUMMARY", select_usage);
    if (!o->output)
        return needs(o, "-o expert_cfg.json", select_usage);
    if (opt_given(o, "metric"))
        opt.metric = o->score.metric;
    opt.seed = o->score.seed;
    pesc_esft_choice *tasks = calloc(o->n_inputs, sizeof *tasks);
    const pesc_esft_choice **list = calloc(o->n_inputs, sizeof *list);
    pesc_status st = tasks && list ? select_all(o, &opt, tasks, list) : out_nomem("the tasks");
    for (size_t i = 0; tasks && i < o->n_inputs; i++)
        pesc_esft_choice_free(&tasks[i]);
    free(list);
    free(tasks);
    return st;
}

/* ---- apply ---- */

static const char apply_usage[] = "BASE --patch DIR [-o OUT]";

static pesc_status apply_into(const options *o, const char *dir, void *unused)
{
    (void)unused;
    pesc_device *device = NULL;
    if (o->check)
        TRY(open_device(&device, o));
    pesc_status st = pesc_esft_apply(device, o->model, o->load.patch, dir);
    pesc_device_close(device);
    return st;
}

static pesc_status apply(options *o)
{
    if (o->n_inputs != 1)
        return o->n_inputs ? out_fail(PESC_USAGE,
                                      "esft apply: unexpected argument \"%s\"; a patch is put into "
                                      "one model",
                                      o->inputs[1])
                           : needs(o, "BASE", apply_usage);
    if (!o->load.patch)
        return needs(o, "--patch", apply_usage);
    if (o->load.lora)
        return out_fail(PESC_USAGE, "esft apply: --lora has no effect here; fold it into the base "
                                    "first: pesc merge BASE --lora DIR -o MERGED");
    o->model = o->inputs[0];
    if (o->output) {
        TRY(replace_dir(o, apply_into, NULL));
        return made_report(o, &(made){ .check = &PESC_INIT(pesc_logit_check) });
    }
    TRY(pesc_esft_apply(NULL, o->model, o->load.patch, NULL));
    if (o->json) {
        out_begin(NULL, '{');
        out_bool("fits", true);
        out_end();
    } else {
        printf("%s: belongs to %s; -o OUT writes the model with it\n", o->load.patch, o->model);
    }
    return PESC_OK;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    pesc_status (*run)(options *o);
} actions[] = { { "score", score }, { "select", select_experts }, { "apply", apply } };

pesc_status cmd_esft(const options *o)
{
    options mine = *o; /* open_from() reads o->model, which the actions set */
    size_t i = 0;
    while (strcmp(o->action, actions[i].name) != 0)
        i++; /* opt_parse() takes no other action */
    return actions[i].run(&mine);
}
