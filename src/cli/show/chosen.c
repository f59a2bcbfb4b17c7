#include "cli/show/chosen.h"

#include "cli/show/out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 32, LAYER_NAME = 12 };

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
    double *counts;  /* [tasks, layers]: chosen experts */
    double *curves;  /* [metrics, tasks, experts]: the share of a layer's scores that its first
                        experts  have, in the order of scores, the mean over layers */
    double *numbers; /* [experts]: 1, 2 ... */
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
    free(s->counts);
    free(s->curves);
    free(s->numbers);
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

static int largest_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Adds a task's curve; `layer` is room for a layer's scores. */
static void add_curve(double *curve, const pesc_esft_choice *c, double *layer)
{
    for (size_t l = 0; l < c->n_layers; l++) {
        double all = 0, sum = 0;
        memcpy(layer, c->scores + l * c->n_experts, c->n_experts * sizeof *layer);
        qsort(layer, c->n_experts, sizeof *layer, largest_first);
        for (size_t e = 0; e < c->n_experts; e++)
            all += layer[e];
        for (size_t e = 0; e < c->n_experts && all > 0; e++) {
            sum += layer[e];
            curve[e] += sum / all / (double)c->n_layers;
        }
    }
}

static void fill_counts(shown *s)
{
    const chosen *c = s->c;
    size_t layers = c->all->n_layers, experts = c->all->n_experts;
    for (size_t t = 0; t < c->n; t++) {
        for (size_t r = 0; r < layers; r++)
            s->counts[t * layers + r] = c->tasks[t].counts[s->rows[r]];
        add_curve(s->curves + t * experts, &c->tasks[t], s->numbers);
        add_curve(s->curves + (c->n + t) * experts, &c->other[t], s->numbers);
    }
    for (size_t e = 0; e < experts; e++)
        s->numbers[e] = (double)(e + 1);
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
    s->counts = calloc(c->n * layers, sizeof *s->counts);
    s->curves = calloc(2 * c->n * c->all->n_experts, sizeof *s->curves);
    s->numbers = calloc(c->all->n_experts, sizeof *s->numbers);
    if (!s->counts || !s->curves || !s->numbers)
        return out_nomem("the chosen experts");
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
    fill_counts(s);
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

static const char *other_metric(const chosen *c)
{
    return strcmp(c->metric, "token") == 0 ? "gate" : "token";
}

/* How few experts carry a task (Figure 2 of the paper), and how many of each layer are chosen for
 * each task (Figure 4). */
static pesc_status draw_counts(const shown *s)
{
    const chosen *c = s->c;
    static const char *const endings[] = { ".counts.svg", ".counts.png" };
    static const char *const lines[] = { ".concentration.svg", ".concentration.png" };
    size_t experts = c->all->n_experts;
    TRY(draw(s,
             &(pesc_heat){ .size = sizeof(pesc_heat),
                           .title = "chosen experts by task and layer",
                           .x_label = "layer",
                           .y_label = "task",
                           .n_panels = 1,
                           .rows = c->n,
                           .cols = c->all->n_layers,
                           .row_names = s->task_ptrs,
                           .col_names = s->layer_ptrs,
                           .cells = s->counts },
             endings));
    pesc_series *series = calloc(2 * c->n, sizeof *series);
    char(*names)[NAME + 8] = calloc(2 * c->n, sizeof *names);
    pesc_status st = series && names ? PESC_OK : out_nomem("a picture");
    size_t n = 0;
    for (size_t i = 0; st == PESC_OK && i < 2 * c->n; i++) {
        if (i >= c->n && !c->other[i - c->n].n_layers)
            continue;
        snprintf(names[n], sizeof *names, "%s, %s", s->names[i % c->n],
                 i < c->n ? c->metric : other_metric(c));
        series[n] = (pesc_series){ .name = names[n],
                                   .x = s->numbers,
                                   .y = s->curves + i * experts,
                                   .n = experts,
                                   .dots = experts <= 64 };
        n++;
    }
    for (int i = 0; st == PESC_OK && i < 2; i++) {
        char *path = beside(c->o->output, lines[i]);
        st = path
                 ? pesc_plot_lines(path, &(pesc_lines){ .size = sizeof(pesc_lines),
                                                        .title = "how few experts carry a task",
                                                        .note = "mean over layers",
                                                        .x_label = "experts of a layer, best first",
                                                        .y_label = "share of the layer's scores",
                                                        .series = series,
                                                        .n_series = n })
                 : out_nomem("a picture");
        free(path);
    }
    free(series);
    free(names);
    return st;
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
    TRY(draw_counts(s));
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

static void json_curve(const shown *s, size_t i, const char *metric)
{
    size_t experts = s->c->all->n_experts;
    out_begin(metric, '[');
    for (size_t e = 0; e < experts; e++)
        out_real(NULL, s->curves[i * experts + e]);
    out_end();
}

/* Of each task: how many experts of each layer are chosen, and how few have most of the scores. */
static void json_counts(const shown *s)
{
    const chosen *c = s->c;
    out_begin("counts", '[');
    for (size_t t = 0; t < c->n; t++) {
        out_begin(NULL, '[');
        for (size_t r = 0; r < c->all->n_layers; r++)
            out_int(NULL, (int64_t)s->counts[t * c->all->n_layers + r]);
        out_end();
    }
    out_end();
    out_begin("concentration", '[');
    for (size_t t = 0; t < c->n; t++) {
        out_begin(NULL, '{');
        json_curve(s, t, c->metric);
        if (c->other[t].n_layers)
            json_curve(s, c->n + t, other_metric(c));
        out_end();
    }
    out_end();
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
    json_counts(s);
    out_end();
}

pesc_status show_choice(const chosen *c)
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
