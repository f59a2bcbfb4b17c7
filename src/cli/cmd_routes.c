/* cmd_routes: which experts the tokens of each domain choose: a map on the terminal and a picture.
 *
 * On a terminal the darkness of a cell shows its share; elsewhere a cell is the number alone, so
 * that programs can read the output. Panels are side by side as long as they fit the line. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/plots.h"
#include "cli/show/progress.h"

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
static bool shows_difference(const pesc_routes_report *r, size_t end)
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
    puts(shows_difference(m->r, end) ? "differ" : "");
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
    if (shows_difference(r, end))
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

/* ---- load, gates and the test of the domains ---- */

static void print_load(const options *o, const pesc_routes_report *r)
{
    size_t beyond = 0;
    bool test = r->n_domains > 1 && o->routes.permutations > 0;
    puts("\nload (largest share / mean), entropy (1 is even) and mean gate of the first choice");
    printf("%5s", "");
    for (size_t d = 0; d < r->n_domains; d++)
        printf("  %-19.19s", r->domains[d].name);
    printf("\n%5s", "layer");
    for (size_t d = 0; d < r->n_domains; d++)
        printf("  %5s %6s %6s", "load", "entr", "gate");
    puts(test ? "  chance      p" : "");
    for (size_t l = 0; l < r->n_layers; l++) {
        printf("%5lld", (long long)r->layers[l]);
        for (size_t d = 0; d < r->n_domains; d++) {
            size_t row = d * r->n_layers + l;
            printf("  %5.2f %6.3f %6.3f", r->load[row], r->entropy[row],
                   r->slot_gate[row * r->top_k]);
        }
        if (test)
            printf("  %6.3f %6.4f", r->chance[l], r->p_value[l]);
        putchar('\n');
        beyond += r->p_value[l] < 0.05;
    }
    if (test)
        printf("domains differ by more than chance in %zu of %zu layers (p < 0.05; domains were "
               "exchanged among records %lld times)\n",
               beyond, r->n_layers, (long long)o->routes.permutations);
}

/* ---- one layer ---- */

enum { TOKEN_TEXT = 64 };

static void token_text(const pesc_tokenizer *t, int32_t id, char *out)
{
    size_t n = 0;
    pesc_status st = t ? pesc_detokenize(t, &id, 1, 0, out, TOKEN_TEXT - 1, &n) : PESC_UNSUPPORTED;
    if (st != PESC_OK || n >= TOKEN_TEXT)
        n = (size_t)snprintf(out, TOKEN_TEXT, "#%d", id);
    out[n] = '\0';
}

/* On one line: a newline is shown as \n. */
static void print_token(const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        out_write(text, n);
        text += n;
        if (*text) {
            fputs("\\n", stdout);
            text++;
        }
    }
}

static void print_tokens(const pesc_routes_report *r, size_t expert, const pesc_tokenizer *t)
{
    char text[TOKEN_TEXT];
    for (size_t i = 0; i < r->n_tokens; i++) {
        const pesc_routes_token *k = &r->tokens[expert * r->n_tokens + i];
        if (k->id < 0)
            break;
        token_text(t, k->id, text);
        fputs("  ", stdout);
        print_token(text);
        printf("|%.1fx", k->lift);
    }
    putchar('\n');
}

