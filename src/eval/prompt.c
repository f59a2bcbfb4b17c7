/* prompt: the text of a document's requests.
 *
 * prompt = description + for each few-shot example (question + target delimiter + answer + shot
 * delimiter) + question. Nothing is trimmed. */
#include "base/mem.h"
#include "eval/functioncalls.h"
#include "eval/taskrows.h"
#include "jinja/pytext.h"

#include <string.h>

/* ---- parts of a prompt ---- */

/* Takes the text of a builder; NULL when it failed. */
static char *take_text(str *s)
{
    str_puts(s, "");
    if (str_ok(s))
        return s->p;
    str_free(s);
    return NULL;
}

static pesc_status filled(const task_template *f, const json_t *row, char **out)
{
    str text = { 0 };
    pesc_status s = task_template_text(f, row, &text);
    if (s == PESC_OK && !(*out = take_text(&text)))
        return fail_nomem("a prompt", 0);
    if (s != PESC_OK)
        str_free(&text);
    return s;
}

/* The text of item i of a list of templates. */
static pesc_status item_text(const taskdef_templates *from, const json_t *row, size_t i, char **out)
{
    json_t *list = NULL;
    TRY(task_texts(from, row, &list));
    str text = { 0 };
    pytext_str(&text, json_array_get(list, i));
    json_decref(list);
    *out = take_text(&text);
    return *out ? PESC_OK : fail_nomem("a prompt", 0);
}

/* A target as a JSON value; a text that is a Python list is written as Python prints the list. */
static pesc_status target_value(const task_template *f, const json_t *row, json_t **out)
{
    json_t *v = NULL;
    str text = { 0 };
    TRY(task_template_value(f, row, &v));
    if (json_is_string(v) &&
        pytext_literal(&text, (slice){ json_string_value(v), json_string_length(v) })) {
        json_decref(v);
        v = json_stringn(text.p, text.n);
    }
    bool ok = v && str_ok(&text);
    str_free(&text);
    if (!ok)
        json_decref(v);
    else
        *out = v;
    return ok ? PESC_OK : fail_nomem("a target", 0);
}

/* The answer of a few-shot example: of several right answers the first. *listed: there is a list of
 * them. */
static pesc_status shot_answer(const taskdef *def, const json_t *row, char **out, bool *listed)
{
    json_t *v = NULL;
    str text = { 0 };
    TRY(task_template_value(def->shot_target ? def->shot_target : def->target, row, &v));
    bool list = *listed = json_is_array(v);
    pesc_status s = PESC_OK;
    if (list && json_array_size(v) == 0)
        s = fail(PESC_FORMAT, "%s: a few-shot example has no answer", def->name);
    else
        pytext_str(&text, list ? json_array_get(v, 0) : v);
    json_decref(v);
    if (s == PESC_OK && !(*out = take_text(&text)))
        s = fail_nomem("a prompt", 0);
    return s;
}

/* Question and answer of a few-shot example. *chosen: the answer is one of a list. */
static pesc_status shot_texts(const taskdef *def, const json_t *row, char **question, char **answer,
                              bool *chosen)
{
    int32_t gold = 0;
    bool inputs = def->inputs.n > 0;
    *chosen = !inputs;
    if (def->kind == TASK_CHOICE)
        TRY(task_gold(def, row, &gold));
    TRY(inputs ? item_text(&def->inputs, row, (size_t)gold, question)
               : filled(def->question, row, question));
    if (def->kind != TASK_CHOICE)
        return shot_answer(def, row, answer, chosen);
    return inputs ? filled(def->continuation, row, answer)
                  : item_text(&def->choices, row, (size_t)gold, answer);
}

/* ---- turns ---- */

/* Takes the text, also when it fails. */
static pesc_status add_turn(task_doc *d, const char *role, char *text)
{
    task_turn *grown = mem_grow(d->turns, d->n_turns + 1, sizeof *grown);
    if (!grown) {
        mem_free(text);
        return fail_nomem("a prompt", sizeof *grown);
    }
    d->turns = grown;
    d->turns[d->n_turns++] = (task_turn){ role, text };
    return PESC_OK;
}

