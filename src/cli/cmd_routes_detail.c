#include "cli/routes_detail.h"

#include "cli/show/plots.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- layers ---- */

void routes_print_layers(const options *o, const pesc_routes_report *r)
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

void routes_print_layer(const pesc_routes_report *r, size_t at, const pesc_tokenizer *t)
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

void routes_json_reals(const char *key, const double *v, size_t n)
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
        routes_json_reals(NULL, v + i * cols, cols);
    out_end();
}

void routes_json_domain(const pesc_routes_report *r, size_t domain)
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
    routes_json_reals("load", r->load + row, r->n_layers);
    routes_json_reals("entropy", r->entropy + row, r->n_layers);
}

void routes_json_tokens(const pesc_routes_report *r, const pesc_tokenizer *t)
{
    char text[TOKEN_TEXT];
    out_begin("tokens", '[');
    for (size_t e = 0; e < r->experts; e++) {
        out_begin(NULL, '[');
        for (size_t i = 0; i < r->n_tokens && r->tokens[e * r->n_tokens + i].id >= 0; i++) {
            const pesc_routes_token *k = &r->tokens[e * r->n_tokens + i];
            token_text(t, k->id, text);
            out_begin(NULL, '{');
            out_int("id", k->id);
            out_text("text", text);
            out_int("seen", (int64_t)k->seen);
            out_int("chosen", (int64_t)k->chosen);
            out_real("lift", k->lift);
            out_end();
        }
        out_end();
    }
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
    out_int("experts", (int64_t)h->experts);
    out_int("layers", (int64_t)h->n_layers);
    routes_json_reals("steps", h->steps, h->n_steps);
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

pesc_status routes_over_time(const options *o)
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
