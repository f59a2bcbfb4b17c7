#include "grammar/expr.h"

#include "base/mem.h"

uint32_t expr_add(expr_pool *p, expr_kind kind, uint32_t value)
{
    if (p->n == 0)
        p->n = 1;
    p->failed = p->failed || !mem_room((void **)&p->all, &p->cap, p->n, sizeof *p->all);
    if (p->failed)
        return 0;
    p->all[p->n] = (expr){ .kind = kind, .value = value };
    return (uint32_t)p->n++;
}

uint32_t expr_add_set(expr_pool *p, charset *set)
{
    charset_normalise(set);
    p->failed = p->failed || set->failed ||
                !mem_room((void **)&p->sets, &p->cap_sets, p->n_sets, sizeof *p->sets);
    if (p->failed) {
        charset_free(set);
        return 0;
    }
    p->sets[p->n_sets++] = *set;
    *set = (charset){ 0 };
    return expr_add(p, EXPR_SET, (uint32_t)p->n_sets - 1);
}

void expr_append(expr_pool *p, uint32_t parent, uint32_t child)
{
    if (p->failed)
        return;
    expr *e = &p->all[parent];
    if (e->last)
        p->all[e->last].next = child;
    else
        e->first = child;
    e->last = child;
}

uint32_t expr_add_repeat(expr_pool *p, uint32_t child, int32_t min, int32_t max)
{
    uint32_t e = expr_add(p, EXPR_REPEAT, 0);
    if (!p->failed) {
        p->all[e].min = min;
        p->all[e].max = max;
        expr_append(p, e, child);
    }
    return e;
}

void expr_pool_free(expr_pool *p)
{
    for (size_t i = 0; i < p->n_sets; i++)
        charset_free(&p->sets[i]);
    mem_free(p->sets);
    mem_free(p->all);
    *p = (expr_pool){ 0 };
}

/* ---- repetitions ---- */

static void skip_blanks(const char *text, size_t n, size_t *at, bool blanks)
{
    while (blanks && *at < n && (text[*at] == ' ' || text[*at] == '\t'))
        ++*at;
}

static bool take_number(const char *text, size_t n, size_t *at, int32_t *v)
{
    size_t from = *at;
    for (*v = 0; *at < n && text[*at] >= '0' && text[*at] <= '9'; ++*at)
        *v = *v > EXPR_MAX_TIMES ? *v : *v * 10 + (text[*at] - '0');
    return *at > from;
}

size_t repetition_read(const char *text, size_t n, bool blanks, int32_t *min, int32_t *max)
{
    char kind = n ? text[0] : '\0';
    size_t at = 1;
    if (kind == '*' || kind == '+' || kind == '?') {
        *min = kind == '+';
        *max = kind == '?' ? 1 : EXPR_ANY_TIMES;
        return 1;
    }
    skip_blanks(text, n, &at, blanks);
    if (kind != '{' || !take_number(text, n, &at, min))
        return 0;
    *max = *min;
    skip_blanks(text, n, &at, blanks);
    if (at < n && text[at] == ',') {
        at++;
        skip_blanks(text, n, &at, blanks);
        if (!take_number(text, n, &at, max))
            *max = EXPR_ANY_TIMES;
        skip_blanks(text, n, &at, blanks);
    }
    return at < n && text[at] == '}' ? at + 1 : 0;
}