static void print_one_layer(const pesc_routes_report *r, size_t at, const pesc_tokenizer *t)
{
    printf("\nlayer %lld: percent of tokens by choice 1", (long long)r->layers[at]);
    for (size_t s = 1; s < r->top_k; s++)
        printf(", %zu", s + 1);
    puts("; mean gate where chosen");
    for (size_t d = 0; d < r->n_domains; d++) {
        const uint64_t *counts = r->counts + (d * r->n_layers + at) * r->top_k * r->experts;
        printf("%s\n", r->domains[d].name);
        for (size_t e = 0; e < r->experts; e++) {
            printf("  expert %3zu", e);
            for (size_t s = 0; s < r->top_k; s++)
                printf(" %6.1f",
                       100 * (double)counts[s * r->experts + e] / (double)r->domains[d].tokens);
            printf("   %.3f\n", r->gate[(d * r->n_layers + at) * r->experts + e]);
        }
    }
    puts("\ntokens that choose the expert more often than its share, with their lift");
    for (size_t e = 0; e < r->experts; e++) {
        printf("expert %3zu", e);
        print_tokens(r, e, t);
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

static void json_matrix(const char *key, const double *v, size_t rows, size_t cols)
{
    out_begin(key, '[');
    for (size_t i = 0; i < rows; i++)
        json_reals(NULL, v + i * cols, cols);
    out_end();
}

static void json_domain(const pesc_routes_report *r, size_t domain)
{
    size_t row = domain * r->n_layers;
    json_matrix("share", r->share + row * r->experts, r->n_layers, r->experts);
    out_begin("counts", '[');
    for (size_t l = 0; l < r->n_layers; l++) {
        out_begin(NULL, '[');
        for (size_t s = 0; s < r->top_k; s++) {
            out_begin(NULL, '[');
            for (size_t e = 0; e < r->experts; e++)
                out_int(NULL, (int64_t)r->counts[((row + l) * r->top_k + s) * r->experts + e]);
            out_end();
        }
        out_end();
    }
    out_end();
    json_matrix("gate", r->gate + row * r->experts, r->n_layers, r->experts);
    json_matrix("slot_gate", r->slot_gate + row * r->top_k, r->n_layers, r->top_k);
    json_reals("load", r->load + row, r->n_layers);
    json_reals("entropy", r->entropy + row, r->n_layers);
}

static void json_tokens(const pesc_routes_report *r, const pesc_tokenizer *t)
{
    char text[TOKEN_TEXT];
    out_begin("tokens", '[');
    for (size_t e = 0; e < r->experts; e++) {
        out_begin(NULL, '[');
        for (size_t i = 0; i < r->n_tokens && r->tokens[e * r->n_tokens + i].id >= 0; i++) {
            const pesc_routes_token *k = &r->tokens[e * r->n_tokens + i];
            token_text(t, k->id, text);
            out_object(NULL, "id=%d text=%s seen=%ld chosen=%ld lift=%g", k->id, text, k->seen,
                       k->chosen, k->lift);
        }
        out_end();
    }
    out_end();
}

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
    out_fields("experts=%ld top_k=%ld", r->experts, r->top_k);
    out_begin("layers", '[');
    for (size_t i = 0; i < r->n_layers; i++)
        out_int(NULL, r->layers[i]);
    out_end();
    out_begin("domains", '[');
    for (size_t d = 0; d < r->n_domains; d++) {
        out_begin(NULL, '{');
        out_fields("domain=%s records=%ld tokens=%ld", r->domains[d].name, r->domains[d].records,
                   r->domains[d].tokens);
        json_domain(r, d);
        out_end();
    }
    out_end();
    json_reals("difference", r->difference, r->n_layers);
    json_reals("chance", r->chance, r->n_layers);
    json_reals("p_value", r->p_value, r->n_layers);
    if (r->tokens) {
        out_int("layer", r->layers[s->layer]);
        json_tokens(r, s->t);
    }
    out_begin("plots", '[');
    plots_json(&s->map);
    if (r->tokens)
        plots_json(&s->bars);
    out_end();
    out_end();
}

/* ---- over time ---- */

static const char *const measures[] = { "load", "entropy", "dead" };
enum { N_MEASURES = sizeof measures / sizeof *measures, SHOWN = 12 };

typedef struct extent {
    double mean, worst;
    size_t layer; /* of the worst */
} extent;

static extent extent_of(const pesc_routes_history *h, const double *rows, size_t step, bool high)
{
    extent x = { .worst = rows[step] };
    for (size_t l = 0; l < h->n_layers; l++) {
        double v = rows[l * h->n_steps + step];
        x.mean += v / (double)h->n_layers;
        if (high ? v > x.worst : v < x.worst) {
            x.worst = v;
            x.layer = l;
        }
    }
    return x;
}

static void print_history(const pesc_routes_history *h)
{
    printf("%zu layers with %zu experts. Load and entropy: the mean of the layers, and the worst; "
           "dead experts: of all layers, and of the worst\n\n",
           h->n_layers, h->experts);
    printf("%8s  %-22s  %-22s  %s\n", "step", "load", "entropy", "dead experts");
    for (size_t i = 0; i < SHOWN && i < h->n_steps; i++) {
        size_t n = h->n_steps < SHOWN ? h->n_steps : SHOWN;
        size_t at = n > 1 ? i * (h->n_steps - 1) / (n - 1) : 0;
        extent load = extent_of(h, h->load, at, true);
        extent entropy = extent_of(h, h->entropy, at, false);
        extent dead = extent_of(h, h->dead, at, true);
        printf("%8.0f  %5.2f, %5.2f (layer %2zu)  %5.3f, %5.3f (layer %2zu)  %.0f, %.0f (layer "
               "%zu)\n",
               h->steps[at], load.mean, load.worst, load.layer, entropy.mean, entropy.worst,
               entropy.layer, dead.mean * (double)h->n_layers, dead.worst, dead.layer);
    }
}

static void json_history(const pesc_routes_history *h, const plot_files *files)
{
    out_begin(NULL, '{');
    out_fields("experts=%ld layers=%ld", h->experts, h->n_layers);
    json_reals("steps", h->steps, h->n_steps);
    json_matrix("load", h->load, h->n_layers, h->n_steps);
    json_matrix("entropy", h->entropy, h->n_layers, h->n_steps);
    json_matrix("dead", h->dead, h->n_layers, h->n_steps);
    out_begin("plots", '[');
    for (int i = 0; i < N_MEASURES; i++)
        plots_json(&files[i]);
    out_end();
    out_end();
}

static pesc_status draw_history(const options *o, const pesc_routes_history *h, plot_files *files)
{
    for (int i = 0; i < N_MEASURES; i++) {
        char name[32];
        snprintf(name, sizeof name, "routing-%s", measures[i]);
        TRY(plots_open(&files[i], o->output, name));
        for (int k = 0; k < PLOT_FILES; k++)
            TRY(pesc_plot_routes_history(files[i].path[k], h, measures[i]));
    }
    return PESC_OK;
}

static pesc_status run_over_time(const options *o)
{
    pesc_routes_history h = PESC_INIT(pesc_routes_history);
    plot_files files[N_MEASURES] = { 0 };
    pesc_status st = pesc_routes_over_time(o->over_time, progress_events(), &h);
    if (st == PESC_OK)
        st = draw_history(o, &h, files);
    if (st == PESC_OK && o->json) {
        json_history(&h, files);
    } else if (st == PESC_OK) {
        print_history(&h);
        putchar('\n');
        for (int i = 0; i < N_MEASURES; i++)
            plots_print(&files[i]);
    }
    for (int i = 0; i < N_MEASURES; i++)
        plots_free(&files[i]);
    pesc_routes_history_free(&h);
    return st;
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
    print_load(s->o, s->r);
    if (s->r->tokens)
        print_one_layer(s->r, s->layer, s->t);
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

pesc_status cmd_routes(const options *o)
{
    open_model m = { 0 };
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    if (o->over_time)
        return run_over_time(o);
    if (!o->model || !o->routes.n_data)
        return opt_missing(o, o->model ? "--data FILE" : "MODEL");
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
