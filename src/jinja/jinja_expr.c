/* Expressions; see jinja_parse.h. Each function is one level of precedence, from weak to strong. */
#include "jinja/jinja_parse.h"

#include <string.h>

/* A node of one or two operands. */
static jnode *make_node(jparser *p, jnode_kind kind, int op, jnode *a, jnode *b)
{
    jnode *n = jparse_node(p, kind);
    if (!n)
        return NULL;
    n->op = op;
    n->a = a;
    n->b = b;
    if (a)
        n->line = a->line;
    return jparse_done(p, n);
}

/* Appends to the chain that ends at *tail. */
static void append(jnode ***tail, jnode *n)
{
    if (!n)
        return;
    **tail = n;
    *tail = &n->next;
}

/* ---- primaries ---- */

static jnode *constant(jparser *p, jvalue v)
{
    jnode *n = jparse_node(p, N_CONST);
    if (n) {
        n->value = v;
        n->constant = true;
    }
    return n;
}

static void remember(jparser *p, const char *name)
{
    jname *n = jpool_take(&p->t->pool, 1, sizeof *n);
    if (!n) {
        jparse_fail(p, PESC_NOMEM, "out of memory");
        return;
    }
    *n = (jname){ name, p->t->names };
    p->t->names = n;
}

static jnode *name(jparser *p)
{
    static const struct {
        const char *name;
        jvalue value;
    } words[] = {
        { "true", { .kind = J_BOOL, .b = true } },
        { "True", { .kind = J_BOOL, .b = true } },
        { "false", { .kind = J_BOOL, .b = false } },
        { "False", { .kind = J_BOOL, .b = false } },
        { "none", { .kind = J_NONE } },
        { "None", { .kind = J_NONE } },
    };
    jnode *n = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && !n; i++)
        if (jparse_is_name(p, words[i].name))
            n = constant(p, words[i].value);
    if (!n && (n = jparse_node(p, N_NAME))) {
        n->name = jparse_text(p, p->at);
        if (n->name)
            remember(p, n->name);
    }
    jparse_next(p);
    return n;
}

/* A string in the template's memory, made before there is a context. */
static jvalue literal(jparser *p, const char *text, size_t n)
{
    jstr *s = jpool_take(&p->t->pool, 1, sizeof *s);
    if (!s) {
        jparse_fail(p, PESC_NOMEM, "out of memory");
        return jnone();
    }
    *s = (jstr){ .p = text, .n = n };
    for (size_t i = 0; i < n; i++)
        s->chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    return (jvalue){ .kind = J_STR, .str = s };
}

/* Strings that follow each other are one. */
static jnode *string(jparser *p)
{
    size_t n = 0;
    jnode *node = jparse_node(p, N_CONST);
    const jtoken *first = p->at;
    for (; p->at->kind == T_STRING; jparse_next(p))
        n += p->at->n;
    char *text = jpool_take(&p->t->pool, n + 1, 1);
    if (!text || !node)
        return jparse_fail(p, PESC_NOMEM, "out of memory");
    n = 0;
    for (const jtoken *t = first; t->kind == T_STRING; t++) {
        memcpy(text + n, t->p, t->n);
        n += t->n;
    }
    node->value = literal(p, text, n);
    node->constant = true;
    return node;
}

static jnode *list(jparser *p)
{
    jnode *n = jparse_node(p, N_LIST), **tail = n ? &n->list : NULL;
    jparse_next(p);
    while (tail && !jparse_is_op(p, ']') && p->status == PESC_OK) {
        if (n->list && !jparse_expect_op(p, ','))
            break;
        if (jparse_is_op(p, ']'))
            break;
        append(&tail, jexpr_parse(p));
    }
    return jparse_expect_op(p, ']') ? jparse_done(p, n) : NULL;
}

static jnode *dict(jparser *p)
{
    jnode *n = jparse_node(p, N_DICT), **tail = n ? &n->list : NULL;
    jparse_next(p);
    while (tail && !jparse_is_op(p, '}') && p->status == PESC_OK) {
        if (n->list && !jparse_expect_op(p, ','))
            break;
        if (jparse_is_op(p, '}'))
            break;
        append(&tail, jexpr_parse(p));
        if (jparse_expect_op(p, ':'))
            append(&tail, jexpr_parse(p));
    }
    return jparse_expect_op(p, '}') ? jparse_done(p, n) : NULL;
}

