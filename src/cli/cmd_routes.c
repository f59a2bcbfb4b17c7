/* cmd_routes: which experts the tokens of each domain choose: a map on the terminal and a picture.
 *
 * On a terminal the darkness of a cell shows its share; elsewhere a cell is the number alone, so
 * that programs can read the output. Panels are side by side as long as they fit the line. */
#include "cli/command.h"
#include "cli/open.h"
#include "cli/progress.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
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

static void json_reals(const char *key, const double *v, size_t n)
{
    out_begin(key, '[');
    for (size_t i = 0; i < n; i++)
        out_real(NULL, v[i]);
    out_end();
}

static void json_report(const pesc_routes_report *r, const char *const plots[2])
{
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
        out_begin("share", '[');
        for (size_t l = 0; l < r->n_layers; l++)
            json_reals(NULL, r->share + (d * r->n_layers + l) * r->experts, r->experts);
        out_end();
        out_end();
    }
    out_end();
    json_reals("difference", r->difference, r->n_layers);
    out_begin("plots", '[');
    for (int i = 0; i < 2; i++)
        out_text(NULL, plots[i]);
    out_end();
    out_end();
}

/* ---- the command ---- */

static pesc_status make_dir(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST
               ? PESC_OK
               : out_fail(PESC_DISK, "%s: cannot be made: %s", path, strerror(errno));
}

static pesc_status report(const options *o, const pesc_routes_report *r)
{
    static const char *const endings[] = { "svg", "png" };
    size_t cap = strlen(o->output) + 32;
    char *text = malloc(3 * cap), *plots[2] = { text + cap, text + 2 * cap };
    if (!text)
        return out_nomem("the names of the plots");
    snprintf(text, cap, "%s/plots", o->output);
    pesc_status st = make_dir(o->output);
    if (st == PESC_OK)
        st = make_dir(text);
    for (int i = 0; st == PESC_OK && i < 2; i++) {
        snprintf(plots[i], cap, "%s/plots/routing.%s", o->output, endings[i]);
        st = pesc_plot_routes(plots[i], r);
    }
    if (st == PESC_OK && o->json)
        json_report(r, (const char *const *)plots);
    else if (st == PESC_OK) {
        print_map(r);
        printf("\n%s\n%s\n", plots[0], plots[1]);
    }
    free(text);
    return st;
}

pesc_status cmd_routes(const options *o)
{
    open_model m = { 0 };
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    if (!o->routes.n_data)
        return out_fail(PESC_USAGE, "routes: --data FILE is missing; usage: pesc routes %s",
                        o->cmd->synopsis);
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_routes(m.model, &o->routes, &r);
    progress_clear();
    if (st == PESC_OK)
        st = report(o, &r);
    pesc_routes_free(&r);
    open_free(&m);
    return st;
}
