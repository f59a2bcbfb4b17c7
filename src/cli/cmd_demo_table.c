#include "cli/demo_table.h"

#include <math.h>

enum { NAME = 26, CELL = 8, MOST_ROWS = 8 };

/* The domains, then "all". */
static const pesc_eval_score *score_at(const pesc_eval_report *r, size_t i)
{
    return i < r->n_domains ? &r->domains[i] : &r->all;
}

static void print_quality(FILE *f, const demo_row *row)
{
    const pesc_eval_report *r = &row->report;
    fprintf(f, "%-*s", NAME, row->title);
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*.3f", CELL, score_at(r, i)->loss);
    fputs("  ", f);
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*.1f", CELL, 100 * score_at(r, i)->exact_match);
    fputc('\n', f);
}

/* What the table shows: the loss orders the tuned models; of so few questions exact match is only
 * known to about two standard errors of a difference. */
static void print_reading(FILE *f, const demo_row *rows, size_t n)
{
    double error = 0;
    bool named[MOST_ROWS] = { false };
    fputs("\nBy loss:", f);
    for (size_t k = 0; k < n && n <= MOST_ROWS; k++) {
        size_t least = n;
        for (size_t i = 0; i < n; i++)
            if (!named[i] && (least == n || rows[i].report.all.loss < rows[least].report.all.loss))
                least = i;
        named[least] = true;
        fprintf(f, "%s %s", k ? " <" : "", rows[least].title);
        error = fmax(error, 100 * rows[least].report.all.exact_match_stderr);
    }
    fprintf(
        f,
        ".\nExact match of all has a standard error of %.1f points: smaller differences than %.0f "
        "points say little.\n",
        error, ceil(2 * error));
}

static void print_cost(FILE *f, const demo_row *row)
{
    fprintf(f, "%-*s%*.2f%*.2f", NAME, row->title, CELL, (double)row->info.params_total * 1e-6,
            CELL + 2, (double)row->info.params_activated * 1e-6);
    if (row->tuned)
        fprintf(f, "%*.2f%*.0f%*.0f\n", CELL, (double)row->params_trained * 1e-6, CELL,
                (double)row->mem_bytes * 1e-6, CELL + 2, row->tokens_per_second);
    else
        fprintf(f, "%*s%*s%*s\n", CELL, "-", CELL, "-", CELL + 2, "-");
}

static void print_domains(FILE *f, const pesc_eval_report *r)
{
    for (size_t i = 0; i <= r->n_domains; i++)
        fprintf(f, "%*s", CELL, i < r->n_domains ? r->domains[i].domain : "all");
}

void demo_print(FILE *f, const demo_row *rows, size_t n)
{
    const pesc_eval_report *first = &rows[0].report;
    int width = CELL * ((int)first->n_domains + 1);
    fprintf(f, "%-*s%*s  %*s\n%-*s", NAME, "", width, "held-out loss, nats a token", width,
            "exact match, %", NAME, "");
    print_domains(f, first);
    fputs("  ", f);
    print_domains(f, first);
    fputc('\n', f);
    for (size_t i = 0; i < n; i++)
        print_quality(f, &rows[i]);
    print_reading(f, rows, n);
    fprintf(f, "\n%-*s%*s%*s\n", NAME, "", 3 * CELL + 2, "parameters, M", 2 * CELL + 2, "tuning");
    fprintf(f, "%-*s%*s%*s%*s%*s%*s\n", NAME, "", CELL, "total", CELL + 2, "activated", CELL,
            "trained", CELL, "MB", CELL + 2, "tokens/s");
    for (size_t i = 0; i < n; i++)
        print_cost(f, &rows[i]);
}

static void json_score(const char *key, const pesc_eval_score *s)
{
    out_begin(key, '{');
    if (s->domain)
        out_text("domain", s->domain);
    out_int("records", (int64_t)s->records);
    out_real("loss", s->loss);
    out_real("exact_match", s->exact_match);
    out_end();
}

void demo_json(const demo_row *rows, size_t n)
{
    out_begin("models", '[');
    for (const demo_row *r = rows; r < rows + n; r++) {
        out_begin(NULL, '{');
        out_text("name", r->title);
        out_text("path", r->path);
        out_int("params", (int64_t)r->info.params_total);
        out_int("activated", (int64_t)r->info.params_activated);
        if (r->tuned) {
            out_int("params_trained", (int64_t)r->params_trained);
            out_int("mem_bytes", (int64_t)r->mem_bytes);
            out_int("steps", r->steps);
            out_real("first_loss", r->first_loss);
            out_real("last_loss", r->last_loss);
            out_measure("tokens_per_second", r->tokens_per_second);
        }
        out_begin("domains", '[');
        for (size_t i = 0; i < r->report.n_domains; i++)
            json_score(NULL, &r->report.domains[i]);
        out_end();
        json_score("all", &r->report.all);
        out_end();
    }
    out_end();
}
