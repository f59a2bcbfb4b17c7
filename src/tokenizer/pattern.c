#include "tokenizer/pattern.h"

#include "base/mem.h"

#include <string.h>

static pesc_status check_length(size_t n, const char *where)
{
    if (n <= PATTERN_TEXT_MAX)
        return PESC_OK;
    return fail(PESC_UNSUPPORTED, "%s: has a text of %zu bytes; at most %d are supported", where, n,
                PATTERN_TEXT_MAX);
}

pesc_status pattern_get_text(const json_t *object, const char *key, const char *where, char **text,
                             size_t *n)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected a string", where, key, json_kind(v));
    *n = json_string_length(v);
    TRY(check_length(*n, where));
    *text = mem_strndup(json_string_value(v), *n);
    return *text ? PESC_OK : fail_nomem(where, *n);
}

pesc_status pattern_open_text(pattern *p, const char *text, size_t n, const char *where)
{
    TRY(check_length(n, where));
    if (n == 0)
        return fail(PESC_UNSUPPORTED, "%s: the pattern is an empty string", where);
    p->text = mem_strndup(text, n);
    p->n = n;
    return p->text ? PESC_OK : fail_nomem("a pattern", n);
}

pesc_status pattern_open_regex(pattern *p, const char *re, const char *where)
{
    return regex_open(&p->re, re, strlen(re), where);
}

pesc_status pattern_open_json(pattern *p, const json_t *object, const char *key, const char *where)
{
    const json_t *v = json_object_get(object, key);
    const json_t *text = json_object_get(v, "String"), *re = json_object_get(v, "Regex");
    if (json_is_string(text) && !re)
        return pattern_open_text(p, json_string_value(text), json_string_length(text), where);
    if (json_is_string(re) && !text)
        return regex_open(&p->re, json_string_value(re), json_string_length(re), where);
    return fail(PESC_FORMAT, "%s: %s: found %s, expected {\"String\": ...} or {\"Regex\": ...}",
                where, key, json_kind(v));
}

void pattern_free(pattern *p)
{
    mem_free(p->text);
    regex_close(p->re);
    *p = (pattern){ 0 };
}

pesc_status pattern_next(const pattern *p, regex_walk *w, bool *found)
{
    if (p->re) {
        w->r = p->re;
        return regex_next(w, found);
    }
    const char *from = w->text + w->from, *at = NULL;
    size_t left = w->n - w->from;
    if (left >= p->n)
        at = p->n == 1 ? memchr(from, p->text[0], left) : memmem(from, left, p->text, p->n);
    *found = at != NULL;
    if (at) {
        w->start = (size_t)(at - w->text);
        w->end = w->from = w->start + p->n;
    }
    return PESC_OK;
}