jnode *jexpr_primary(jparser *p)
{
    const jtoken *t = p->at;
    jnode *n = NULL;
    switch (t->kind) {
    case T_NAME:
        return name(p);
    case T_STRING:
        return string(p);
    case T_INT:
        n = constant(p, jint(t->i));
        jparse_next(p);
        return n;
    case T_FLOAT:
        n = constant(p, jfloat(t->f));
        jparse_next(p);
        return n;
    default:
        break;
    }
    if (jparse_is_op(p, '['))
        return list(p);
    if (jparse_is_op(p, '{'))
        return dict(p);
    if (!jparse_skip_op(p, '('))
        return jparse_unexpected(p, "an expression");
    n = jexpr_tuple(p, jexpr_parse, NULL, true);
    return jparse_expect_op(p, ')') ? n : NULL;
}

static bool tuple_ends(const jparser *p, const char *end)
{
    return p->at->kind == T_VARIABLE_END || p->at->kind == T_BLOCK_END || jparse_is_op(p, ')') ||
           (end && jparse_is_name(p, end));
}

jnode *jexpr_tuple(jparser *p, jexpr_fn each, const char *end, bool parentheses)
{
    jnode *n = jparse_node(p, N_TUPLE), **tail = n ? &n->list : NULL;
    bool tuple = false;
    while (tail && p->status == PESC_OK) {
        if (n->list && !jparse_expect_op(p, ','))
            break;
        if (tuple_ends(p, end))
            break;
        append(&tail, each(p));
        if (!jparse_is_op(p, ','))
            break;
        tuple = true;
    }
    if (p->status != PESC_OK || !n)
        return NULL;
    if (!tuple && n->list)
        return n->list;
    return tuple || parentheses ? jparse_done(p, n) : jparse_unexpected(p, "an expression");
}

/* ---- what follows a primary ---- */

static jnode *argument(jparser *p)
{
    jnode *n = jparse_node(p, N_ARG);
    if (!n)
        return NULL;
    if (jparse_skip_op(p, '*'))
        n->op = '*';
    else if (jparse_skip_op(p, OP_POW))
        n->op = 'd';
    else if (p->at->kind == T_NAME && p->at[1].kind == T_OP && p->at[1].op == '=') {
        n->name = jparse_expect_name(p);
        jparse_next(p);
    }
    n->a = jexpr_parse(p);
    return jparse_done(p, n);
}

/* The arguments of a call, filter or test, with their parentheses. */
static jnode *arguments(jparser *p)
{
    jnode *first = NULL, **tail = &first;
    bool keyword = false;
    jparse_next(p);
    while (!jparse_is_op(p, ')') && p->status == PESC_OK) {
        if (first && (!jparse_expect_op(p, ',') || jparse_is_op(p, ')')))
            break;
        jnode *n = argument(p);
        if (n && keyword && !n->name && n->op != 'd')
            return jparse_fail(p, PESC_FORMAT, "a positional argument follows a keyword argument");
        keyword = keyword || (n && n->name);
        append(&tail, n);
    }
    return jparse_expect_op(p, ')') ? first : NULL;
}

static jnode *call(jparser *p, jnode *callee)
{
    jnode *n = jparse_node(p, N_CALL);
    if (!n || !callee)
        return NULL;
    n->a = callee;
    n->line = callee->line;
    if (callee->kind == N_NAME && jbuiltin_function_unsupported(callee->name))
        return jparse_fail(p, PESC_UNSUPPORTED, "the function %s() is not supported", callee->name);
    if (callee->kind == N_ATTR && jbuiltin_method_unsupported(callee->name))
        return jparse_fail(p, PESC_UNSUPPORTED, "the method %s() is not supported", callee->name);
    n->list = arguments(p);
    return jparse_done(p, n);
}

static jnode *attribute(jparser *p, jnode *of)
{
    if (p->at->kind == T_INT) {
        jnode *index = constant(p, jint(p->at->i));
        jparse_next(p);
        return make_node(p, N_ITEM, 0, of, index);
    }
    jnode *n = make_node(p, N_ATTR, 0, of, NULL);
    const char *text = jparse_expect_name(p);
    if (!n || !text)
        return NULL;
    n->name = text;
    n->value = literal(p, text, strlen(text));
    return n;
}

/* The bound of a slice, NULL where it is left out. */
static jnode *bound(jparser *p)
{
    bool none = jparse_is_op(p, ':') || jparse_is_op(p, ']') || jparse_is_op(p, ',');
    return none ? NULL : jexpr_parse(p);
}

