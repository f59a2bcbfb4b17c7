/* Statements, and what both parts of the parser use; see jinja_parse.h. */
#include "jinja/jinja_parse.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failures and nodes ---- */

jnode *jparse_fail(jparser *p, pesc_status s, const char *fmt, ...)
{
    char why[512];
    va_list args;
    if (p->status != PESC_OK)
        return NULL;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    p->status = fail(s, "%s: line %d: %s", p->t->where, p->at->line, why);
    p->at = p->end;
    return NULL;
}

jnode *jparse_unexpected(jparser *p, const char *expected)
{
    const jtoken *t = p->at;
    switch (t->kind) {
    case T_NAME:
    case T_STRING:
        return jparse_fail(p, PESC_FORMAT, "found \"%.*s\", expected %s",
                           (int)(t->n < 60 ? t->n : 60), t->p, expected);
    case T_OP:
        if (t->op < 256)
            return jparse_fail(p, PESC_FORMAT, "found \"%c\", expected %s", (char)t->op, expected);
        return jparse_fail(p, PESC_FORMAT, "found an operator, expected %s", expected);
    case T_INT:
    case T_FLOAT:
        return jparse_fail(p, PESC_FORMAT, "found a number, expected %s", expected);
    case T_END:
        return jparse_fail(p, PESC_FORMAT, "found the end of the template, expected %s", expected);
    default:
        return jparse_fail(p, PESC_FORMAT, "found the end of the tag, expected %s", expected);
    }
}

jnode *jparse_node(jparser *p, jnode_kind kind)
{
    jnode *n = jpool_take(&p->t->pool, 1, sizeof *n);
    if (!n)
        return jparse_fail(p, PESC_NOMEM, "out of memory");
    n->kind = kind;
    n->line = p->at->line;
    n->height = 1;
    return n;
}

static int highest(const jnode *n, int so_far)
{
    return n && n->height > so_far ? n->height : so_far;
}

/* Chains of statements are walked in a loop, so only what they hold counts. */
static int highest_of(const jnode *chain, int so_far)
{
    for (; chain; chain = chain->next)
        so_far = highest(chain, so_far);
    return so_far;
}

/* jinja2 computes what is constant when it compiles, where a slice of what has none is undefined.
 */
static void mark_slice(jnode *n, bool within_constant)
{
    if (n && n->kind == N_ITEM && n->b->kind == N_SLICE)
        n->folded = within_constant;
}

static void fold(jnode *n)
{
    jnode *const parts[] = { n->a, n->b, n->c };
    n->constant =
        n->kind != N_NAME && n->kind != N_CALL && n->kind != N_ATTR &&
        !(n->kind == N_FILTER && n->fn && n->fn->params[0] == '*'); /* needs the context */
    for (int i = 0; i < 3; i++)
        n->constant = n->constant && (!parts[i] || parts[i]->constant);
    for (jnode *e = n->list; e; e = e->next)
        n->constant = n->constant && e->constant;
    for (int i = 0; i < 3; i++)
        mark_slice(parts[i], n->constant);
    for (jnode *e = n->list; e; e = e->next)
        mark_slice(e, n->constant);
}

jnode *jparse_done(jparser *p, jnode *n)
{
    if (p->status != PESC_OK || !n)
        return NULL;
    fold(n);
    int below = highest(n->c, highest(n->b, highest(n->a, 0)));
    below = highest_of(n->other, highest_of(n->body, highest_of(n->list, below)));
    n->height = below + 1;
    if (n->height <= JPARSE_HEIGHT)
        return n;
    return jparse_fail(p, PESC_UNSUPPORTED, "an expression or block is nested deeper than %d",
                       JPARSE_HEIGHT);
}

bool jparse_enter(jparser *p)
{
    if (p->depth >= JPARSE_DEPTH)
        jparse_fail(p, PESC_UNSUPPORTED, "the template is nested deeper than %d levels",
                    JPARSE_DEPTH);
    if (p->status != PESC_OK)
        return false;
    p->depth++;
    return true;
}

const char *jparse_text(jparser *p, const jtoken *t)
{
    char *text = jpool_take(&p->t->pool, t->n + 1, 1);
    if (text)
        memcpy(text, t->p, t->n);
    else
        jparse_fail(p, PESC_NOMEM, "out of memory");
    return text;
}

