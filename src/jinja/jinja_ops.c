#include "jinja/jinja_ops.h"

#include "jinja/jinja_lex.h"
#include "jinja/jinja_print.h"
#include "jinja/jinja_python.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic ---- */

static jvalue unsupported(jctx *c, int op, jvalue a, jvalue b)
{
    const char *name = op == OP_FLOORDIV ? "//" : op == OP_POW ? "**" : NULL;
    char one[2] = { (char)op, '\0' };
    if (a.kind == J_UNDEFINED || b.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", a.kind == J_UNDEFINED ? a.why : b.why);
    return jctx_fail(c, "%s is not supported between '%s' and '%s'", name ? name : one,
                     jvalue_type(a), jvalue_type(b));
}

static jvalue too_large(jctx *c)
{
    return jctx_fail(c, "a number is beyond 64 bits");
}

static jvalue int_power(jctx *c, int64_t a, int64_t b)
{
    int64_t result = 1;
    if (b < 0)
        return a == 0 ? jctx_fail(c, "zero cannot be raised to a negative power")
                      : jfloat(pow((double)a, (double)b));
    if (a == 0 || a == 1 || a == -1)
        return jint(b == 0 || a == 1 || (a == -1 && b % 2 == 0) ? 1 : a);
    for (; b > 0; b--) /* at most 64 rounds before it overflows */
        if (__builtin_mul_overflow(result, a, &result))
            return too_large(c);
    return jint(result);
}

static jvalue int_divide(jctx *c, int op, int64_t a, int64_t b)
{
    if (b == 0)
        return jctx_fail(c, "division by zero");
    if (op == '/')
        return jfloat((double)a / (double)b);
    if (b == -1)
        return op == '%' ? jint(0) : a == INT64_MIN ? too_large(c) : jint(-a);
    int64_t quotient = a / b, rest = a % b;
    bool floors = rest != 0 && (rest < 0) != (b < 0);
    return jint(op == '%' ? rest + (floors ? b : 0) : quotient - floors);
}

static jvalue int_binary(jctx *c, int op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool wraps;
    switch (op) {
    case '+':
        wraps = __builtin_add_overflow(a, b, &r);
        break;
    case '-':
        wraps = __builtin_sub_overflow(a, b, &r);
        break;
    case '*':
        wraps = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        return int_power(c, a, b);
    default:
        return int_divide(c, op, a, b);
    }
    return wraps ? too_large(c) : jint(r);
}

static jvalue float_binary(jctx *c, int op, double a, double b)
{
    double rest;
    switch (op) {
    case '+':
        return jfloat(a + b);
    case '-':
        return jfloat(a - b);
    case '*':
        return jfloat(a * b);
    case OP_POW:
        if (a < 0 && b != floor(b))
            return jctx_fail(c, "the power is no real number");
        return a == 0 && b < 0 ? jctx_fail(c, "zero cannot be raised to a negative power")
                               : jfloat(pow(a, b));
    default:
        break;
    }
    if (b == 0)
        return jctx_fail(c, "division by zero");
    if (op == '/')
        return jfloat(a / b);
    rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0))
        rest += b;
    else if (rest == 0)
        rest = copysign(0.0, b);
    return jfloat(op == '%' ? rest : floor((a - rest) / b + 0.5));
}

/* ---- sequences ---- */

static jvalue join_seqs(jctx *c, jvalue a, jvalue b)
{
    jvalue out = jvalue_seq(c, a.kind, a.seq->n + b.seq->n);
    for (size_t i = 0; i < a.seq->n + b.seq->n && jctx_step(c, 1); i++)
        jseq_add(c, out.seq, i < a.seq->n ? a.seq->v[i] : b.seq->v[i - a.seq->n]);
    return out;
}

static jvalue join_strings(jctx *c, jvalue a, jvalue b)
{
    jbuf buf = { .c = c };
    bool markup = a.str->markup || b.str->markup;
    if (markup) {
        a = jops_escape(c, a);
        b = jops_escape(c, b);
        if (jctx_failed(c))
            return jundefined("");
    }
    jbuf_str(&buf, a.str);
    jbuf_str(&buf, b.str);
    jvalue v = jbuf_value(&buf);
    return markup ? jops_markup(c, v) : v;
}