static jnode *subscript(jparser *p, jnode *of)
{
    jnode *first = bound(p);
    if (!jparse_is_op(p, ':')) {
        if (!first)
            return jparse_unexpected(p, "an index");
        if (jparse_is_op(p, ','))
            return jparse_fail(p, PESC_UNSUPPORTED, "an index of several values is not supported");
        return jparse_expect_op(p, ']') ? make_node(p, N_ITEM, 0, of, first) : NULL;
    }
    jnode *n = jparse_node(p, N_SLICE);
    jparse_next(p);
    if (!n)
        return NULL;
    n->a = first;
    n->b = bound(p);
    if (jparse_skip_op(p, ':'))
        n->c = bound(p);
    return jparse_expect_op(p, ']') ? make_node(p, N_ITEM, 0, of, jparse_done(p, n)) : NULL;
}

static jnode *postfix(jparser *p, jnode *n)
{
    while (n && p->status == PESC_OK) {
        if (jparse_skip_op(p, '.'))
            n = attribute(p, n);
        else if (jparse_skip_op(p, '['))
            n = subscript(p, n);
        else if (jparse_is_op(p, '('))
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* A dotted name of a filter or test. */
static const char *dotted(jparser *p)
{
    const jtoken *t = p->at;
    const char *text = jparse_expect_name(p);
    if (text && jparse_is_op(p, '.'))
        jparse_fail(p, PESC_UNSUPPORTED, "\"%.*s.\" is no filter or test", (int)t->n, t->p);
    return text;
}

/* Whether a filter or test that is not known fails only when it is evaluated. Templates guard
 * filters of some programs with `if`, and jinja2 refuses them only when they are reached; one that
 * jinja2 has and pesc has not would be missed. */
static bool may_wait(const jparser *p, const char *text)
{
    return p->conditions > 0 && !jbuiltin_filter_unsupported(text);
}

jnode *jexpr_filters(jparser *p, jnode *input, bool first)
{
    while (p->status == PESC_OK && (first || jparse_skip_op(p, '|'))) {
        jnode *n = make_node(p, N_FILTER, 0, input, NULL);
        const char *text = dotted(p);
        if (!n || !text)
            return NULL;
        n->name = text;
        n->fn = jbuiltin_filter(p->t, text, strlen(text));
        if (!n->fn && !may_wait(p, text))
            return jparse_fail(p, PESC_UNSUPPORTED, "the filter \"%s\" is not supported", text);
        if (jparse_is_op(p, '('))
            n->list = arguments(p);
        input = jparse_done(p, n);
        first = false;
    }
    return input;
}

/* Whether an argument without parentheses follows the name of a test. */
static bool bare_argument(const jparser *p)
{
    switch (p->at->kind) {
    case T_NAME:
        return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") && !jparse_is_name(p, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT:
        return true;
    default:
        return jparse_is_op(p, '[') || jparse_is_op(p, '{');
    }
}

static jnode *test(jparser *p, jnode *of)
{
    bool negated = jparse_skip_name(p, "not");
    jnode *n = make_node(p, N_TEST, 0, of, NULL), *arg = NULL;
    const char *text = dotted(p);
    if (!n || !text)
        return NULL;
    n->name = text;
    n->fn = jbuiltin_test(text, strlen(text));
    if (!n->fn && !may_wait(p, text))
        return jparse_fail(p, PESC_UNSUPPORTED, "the test \"%s\" is not supported", text);
    if (jparse_is_op(p, '(')) {
        n->list = arguments(p);
    } else if (bare_argument(p)) {
        if (jparse_is_name(p, "is"))
            return jparse_fail(p, PESC_FORMAT, "tests cannot be chained with \"is\"");
        arg = postfix(p, jexpr_primary(p));
        n->list = arg ? make_node(p, N_ARG, 0, arg, NULL) : NULL;
    }
    n = jparse_done(p, n);
    return negated ? make_node(p, N_NOT, 0, n, NULL) : n;
}

static jnode *filters_and_tests(jparser *p, jnode *n)
{
    while (n && p->status == PESC_OK) {
        if (jparse_is_op(p, '|'))
            n = jexpr_filters(p, n, false);
        else if (jparse_skip_name(p, "is"))
            n = test(p, n);
        else if (jparse_is_op(p, '('))
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static jnode *unary(jparser *p, bool with_filter)
{
    jnode *n;
    if (!jparse_enter(p))
        return NULL;
    if (jparse_is_op(p, '-') || jparse_is_op(p, '+')) {
        int op = p->at->op;
        jparse_next(p);
        n = make_node(p, N_SIGN, op, unary(p, false), NULL);
    } else {
        n = jexpr_primary(p);
    }
    n = postfix(p, n);
    p->depth--;
    return with_filter ? filters_and_tests(p, n) : n;
}

static jnode *power(jparser *p)
{
    jnode *n = unary(p, true);
    while (n && jparse_skip_op(p, OP_POW))
        n = make_node(p, N_BINARY, OP_POW, n, unary(p, true));
    return n;
}

static jnode *product(jparser *p)
{
    jnode *n = power(p);
    while (n && (jparse_is_op(p, '*') || jparse_is_op(p, '/') || jparse_is_op(p, OP_FLOORDIV) ||
                 jparse_is_op(p, '%'))) {
        int op = p->at->op;
        jparse_next(p);
        n = make_node(p, N_BINARY, op, n, power(p));
    }
    return n;
}

static jnode *concat(jparser *p)
{
    jnode *first = product(p);
    if (!first || !jparse_is_op(p, '~'))
        return first;
    jnode *n = jparse_node(p, N_CONCAT), **tail = n ? &n->list : NULL;
    if (!n)
        return NULL;
    n->line = first->line;
    append(&tail, first);
    while (p->status == PESC_OK && jparse_skip_op(p, '~'))
        append(&tail, product(p));
    return jparse_done(p, n);
}

static jnode *sum(jparser *p)
{
    jnode *n = concat(p);
    while (n && (jparse_is_op(p, '+') || jparse_is_op(p, '-'))) {
        int op = p->at->op;
        jparse_next(p);
        n = make_node(p, N_BINARY, op, n, concat(p));
    }
    return n;
}

/* The comparison at work, taken; 0: none. */
static int take_comparison(jparser *p)
{
    static const int ops[] = { OP_EQ, OP_NE, OP_LE, OP_GE, '<', '>' };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jparse_skip_op(p, ops[i]))
            return ops[i];
    if (jparse_skip_name(p, "in"))
        return OP_IN;
    if (jparse_is_name(p, "not") && p->at[1].kind == T_NAME && p->at[1].n == 2 &&
        memcmp(p->at[1].p, "in", 2) == 0) {
        jparse_next(p);
        jparse_next(p);
        return OP_NOT_IN;
    }
    return 0;
}

static jnode *comparison(jparser *p)
{
    jnode *first = sum(p), *n = NULL, **tail = NULL;
    for (int op; first && (op = take_comparison(p)) != 0;) {
        if (!n) {
            n = make_node(p, N_COMPARE, 0, first, NULL);
            tail = n ? &n->list : NULL;
        }
        jnode *operand = make_node(p, N_OPERAND, op, sum(p), NULL);
        if (!n || !operand)
            return NULL;
        append(&tail, operand);
    }
    return n ? jparse_done(p, n) : first;
}

static jnode *negation(jparser *p)
{
    if (!jparse_is_name(p, "not"))
        return comparison(p);
    if (!jparse_enter(p))
        return NULL;
    jparse_next(p);
    jnode *n = make_node(p, N_NOT, 0, negation(p), NULL);
    p->depth--;
    return n;
}

static jnode *conjunction(jparser *p)
{
    jnode *n = negation(p);
    while (n && jparse_skip_name(p, "and"))
        n = make_node(p, N_AND, 0, n, negation(p));
    return n;
}

jnode *jexpr_parse_or(jparser *p)
{
    jnode *n = conjunction(p);
    while (n && jparse_skip_name(p, "or"))
        n = make_node(p, N_OR, 0, n, conjunction(p));
    return n;
}

jnode *jexpr_parse(jparser *p)
{
    if (!jparse_enter(p))
        return NULL;
    jnode *n = jexpr_parse_or(p);
    while (n && jparse_skip_name(p, "if")) {
        jnode *cond = make_node(p, N_COND, 0, jexpr_parse_or(p), n);
        if (!cond)
            break;
        cond->line = n->line;
        if (jparse_skip_name(p, "else"))
            cond->c = jexpr_parse(p);
        n = jparse_done(p, cond);
    }
    p->depth--;
    return p->status == PESC_OK ? n : NULL;
}
