#include "eval/judge.h"

#include "base/mem.h"
#include "eval/functioncalls.h"
#include "eval/mathtext.h"
#include "eval/overlap.h"
#include "eval/taskrows.h"
#include "jinja/pytext.h"

#include <string.h>

/* ---- filters ---- */

/* What Python's findall gives for a match: the group, or of several the first that is not empty. */
static slice matched(const pyregex_match *m)
{
    slice found = m->groups[m->n_groups > 1 ? 1 : 0];
    for (size_t i = 2; i < m->n_groups && found.n == 0; i++)
        found = m->groups[i];
    return found.p ? found : (slice){ "", 0 };
}

static pesc_status find_match(const taskdef_filter *f, slice text, slice *out, bool *any)
{
    pyregex_walk w = { .r = f->regex, .text = text };
    pyregex_match m;
    bool found;
    *any = false;
    while (f->last || !*any) {
        TRY(pyregex_next(&w, &m, &found));
        if (!found)
            break;
        *any = true;
        *out = matched(&m);
        if (m.n_groups > 2 && out->n == 0)
            *out = (slice){ f->fallback, strlen(f->fallback) };
    }
    return PESC_OK;
}

pesc_status judge_filter(const taskdef_filter *f, slice text, str *out)
{
    bool any = true;
    slice found = text;
    if (f->regex) {
        TRY(find_match(f, text, &found, &any));
        found = any ? pytext_strip(found) : (slice){ f->fallback, strlen(f->fallback) };
    }
    if (f->strip)
        found = pytext_strip(found);
    str_add(out, found.p, found.n);
    return str_ok(out) ? PESC_OK : fail_nomem("an answer", found.n);
}

/* ---- exact match ---- */

static void delete_punctuation(str *s)
{
    static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->p[i] || !strchr(punctuation, s->p[i]))
            s->p[n++] = s->p[i];
    s->n = n;
}

/* The reference keeps texts in fixed-width arrays, which drop NUL characters at the end. */
static void cut_nuls(str *s)
{
    while (s->n > 0 && s->p[s->n - 1] == '\0')
        s->n--;
}

static pesc_status without_ignored(const taskdef *def, slice text, str *out)
{
    str_add(out, text.p, text.n);
    for (size_t i = 0; str_ok(out) && i < def->n_ignore; i++) {
        str next = { 0 };
        str_puts(&next, "");
        pesc_status s = pyregex_sub(def->ignore[i], slice_of(out), "", &next);
        str_free(out);
        *out = next;
        TRY(s);
        cut_nuls(out);
    }
    cut_nuls(out);
    return str_ok(out) ? PESC_OK : fail_nomem("comparing answers", text.n);
}

/* Lower case and punctuation. Lower case may make a text longer by a character; the reference then
 * cuts it at `width` characters, the longest text that it compares. */
static pesc_status folded(const taskdef *def, str *s, size_t width)
{
    if (def->ignore_case) {
        str lower = { 0 };
        pytext_lower(&lower, slice_of(s));
        str_free(s);
        *s = lower;
        size_t n = 0, at = 0;
        for (; at < s->n && n <= width; at++)
            n += ((unsigned char)s->p[at] & 0xC0) != 0x80;
        s->n = n > width ? at - 1 : s->n;
    }
    if (def->ignore_punctuation)
        delete_punctuation(s);
    cut_nuls(s);
    return str_ok(s) ? PESC_OK : fail_nomem("comparing answers", s->n);
}

static bool same(const str *a, const str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

static pesc_status compare_all(const taskdef *def, str *prediction, str *golds, size_t n,
                               bool *match)
{
    size_t width = 0;
    TRY(folded(def, prediction, pytext_length(slice_of(prediction))));
    for (size_t i = 0; i < n; i++) {
        size_t length = pytext_length(slice_of(&golds[i]));
        width = length > width ? length : width;
    }
    for (size_t i = 0; i < n; i++) {
        TRY(folded(def, &golds[i], width));
        *match = *match || same(prediction, &golds[i]);
    }
    return PESC_OK;
}

pesc_status judge_text_match(const taskdef *def, slice prediction, const json_t *golds, bool *match)
{
    size_t n = json_array_size(golds);
    str *texts = mem_zalloc(n + 1, sizeof *texts);
    *match = false;
    pesc_status s = texts ? PESC_OK : fail_nomem("comparing answers", n);
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        const json_t *gold = json_array_get(golds, i);
        s = without_ignored(def, (slice){ json_string_value(gold), json_string_length(gold) },
                            &texts[i]);
    }
    if (s == PESC_OK)
        s = without_ignored(def, prediction, &texts[n]);
    if (s == PESC_OK)
        s = compare_all(def, &texts[n], texts, n, match);
    for (size_t i = 0; texts && i <= n; i++)
        str_free(&texts[i]);
    mem_free(texts);
    return s;
}