static pesc_status add_description(task_doc *d, const taskdef *def)
{
    char *text = NULL;
    if (!def->description)
        return PESC_OK;
    TRY(filled(def->description, d->row, &text));
    return add_turn(d, "system", text);
}

/* An example with an empty answer is its question alone, unless the answer is one of a list. */
static pesc_status add_shot(task_doc *d, const taskdef *def, const json_t *row)
{
    char *question = NULL, *answer = NULL;
    bool chosen;
    pesc_status s = shot_texts(def, row, &question, &answer, &chosen);
    if (s == PESC_OK) {
        s = add_turn(d, "user", question);
        question = NULL;
    }
    if (s == PESC_OK && (chosen || *answer)) {
        s = add_turn(d, "assistant", answer);
        answer = NULL;
    }
    mem_free(question);
    mem_free(answer);
    return s;
}

/* The turns as plain text. */
static void head_text(const task_doc *d, const taskdef *def, str *out)
{
    for (size_t i = 0; i < d->n_turns; i++) {
        const char *role = d->turns[i].role;
        bool answered = i + 1 < d->n_turns && strcmp(d->turns[i + 1].role, "assistant") == 0;
        str_puts(out, d->turns[i].text);
        if (strcmp(role, "assistant") == 0)
            str_puts(out, def->shot_delimiter);
        else if (answered)
            str_puts(out, def->target_delimiter);
    }
}

/* ---- requests ---- */

static pesc_status count_requests(task_doc *d, const taskdef *def, json_t **choices)
{
    bool inputs = def->inputs.n > 0;
    d->n_requests = d->n_questions = 1;
    if (def->kind == TASK_CHOICE) {
        TRY(task_texts(inputs ? &def->inputs : &def->choices, d->row, choices));
        d->n_requests = json_array_size(*choices);
        d->n_questions = inputs ? d->n_requests : 1;
    }
    d->questions = mem_zalloc(d->n_requests, sizeof *d->questions);
    d->contexts = mem_zalloc(d->n_requests, sizeof *d->contexts);
    d->continuations = mem_zalloc(d->n_requests, sizeof *d->continuations);
    d->chat_continuations = mem_zalloc(d->n_requests, sizeof *d->chat_continuations);
    return d->questions && d->contexts && d->continuations && d->chat_continuations
               ? PESC_OK
               : fail_nomem("a prompt", d->n_requests);
}

static char *joined(const char *a, const json_t *b)
{
    str text = { 0 };
    str_puts(&text, a);
    pytext_str(&text, b);
    return take_text(&text);
}

static pesc_status add_continuations(task_doc *d, const taskdef *def, const json_t *choices)
{
    json_t *shared = NULL;
    if (def->kind != TASK_CHOICE)
        return PESC_OK;
    if (def->inputs.n > 0)
        TRY(task_template_value(def->continuation, d->row, &shared));
    for (size_t i = 0; i < d->n_requests; i++) {
        const json_t *text = shared ? shared : json_array_get(choices, i);
        d->continuations[i] = joined(def->target_delimiter, text);
        if (d->continuations[i])
            d->chat_continuations[i] = d->continuations[i] + strlen(def->target_delimiter);
    }
    json_decref(shared);
    for (size_t i = 0; i < d->n_requests; i++)
        if (!d->continuations[i])
            return fail_nomem("a prompt", 0);
    return PESC_OK;
}

static pesc_status add_questions(task_doc *d, const taskdef *def, const json_t *choices)
{
    str head = { 0 };
    head_text(d, def, &head);
    str_puts(&head, "");
    pesc_status s = str_ok(&head) ? PESC_OK : fail_nomem("a prompt", head.n);
    for (size_t i = 0; s == PESC_OK && i < d->n_questions; i++) {
        if (def->inputs.n > 0) {
            d->questions[i] = joined("", json_array_get(choices, i));
            s = d->questions[i] ? PESC_OK : fail_nomem("a prompt", 0);
        } else {
            s = filled(def->question, d->row, &d->questions[i]);
        }
        str context = { 0 };
        if (s == PESC_OK) {
            str_add(&context, head.p, head.n);
            str_puts(&context, d->questions[i]);
            d->contexts[i] = take_text(&context);
            s = d->contexts[i] ? PESC_OK : fail_nomem("a prompt", head.n);
        }
    }
    for (size_t i = d->n_questions; i < d->n_requests; i++) {
        d->questions[i] = d->questions[0];
        d->contexts[i] = d->contexts[0];
    }
    str_free(&head);
    return s;
}

