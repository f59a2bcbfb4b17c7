/* Filters on numbers and on values of any kind. */
#include "jinja/jinja_builtin.h"
#include "jinja/jinja_number.h"
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILTER(name) static jvalue name(jctx *c, jvalue self, const jvalue *a, const jargs *all)

/* default(default_value, boolean) */
FILTER(filter_default)
{
    (void)all;
    bool absent = self.kind == J_UNDEFINED || (jvalue_true(c, a[1]) && !jvalue_true(c, self));
    if (!absent)
        return self;
    return a[0].kind == J_MISSING ? jvalue_text(c, "") : a[0];
}

FILTER(filter_abs)
{
    (void)a, (void)all;
    if (self.kind == J_FLOAT)
        return jfloat(fabs(self.f));
    if (jvalue_is_int(self))
        return jvalue_int(self) < 0 ? jops_sign(c, '-', self) : jint(jvalue_int(self));
    return jctx_fail(c, "abs needs a number, found '%s'", jvalue_type(self));
}

/* int(default, base) */
FILTER(filter_int)
{
    (void)all;
    int64_t base = jbuiltin_int(c, a[1], 10), i;
    jvalue other = a[0].kind == J_MISSING ? jint(0) : a[0];
    double f = NAN;
    if (jvalue_is_int(self))
        return jint(jvalue_int(self));
    if (self.kind == J_STR && jnumber_int(self.str, base, &i))
        return jint(i);
    if (self.kind == J_FLOAT)
        f = self.f;
    else if (self.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", self.why);
    else if (self.kind != J_STR || !jnumber_float(self.str, &f))
        return other;
    return fabs(f) < 9e18 ? jint((int64_t)f) : other;
}

FILTER(filter_float)
{
    (void)all;
    double f;
    if (jvalue_is_number(self))
        return jfloat(jvalue_float(self));
    if (self.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", self.why);
    if (self.kind == J_STR && jnumber_float(self.str, &f))
        return jfloat(f);
    return a[0].kind == J_MISSING ? jfloat(0) : a[0];
}

/* round(precision, method) */
FILTER(filter_round)
{
    (void)all;
    int64_t precision = jbuiltin_int(c, a[0], 0);
    bool up = jvalue_is(a[1], "ceil"), down = jvalue_is(a[1], "floor");
    char text[512];
    if (!jvalue_is_number(self))
        return jctx_fail(c, "round needs a number, found '%s'", jvalue_type(self));
    if (a[1].kind != J_MISSING && !up && !down && !jvalue_is(a[1], "common"))
        return jctx_fail(c, "the method of round is \"common\", \"ceil\" or \"floor\"");
    if (precision < 0 || precision > 100)
        return jctx_fail(c, "round supports a precision from 0 to 100");
    double f = jvalue_float(self), scale = pow(10, (double)precision);
    if (up || down)
        return jfloat((up ? ceil(f * scale) : floor(f * scale)) / scale);
    if (self.kind != J_FLOAT)
        return jint(jvalue_int(self));
    if (!isfinite(f) || fabs(f) > 1e300)
        return self;
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return jfloat(strtod(text, NULL));
}

/* attr(name): an attribute, never an element. */
FILTER(filter_attr)
{
    (void)all;
    const jstr *name = jbuiltin_str(c, a[0]);
    if (jctx_failed(c))
        return jundefined("");
    if (self.kind == J_DICT && !jbuiltin_method(self, name->p, name->n))
        return jundefined("the mapping has no such attribute");
    return jops_attribute(c, self, a[0]);
}

const jbuiltin jinja_filters_value[] = {
    { "default", filter_default, "default_value boolean", 0 },
    { "d", filter_default, "default_value boolean", 0 },
    { "abs", filter_abs, "", 0 },
    { "int", filter_int, "default base", 0 },
    { "float", filter_float, "default", 0 },
    { "round", filter_round, "precision method", 0 },
    { "attr", filter_attr, "name", 1 },
    { 0 },
};
