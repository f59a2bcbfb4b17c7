#include "eval/samples.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30 };

size_t samples_value(const samples *s, bool reference, size_t filter, size_t metric)
{
    const task_about *a = s->about;
    return ((reference ? a->n_filters : 0) + filter) * a->n_metrics + metric;
}

/* "exact_match", or "exact_match_reference" for the text as the reference decodes it. */
static void value_name(const samples *s, bool reference, size_t metric, char out[80])
{
    snprintf(out, 80, "%s%s", task_metric_name(s->task, metric), reference ? "_reference" : "");
}

/* ---- reading ---- */

/* The values of one line into `values`; false: the line is not one of this task. */
static bool read_values(const samples *s, const json_t *line, size_t filter, double *values)
{
    const char *name = json_string_value(json_object_get(line, "filter"));
    if (!name || strcmp(name, task_filter_name(s->task, filter)) != 0)
        return false;
    for (int reference = 0; reference < (s->about->kind == TASK_CHOICE ? 1 : 2); reference++)
        for (size_t m = 0; m < s->about->n_metrics; m++) {
            char key[80];
            value_name(s, reference, m, key);
            const json_t *v = json_object_get(line, key);
            if (!json_is_number(v))
                return false;
            values[samples_value(s, reference, filter, m)] = json_number_value(v);
        }
    return true;
}

/* Reads the lines of one document that begin at `text`; *n: their bytes, 0: they are not complete.
 */
static pesc_status read_document(samples *s, const char *text, size_t *n)
{
    size_t at = 0, doc = 0;
    double *values = mem_alloc(s->n_values, sizeof *values);
    bool ok = values != NULL;
    *n = 0;
    for (size_t f = 0; ok && f < s->about->n_filters; f++) {
        const char *end = strchr(text + at, '\n');
        json_t *line =
            end ? json_loadb(text + at, (size_t)(end - text) - at, JSON_ALLOW_NUL, NULL) : NULL;
        const json_t *id = json_object_get(line, "doc_id");
        ok = json_is_integer(id) && (uint64_t)json_integer_value(id) < s->about->n_docs &&
             read_values(s, line, f, values);
        doc = ok ? (size_t)json_integer_value(id) : 0;
        at = ok ? (size_t)(end - text) + 1 : at;
        json_decref(line);
    }
    char *lines = ok ? mem_strndup(text, at) : NULL;
    if (!values || (ok && !lines)) {
        mem_free(values);
        return fail_nomem("samples", at);
    }
    if (ok) {
        s->n_done += !s->lines[doc];
        mem_free(s->lines[doc]);
        s->lines[doc] = lines;
        for (size_t i = 0; i < s->n_values; i++)
            s->values[i * s->about->n_docs + doc] = values[i];
        *n = at;
    }
    mem_free(values);
    return PESC_OK;
}

static pesc_status read_file(samples *s, size_t *kept)
{
    char *text;
    size_t n, more = 1;
    *kept = 0;
    if (io_kind_of(s->path) == IO_NONE)
        return PESC_OK;
    TRY(io_read_file(s->path, MAX_BYTES, &text, &n));
    pesc_status st = PESC_OK;
    while (st == PESC_OK && more && *kept < n) {
        st = read_document(s, text + *kept, &more);
        *kept += st == PESC_OK ? more : 0;
    }
    mem_free(text);
    return st;
}

void samples_name(char out[SAMPLES_NAME], const char *task)
{
    snprintf(out, SAMPLES_NAME, "samples_%.200s.jsonl", task);
}

static pesc_status open_file(samples *s, const char *dir)
{
    char name[SAMPLES_NAME];
    size_t kept;
    samples_name(name, s->about->name);
    if (!(s->path = io_join(dir, name)))
        return fail_nomem("the name of a file", strlen(dir));
    TRY(read_file(s, &kept));
    return io_log_open(&s->log, s->path, kept);
}

pesc_status samples_open(samples *s, const eval_task *task, const char *dir, bool whole)
{
    const task_about *a = task_describe(task);
    *s = (samples){ .task = task, .about = a, .whole = whole };
    s->n_values = a->n_filters * a->n_metrics * (a->kind == TASK_CHOICE ? 1 : 2);
    s->values = mem_zalloc(a->n_docs * s->n_values, sizeof *s->values);
    s->lines = mem_zalloc(a->n_docs, sizeof *s->lines);
    if (!s->values || !s->lines)
        return fail_nomem("samples", a->n_docs * s->n_values * sizeof *s->values);
    return dir ? open_file(s, dir) : PESC_OK;
}

void samples_close(samples *s)
{
    for (size_t i = 0; s->lines && i < s->about->n_docs; i++)
        mem_free(s->lines[i]);
    mem_free(s->lines);
    mem_free(s->values);
    mem_free(s->path);
    io_log_close(s->log);
    *s = (samples){ 0 };
}

bool samples_has(const samples *s, const task_doc *doc)
{
    const char *const hashes[] = { doc->prompt_hash, doc->target_hash, doc->doc_hash };
    const char *line = s->lines[doc->id];
    for (size_t i = 0; line && i < 3; i++)
        if (!strstr(line, hashes[i]))
            return false;
    return line != NULL;
}

/* ---- several processes ---- */

/* The lines of another process. */
static pesc_status read_shared(void *own, const char *text, size_t n)
{
    samples *s = own;
    size_t more = 1;
    for (size_t at = 0; more && at < n; at += more)
        TRY(read_document(s, text + at, &more));
    return PESC_OK;
}

