/* Filters on numbers and on values of any kind. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_python.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name) static jvalue name(jctx *c, const jcall *call)

/* default(default_value, boolean) */
FILTER(filter_default)
{
    bool absent = call->self.kind == J_UNDEFINED ||
                  (jvalue_true(c, call->a[1]) && !jvalue_true(c, call->self));
    if (!absent)
        return call->self;
    return call->a[0].kind == J_MISSING ? jvalue_text(c, "") : call->a[0];
}

FILTER(filter_abs)
{
    if (call->self.kind == J_FLOAT)
        return jfloat(fabs(call->self.f));
    if (jvalue_is_int(call->self))
        return jvalue_int(call->self) < 0 ? jops_sign(c, '-', call->self)
                                          : jint(jvalue_int(call->self));
    return jctx_fail(c, "abs needs a number, found '%s'", jvalue_type(call->self));
}

static jvalue whole(jctx *c, double f)
{
    if (!(f >= -0x1p63 && f < 0x1p63))
        return jctx_fail(c, isfinite(f) ? "a number is beyond 64 bits"
                                        : "a float that is not finite is no integer");
    return jint((int64_t)f);
}

/* int(default, base) */
FILTER(filter_int)
{
    int64_t base = call->a[1].kind == J_MISSING ? 10
                   : jvalue_is_int(call->a[1])  ? jvalue_int(call->a[1])
                                                : -1,
            i;
    jvalue other = call->a[0].kind == J_MISSING ? jint(0) : call->a[0];
    double f = NAN;
    if (jvalue_is_int(call->self))
        return jint(jvalue_int(call->self));
    if (call->self.kind == J_STR && jnumber_int(call->self.str, base, &i))
        return jint(i);
    if (call->self.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", call->self.why);
    if (call->self.kind == J_FLOAT)
        return isnan(call->self.f) ? other : whole(c, call->self.f);
    bool read = call->self.kind == J_STR && jnumber_float(call->self.str, &f) && isfinite(f);
    return read ? whole(c, f) : other;
}

FILTER(filter_float)
{
    double f;
    if (jvalue_is_number(call->self))
        return jfloat(jvalue_float(call->self));
    if (call->self.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", call->self.why);
    if (call->self.kind == J_STR && jnumber_float(call->self.str, &f))
        return jfloat(f);
    return call->a[0].kind == J_MISSING ? jfloat(0) : call->a[0];
}

/* round(precision, method) */
FILTER(filter_round)
{
    bool none = call->a[0].kind == J_NONE;
    int64_t precision = none ? 0 : jbuiltin_int(c, call->a[0], 0);
    bool up = jvalue_is(call->a[1], "ceil"), down = jvalue_is(call->a[1], "floor");
    char text[512];
    if (!jvalue_is_number(call->self))
        return jctx_fail(c, "round needs a number, found '%s'", jvalue_type(call->self));
    if (call->a[1].kind != J_MISSING && !up && !down && !jvalue_is(call->a[1], "common"))
        return jctx_fail(c, "the method of round is \"common\", \"ceil\" or \"floor\"");
    if (precision < 0 || precision > 100)
        return jctx_fail(c, "round supports a precision from 0 to 100");
    double f = jvalue_float(call->self), scale = pow(10, (double)precision);
    if (none && (up || down))
        return jctx_fail(c, "round with \"ceil\" or \"floor\" needs a precision");
    if (up || down)
        return jfloat((up ? ceil(f * scale) : floor(f * scale)) / scale);
    if (call->self.kind != J_FLOAT)
        return jint(jvalue_int(call->self));
    if (none)
        return whole(c, nearbyint(f));
    if (!isfinite(f) || fabs(f) > 1e300)
        return call->self;
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return jfloat(strtod(text, NULL));
}

/* attr(name): an attribute, never an element. */
FILTER(filter_attr)
{
    const jstr *name = jbuiltin_str(c, call->a[0]);
    if (jctx_failed(c))
        return jundefined("");
    if (call->self.kind == J_DICT && !jbuiltin_method(call->self, name->p, name->n))
        return jundefined("the mapping has no such attribute");
    return jops_attribute(c, call->self, call->a[0]);
}

const jbuiltin jinja_filters_value[] = {
    { "default", filter_default, "default_value boolean", 0, 0 },
    { "d", filter_default, "default_value boolean", 0, 0 },
    { "abs", filter_abs, "", 0, 0 },
    { "int", filter_int, "default base", 0, 0 },
    { "float", filter_float, "default", 0, 0 },
    { "round", filter_round, "precision method", 0, 0 },
    { "attr", filter_attr, "name", 1, 0 },
    { 0 },
};
