/* eval_text: the text side of the evaluator as JSON lines, for tools/conformance/eval_text.py.
 *
 *   eval_text prompts NAMES DATA_DIR SHOTS LIMIT   one line a document: requests, turns and hashes
 *   eval_text judge NAMES DATA_DIR SHOTS LIMIT     reads {"task", "id", "text" or "logprobs"}
 *   eval_text functions                            reads {"f": name, "a": text, "b": text} or
 *                                                  {"tasks": lists of values}
 *   eval_text tokens TOKENIZER MAX_LENGTH          reads {"context", "continuation"} to score or
 *                                                  {"context", "max_new"} to generate after; writes
 *                                                  the ids and where the scored ones begin
 */
#include "base/io.h"
#include "base/mem.h"
#include "eval/loglik.h"
#include "eval/mathtext.h"
#include "eval/overlap.h"
#include "eval/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int stop(void)
{
    fprintf(stderr, "eval_text: %s\n", pesc_last_error());
    return 1;
}

static void print_json(json_t *v)
{
    json_dumpf(v, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    putchar('\n');
    json_decref(v);
}

/* ---- prompts ---- */

static json_t *texts(char *const *at, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, at[i] ? json_string(at[i]) : json_null());
    return list;
}

static json_t *turns(const task_doc *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_turns; i++)
        json_array_append_new(list, json_pack("[ss]", d->turns[i].role, d->turns[i].text));
    return list;
}

static json_t *doc_json(const eval_task *task, const task_doc *d)
{
    const task_about *a = task_describe(task);
    return json_pack("{ss ss sI so so so so so sO ss ss ss}", "task", a->name, "label", a->label,
                     "id", (json_int_t)d->id, "contexts", texts(d->contexts, d->n_requests),
                     "continuations", texts(d->continuations, d->n_requests), "chat_continuations",
                     texts((char *const *)(uintptr_t)d->chat_continuations, d->n_requests), "turns",
                     turns(d), "questions", texts(d->questions, d->n_requests), "target", d->target,
                     "prompt_hash", d->prompt_hash, "target_hash", d->target_hash, "doc_hash",
                     d->doc_hash);
}

static int prompts(const task_set *set)
{
    for (size_t t = 0; t < task_count(set); t++) {
        const eval_task *task = task_at(set, t);
        for (size_t i = 0; i < task_describe(task)->n_docs; i++) {
            task_doc d;
            if (task_doc_build(&d, task, i) != PESC_OK)
                return stop();
            print_json(doc_json(task, &d));
            task_doc_free(&d);
        }
    }
    return 0;
}

/* ---- answers ---- */

static json_t *verdict_json(const eval_task *task, const task_verdict *v, size_t filter)
{
    json_t *values = json_object();
    for (size_t i = 0; i < task_describe(task)->n_metrics; i++)
        json_object_set_new(values, task_metric_name(task, i), json_real(v->values[i]));
    return json_pack("{ss so so sb}", "filter", task_filter_name(task, filter), "filtered",
                     json_stringn(v->filtered.p ? v->filtered.p : "", v->filtered.n), "values",
                     values, "undecided", v->undecided);
}

static const eval_task *task_named(const task_set *set, const char *name)
{
    for (size_t t = 0; t < task_count(set); t++)
        if (strcmp(task_describe(task_at(set, t))->name, name) == 0)
            return task_at(set, t);
    return NULL;
}

static int judge_line(const task_set *set, const json_t *line)
{
    const eval_task *task = task_named(set, json_string_value(json_object_get(line, "task")));
    const json_t *text = json_object_get(line, "text"), *list = json_object_get(line, "logprobs");
    double logprobs[64];
    task_verdict verdicts[4] = { 0 };
    task_doc d;
    for (size_t i = 0; i < json_array_size(list) && i < 64; i++)
        logprobs[i] = json_number_value(json_array_get(list, i));
    task_answer answer = { .logprobs = logprobs,
                           .text = json_string_value(text),
                           .n_text = json_string_length(text) };
    if (!task ||
        task_doc_build(&d, task, (size_t)json_integer_value(json_object_get(line, "id"))) !=
            PESC_OK ||
        task_judge(task, &d, &answer, verdicts) != PESC_OK)
        return stop();
    json_t *out = json_array();
    for (size_t i = 0; i < task_describe(task)->n_filters; i++) {
        json_array_append_new(out, verdict_json(task, &verdicts[i], i));
        task_verdict_free(&verdicts[i]);
    }
    print_json(out);
    task_doc_free(&d);
    return 0;
}

/* ---- functions ---- */