/* ---- choices ---- */

/* Code points of each choice without its delimiter; of an input its whole text. */
static pesc_status choice_lengths(const eval_task *l, const task_doc *d, double **out)
{
    json_t *texts = NULL;
    const taskdef_templates *from = l->def->inputs.n ? &l->def->inputs : &l->def->choices;
    TRY(task_texts(from, d->row, &texts));
    *out = mem_alloc(d->n_requests, sizeof **out);
    for (size_t i = 0; *out && i < d->n_requests; i++) {
        const json_t *text = json_array_get(texts, i);
        (*out)[i] =
            (double)pytext_length((slice){ json_string_value(text), json_string_length(text) });
    }
    json_decref(texts);
    return *out ? PESC_OK : fail_nomem("the lengths of choices", d->n_requests);
}

static pesc_status judge_choice(const eval_task *l, const task_doc *d, const task_answer *a,
                                task_verdict *v)
{
    double *lengths = NULL;
    TRY(choice_lengths(l, d, &lengths));
    for (size_t i = 0; i < l->def->metrics.n; i++) {
        bool by_length = strcmp(l->def->metrics.at[i], "acc_norm") == 0;
        size_t best = metric_argmax(a->logprobs, by_length ? lengths : NULL, d->n_requests);
        v->values[i] = best == (size_t)d->gold;
    }
    mem_free(lengths);
    return PESC_OK;
}

/* ---- texts ---- */

/* The right answers as a list of texts: a new reference. */
static pesc_status golds_of(const task_doc *d, json_t **out)
{
    if (json_is_array(d->target)) {
        *out = json_incref(d->target);
        return PESC_OK;
    }
    str text = { 0 };
    pytext_str(&text, d->target);
    *out = json_array();
    bool ok = *out && str_ok(&text) &&
              json_array_append_new(*out, json_stringn(text.p ? text.p : "", text.n)) == 0;
    str_free(&text);
    if (ok)
        return PESC_OK;
    json_decref(*out);
    return fail_nomem("the right answers", 0);
}

static slice gold_text(const json_t *golds, size_t i)
{
    const json_t *gold = json_array_get(golds, i);
    const char *p = json_string_value(gold);
    return p ? (slice){ p, json_string_length(gold) } : (slice){ "", 0 };
}

typedef pesc_status judge_fn(const eval_task *l, const task_doc *d, slice text, task_verdict *v);

static pesc_status judge_match(const eval_task *l, const task_doc *d, slice text, task_verdict *v)
{
    json_t *golds = NULL;
    bool match = false;
    TRY(golds_of(d, &golds));
    for (size_t i = 0; i < json_array_size(golds); i++)
        allowance_add(l->def->work, ALLOWANCE_ANSWER_BYTE * (uint64_t)gold_text(golds, i).n);
    pesc_status s = judge_text_match(l->def, text, golds, &match);
    json_decref(golds);
    v->values[0] = match;
    return s;
}

static slice column_text(const task_doc *d, const char *name)
{
    const json_t *v = json_object_get(d->row, name);
    return json_is_string(v) ? (slice){ json_string_value(v), json_string_length(v) }
                             : (slice){ "", 0 };
}

/* Equal normal forms, or equal rational numbers; what only an algebra system could tell is left
 * undecided. An answer without its closing sentence cannot be right. */
static pesc_status judge_minerva(const eval_task *l, const task_doc *d, slice text, task_verdict *v)
{
    static const char invalid[] = "[invalidanswer]";
    str found = { 0 }, normal = { 0 };
    slice gold = column_text(d, "answer");
    bool equal = false;
    (void)l;
    str_puts(&normal, "");
    minerva_extract(&found, text);
    minerva_normalize(&normal, slice_of(&found));
    if (normal.n > 0 && normal.n == gold.n && memcmp(normal.p, gold.p, gold.n) == 0)
        equal = true;
    else if (!rational_compare(slice_of(&normal), gold, &equal))
        v->undecided = normal.n > 0 && strcmp(normal.p, invalid) != 0;
    v->values[0] = equal;
    bool ok = str_ok(&found) && str_ok(&normal);
    str_free(&found);
    str_free(&normal);
    return ok ? PESC_OK : fail_nomem("comparing answers", text.n);
}