pesc_status samples_share(samples *s, peers *p)
{
    str own = { 0 };
    for (size_t i = 0; p && i < s->about->n_docs; i++)
        if (s->lines[i])
            str_puts(&own, s->lines[i]);
    pesc_status st = peers_agree(p, "the samples of a task",
                                 str_ok(&own) ? PESC_OK : fail_nomem("samples", own.n));
    if (st == PESC_OK)
        st = peers_texts(p, "the results of an evaluation", &own, read_shared, s);
    str_free(&own);
    return st;
}

/* ---- writing ---- */

static json_t *generation_of(const task_about *a)
{
    json_t *stops = json_array();
    for (size_t i = 0; i < a->n_stops; i++)
        json_array_append_new(stops, json_string(a->stops[i]));
    return json_pack("{so sI}", "until", stops, "max_gen_toks", (json_int_t)a->max_tokens);
}

/* The requests of a document in the form of the harness: {"gen_args_0": {"arg_0": context, "arg_1":
 * continuation, or how a text is generated}, ...}. */
static json_t *arguments_of(const samples *s, const task_doc *doc)
{
    json_t *all = json_object();
    for (size_t i = 0; all && i < doc->n_requests; i++) {
        char key[40];
        const char *text = doc->continuations[i];
        snprintf(key, sizeof key, "gen_args_%zu", i);
        json_object_set_new(all, key,
                            json_pack("{ss so}", "arg_0", doc->contexts[i], "arg_1",
                                      text ? json_string(text) : generation_of(s->about)));
    }
    return all;
}

static bool has_unreadable(const json_t *verdicts)
{
    for (size_t i = 0; i < json_array_size(verdicts); i++)
        if (json_is_null(json_object_get(json_array_get(verdicts, i), "score")))
            return true;
    return false;
}

static json_t *line_of(const samples *s, const task_doc *doc, const samples_verdicts *v,
                       size_t filter)
{
    const task_verdict *verdict = &v->text[filter];
    json_t *filtered = json_incref(v->responses);
    if (v->reference) {
        json_decref(filtered);
        filtered =
            json_pack("[s%]", verdict->filtered.p ? verdict->filtered.p : "", verdict->filtered.n);
    }
    json_t *o = json_pack("{sI ss ss ss ss sO so sO}", "doc_id", (json_int_t)doc->id, "filter",
                          task_filter_name(s->task, filter), "prompt_hash", doc->prompt_hash,
                          "target_hash", doc->target_hash, "doc_hash", doc->doc_hash, "resps",
                          v->responses, "filtered_resps", filtered, "target", doc->target);
    for (int reference = 0; o && reference < (v->reference ? 2 : 1); reference++)
        for (size_t m = 0; m < s->about->n_metrics; m++) {
            char key[80];
            value_name(s, reference, m, key);
            double x = (reference ? v->reference : v->text)[filter].values[m];
            s->values[samples_value(s, reference, filter, m) * s->about->n_docs + doc->id] = x;
            json_object_set_new(o, key, json_real(x));
        }
    if (o && verdict->undecided)
        json_object_set_new(o, "undecided", json_true());
    if (o && v->judged)
        json_object_set(o, "verdicts", v->judged);
    if (o && has_unreadable(v->judged))
        json_object_set_new(o, "unreadable_verdict", json_true());
    if (o && s->whole) {
        json_object_set(o, "doc", (json_t *)(uintptr_t)doc->row);
        json_object_set_new(o, "arguments", arguments_of(s, doc));
    }
    return o;
}

pesc_status samples_add(samples *s, const task_doc *doc, const samples_verdicts *v)
{
    str text = { 0 };
    bool ok = true;
    for (size_t f = 0; ok && f < s->about->n_filters; f++) {
        json_t *line = line_of(s, doc, v, f);
        ok = line != NULL;
        if (ok)
            json_put(&text, line, JSON_COMPACT);
        str_putc(&text, '\n');
        json_decref(line);
    }
    if (!ok || !str_ok(&text)) {
        str_free(&text);
        return fail_nomem("a sample", text.n);
    }
    s->n_done += !s->lines[doc->id];
    mem_free(s->lines[doc->id]);
    s->lines[doc->id] = text.p;
    return s->log ? io_log_append(s->log, text.p, text.n) : PESC_OK;
}

pesc_status samples_finish(samples *s)
{
    str text = { 0 };
    if (!s->path)
        return PESC_OK;
    io_log_close(s->log);
    s->log = NULL;
    for (size_t i = 0; i < s->about->n_docs; i++)
        str_puts(&text, s->lines[i]);
    pesc_status st = str_ok(&text) ? io_write_file(s->path, text.p ? text.p : "", text.n)
                                   : fail_nomem("samples", text.n);
    str_free(&text);
    return st;
}

metric_score samples_score(const samples *s, size_t value)
{
    return metric_mean(s->values + value * s->about->n_docs, s->about->n_docs);
}

/* A quotation mark inside a text of the line is escaped, so `key` is one. */
static size_t count_lines(const samples *s, const char *key)
{
    size_t n = 0;
    for (size_t i = 0; i < s->about->n_docs; i++)
        n += s->lines[i] && strstr(s->lines[i], key);
    return n;
}

size_t samples_undecided(const samples *s)
{
    return count_lines(s, ",\"undecided\":true");
}

size_t samples_unreadable(const samples *s)
{
    return count_lines(s, ",\"unreadable_verdict\":true");
}