/* ---- tokens ---- */

void jparse_next(jparser *p)
{
    if (p->at != p->end)
        p->at++;
}

bool jparse_is_op(const jparser *p, int op)
{
    return p->at->kind == T_OP && p->at->op == op;
}

bool jparse_is_name(const jparser *p, const char *name)
{
    return p->at->kind == T_NAME && p->at->n == strlen(name) &&
           memcmp(p->at->p, name, p->at->n) == 0;
}

bool jparse_skip_op(jparser *p, int op)
{
    bool here = jparse_is_op(p, op);
    if (here)
        jparse_next(p);
    return here;
}

bool jparse_skip_name(jparser *p, const char *name)
{
    bool here = jparse_is_name(p, name);
    if (here)
        jparse_next(p);
    return here;
}

bool jparse_expect_op(jparser *p, int op)
{
    char expected[] = { '"', (char)op, '"', '\0' };
    if (jparse_skip_op(p, op))
        return true;
    jparse_unexpected(p, expected);
    return false;
}

const char *jparse_expect_name(jparser *p)
{
    if (p->at->kind != T_NAME) {
        jparse_unexpected(p, "a name");
        return NULL;
    }
    const char *text = jparse_text(p, p->at);
    jparse_next(p);
    return text;
}

/* ---- statements ---- */

static jnode *statements(jparser *p, const char *const *ends);

static bool at_end_of_tag(jparser *p)
{
    if (p->at->kind != T_BLOCK_END)
        jparse_unexpected(p, "the end of the tag");
    jparse_next(p);
    return p->status == PESC_OK;
}

/* The body up to one of the names in `ends`, whose tag is left open after the name: *end says
 * which. */
static jnode *body(jparser *p, const char *const *ends, int *end)
{
    *end = -1;
    if (!at_end_of_tag(p) || !jparse_enter(p))
        return NULL;
    jnode *first = statements(p, ends);
    p->depth--;
    for (int i = 0; ends[i] && *end < 0 && p->status == PESC_OK; i++)
        if (jparse_skip_name(p, ends[i]))
            *end = i;
    return first;
}

/* A body with one possible end, and that tag. */
static jnode *body_to(jparser *p, const char *end)
{
    const char *const ends[] = { end, NULL };
    int which;
    jnode *first = body(p, ends, &which);
    at_end_of_tag(p);
    return first;
}

static bool is_target(const jnode *n)
{
    for (const jnode *e = n->kind == N_TUPLE ? n->list : NULL; e; e = e->next)
        if (!is_target(e))
            return false;
    return n->kind == N_NAME || n->kind == N_TUPLE;
}

/* What a value is assigned to: a name, names with commas, or the attribute of a namespace. */
static jnode *target(jparser *p, const char *end, bool with_namespace)
{
    jnode *n;
    if (with_namespace && p->at->kind == T_NAME && p->at[1].kind == T_OP && p->at[1].op == '.') {
        jnode *space = jexpr_primary(p);
        jparse_next(p);
        n = jparse_node(p, N_ATTR);
        const char *name = jparse_expect_name(p);
        if (!n || !name)
            return NULL;
        n->a = space;
        n->name = name;
        return jparse_done(p, n);
    }
    n = jexpr_tuple(p, jexpr_primary, end, false);
    if (n && !is_target(n))
        return jparse_fail(p, PESC_FORMAT, "a value can only be assigned to a name");
    return n;
}

static jnode *parse_for(jparser *p, jnode *n)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    int end;
    n->a = target(p, "in", false);
    if (n->a && !jparse_skip_name(p, "in"))
        return jparse_unexpected(p, "\"in\"");
    n->b = jexpr_tuple(p, jexpr_parse_or, "recursive", false);
    if (jparse_skip_name(p, "if"))
        n->c = jexpr_parse(p);
    if (jparse_is_name(p, "recursive"))
        return jparse_fail(p, PESC_UNSUPPORTED, "a recursive loop is not supported");
    p->loops++;
    n->body = body(p, ends, &end);
    p->loops--;
    if (end == 1) {
        n->other = body_to(p, "endfor");
        return n;
    }
    return at_end_of_tag(p) ? n : NULL;
}