static jvalue repeat(jctx *c, jvalue v, int64_t times)
{
    jbuf b = { .c = c };
    if (v.kind == J_STR) {
        for (int64_t i = 0; i < times && v.str->n && jctx_step(c, 1); i++)
            jbuf_str(&b, v.str);
        return jbuf_value(&b);
    }
    jvalue out = jvalue_seq(c, v.kind, 0);
    for (int64_t i = 0; i < times && v.seq->n && !jctx_failed(c); i++)
        for (size_t k = 0; k < v.seq->n && jctx_step(c, 1); k++)
            jseq_add(c, out.seq, v.seq->v[k]);
    return out;
}

static bool is_repeatable(jvalue v)
{
    return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE;
}

jvalue jops_binary(jctx *c, int op, jvalue a, jvalue b)
{
    if (!jctx_step(c, 1))
        return jundefined("");
    if (jvalue_is_int(a) && jvalue_is_int(b))
        return int_binary(c, op, jvalue_int(a), jvalue_int(b));
    if (jvalue_is_number(a) && jvalue_is_number(b))
        return float_binary(c, op, jvalue_float(a), jvalue_float(b));
    if (op == '+' && a.kind == J_STR && b.kind == J_STR)
        return join_strings(c, a, b);
    if (op == '+' && a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE))
        return join_seqs(c, a, b);
    if (op == '*' && is_repeatable(a) && jvalue_is_int(b))
        return repeat(c, a, jvalue_int(b));
    if (op == '*' && is_repeatable(b) && jvalue_is_int(a))
        return repeat(c, b, jvalue_int(a));
    if (op == '%' && a.kind == J_STR)
        return jformat_percent(c, a.str, b);
    return unsupported(c, op, a, b);
}

jvalue jops_sign(jctx *c, int op, jvalue v)
{
    if (v.kind == J_FLOAT)
        return jfloat(op == '-' ? -v.f : v.f);
    if (jvalue_is_int(v))
        return op == '+' ? jint(jvalue_int(v)) : int_binary(c, '-', 0, jvalue_int(v));
    return unsupported(c, op, v, v);
}

/* ---- comparisons ---- */

bool jops_contains(jctx *c, jvalue container, jvalue item)
{
    if (jctx_failed(c))
        return false;
    if (container.kind == J_STR) {
        if (item.kind != J_STR) {
            jctx_fail(c, "'in <string>' needs a string on its left, found '%s'", jvalue_type(item));
            return false;
        }
        return jctx_step(c, container.str->n / 64) &&
               jpython_find(container.str, 0, item.str) != SIZE_MAX;
    }
    if (container.kind == J_DICT)
        return jdict_get(c, container.dict, item) != NULL;
    jseq s = jvalue_iterate(c, container);
    for (size_t i = 0; i < s.n && !jctx_failed(c); i++)
        if (jvalue_equal(c, s.v[i], item))
            return true;
    return false;
}

bool jops_compare(jctx *c, int op, jvalue a, jvalue b)
{
    bool nan = (a.kind == J_FLOAT && isnan(a.f)) || (b.kind == J_FLOAT && isnan(b.f));
    switch (op) {
    case OP_EQ:
        return jvalue_equal(c, a, b);
    case OP_NE:
        return !jvalue_equal(c, a, b);
    case '<':
        return jvalue_compare(c, a, b) < 0 && !nan;
    case OP_LE:
        return jvalue_compare(c, a, b) <= 0 && !nan;
    case '>':
        return jvalue_compare(c, a, b) > 0 && !nan;
    case OP_GE:
        return jvalue_compare(c, a, b) >= 0 && !nan;
    case OP_IN:
        return jops_contains(c, b, a);
    default:
        return !jops_contains(c, b, a);
    }
}

/* ---- escaping ---- */

jvalue jops_markup(jctx *c, jvalue v)
{
    jstr *s = v.kind == J_STR ? jctx_alloc(c, 1, sizeof *s) : NULL;
    if (!s)
        return v;
    *s = *v.str;
    s->markup = true;
    return (jvalue){ .kind = J_STR, .str = s };
}

jvalue jops_escape(jctx *c, jvalue v)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    jbuf b = { .c = c };
    jvalue text = jprint_value(c, v);
    if (jctx_failed(c) || text.str->markup)
        return text;
    const jstr *s = text.str;
    for (size_t i = 0; i < s->n && !jctx_failed(c); i++) {
        const char *at = s->p[i] ? strchr(from, s->p[i]) : NULL;
        if (at)
            jbuf_puts(&b, to[at - from]);
        else
            jbuf_sub(&b, s, i, 1);
    }
    return jops_markup(c, jbuf_value(&b));
}