static json_t *function_value(const char *f, slice a, slice b)
{
    str out = { 0 };
    slice found = { 0 };
    bool ok = true;
    double number = 0;
    str_puts(&out, "");
    if (strcmp(f, "minerva") == 0) {
        minerva_normalize(&out, a);
    } else if (strcmp(f, "extract") == 0) {
        minerva_extract(&out, a);
    } else if (strcmp(f, "hendrycks") == 0) {
        ok = hendrycks_normalize(&out, a);
    } else if (strcmp(f, "boxed") == 0) {
        ok = boxed_answer(a, &found) == PESC_OK;
        str_add(&out, found.p, found.n);
    } else if (strcmp(f, "rational") == 0) {
        bool equal = false;
        ok = rational_compare(a, b, &equal);
        number = equal;
    } else {
        ok = (f[0] == 'c' ? overlap_chrf : overlap_rouge_l)(a, b, &number) == PESC_OK;
    }
    json_t *v =
        json_pack("{so sb sf}", "text", json_stringn(out.p, out.n), "ok", ok, "number", number);
    str_free(&out);
    return v;
}

/* Mean and standard error of each task, then those of the group. */
static json_t *statistics(const json_t *tasks)
{
    metric_score scores[64];
    size_t n = json_array_size(tasks);
    json_t *out = json_array();
    for (size_t i = 0; i < n && i < 64; i++) {
        const json_t *task = json_array_get(tasks, i);
        double values[1024];
        size_t count = json_array_size(task);
        for (size_t k = 0; k < count && k < 1024; k++)
            values[k] = json_number_value(json_array_get(task, k));
        scores[i] = metric_mean(values, count);
    }
    for (size_t i = 0; i <= n && i < 64; i++) {
        metric_score s = i < n ? scores[i] : metric_pool(scores, n);
        json_array_append_new(out, json_real(s.mean));
        json_array_append_new(out, json_real(s.error));
    }
    return out;
}

static int function_line(const json_t *line)
{
    if (json_object_get(line, "tasks")) {
        print_json(statistics(json_object_get(line, "tasks")));
        return 0;
    }
    const json_t *a = json_object_get(line, "a"), *b = json_object_get(line, "b");
    print_json(function_value(json_string_value(json_object_get(line, "f")),
                              (slice){ json_string_value(a), json_string_length(a) },
                              (slice){ b ? json_string_value(b) : "", json_string_length(b) }));
    return 0;
}

/* ---- tokens ---- */

/* A text that cannot be encoded has no ids; the line says why. */
static int tokens_line(loglik *l, const json_t *line)
{
    const char *context = json_string_value(json_object_get(line, "context"));
    const char *continuation = json_string_value(json_object_get(line, "continuation"));
    const json_t *max_new = json_object_get(line, "max_new");
    loglik_tokens t = { 0 };
    pesc_status s = continuation
                        ? loglik_pair(l, context, continuation, &t)
                        : loglik_prompt(l, context, (int32_t)json_integer_value(max_new), &t);
    json_t *ids = json_array();
    for (int32_t i = 0; s == PESC_OK && i < t.n; i++)
        json_array_append_new(ids, json_integer(t.ids[i]));
    print_json(json_pack("{so si ss}", "ids", ids, "first", t.first, "error",
                         s == PESC_OK ? "" : pesc_last_error()));
    return 0;
}

/* ---- lines ---- */

/* What the lines of the input are for: one of the two, or neither. */
typedef struct reader {
    const task_set *set;
    loglik *tokens;
} reader;

static int read_line(const reader *r, const json_t *line)
{
    if (r->tokens)
        return tokens_line(r->tokens, line);
    return r->set ? judge_line(r->set, line) : function_line(line);
}

static int each_line(const reader *r)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    for (ssize_t n; rc == 0 && (n = getline(&line, &cap, stdin)) > 0;) {
        json_t *v = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        rc = v ? read_line(r, v) : 1;
        json_decref(v);
    }
    free(line);
    return rc;
}

static int tokens(const char *path, const char *max_length)
{
    tokenizer *t = NULL;
    loglik l = { 0 };
    pesc_status s =
        io_kind_of(path) == IO_DIR ? tokenizer_open_dir(&t, path) : tokenizer_open_file(&t, path);
    if (s == PESC_OK)
        s = loglik_open(&l, t, (int32_t)strtol(max_length, NULL, 10));
    int rc = s == PESC_OK ? each_line(&(reader){ .tokens = &l }) : stop();
    loglik_close(&l);
    tokenizer_close(t);
    return rc;
}

int main(int argc, char **argv)
{
    task_set *set = NULL;
    task_options opt = task_option_defaults;
    if (argc == 2 && strcmp(argv[1], "functions") == 0)
        return each_line(&(reader){ 0 });
    if (argc == 4 && strcmp(argv[1], "tokens") == 0)
        return tokens(argv[2], argv[3]);
    if (argc != 6) {
        fprintf(stderr,
                "usage: eval_text prompts|judge NAMES DATA_DIR SHOTS LIMIT, or functions, or "
                "tokens TOKENIZER MAX_LENGTH\n");
        return 2;
    }
    opt.data_dir = argv[3];
    opt.shots = strtoll(argv[4], NULL, 10);
    opt.limit = strtoll(argv[5], NULL, 10);
    if (task_open(&set, argv[2], &opt) != PESC_OK)
        return stop();
    int rc = argv[1][0] == 'p' ? prompts(set) : each_line(&(reader){ .set = set });
    task_close(set);
    return rc;
}
