/* cmd_compare: how two models differ on the same tokens: a table of layers, and a picture. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/plots.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool has_experts(const pesc_compare_report *r)
{
    bool found = false;
    for (size_t i = 0; i < r->n_layers; i++)
        found = found || isfinite(r->layers[i].experts);
    return found;
}

/* ---- text and JSON ---- */

static void print_text(const options *o, const pesc_compare_report *r)
{
    bool experts = has_experts(r);
    out_number count;
    double agreement = 100 * (double)r->greedy_same / (double)r->tokens;
    printf("%s against %s: %s tokens of %llu records\n", o->other, o->model,
           out_count(count, r->tokens), (unsigned long long)r->records);
    printf("%-28s %.6g nats\n", "KL of the next token", r->kl);
    printf("%-28s %.2f %% (%llu of %llu)\n", "greedy tokens agree", agreement,
           (unsigned long long)r->greedy_same, (unsigned long long)r->tokens);
    printf("%-28s %.4f and %.4f nats\n", "loss of the next token", r->loss_a, r->loss_b);
    puts("\nrelative distance |a - b| / |a|");
    printf("%5s %12s %12s%s\n", "layer", "FFN", "residual",
           experts ? "      experts      nearest" : "");
    for (size_t i = 0; i < r->n_layers; i++) {
        const pesc_compare_layer *l = &r->layers[i];
        printf("%5zu %12.6g %12.6g", i, l->ffn, l->residual);
        if (experts)
            printf(" %12.6g %12.6g", l->experts, l->nearest);
        putchar('\n');
    }
}

static void print_json(const options *o, const pesc_compare_report *r, const plot_files *files)
{
    out_begin(NULL, '{');
    out_fields("model=%s other=%s records=%ld tokens=%ld kl=%g greedy_same=%ld agreement=%g "
               "targets=%ld loss_model=%g loss_other=%g",
               o->model, o->other, r->records, r->tokens, r->kl, r->greedy_same,
               (double)r->greedy_same / (double)r->tokens, r->targets, r->loss_a, r->loss_b);
    out_begin("layers", '[');
    for (size_t i = 0; i < r->n_layers; i++) {
        const pesc_compare_layer *l = &r->layers[i];
        out_object(NULL, "layer=%ld ffn=%g residual=%g experts=%g nearest=%g", i, l->ffn,
                   l->residual, l->experts, l->nearest);
    }
    out_end();
    out_begin("plots", '[');
    plots_json(files);
    out_end();
    out_end();
}

/* ---- the picture ---- */

enum { N_CURVES = 4 };

static void fill_curves(const pesc_compare_report *r, double *values)
{
    for (size_t i = 0; i < r->n_layers; i++) {
        const pesc_compare_layer *l = &r->layers[i];
        const double row[] = { (double)i, l->ffn, l->residual, l->experts, l->nearest };
        for (size_t k = 0; k < sizeof row / sizeof *row; k++)
            values[k * r->n_layers + i] = row[k];
    }
}

static pesc_status draw(const options *o, const pesc_compare_report *r, plot_files *files)
{
    static const char *const names[N_CURVES] = { "output of the FFN or the experts",
                                                 "residual stream after the layer",
                                                 "experts, of the same number (eq. 6)",
                                                 "experts, the nearest (eq. 6)" };
    char note[256];
    pesc_series series[N_CURVES];
    size_t n = has_experts(r) ? N_CURVES : N_CURVES - 2;
    double *values = calloc((N_CURVES + 1) * r->n_layers, sizeof *values);
    if (!values)
        return out_nomem("the picture");
    fill_curves(r, values);
    for (size_t k = 0; k < n; k++)
        series[k] = (pesc_series){ .name = names[k],
                                   .x = values,
                                   .y = values + (k + 1) * r->n_layers,
                                   .n = r->n_layers,
                                   .dots = true };
    snprintf(note, sizeof note, "KL of the next token %.3g nats, greedy tokens agree %.1f %%",
             r->kl, 100 * (double)r->greedy_same / (double)r->tokens);
    pesc_lines lines = { .size = sizeof lines,
                         .title = "Distance of two models, layer by layer",
                         .note = note,
                         .x_label = "layer",
                         .y_label = "|a - b| / |a|",
                         .series = series,
                         .n_series = n };
    pesc_status st = plots_open(files, o->output, "compare");
    for (int i = 0; st == PESC_OK && i < PLOT_FILES; i++)
        st = pesc_plot_lines(files->path[i], &lines);
    free(values);
    return st;
}

/* ---- the command ---- */

static pesc_status report(const options *o, const pesc_compare_report *r)
{
    plot_files files = { 0 };
    pesc_status st = draw(o, r, &files);
    if (st == PESC_OK && o->json) {
        print_json(o, r, &files);
    } else if (st == PESC_OK) {
        print_text(o, r);
        putchar('\n');
        plots_print(&files);
    }
    plots_free(&files);
    return st;
}

pesc_status cmd_compare(const options *o)
{
    open_model a = { 0 };
    pesc_model *b = NULL;
    pesc_compare_report r = PESC_INIT(pesc_compare_report);
    if (!o->compare.n_data)
        return opt_missing(o, "--data FILE");
    options exact = *o;
    if (!exact.load.compute_dtype)
        exact.load.compute_dtype = "f32"; /* rounding must not be taken for a difference */
    pesc_status st = open_from(&a, &exact);
    if (st == PESC_OK)
        st = pesc_model_open(&b, a.device, o->other, &exact.load);
    if (st == PESC_OK)
        st = pesc_compare(a.model, b, &o->compare, &r);
    progress_clear();
    if (st == PESC_OK)
        st = report(o, &r);
    pesc_compare_free(&r);
    pesc_model_close(b);
    open_free(&a);
    return st;
}
