#include "cli/eval_records.h"

#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result of one task. */
typedef struct result {
    const char *task;
    pesc_eval_report report;
    const options *o;
    pesc_eval_sample *samples; /* with --json; the strings are copies */
    size_t n, cap;
    bool short_of_memory;
} result;

/* ---- samples: text is printed at once, JSON at the end ---- */

static void print_sample(const pesc_eval_sample *s)
{
    const struct {
        const char *name, *text;
    } rows[] = { { "prompt", s->prompt }, { "expected", s->expected }, { "answer", s->answer } };
    progress_clear();
    printf("-- record %llu, %s: %s\n", (unsigned long long)s->record + 1, s->domain,
           s->correct ? "correct" : "wrong");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%-9s ", rows[i].name);
        out_write(rows[i].text, strlen(rows[i].text));
        putchar('\n');
    }
}

static void keep_sample(result *r, const pesc_eval_sample *s)
{
    if (r->n == r->cap) {
        size_t cap = 2 * r->cap + 64;
        pesc_eval_sample *p = realloc(r->samples, cap * sizeof *p);
        r->short_of_memory = r->short_of_memory || !p;
        if (!p)
            return;
        r->samples = p;
        r->cap = cap;
    }
    pesc_eval_sample *to = &r->samples[r->n++];
    *to = *s;
    const char **texts[] = { &to->domain, &to->prompt, &to->expected, &to->answer };
    for (int i = 0; i < 4; i++)
        r->short_of_memory = !(*texts[i] = strdup(*texts[i])) || r->short_of_memory;
}

static void take_sample(void *ud, const pesc_eval_sample *s)
{
    result *r = ud;
    if (r->o->json)
        keep_sample(r, s);
    else
        print_sample(s);
}

static void json_samples(const result *r)
{
    out_begin("samples", '[');
    for (size_t i = 0; i < r->n; i++) {
        const pesc_eval_sample *s = &r->samples[i];
        out_begin(NULL, '{');
        out_int("record", (int64_t)s->record);
        out_text("domain", s->domain);
        out_text("prompt", s->prompt);
        out_text("expected", s->expected);
        out_text("answer", s->answer);
        out_bool("correct", s->correct);
        out_end();
    }
    out_end();
}

/* ---- scores ---- */

static void json_score(const char *key, const pesc_eval_score *s)
{
    out_begin(key, '{');
    if (s->domain)
        out_text("domain", s->domain);
    out_int("records", (int64_t)s->records);
    out_int("tokens", (int64_t)s->tokens);
    out_real("loss", s->loss);
    out_int("asked", (int64_t)s->asked);
    out_int("correct", (int64_t)s->correct);
    out_real("exact_match", s->exact_match);
    out_real("exact_match_stderr", s->exact_match_stderr);
    out_end();
}

static void json_result(const result *t)
{
    const pesc_eval_report *r = &t->report;
    out_begin(NULL, '{');
    out_text("task", t->task);
    json_score("all", &r->all);
    out_begin("domains", '[');
    for (size_t i = 0; i < r->n_domains; i++)
        json_score(NULL, &r->domains[i]);
    out_end();
    out_int("too_long", (int64_t)r->too_long);
    out_int("generated", (int64_t)r->generated);
    out_measure("seconds", r->seconds);
    if (t->o->samples)
        json_samples(t);
    out_end();
}

static void print_score(const char *name, const pesc_eval_score *s)
{
    char exact[48] = "-", loss[32] = "-";
    if (s->asked)
        snprintf(exact, sizeof exact, "%5.1f %% \u00B1 %.1f", 100 * s->exact_match,
                 100 * s->exact_match_stderr);
    if (s->tokens)
        snprintf(loss, sizeof loss, "%.4f", s->loss);
    printf("  %-20s %8llu %10s   %s\n", name, (unsigned long long)s->records, loss, exact);
}

static void print_report(const options *o, const char *task, const pesc_eval_report *r)
{
    out_name(task);
    if (o->n_models > 1) {
        fputs(", model ", stdout);
        out_name(o->model);
    }
    printf("\n  %-20s %8s %10s   %s\n", "domain", "records", "loss", "exact match");
    for (size_t i = 0; i < r->n_domains; i++)
        print_score(r->domains[i].domain, &r->domains[i]);
    if (r->n_domains != 1)
        print_score("all", &r->all);
    if (r->too_long)
        printf("  %llu records are longer than the session and were left out; --ctx makes room\n",
               (unsigned long long)r->too_long);
}

/* ---- tasks ---- */

static pesc_status run_task(const options *o, pesc_session *s, result *r, bool leads)
{
    pesc_eval_options e = o->eval;
    e.each = o->samples ? take_sample : NULL;
    e.ud = r;
    r->o = o;
    r->report = PESC_INIT(pesc_eval_report);
    TRY(pesc_eval(s, r->task, &e, &r->report));
    progress_clear();
    if (!o->json && leads)
        print_report(o, r->task, &r->report);
    return r->short_of_memory ? out_nomem("the samples") : PESC_OK;
}

static void free_result(result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const pesc_eval_sample *s = &r->samples[i];
        const char *texts[] = { s->domain, s->prompt, s->expected, s->answer };
        for (int k = 0; k < 4; k++)
            free((char *)texts[k]);
    }
    free(r->samples);
    pesc_eval_free(&r->report);
}

struct eval_results {
    const char *model;
    result *list; /* [n] */
    size_t n;
};

static void json_model(const eval_results *m)
{
    out_begin(NULL, '{');
    out_text("model", m->model);
    out_begin("tasks", '[');
    for (size_t i = 0; i < m->n; i++)
        json_result(&m->list[i]);
    out_end();
    out_end();
}

void eval_results_json(eval_results *const *all, size_t n)
{
    if (n > 1)
        out_begin(NULL, '[');
    for (size_t i = 0; i < n; i++)
        json_model(all[i]);
    if (n > 1)
        out_end();
}

void eval_results_free(eval_results *m)
{
    for (size_t i = 0; m && i < m->n; i++)
        free_result(&m->list[i]);
    if (m)
        free(m->list);
    free(m);
}

pesc_status eval_records(eval_results **out, const options *o, const open_model *m,
                         eval_files files, bool leads)
{
    pesc_session *s = NULL;
    eval_results *all = *out = calloc(1, sizeof *all);
    if (!all || !(all->list = calloc(files.n, sizeof *all->list)))
        return out_nomem("the tasks");
    all->model = o->model;
    all->n = files.n;
    pesc_status st = pesc_session_open(&s, m->model, (int32_t)o->ctx);
    for (size_t i = 0; st == PESC_OK && i < files.n; i++) {
        all->list[i].task = files.list[i];
        st = run_task(o, s, &all->list[i], leads);
    }
    pesc_session_close(s);
    return st;
}
