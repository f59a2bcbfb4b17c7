/* Tests: what may stand after `is`. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_lex.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_python.h"
#include "jinja/jinja_print.h"

#define TEST(name) static jvalue name(jctx *c, jvalue self, const jvalue *a, const jargs *all)
#define PLAIN (void)c, (void)a, (void)all

/* Tests of the kind alone: the body is the condition on `self`. */
#define KIND_TEST(name, condition)                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        PLAIN;                                                                                     \
        return jbool(condition);                                                                   \
    }

KIND_TEST(test_defined, self.kind != J_UNDEFINED)
KIND_TEST(test_undefined, self.kind == J_UNDEFINED)
KIND_TEST(test_none, self.kind == J_NONE)
KIND_TEST(test_boolean, self.kind == J_BOOL)
KIND_TEST(test_true, self.kind == J_BOOL && self.b)
KIND_TEST(test_false, self.kind == J_BOOL && !self.b)
KIND_TEST(test_integer, self.kind == J_INT)
KIND_TEST(test_float, self.kind == J_FLOAT)
KIND_TEST(test_number, jvalue_is_number(self))
KIND_TEST(test_string, self.kind == J_STR)
KIND_TEST(test_mapping, self.kind == J_DICT)
KIND_TEST(test_iterable, self.kind == J_UNDEFINED || self.kind == J_STR || jvalue_is_seq(self) ||
                             self.kind == J_DICT || self.kind == J_LOOP)
/* len() and obj[...] exist */
KIND_TEST(test_sequence, self.kind == J_STR || self.kind == J_LIST || self.kind == J_TUPLE ||
                             self.kind == J_RANGE || self.kind == J_DICT ||
                             self.kind == J_UNDEFINED)
KIND_TEST(test_callable, self.kind == J_MACRO || self.kind == J_FUNCTION || self.kind == J_METHOD ||
                             self.kind == J_UNDEFINED || self.kind == J_LOOP)
KIND_TEST(test_escaped, self.kind == J_STR && self.str->markup)

static jvalue remainder_is(jctx *c, jvalue v, jvalue by, int wanted)
{
    jvalue rest = jops_binary(c, '%', v, by);
    if (!jctx_failed(c) && !jvalue_is_number(rest))
        return jctx_fail(c, "the test needs a number, found '%s'", jvalue_type(v));
    return jbool(!jctx_failed(c) && jvalue_float(rest) == wanted);
}

TEST(test_even)
{
    (void)a, (void)all;
    return remainder_is(c, self, jint(2), 0);
}

TEST(test_odd)
{
    (void)a, (void)all;
    return remainder_is(c, self, jint(2), 1);
}

TEST(test_divisibleby)
{
    (void)all;
    return remainder_is(c, self, a[0], 0);
}

TEST(test_in)
{
    (void)all;
    return jbool(jops_contains(c, a[0], self));
}

TEST(test_sameas)
{
    (void)all;
    bool same = self.kind == a[0].kind;
    if (same && (self.kind == J_NONE || self.kind == J_BOOL || self.kind == J_INT))
        return jbool(jvalue_equal(c, self, a[0]));
    return jbool(same && self.seq == a[0].seq);
}

#define COMPARING(name, op)                                                                        \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)all;                                                                                 \
        return jbool(jops_compare(c, op, self, a[0]));                                             \
    }

COMPARING(test_eq, OP_EQ)
COMPARING(test_ne, OP_NE)
COMPARING(test_lt, '<')
COMPARING(test_le, OP_LE)
COMPARING(test_gt, '>')
COMPARING(test_ge, OP_GE)

/* str(value).islower() and isupper(), by the rows of methods */
static jvalue ask_method(jctx *c, jvalue v, const char *name, size_t n)
{
    jargs none = { 0 };
    return jbuiltin_call(c, jbuiltin_find(jinja_methods_case, name, n), jprint_value(c, v), &none);
}

TEST(test_lower)
{
    (void)a, (void)all;
    return ask_method(c, self, "islower", 7);
}

TEST(test_upper)
{
    (void)a, (void)all;
    return ask_method(c, self, "isupper", 7);
}

TEST(test_filter)
{
    PLAIN;
    return jbool(self.kind == J_STR && jbuiltin_filter(c->t, self.str->p, self.str->n));
}

TEST(test_test)
{
    PLAIN;
    return jbool(self.kind == J_STR && jbuiltin_test(self.str->p, self.str->n));
}

const jbuiltin jinja_tests[] = {
    { "defined", test_defined, "", 0 },   { "undefined", test_undefined, "", 0 },
    { "none", test_none, "", 0 },         { "boolean", test_boolean, "", 0 },
    { "true", test_true, "", 0 },         { "false", test_false, "", 0 },
    { "integer", test_integer, "", 0 },   { "float", test_float, "", 0 },
    { "number", test_number, "", 0 },     { "string", test_string, "", 0 },
    { "mapping", test_mapping, "", 0 },   { "iterable", test_iterable, "", 0 },
    { "sequence", test_sequence, "", 0 }, { "callable", test_callable, "", 0 },
    { "escaped", test_escaped, "", 0 },   { "lower", test_lower, "", 0 },
    { "upper", test_upper, "", 0 },       { "even", test_even, "", 0 },
    { "odd", test_odd, "", 0 },           { "divisibleby", test_divisibleby, "num", 1 },
    { "in", test_in, "seq", 1 },          { "sameas", test_sameas, "other", 1 },
    { "equalto", test_eq, "other", 1 },   { "eq", test_eq, "other", 1 },
    { "ne", test_ne, "other", 1 },        { "lt", test_lt, "other", 1 },
    { "lessthan", test_lt, "other", 1 },  { "le", test_le, "other", 1 },
    { "gt", test_gt, "other", 1 },        { "greaterthan", test_gt, "other", 1 },
    { "ge", test_ge, "other", 1 },        { "==", test_eq, "other", 1 },
    { "!=", test_ne, "other", 1 },        { "<", test_lt, "other", 1 },
    { "<=", test_le, "other", 1 },        { ">", test_gt, "other", 1 },
    { ">=", test_ge, "other", 1 },        { "filter", test_filter, "", 0 },
    { "test", test_test, "", 0 },         { 0 },
};
