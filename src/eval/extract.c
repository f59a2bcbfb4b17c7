#include "eval/extract.h"

#include "base/mem.h"

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

pesc_status extract_filter(const taskdef_filter *f, slice text, str *out)
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

pesc_status extract_match(const taskdef *def, slice prediction, const json_t *golds, bool *match)
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