static jnode *parse_if(jparser *p, jnode *n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    jnode *first = n;
    for (int end = 0; end == 0 && p->status == PESC_OK;) {
        n->a = jexpr_tuple(p, jexpr_parse_or, NULL, false);
        p->conditions++;
        n->body = body(p, ends, &end);
        p->conditions--;
        if (end == 0) {
            n->c = jparse_node(p, N_IF);
            n = n->c ? n->c : n;
        } else if (end == 1) {
            p->conditions++;
            n->other = body_to(p, "endif");
            p->conditions--;
        } else {
            at_end_of_tag(p);
        }
    }
    return first;
}

/* An N_IF chain is walked in a loop: its height is that of its highest member. */
static jnode *if_done(jparser *p, jnode *first)
{
    int height = 0;
    for (jnode *n = first; n && p->status == PESC_OK; n = n->c) {
        jnode one = *n;
        one.c = NULL;
        if (jparse_done(p, &one))
            height = highest(&one, height);
    }
    first->height = height;
    return p->status == PESC_OK ? first : NULL;
}

static jnode *parse_set(jparser *p, jnode *n)
{
    n->a = target(p, NULL, true);
    if (jparse_skip_op(p, '=')) {
        n->b = jexpr_tuple(p, jexpr_parse, NULL, false);
        return at_end_of_tag(p) ? n : NULL;
    }
    n->kind = N_SET_BLOCK;
    n->b = jparse_is_op(p, '|') ? jexpr_filters(p, NULL, false) : NULL;
    n->body = body_to(p, "endset");
    return n;
}

/* (a, b=1): N_ARG with a name and perhaps a default. */
static jnode *signature(jparser *p)
{
    jnode *first = NULL, **tail = &first;
    if (!jparse_expect_op(p, '('))
        return NULL;
    while (!jparse_is_op(p, ')') && p->status == PESC_OK) {
        if (first && !jparse_expect_op(p, ','))
            break;
        jnode *n = jparse_node(p, N_ARG);
        if (!n || !(n->name = jparse_expect_name(p)))
            return NULL;
        if (jparse_skip_op(p, '='))
            n->a = jexpr_parse(p);
        *tail = jparse_done(p, n);
        tail = &n->next;
    }
    return jparse_expect_op(p, ')') ? first : NULL;
}

static jnode *parse_macro(jparser *p, jnode *n)
{
    int loops = p->loops;
    n->name = jparse_expect_name(p);
    n->list = signature(p);
    p->loops = 0;
    n->body = body_to(p, "endmacro");
    p->loops = loops;
    return n;
}

static jnode *parse_call(jparser *p, jnode *n)
{
    jnode *caller = jparse_node(p, N_MACRO);
    int loops = p->loops;
    if (!caller)
        return NULL;
    caller->name = "caller";
    caller->list = jparse_is_op(p, '(') ? signature(p) : NULL;
    n->a = jexpr_parse(p);
    if (n->a && n->a->kind != N_CALL)
        return jparse_fail(p, PESC_FORMAT, "a call block needs a call, as in {%% call f() %%}");
    p->loops = 0;
    caller->body = body_to(p, "endcall");
    p->loops = loops;
    n->b = jparse_done(p, caller);
    return n;
}

static jnode *parse_filter(jparser *p, jnode *n)
{
    n->b = jexpr_filters(p, NULL, true);
    n->body = body_to(p, "endfilter");
    return n;
}

static jnode *parse_with(jparser *p, jnode *n)
{
    jnode **tail = &n->list;
    while (p->at->kind != T_BLOCK_END && p->status == PESC_OK) {
        if (n->list && !jparse_expect_op(p, ','))
            return NULL;
        jnode *set = jparse_node(p, N_SET);
        if (!set)
            return NULL;
        set->a = target(p, NULL, false);
        if (!jparse_expect_op(p, '='))
            return NULL;
        set->b = jexpr_parse(p);
        *tail = jparse_done(p, set);
        tail = &set->next;
    }
    n->body = body_to(p, "endwith");
    return n;
}

static jnode *parse_generation(jparser *p, jnode *n)
{
    p->t->has_generation = true;
    n->body = body_to(p, "endgeneration");
    return n;
}

static jnode *parse_print(jparser *p, jnode *n)
{
    jnode **tail = &n->list;
    while (p->at->kind != T_BLOCK_END && p->status == PESC_OK) {
        if (n->list && !jparse_expect_op(p, ','))
            return NULL;
        jnode *e = jexpr_parse(p);
        if (!e)
            return NULL;
        *tail = e;
        tail = &e->next;
    }
    return at_end_of_tag(p) ? n : NULL;
}

