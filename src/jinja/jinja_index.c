/* Indices, slices and attributes; see jinja_ops.h. */
#include "jinja/jinja_ops.h"

#include "jinja/jinja_builtin.h"
#include "jinja/jinja_exec.h"
#include "jinja/jinja_print.h"
#include "jinja/jinja_python.h"

#include <stdio.h>
#include <string.h>

/* The value that stands for an attribute or element that is not there. */
static jvalue absent(jctx *c, jvalue of, jvalue name)
{
    jbuf b = { .c = c };
    char *why;
    if (of.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", of.why);
    jprint_repr(&b, name);
    if (jctx_failed(c) || !(why = jctx_alloc(c, b.n + 64, 1)))
        return jundefined("");
    snprintf(why, b.n + 64, "'%s object' has no attribute %.*s", jvalue_type(of), (int)b.n,
             b.p ? b.p : "");
    return jundefined(why);
}

static jvalue forbidden(jctx *c, jvalue of, const char *name, size_t n)
{
    char *why = jctx_alloc(c, n + 96, 1);
    if (!why)
        return jundefined("");
    snprintf(why, n + 96, "access to attribute '%.*s' of '%s' object is unsafe", (int)n, name,
             jvalue_type(of));
    return jundefined(why);
}

/* What getattr() finds; false: nothing. */
static bool own_attribute(jctx *c, jvalue of, jvalue name, jvalue *out)
{
    const char *p = name.str->p;
    size_t n = name.str->n;
    if (of.kind == J_NAMESPACE) {
        const jvalue *v = jdict_get_text(of.dict, p, n);
        *out = v ? *v : jundefined("");
        return v != NULL;
    }
    bool real = jvalue_is(name, "real"), imaginary = jvalue_is(name, "imag");
    if (jvalue_is_number(of) && (real || imaginary)) {
        *out = of.kind == J_FLOAT ? jfloat(real ? of.f : 0) : jint(real ? jvalue_int(of) : 0);
        return true;
    }
    if (of.kind == J_LOOP && jexec_loop_attribute(c, of.loop, p, n, out))
        return true;
    if (jbuiltin_changes(of, p, n)) {
        *out = forbidden(c, of, p, n);
        return true;
    }
    const jbuiltin *fn = jbuiltin_method(of, p, n);
    jmethod *m = fn ? jctx_alloc(c, 1, sizeof *m) : NULL;
    if (!m)
        return false;
    *m = (jmethod){ of, fn };
    *out = (jvalue){ .kind = J_METHOD, .method = m };
    return true;
}

/* obj[index]; false: there is none. */
static bool own_item(jctx *c, jvalue of, jvalue index, jvalue *out)
{
    if (of.kind == J_DICT) {
        const jvalue *v = index.kind == J_LIST || index.kind == J_DICT
                              ? NULL /* TypeError, which makes it undefined */
                              : jdict_get(c, of.dict, index);
        *out = v ? *v : jundefined("");
        return v != NULL;
    }
    bool indexed =
        of.kind == J_STR || of.kind == J_LIST || of.kind == J_TUPLE || of.kind == J_RANGE;
    if (!indexed || !jvalue_is_int(index))
        return false;
    int64_t n = jvalue_length(of), i = jvalue_int(index);
    i = i < 0 ? i + n : i;
    if (i < 0 || i >= n)
        return false;
    if (of.kind != J_STR) {
        *out = of.seq->v[i];
        return true;
    }
    if (!jctx_step(c, of.str->n / 64))
        return false;
    size_t at = jpython_offset(of.str, (size_t)i);
    jstr rest = { .p = of.str->p + at, .n = of.str->n - at };
    *out = jpython_sub(c, of.str, at, jpython_offset(&rest, 1));
    return true;
}

jvalue jops_item(jctx *c, jvalue of, jvalue index)
{
    jvalue out;
    if (jctx_failed(c))
        return jundefined("");
    if (of.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", of.why);
    if (own_item(c, of, index, &out))
        return out;
    if (index.kind == J_STR && own_attribute(c, of, index, &out))
        return out;
    return absent(c, of, index);
}

jvalue jops_attribute(jctx *c, jvalue of, jvalue name)
{
    jvalue out;
    if (jctx_failed(c))
        return jundefined("");
    if (of.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", of.why);
    if (own_attribute(c, of, name, &out) || own_item(c, of, name, &out))
        return out;
    return absent(c, of, name);
}

jvalue jops_path(jctx *c, jvalue of, jvalue path)
{
    if (path.kind != J_STR)
        return jops_item(c, of, path);
    const jstr *s = path.str;
    for (size_t at = 0; at <= s->n && !jctx_failed(c);) {
        const char *dot = memchr(s->p + at, '.', s->n - at);
        size_t n = (dot ? (size_t)(dot - s->p) : s->n) - at;
        int64_t index = 0;
        bool number = n > 0 && n < 18;
        for (size_t i = 0; number && i < n; i++) {
            number = s->p[at + i] >= '0' && s->p[at + i] <= '9';
            index = index * 10 + (s->p[at + i] - '0');
        }
        of = jops_item(c, of, number ? jint(index) : jpython_sub(c, s, at, n));
        at += n + 1;
    }
    return of;
}

/* ---- slices ---- */

typedef struct range {
    int64_t start, stop, step, n;
} range;

/* An index of a slice, within the bounds: from low to high. */
static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high)
{
    i = i < 0 ? i + n : i;
    return i < low ? low : i > high ? high : i;
}

static range resolve(jctx *c, int64_t n, const jvalue bounds[3])
{
    range r = { .step = bounds[2].kind == J_NONE ? 1 : jbuiltin_int(c, bounds[2], 1) };
    if (r.step == 0)
        jctx_fail(c, "the step of a slice cannot be zero");
    if (jctx_failed(c))
        return (range){ 0 };
    bool down = r.step < 0;
    int64_t low = down ? -1 : 0, high = down ? n - 1 : n;
    r.start = bounds[0].kind == J_NONE ? (down ? high : low)
                                       : clamp(jbuiltin_int(c, bounds[0], 0), n, low, high);
    r.stop = bounds[1].kind == J_NONE ? (down ? low : high)
                                      : clamp(jbuiltin_int(c, bounds[1], 0), n, low, high);
    int64_t reach = down ? r.start - r.stop : r.stop - r.start;
    uint64_t stride = down ? 0 - (uint64_t)r.step : (uint64_t)r.step;
    if (reach > 0)
        r.n = (int64_t)(((uint64_t)reach - 1) / stride) + 1;
    return r;
}

static jvalue slice_string(jctx *c, const jstr *s, range r)
{
    if (r.step == 1) {
        size_t from = jpython_offset(s, (size_t)r.start);
        jstr rest = { .p = s->p + from, .n = s->n - from, .chars = s->chars - (size_t)r.start };
        return jctx_step(c, s->n / 64) ? jpython_sub(c, s, from, jpython_offset(&rest, (size_t)r.n))
                                       : jundefined("");
    }
    jbuf b = { .c = c };
    jseq chars = jvalue_iterate(c, (jvalue){ .kind = J_STR, .str = s });
    for (int64_t i = 0; i < r.n && !jctx_failed(c); i++)
        jbuf_str(&b, chars.v[r.start + i * r.step].str);
    return jbuf_value(&b);
}

jvalue jops_slice(jctx *c, jvalue of, const jvalue bounds[3])
{
    if (jctx_failed(c))
        return jundefined("");
    if (of.kind == J_UNDEFINED)
        return jctx_fail(c, "%s", of.why);
    if (of.kind == J_DICT)
        return jctx_fail(c, "unhashable type: 'slice'");
    if (of.kind != J_STR && of.kind != J_LIST && of.kind != J_TUPLE && of.kind != J_RANGE)
        return jctx_fail(c, "'%s' object is not subscriptable", jvalue_type(of));
    range r = resolve(c, jvalue_length(of), bounds);
    if (jctx_failed(c))
        return jundefined("");
    if (of.kind == J_STR)
        return slice_string(c, of.str, r);
    jvalue out = jvalue_seq(c, of.kind, (size_t)r.n);
    if (of.kind == J_RANGE && !jctx_failed(c)) {
        out.seq->step = of.seq->step * r.step;
        out.seq->start = of.seq->start + r.start * of.seq->step;
        out.seq->stop = of.seq->start + r.stop * of.seq->step;
    }
    for (int64_t i = 0; i < r.n && jctx_step(c, 1); i++)
        jseq_add(c, out.seq, of.seq->v[r.start + i * r.step]);
    return out;
}
