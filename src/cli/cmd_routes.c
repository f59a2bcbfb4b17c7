/* cmd_routes: which experts the tokens of each domain choose: a map on the terminal and a picture.
 *
 * On a terminal the darkness of a cell shows its share; elsewhere a cell is the number alone, so
 * that programs can read the output. Panels are side by side as long as they fit the line. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/plots.h"
#include "cli/show/progress.h"
#include "cli/routes_detail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { CELL = 3, MARGIN = 5, DIFFER = 6, LINE = 100, GAP = 2 };

/* ---- the map ---- */

/* White to navy in the 256 colours of terminals, with a text colour that is legible on each. */
static const struct {
    int paper, ink;
} shades[] = { { 231, 235 }, { 195, 235 }, { 153, 235 }, { 117, 235 },
               { 74, 255 },  { 32, 255 },  { 25, 255 },  { 18, 255 } };
enum { N_SHADES = sizeof shades / sizeof *shades };

typedef struct map {
    const pesc_routes_report *r;
    double most; /* the darkest share */
    bool colour;
    size_t across; /* panels side by side */
} map;

static void print_cell(const map *m, double share)
{
    int shade = m->most > 0 ? (int)(share / m->most * (N_SHADES - 1) + 0.5) : 0;
    if (m->colour)
        printf("\033[48;5;%dm\033[38;5;%dm", shades[shade].paper, shades[shade].ink);
    printf("%*.0f", CELL, 100 * share);
    if (m->colour)
        fputs("\033[0m", stdout);
}

static int panel_width(const pesc_routes_report *r)
{
    return (int)r->experts * CELL + GAP;
}

/* The column after the last panels. */
static bool tells_difference(const pesc_routes_report *r, size_t end)
{
    return r->n_domains > 1 && end == r->n_domains;
}

/* A domain and its tokens; of a panel that is too narrow for both the name, cut between characters.
 */
static void print_name(const map *m, const pesc_routes_domain *d)
{
    char both[256];
    const char *name = both;
    int width = panel_width(m->r), n;
    snprintf(both, sizeof both, "%s (%llu tokens)", d->name, (unsigned long long)d->tokens);
    if (strlen(both) >= (size_t)width)
        name = d->name;
    for (n = width - 1; n > 0 && strlen(name) > (size_t)n && (name[n] & 0xC0) == 0x80;)
        n--;
    printf("%-*.*s", width, n, name);
}

static void print_names(const map *m, size_t first, size_t end)
{
    printf("%*s", MARGIN + 1, "");
    for (size_t d = first; d < end; d++)
        print_name(m, &m->r->domains[d]);
    printf("\n%*s ", MARGIN, "layer");
    for (size_t d = first; d < end; d++) {
        for (size_t e = 0; e < m->r->experts; e++)
            printf("%*zu", CELL, e);
        printf("%*s", GAP, "");
    }
    puts(tells_difference(m->r, end) ? "differ" : "");
}

static void print_layer(const map *m, size_t layer, size_t first, size_t end)
{
    const pesc_routes_report *r = m->r;
    printf("%*lld ", MARGIN, (long long)r->layers[layer]);
    for (size_t d = first; d < end; d++) {
        for (size_t e = 0; e < r->experts; e++)
            print_cell(m, r->share[(d * r->n_layers + layer) * r->experts + e]);
        printf("%*s", GAP, "");
    }
    if (tells_difference(r, end))
        printf("%*.2f", DIFFER, r->difference[layer]);
    putchar('\n');
}

static size_t line_width(void)
{
    struct winsize w;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40;
    return known ? w.ws_col : LINE;
}

static void print_map(const pesc_routes_report *r)
{
    map m = { .r = r, .colour = isatty(STDOUT_FILENO) };
    size_t room = line_width(), each = (size_t)panel_width(r);
    const size_t around = MARGIN + 1 + DIFFER;
    m.across = room > around + each ? (room - around) / each : 1;
    for (size_t i = 0; i < r->n_domains * r->n_layers * r->experts; i++)
        m.most = fmax(m.most, r->share[i]);
    printf(
        "percent of a domain's choices that fell on each expert (top %zu of %zu; even is %.3g)\n",
        r->top_k, r->experts, 100 / (double)r->experts);
    for (size_t first = 0; first < r->n_domains; first += m.across) {
        size_t end = first + m.across < r->n_domains ? first + m.across : r->n_domains;
        putchar('\n');
        print_names(&m, first, end);
        for (size_t l = 0; l < r->n_layers; l++)
            print_layer(&m, l, first, end);
    }
}

