/* cmd_data: checks, measures and shows training data before it is used, or mixes it. */
#include "cli/command.h"
#include "cli/show/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- check and stats ---- */

static void json_report(const options *o, const pesc_data *d, const pesc_data_report *r)
{
    out_begin(NULL, '{');
    out_begin("files", '[');
    for (size_t i = 0; i < o->data.n_data; i++) {
        out_object(NULL, "path=%s format=%s", o->data.data[i], pesc_data_format(d, i));
    }
    out_end();
    out_fields("template=%s records=%ld bad=%ld without_target=%ld seq_len=%ld over_length=%ld "
               "tokens=%ld trained=%ld",
               pesc_data_template(d), r->records, r->bad, r->without_target, o->data.seq_len,
               r->over_length, r->tokens, r->trained);
}

static void text_report(const options *o, const pesc_data *d, const pesc_data_report *r)
{
    out_number a, b;
    for (size_t i = 0; i < o->data.n_data; i++) {
        printf("%-18s ", i ? "" : "data");
        out_name(o->data.data[i]);
        printf(" (%s)\n", pesc_data_format(d, i));
    }
    printf("%-18s %s\n", "template", pesc_data_template(d));
    printf("%-18s %" PRIu64 "\n", "records", r->records);
    printf("%-18s %s, %s of them trained\n", "tokens", out_count(a, r->tokens),
           out_count(b, r->trained));
    printf("%-18s %" PRIu64 " longer than %" PRId64 " tokens\n", "over length", r->over_length,
           o->data.seq_len);
}

static pesc_status check(const options *o, pesc_data *d)
{
    pesc_data_report r = PESC_INIT(pesc_data_report);
    TRY(pesc_data_survey(d, &r));
    if (o->json) {
        json_report(o, d, &r);
        out_end();
    } else {
        text_report(o, d, &r);
        printf("%-18s %" PRIu64 "\n", "bad", r.bad);
        printf("%-18s %" PRIu64 "\n", "without target", r.without_target);
    }
    if (r.first[0])
        return out_fail(PESC_FORMAT,
                        "%" PRIu64 " of %" PRIu64 " records cannot be trained on; the first: %s",
                        r.bad + r.without_target, r.records, r.first);
    return PESC_OK;
}

static void print_bars(const pesc_data_report *r)
{
    enum { WIDTH = 50 };
    uint64_t most = 1;
    for (size_t i = 0; i < r->n_buckets; i++)
        most = r->buckets[i].records > most ? r->buckets[i].records : most;
    for (size_t i = 0; i < r->n_buckets; i++) {
        char range[48];
        uint64_t records = r->buckets[i].records;
        int eighths = (int)((double)records / (double)most * WIDTH * 8 + 0.5);
        if (records && !eighths)
            eighths = 1;
        snprintf(range, sizeof range, "%" PRId64 "-%" PRId64, r->buckets[i].from, r->buckets[i].to);
        printf("%18s %9" PRIu64 " ", range, records);
        for (; eighths >= 8; eighths -= 8)
            fputs("\u2588", stdout);
        static const char *const part[] = { "",       "\u258F", "\u258E", "\u258D",
                                            "\u258C", "\u258B", "\u258A", "\u2589" };
        puts(part[eighths]);
    }
}

static void print_lengths(const char *what, const int64_t tokens[5])
{
    static const char *const names[] = { "shortest", "median", "p90", "p99", "longest" };
    printf("%-18s", what);
    for (size_t i = 0; i < 5; i++)
        printf("%s %s %" PRId64, i ? "," : "", names[i], tokens[i]);
    puts("");
}

static pesc_status stats(const options *o, pesc_data *d)
{
    pesc_data_report r = PESC_INIT(pesc_data_report);
    TRY(pesc_data_survey(d, &r));
    if (o->json) {
        json_report(o, d, &r);
        out_fields("shortest=%ld median=%ld p90=%ld p99=%ld longest=%ld", r.shortest, r.median,
                   r.p90, r.p99, r.longest);
        if (r.pairs)
            out_object("rejected", "shortest=%ld median=%ld p90=%ld p99=%ld longest=%ld",
                       r.rejected_shortest, r.rejected_median, r.rejected_p90, r.rejected_p99,
                       r.rejected_longest);
        out_begin("histogram", '[');
        for (size_t i = 0; i < r.n_buckets; i++) {
            out_object(NULL, "from=%ld to=%ld records=%ld", r.buckets[i].from, r.buckets[i].to,
                       r.buckets[i].records);
        }
        out_end();
        out_end();
    } else {
        text_report(o, d, &r);
        if (r.bad)
            printf("%-18s %" PRIu64 " records; pesc data check says why\n", "not counted", r.bad);
        const int64_t rejected[] = { r.rejected_shortest, r.rejected_median, r.rejected_p90,
                                     r.rejected_p99, r.rejected_longest };
        const int64_t chosen[] = { r.shortest, r.median, r.p90, r.p99, r.longest };
        print_lengths(r.pairs ? "length of chosen" : "length", chosen);
        if (r.pairs)
            print_lengths("of rejected", rejected);
        print_bars(&r);
    }
    return PESC_OK;
}

/* ---- inspect ---- */

/* The text of ids[0..n), for free(). The text of a range of tokens is what it adds to the text of
 * the tokens before it, because a token alone may decode differently. */
