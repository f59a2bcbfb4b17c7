/* The scorer of ESFT's intent benchmark, exactly as its reference code scores.
 *
 * An answer is JSON: {"intent": ..., "slots": {...}}. Of what a model wrote, the first line that is
 * not empty counts (inside a ```json fence where there is one), without white space and full stops
 * around it. It is right when the intent is the same and so are the slots: all of them and no
 * other. Spaces inside the model's slots do not count, those of the expected answer do; the order
 * of a slot that is a list does not.
 *
 * The reference compares texts that Python makes of values: a list is the text of its sorted tuple,
 * whose items are converted by str(). What makes the reference fail is scored 0 here. */
#include "eval/judge.h"

#include "base/args.h"
#include "base/mem.h"
#include "jinja/pytext.h"

#include <stdlib.h>
#include <string.h>

/* ---- the answer in a text ---- */

static const char *const stops[] = { ".", "\u3002", NULL };

/* Bytes at the beginning (or end) of the slice that are one of the set's characters. */
static size_t match(slice s, const char *const *set, bool at_end)
{
    for (; *set; set++) {
        size_t n = strlen(*set);
        if (n <= s.n && memcmp(at_end ? s.p + s.n - n : s.p, *set, n) == 0)
            return n;
    }
    return 0;
}

static slice strip(slice s, const char *const *set)
{
    for (size_t n; (n = match(s, set, false)); s.n -= n)
        s.p += n;
    for (size_t n; (n = match(s, set, true));)
        s.n -= n;
    return s;
}

const char *intent_answer(const char *text, size_t *n)
{
    static const char fence[] = "```json";
    slice s = strip(pytext_strip((slice){ text, *n }), stops);
    size_t at = pytext_find(s, fence);
    if (at < s.n) {
        s = (slice){ s.p + at + sizeof fence - 1, s.n - at - (sizeof fence - 1) };
        size_t end = pytext_find(s, "```");
        s = end < s.n ? (slice){ s.p, end } : (slice){ "{}", 2 };
    }
    while (s.n > 0 && *s.p == '\n')
        s = (slice){ s.p + 1, s.n - 1 };
    s.n = pytext_find(s, "\n");
    s = strip(s, stops);
    *n = s.n;
    return s.p;
}

/* ---- slots ---- */

static void remove_spaces(str *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->p[i] != ' ')
            s->p[n++] = s->p[i];
    s->n = n;
}

/* UTF-8 sorts as its code points do. */
static int by_code_point(const void *a, const void *b)
{
    const str *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int d = n ? memcmp(x->p, y->p, n) : 0;
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* The text of a sorted tuple of texts. */
static void list_text(str *out, const json_t *list, bool predicted)
{
    size_t n = json_array_size(list);
    str *items = mem_zalloc(n ? n : 1, sizeof *items);
    out->failed = out->failed || !items;
    for (size_t i = 0; items && i < n; i++) {
        pytext_str(&items[i], json_array_get(list, i));
        if (predicted)
            remove_spaces(&items[i]);
        out->failed = out->failed || items[i].failed;
    }
    if (!out->failed) {
        qsort(items, n, sizeof *items, by_code_point);
        str_putc(out, '(');
        for (size_t i = 0; i < n; i++) {
            str_puts(out, i ? ", " : "");
            pytext_repr_text(out, slice_of(&items[i]));
        }
        str_puts(out, n == 1 ? ",)" : ")");
    }
    for (size_t i = 0; items && i < n; i++)
        str_free(&items[i]);
    mem_free(items);
}

/* What a slot is compared by; false: it cannot be equal to another. */
static bool slot_text(str *out, const json_t *v, bool predicted)
{
    if (json_is_array(v)) {
        list_text(out, v, predicted);
        return true;
    }
    if (!json_is_string(v))
        return false;
    pytext_str(out, v);
    if (predicted)
        remove_spaces(out);
    return true;
}

static pesc_status same_slot(const json_t *predicted, const json_t *expected, bool *same)
{
    str a = { 0 }, b = { 0 };
    *same = slot_text(&a, predicted, true) && slot_text(&b, expected, false) && a.n == b.n &&
            (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
    bool ok = str_ok(&a) && str_ok(&b);
    str_free(&a);
    str_free(&b);
    return ok ? PESC_OK : fail_nomem("the slots of an answer", 0);
}

static pesc_status same_slots(const json_t *predicted, const json_t *expected, bool *same)
{
    const char *key;
    json_t *value;
    *same = (!predicted || json_is_object(predicted)) &&
            json_object_size(predicted) == json_object_size(expected);
    json_object_foreach((json_t *)(uintptr_t)expected, key, value)
    {
        const json_t *other = json_object_get(predicted, key);
        *same = *same && other;
        if (*same)
            TRY(same_slot(other, value, same));
    }
    return PESC_OK;
}

/* ---- the score ---- */

/* An absent intent is the empty one. */
static bool same_intent(const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "intent"), *y = json_object_get(b, "intent");
    if (x && y)
        return json_equal(x, y);
    const json_t *there = x ? x : y;
    return !there || (json_is_string(there) && json_string_length(there) == 0);
}

static pesc_status read_expected(json_t **out, const char *text, size_t n)
{
    TRY(json_parse_loose(out, text, n, "the expected answer"));
    const json_t *slots = json_object_get(*out, "slots");
    const char *key;
    json_t *value;
    if (!json_is_object(*out) || (slots && !json_is_object(slots)))
        return fail(PESC_FORMAT,
                    "the expected answer: expected an object with intent and an object slots");
    json_object_foreach(
        (json_t *)(uintptr_t)slots, key,
        value) if (json_is_object(value)) return fail(PESC_FORMAT,
                                                      "the expected answer: slots.%s: found an "
                                                      "object, expected text or a list",
                                                      key);
    return PESC_OK;
}

pesc_status pesc_eval_intent(const char *prediction, size_t n, const char *expected,
                             size_t n_expected, bool *match_out)
{
    status_clear();
    NEED(prediction);
    NEED(expected);
    NEED(match_out);
    *match_out = false;
    json_t *want = NULL, *have = NULL;
    bool slots = false;
    const char *answer = intent_answer(prediction, &n);
    pesc_status st = read_expected(&want, expected, n_expected);
    if (st == PESC_OK) {
        st = json_parse_loose(&have, answer, n, "a prediction");
        st = st == PESC_FORMAT ? PESC_OK
                               : st; /* an answer that is not JSON is wrong, not a failure */
    }
    if (st == PESC_OK && json_is_object(have))
        st = same_slots(json_object_get(have, "slots"), json_object_get(want, "slots"), &slots);
    if (st == PESC_OK) {
        *match_out = slots && same_intent(have, want);
        status_clear();
    }
    json_decref(have);
    json_decref(want);
    return st;
}