/* ---- JSON ---- */

/* What is printed and drawn: the report, and the layer of --layer. */
typedef struct shown {
    const options *o;
    const pesc_routes_report *r;
    const pesc_tokenizer *t; /* NULL: the model has none */
    size_t layer;            /* index of the layer, where the report has tokens of one */
    plot_files map, bars;
} shown;

static void json_report(const shown *s)
{
    const pesc_routes_report *r = s->r;
    out_begin(NULL, '{');
    out_int("experts", (int64_t)r->experts);
    out_int("top_k", (int64_t)r->top_k);
    out_begin("layers", '[');
    for (size_t i = 0; i < r->n_layers; i++)
        out_int(NULL, r->layers[i]);
    out_end();
    out_begin("domains", '[');
    for (size_t d = 0; d < r->n_domains; d++) {
        out_begin(NULL, '{');
        out_text("domain", r->domains[d].name);
        out_int("records", (int64_t)r->domains[d].records);
        out_int("tokens", (int64_t)r->domains[d].tokens);
        routes_json_domain(r, d);
        out_end();
    }
    out_end();
    routes_json_reals("difference", r->difference, r->n_layers);
    routes_json_reals("chance", r->chance, r->n_layers);
    routes_json_reals("p_value", r->p_value, r->n_layers);
    if (r->tokens) {
        out_int("layer", r->layers[s->layer]);
        routes_json_tokens(r, s->t);
    }
    out_begin("plots", '[');
    plots_json(&s->map);
    if (r->tokens)
        plots_json(&s->bars);
    out_end();
    out_end();
}

/* ---- the command ---- */

static pesc_status draw(shown *s)
{
    TRY(plots_open(&s->map, s->o->output, "routing"));
    for (int i = 0; i < PLOT_FILES; i++)
        TRY(pesc_plot_routes(s->map.path[i], s->r));
    if (!s->r->tokens)
        return PESC_OK;
    TRY(plots_open(&s->bars, s->o->output, "routing-layer"));
    for (int i = 0; i < PLOT_FILES; i++)
        TRY(pesc_plot_routes_layer(s->bars.path[i], s->r, s->layer));
    return PESC_OK;
}

static void print_report(const shown *s)
{
    print_map(s->r);
    routes_print_layers(s->o, s->r);
    if (s->r->tokens)
        routes_print_layer(s->r, s->layer, s->t);
    putchar('\n');
    plots_print(&s->map);
    if (s->r->tokens)
        plots_print(&s->bars);
}

static pesc_status report(const options *o, const pesc_model *m, const pesc_routes_report *r)
{
    shown s = { .o = o, .r = r, .t = pesc_model_tokenizer(m) };
    while (r->tokens && r->layers[s.layer] != o->routes.layer)
        s.layer++;
    pesc_status st = draw(&s);
    if (st == PESC_OK && o->json)
        json_report(&s);
    else if (st == PESC_OK)
        print_report(&s);
    plots_free(&s.map);
    plots_free(&s.bars);
    return st;
}

static pesc_status check_inputs(const options *o)
{
    const char *missing = !o->model ? "MODEL" : !o->routes.n_data ? "--data FILE" : NULL;
    return missing ? out_fail(PESC_USAGE, "routes: %s is missing; usage: pesc routes %s", missing,
                              o->cmd->synopsis)
                   : PESC_OK;
}

pesc_status cmd_routes(const options *o)
{
    open_model m = { 0 };
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    if (o->over_time)
        return routes_over_time(o);
    TRY(check_inputs(o));
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_routes(m.model, &o->routes, &r);
    progress_clear();
    if (st == PESC_OK)
        st = report(o, m.model, &r);
    pesc_routes_free(&r);
    open_free(&m);
    return st;
}