static pesc_status decode(const pesc_tokenizer *t, const int32_t *ids, size_t n, char **text,
                          size_t *len)
{
    size_t cap = 8 * n + 64;
    *text = NULL;
    for (;;) {
        char *p = realloc(*text, cap);
        if (!p)
            return out_nomem("the text of a record");
        *text = p;
        TRY(pesc_detokenize(t, ids, n, 0, p, cap, len));
        if (*len <= cap)
            return PESC_OK;
        cap = *len;
    }
}

static void print_run(const options *o, const char *text, size_t n, bool trained)
{
    bool colour = isatty(STDOUT_FILENO);
    if (o->json) {
        out_begin(NULL, '{');
        out_bool("trained", trained);
        out_string("text", text, n);
        out_end();
        return;
    }
    if (trained)
        fputs(colour ? "\033[1;32m" : "\u27E6", stdout);
    out_write(text, n);
    if (trained)
        fputs(colour ? "\033[0m" : "\u27E7", stdout);
}

/* The text of tokens begin..end; their ids where there is no tokenizer. */
static pesc_status run_text(const pesc_tokenizer *t, const int32_t *ids, size_t begin, size_t end,
                            size_t *before, char **text, size_t *n)
{
    if (t) {
        TRY(decode(t, ids, end, text, n));
        *before = *before < *n ? *before : *n;
        return PESC_OK;
    }
    size_t cap = (end - begin) * 12 + 1;
    *text = malloc(cap);
    *before = *n = 0;
    if (!*text)
        return out_nomem("the text of a record");
    for (size_t i = begin; i < end; i++)
        *n += (size_t)snprintf(*text + *n, cap - *n, " %d", ids[i]);
    return PESC_OK;
}

static pesc_status print_runs(const options *o, const pesc_data *d, const int32_t *ids,
                              const int32_t *labels, size_t n)
{
    size_t before = 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        bool trained = labels[begin] >= 0;
        for (end = begin; end < n && (labels[end] >= 0) == trained;)
            end++;
        char *text = NULL;
        size_t len = 0;
        pesc_status st = run_text(pesc_data_tokenizer(d), ids, begin, end, &before, &text, &len);
        if (st == PESC_OK)
            print_run(o, text + before, len - before, trained);
        free(text);
        TRY(st);
        before = len;
    }
    return PESC_OK;
}

static pesc_status print_answer(const options *o, const pesc_data *d, const pesc_data_answer *a)
{
    if (o->json) {
        out_ids("ids", a->ids, a->n);
        out_ids("labels", a->labels, a->n);
        out_begin("runs", '[');
    }
    TRY(print_runs(o, d, a->ids, a->labels, a->n));
    if (o->json)
        out_end();
    else
        putchar('\n');
    return PESC_OK;
}

static size_t trained_of(const pesc_data_answer *a)
{
    size_t trained = 0;
    for (size_t k = 1; k < a->n; k++)
        trained += a->labels[k] >= 0;
    return trained;
}

/* An instruction with its answer, an answer with its label, or both answers of a pair. */
static pesc_status print_record(const options *o, pesc_data *d, uint64_t i)
{
    pesc_data_answer a[2];
    size_t n;
    TRY(pesc_data_answers(d, i, a, &n));
    if (o->json) {
        out_begin(NULL, '{');
        out_int("record", (int64_t)i);
        if (n == 1 && *a[0].role)
            out_string("role", a[0].role, strlen(a[0].role));
    } else if (i) {
        putchar('\n');
    }
    for (size_t k = 0; k < n; k++) {
        if (o->json && n > 1)
            out_begin(a[k].role, '{');
        if (!o->json)
            printf("-- record %" PRIu64 " of %" PRIu64 "%s%s: %zu tokens, %zu trained\n", i + 1,
                   pesc_data_records(d), *a[k].role ? ", " : "", a[k].role, a[k].n,
                   trained_of(&a[k]));
        TRY(print_answer(o, d, &a[k]));
        if (o->json && n > 1)
            out_end();
    }
    if (o->json)
        out_end();
    return PESC_OK;
}

static pesc_status inspect(const options *o, pesc_data *d)
{
    uint64_t all = pesc_data_records(d), shown = (uint64_t)o->records;
    if (o->json)
        out_begin(NULL, '[');
    for (uint64_t i = 0; i < all && i < shown; i++)
        TRY(print_record(o, d, i));
    if (o->json)
        out_end();
    return PESC_OK;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    pesc_status (*look)(const options *o, pesc_data *d); /* at opened records; NULL: `run` */
    pesc_status (*run)(const options *o);
} actions[] = { { "check", check, NULL },
                { "stats", stats, NULL },
                { "inspect", inspect, NULL },
                { "mix", NULL, data_mix },
                { "fetch", NULL, data_fetch } };

static pesc_status look(const options *o, pesc_status (*fn)(const options *, pesc_data *))
{
    const char *absent = !o->model ? "MODEL" : o->data.n_data == 0 ? "--data FILE" : NULL;
    if (absent)
        return out_fail(PESC_USAGE,
                        "data %s: %s is missing; usage: pesc data %s MODEL --data FILE...",
                        o->action, absent, o->action);
    pesc_data *d = NULL;
    TRY(pesc_data_open(&d, o->model, &o->data, progress_events()));
    pesc_status st = fn(o, d);
    pesc_data_close(d);
    return st;
}

pesc_status cmd_data(const options *o)
{
    size_t i = 0;
    while (strcmp(o->action, actions[i].name) != 0)
        i++; /* opt_parse() takes no other action */
    return actions[i].look ? look(o, actions[i].look) : actions[i].run(o);
}