static jnode *parse_loop_control(jparser *p, jnode *n)
{
    if (p->loops == 0)
        return jparse_fail(p, PESC_FORMAT, "\"%s\" stands outside a loop",
                           n->kind == N_BREAK ? "break" : "continue");
    return at_end_of_tag(p) ? n : NULL;
}

static const struct {
    const char *name;
    jnode_kind kind;
    jnode *(*parse)(jparser *p, jnode *n);
    jnode *(*done)(jparser *p, jnode *n);
} tags[] = {
    { "for", N_FOR, parse_for, jparse_done },
    { "if", N_IF, parse_if, if_done },
    { "set", N_SET, parse_set, jparse_done },
    { "macro", N_MACRO, parse_macro, jparse_done },
    { "call", N_CALL_BLOCK, parse_call, jparse_done },
    { "filter", N_FILTER_BLOCK, parse_filter, jparse_done },
    { "with", N_WITH, parse_with, jparse_done },
    { "generation", N_GENERATION, parse_generation, jparse_done },
    { "print", N_OUTPUT, parse_print, jparse_done },
    { "break", N_BREAK, parse_loop_control, jparse_done },
    { "continue", N_CONTINUE, parse_loop_control, jparse_done },
};

/* A tag from the name in it. */
static jnode *tag(jparser *p)
{
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jparse_is_name(p, tags[i].name))
            continue;
        jnode *n = jparse_node(p, tags[i].kind);
        jparse_next(p);
        n = n ? tags[i].parse(p, n) : NULL;
        return n ? tags[i].done(p, n) : NULL;
    }
    if (p->at->kind == T_NAME)
        return jparse_fail(p, PESC_UNSUPPORTED, "the tag \"%.*s\" is not supported",
                           (int)(p->at->n < 60 ? p->at->n : 60), p->at->p);
    return jparse_unexpected(p, "the name of a tag");
}

static jnode *data(jparser *p)
{
    jnode *n = jparse_node(p, N_TEXT);
    jstr *s = jpool_take(&p->t->pool, 1, sizeof *s);
    if (!n || !s)
        return jparse_fail(p, PESC_NOMEM, "out of memory");
    *s = (jstr){ .p = p->at->p, .n = p->at->n };
    n->value = (jvalue){ .kind = J_STR, .str = s };
    jparse_next(p);
    return n;
}

static jnode *output(jparser *p)
{
    jnode *n = jparse_node(p, N_OUTPUT);
    jparse_next(p);
    if (!n)
        return NULL;
    n->list = jexpr_tuple(p, jexpr_parse, NULL, false);
    mark_slice(n->list, n->list && n->list->constant);
    if (p->at->kind != T_VARIABLE_END)
        return jparse_unexpected(p, "the end of the expression");
    jparse_next(p);
    return jparse_done(p, n);
}

static bool is_one_of(const jparser *p, const char *const *names)
{
    for (size_t i = 0; names && names[i]; i++)
        if (jparse_is_name(p, names[i]))
            return true;
    return false;
}

/* Statements up to a tag whose name is in `ends` (at that name), or NULL: to the end. */
static jnode *statements(jparser *p, const char *const *ends)
{
    jnode *first = NULL, **tail = &first;
    while (p->status == PESC_OK && p->at->kind != T_END) {
        jnode *n;
        if (p->at->kind == T_DATA) {
            n = data(p);
        } else if (p->at->kind == T_VARIABLE_BEGIN) {
            n = output(p);
        } else {
            jparse_next(p);
            if (is_one_of(p, ends))
                return first;
            n = tag(p);
        }
        if (!n)
            return NULL;
        *tail = n;
        tail = &n->next;
    }
    if (ends && p->status == PESC_OK)
        jparse_fail(p, PESC_FORMAT, "the template ends inside a block, expected \"%s\"", ends[0]);
    return first;
}

pesc_status jparse(jinja_template *t, jtoken *tokens)
{
    jparser p = { .t = t, .at = tokens, .end = tokens };
    while (p.end->kind != T_END)
        p.end++;
    t->body = statements(&p, NULL);
    return p.status;
}
