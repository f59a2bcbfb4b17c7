/* An expression tree as rules. */
#include "grammar/chardfa.h"
#include "grammar/frontends.h"
#include "grammar/pieces.h"
#include "base/utf8.h"

#include <stdio.h>

static void write_repeat(const expr_writer *w, const expr *x, rule_span at)
{
    rules *r = w->r;
    uint32_t from = at.start;
    for (int32_t i = 0; i < x->min && r->status == PESC_OK; i++) {
        uint32_t to = rules_node(r);
        expr_write(w, x->first, (rule_span){ from, to });
        from = to;
    }
    if (x->max == EXPR_ANY_TIMES) {
        uint32_t loop = rules_node(r);
        rules_empty(r, from, loop);
        expr_write(w, x->first, (rule_span){ loop, loop });
        from = loop;
    }
    for (int32_t i = x->min; i < x->max && r->status == PESC_OK; i++) {
        uint32_t to = rules_node(r);
        rules_empty(r, from, at.end);
        expr_write(w, x->first, (rule_span){ from, to });
        from = to;
    }
    rules_empty(r, from, at.end);
}

static void write_schema(const expr_writer *w, uint32_t number, rule_span at)
{
    uint32_t rule;
    if (w->r->status == PESC_OK &&
        schema_add_rules(w->r, json_array_get(w->schemas, number), w->ignored, &rule) == PESC_OK)
        rules_call(w->r, at.start, at.end, rule);
}

static void write_not(const expr_writer *w, uint32_t e, rule_span at)
{
    char_condition c = { .pool = w->pool, .root = e, .anywhere = true, .negated = true };
    chardfa d = { 0 };
    pesc_status st = chardfa_build(&d, &c, 1, (char_length){ 0, -1 });
    if (st == PESC_OK)
        chardfa_write(&d, w->r, w->sets, at, SPELL_UTF8);
    else
        rules_fail(w->r, st);
    chardfa_free(&d);
}

static void write_token(rules *r, uint32_t id, rule_span at)
{
    char bytes[16];
    int n = snprintf(bytes, sizeof bytes, PIECES_CONTROL, (int)id);
    rules_text(r, at.start, at.end, bytes, (size_t)n);
}

void expr_write(const expr_writer *w, uint32_t e, rule_span at)
{
    const expr *x = &w->pool->all[e];
    uint32_t from = at.start;
    char bytes[4];
    switch (x->kind) {
    case EXPR_TOKEN:
        write_token(w->r, x->value, at);
        break;
    case EXPR_JSON:
        write_schema(w, x->value, at);
        break;
    case EXPR_NOT:
        write_not(w, x->first, at);
        break;
    case EXPR_CHAR:
        rules_text(w->r, from, at.end, bytes, (size_t)utf8_encode(x->value, bytes));
        break;
    case EXPR_SET:
        spell_set(w->r, w->sets, at, &w->pool->sets[x->value], SPELL_UTF8);
        break;
    case EXPR_RULE:
        rules_call(w->r, from, at.end, x->value);
        break;
    case EXPR_CHOICE:
        for (uint32_t c = x->first; c && w->r->status == PESC_OK; c = w->pool->all[c].next)
            expr_write(w, c, at);
        break;
    case EXPR_SEQUENCE:
        for (uint32_t c = x->first; c && w->r->status == PESC_OK; c = w->pool->all[c].next) {
            uint32_t to = w->pool->all[c].next ? rules_node(w->r) : at.end;
            expr_write(w, c, (rule_span){ from, to });
            from = to;
        }
        if (!x->first)
            rules_empty(w->r, from, at.end);
        break;
    case EXPR_REPEAT:
        write_repeat(w, x, at);
        break;
    case EXPR_BEGIN:
    case EXPR_END:
        break; /* not in GBNF */
    }
}