/* What a turn with calls needs, and whether its target can be compared. */
static pesc_status add_tools(task_doc *d, const taskdef *def)
{
    json_t *given = NULL;
    if (def->kind != TASK_CALLS)
        return PESC_OK;
    TRY(functioncalls_check(d->target));
    TRY(task_template_value(def->tools, d->row, &given));
    pesc_status s = functioncalls_tools(given, &d->tools);
    json_decref(given);
    return s;
}

/* ---- hashes ---- */

static pesc_status add_target(task_doc *d, const taskdef *def)
{
    if (def->kind != TASK_CHOICE)
        return target_value(def->target, d->row, &d->target);
    if (def->inputs.n > 0)
        return task_template_value(def->continuation, d->row, &d->target);
    d->target = json_integer(d->gold);
    return d->target ? PESC_OK : fail_nomem("a target", 0);
}

static pesc_status add_hashes(task_doc *d)
{
    str target = { 0 }, doc = { 0 };
    str_puts(&target, "");
    pytext_str(&target, d->target);
    pytext_json(&doc, d->row);
    bool ok = str_ok(&target) && str_ok(&doc);
    if (ok) {
        digest_text(d->prompt_hash, d->contexts[0], strlen(d->contexts[0]));
        digest_text(d->target_hash, target.p, target.n);
        digest_text(d->doc_hash, doc.p, doc.n);
    }
    str_free(&target);
    str_free(&doc);
    return ok ? PESC_OK : fail_nomem("the hashes of a document", 0);
}

/* ---- a document ---- */

/* Each choice is encoded after the text of the whole question. */
static pesc_status take_work(const task_doc *d, const taskdef *def)
{
    for (size_t i = 0; i < d->n_requests; i++)
        allowance_take(def->work, strlen(d->contexts[i]) / 8);
    return allowance_left(def->work) > 0 ? PESC_OK : allowance_spent(def->file);
}

static pesc_status build(task_doc *d, const eval_task *l, size_t i, json_t **choices)
{
    const taskdef *def = l->def;
    size_t shots = (size_t)l->about.shots;
    TRY(add_description(d, def));
    for (size_t k = 0; k < shots; k++)
        TRY(add_shot(d, def, l->pool[l->drawn[i * shots + k]]));
    TRY(count_requests(d, def, choices));
    TRY(add_questions(d, def, *choices));
    TRY(add_continuations(d, def, *choices));
    TRY(take_work(d, def));
    TRY(add_target(d, def));
    TRY(add_tools(d, def));
    return add_hashes(d);
}

pesc_status task_doc_build(task_doc *out, const eval_task *task, size_t i)
{
    ASSERT(i < task->about.n_docs);
    json_t *choices = NULL;
    *out = (task_doc){ .id = i, .row = task->docs[i], .gold = task->gold ? task->gold[i] : -1 };
    pesc_status s = build(out, task, i, &choices);
    json_decref(choices);
    if (s == PESC_FORMAT) {
        char why[512];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = fail(s, "%s: document %zu: %s", task->def->name, i, why);
    }
    if (s != PESC_OK)
        task_doc_free(out);
    return s;
}

void task_doc_free(task_doc *d)
{
    for (size_t i = 0; i < d->n_turns; i++)
        mem_free(d->turns[i].text);
    for (size_t i = 0; i < d->n_questions; i++) {
        mem_free(d->questions ? d->questions[i] : NULL);
        mem_free(d->contexts ? d->contexts[i] : NULL);
    }
    for (size_t i = 0; d->continuations && i < d->n_requests; i++)
        mem_free(d->continuations[i]);
    mem_free(d->turns);
    mem_free(d->questions);
    mem_free(d->contexts);
    mem_free(d->continuations);
    mem_free(d->chat_continuations);
    json_decref(d->target);
    json_decref(d->tools);
    *d = (task_doc){ 0 };
}