static pesc_status judge_hendrycks(const eval_task *l, const task_doc *d, slice text,
                                   task_verdict *v)
{
    bool ok;
    (void)l;
    v->values[0] = hendrycks_equal(boxed_dollars(text), column_text(d, "answer"), &ok);
    return ok ? PESC_OK : fail_nomem("comparing answers", text.n);
}

static pesc_status judge_intent(const eval_task *l, const task_doc *d, slice text, task_verdict *v)
{
    json_t *golds = NULL;
    bool match = false;
    (void)l;
    TRY(golds_of(d, &golds));
    slice gold = gold_text(golds, 0);
    pesc_status s = pesc_eval_intent(text.p, text.n, gold.p, gold.n, &match);
    json_decref(golds);
    v->values[0] = match;
    return s;
}

/* Of several references the one that fits best counts, for each metric. */
static pesc_status judge_overlap(const eval_task *l, const task_doc *d, slice text, task_verdict *v)
{
    json_t *golds = NULL;
    pesc_status s = golds_of(d, &golds);
    for (size_t m = 0; s == PESC_OK && m < l->def->metrics.n; m++) {
        bool rouge = strcmp(l->def->metrics.at[m], "rouge_l") == 0;
        for (size_t i = 0; s == PESC_OK && i < json_array_size(golds); i++) {
            double score = 0;
            s = (rouge ? overlap_rouge_l : overlap_chrf)(text, gold_text(golds, i), &score);
            v->values[m] = score > v->values[m] ? score : v->values[m];
        }
    }
    json_decref(golds);
    return s;
}

/* What is compared, and shown, are the calls of the message. */
static pesc_status judge_calls(const task_doc *d, const task_answer *a, task_verdict *v)
{
    json_t *message;
    TRY(json_parse(&message, a->text, a->n_text, "an answer"));
    json_t *calls = json_object_get(message, "tool_calls");
    v->values[0] = functioncalls_match(message, d->target);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        str_puts(&v->filtered, i ? "\n" : "");
        json_put(&v->filtered, json_object_get(json_array_get(calls, i), "function"), 0);
    }
    json_decref(message);
    return str_ok(&v->filtered) ? PESC_OK : fail_nomem("an answer", a->n_text);
}

/* ---- an answer ---- */

static pesc_status judge_filtered(const eval_task *l, const task_doc *d, const task_answer *a,
                                  task_verdict *v, const taskdef_filter *filter)
{
    static judge_fn *const by[] = {
        [JUDGE_MATCH] = judge_match,         [JUDGE_MINERVA] = judge_minerva,
        [JUDGE_HENDRYCKS] = judge_hendrycks, [JUDGE_INTENT] = judge_intent,
        [JUDGE_OVERLAP] = judge_overlap,
    };
    str_puts(&v->filtered, "");
    if (l->def->judge == JUDGE_CALLS)
        return judge_calls(d, a, v);
    if (l->def->judge == JUDGE_CODE) {
        TRY(task_template_text(l->def->candidate, d->row, &v->filtered));
        str_add(&v->filtered, a->text, a->n_text);
        v->values[0] = a->passed;
        return str_ok(&v->filtered) ? PESC_OK : fail_nomem("an answer", a->n_text);
    }
    TRY(judge_filter(filter, (slice){ a->text, a->n_text }, &v->filtered));
    return by[l->def->judge](l, d, slice_of(&v->filtered), v);
}

pesc_status task_judge(const eval_task *task, const task_doc *doc, const task_answer *answer,
                       task_verdict *out)
{
    if (task->def->kind == TASK_CHOICE)
        return judge_choice(task, doc, answer, out);
    allowance_add(task->def->work, ALLOWANCE_ANSWER_BYTE * (uint64_t)answer->n_text);
    for (size_t i = 0; i < task->def->n_filters; i++)
        TRY(judge_filtered(task, doc, answer, &out[i], &task->def->filters[i]));
    return PESC_OK;
}

void task_verdict_free(task_verdict *v)
{
    str_free(&v->filtered);
    *v = (task_verdict){ 0 };
}
