/* Tests: what may stand after `is`. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_lex.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_python.h"
#include "jinja/jinja_print.h"

#include <string.h>

#define TEST(name) static jvalue name(jctx *c, const jcall *call)

enum {
    NUMBERS = 1 << J_BOOL | 1 << J_INT | 1 << J_FLOAT,
    INDEXED = 1 << J_UNDEFINED | 1 << J_STR | 1 << J_LIST | 1 << J_TUPLE | 1 << J_RANGE |
              1 << J_DICT, /* len() and obj[...] exist */
    ITERABLE = INDEXED | 1 << J_VIEW | 1 << J_ITER | 1 << J_LOOP,
    CALLABLE = 1 << J_UNDEFINED | 1 << J_MACRO | 1 << J_FUNCTION | 1 << J_METHOD | 1 << J_LOOP,
};

/* mode: a bit for each kind for which it holds */
TEST(test_kind)
{
    (void)c;
    return jbool(call->mode >> call->self.kind & 1);
}

TEST(test_bool) /* mode: which */
{
    (void)c;
    return jbool(call->self.kind == J_BOOL && call->self.b == call->mode);
}

TEST(test_escaped)
{
    (void)c;
    return jbool(call->self.kind == J_STR && call->self.str->markup);
}

static jvalue remainder_is(jctx *c, jvalue v, jvalue by, int wanted)
{
    return jbool(jvalue_equal(c, jops_binary(c, '%', v, by), jint(wanted)));
}

/* mode: the remainder of 2 */
TEST(test_parity)
{
    return remainder_is(c, call->self, jint(2), call->mode);
}

TEST(test_divisibleby)
{
    return remainder_is(c, call->self, call->a[0], 0);
}

TEST(test_in)
{
    return jbool(jops_contains(c, call->a[0], call->self));
}

TEST(test_sameas)
{
    bool same = call->self.kind == call->a[0].kind;
    if (same &&
        (call->self.kind == J_NONE || call->self.kind == J_BOOL || call->self.kind == J_INT))
        return jbool(jvalue_equal(c, call->self, call->a[0]));
    return jbool(same && call->self.seq == call->a[0].seq);
}

TEST(test_compare) /* mode: the operator */
{
    return jbool(jops_compare(c, call->mode, call->self, call->a[0]));
}

/* str(value).islower() and isupper(), by the rows of methods. mode: upper */
TEST(test_case)
{
    const char *name = call->mode ? "isupper" : "islower";
    jvalue text = jprint_value(c, call->self);
    return jbuiltin_call(c, jbuiltin_find(jinja_methods_str, name, strlen(name)), text,
                         &(jargs){ 0 });
}

TEST(test_filter)
{
    jvalue_hashable(c, call->self);
    return jbool(call->self.kind == J_STR &&
                 jbuiltin_filter(c->t, call->self.str->p, call->self.str->n));
}

TEST(test_test)
{
    jvalue_hashable(c, call->self);
    return jbool(call->self.kind == J_STR && jbuiltin_test(call->self.str->p, call->self.str->n));
}

const jbuiltin jinja_tests[] = {
    { "defined", test_kind, "", 0, ~(1 << J_UNDEFINED) },
    { "undefined", test_kind, "", 0, 1 << J_UNDEFINED },
    { "none", test_kind, "", 0, 1 << J_NONE },
    { "boolean", test_kind, "", 0, 1 << J_BOOL },
    { "true", test_bool, "", 0, true },
    { "false", test_bool, "", 0, false },
    { "integer", test_kind, "", 0, 1 << J_INT },
    { "float", test_kind, "", 0, 1 << J_FLOAT },
    { "number", test_kind, "", 0, NUMBERS },
    { "string", test_kind, "", 0, 1 << J_STR },
    { "mapping", test_kind, "", 0, 1 << J_DICT },
    { "iterable", test_kind, "", 0, ITERABLE },
    { "sequence", test_kind, "", 0, INDEXED },
    { "callable", test_kind, "", 0, CALLABLE },
    { "escaped", test_escaped, "", 0, 0 },
    { "lower", test_case, "", 0, false },
    { "upper", test_case, "", 0, true },
    { "even", test_parity, "", 0, 0 },
    { "odd", test_parity, "", 0, 1 },
    { "divisibleby", test_divisibleby, "num", 1, 0 },
    { "in", test_in, "seq", 1, 0 },
    { "sameas", test_sameas, "other", 1, 0 },
    { "equalto", test_compare, "other", 1, OP_EQ },
    { "eq", test_compare, "other", 1, OP_EQ },
    { "==", test_compare, "other", 1, OP_EQ },
    { "ne", test_compare, "other", 1, OP_NE },
    { "!=", test_compare, "other", 1, OP_NE },
    { "lt", test_compare, "other", 1, '<' },
    { "lessthan", test_compare, "other", 1, '<' },
    { "<", test_compare, "other", 1, '<' },
    { "le", test_compare, "other", 1, OP_LE },
    { "<=", test_compare, "other", 1, OP_LE },
    { "gt", test_compare, "other", 1, '>' },
    { "greaterthan", test_compare, "other", 1, '>' },
    { ">", test_compare, "other", 1, '>' },
    { "ge", test_compare, "other", 1, OP_GE },
    { ">=", test_compare, "other", 1, OP_GE },
    { "filter", test_filter, "", 0, 0 },
    { "test", test_test, "", 0, 0 },
    { 0 },
};
