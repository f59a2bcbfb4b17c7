
#include "jinja/jinja_ops.h"
#include "jinja/jinja_print.h"
#include "jinja/pytext.h"
#include "jinja/jinja_python.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 10000, PRECISION_MAX = 100 };

/* How one value is written. */
typedef struct spec {
    char fill[5];   /* one character; "" is a space */
    char align;     /* '<' '>' '^' '=' or 0: as the type has it */
    char sign;      /* '+' '-' ' ' or 0 */
    bool alternate; /* # */
    bool zero;      /* a 0 before the width */
    char group;     /* ',' '_' or 0 */
    int64_t width;  /* -1: none */
    int64_t precision;
    char type; /* 0: none */
} spec;

static const char *read_int(const char *p, const char *end, int64_t *out)
{
    int64_t v = 0;
    if (p == end || *p < '0' || *p > '9')
        return p;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        v = v < WIDTH_MAX ? v * 10 + (*p - '0') : v;
    *out = v;
    return p;
}

/* ---- numbers ---- */

/* Digits with a separator after every three before the point; `at` is where they begin. */
static void put_grouped(jbuf *b, const char *digits, char group)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; digits[i]; i++) {
        if (group && i > 0 && i < whole && (whole - i) % 3 == 0)
            jbuf_putc(b, group, 0);
        jbuf_putc(b, digits[i], 0);
    }
}

static void int_digits(char *out, size_t cap, uint64_t v, char type)
{
    size_t i = cap - 1;
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *set = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    out[i] = '\0';
    do
        out[--i] = set[v % base];
    while ((v /= base) > 0);
    memmove(out, out + i, cap - i);
}

static bool float_digits(jctx *c, char *out, size_t cap, double f, const spec *s)
{
    int precision = (int)(s->precision < 0 ? 6 : s->precision);
    char form[8] = "%.*";
    size_t n = 3;
    if (s->precision > PRECISION_MAX) {
        jctx_fail(c, "a precision above %d is not supported", PRECISION_MAX);
        return false;
    }
    if (s->type == 0 && s->precision < 0) {
        pytext_float(out, f);
        return true;
    }
    form[n++] = s->type == '%' ? 'f' : s->type == 0 ? 'g' : s->type;
    form[n] = '\0';
    if (!strchr("eEfFgG", form[3])) {
        jctx_fail(c, "the format type '%c' is not supported for a float", s->type);
        return false;
    }
    switch (form[3]) { /* a literal each, so that the compiler can check it */
    case 'e':
        snprintf(out, cap, "%.*e", precision, f);
        break;
    case 'E':
        snprintf(out, cap, "%.*E", precision, f);
        break;
    case 'g':
        snprintf(out, cap, "%.*g", precision ? precision : 1, f);
        break;
    case 'G':
        snprintf(out, cap, "%.*G", precision ? precision : 1, f);
        break;
    default:
        snprintf(out, cap, "%.*f", precision, s->type == '%' ? f * 100 : f);
    }
    return true;
}

/* ---- padding ---- */

static void put_fill(jbuf *b, const spec *s, int64_t n)
{
    for (int64_t i = 0; i < n && !jctx_failed(b->c); i++)
        jbuf_puts(b, s->fill[0] ? s->fill : " ");
}

/* sign and body in a field of the width. */
static void put_field(jbuf *b, const spec *s, const char *sign, const jbuf *body, bool number)
{
    size_t chars = strlen(sign);
    for (size_t i = 0; i < body->n; i++)
        chars += ((unsigned char)body->p[i] & 0xc0) != 0x80;
    int64_t pad = s->width - (int64_t)chars;
    char align = s->align ? s->align : number ? '>' : '<';
    int64_t left = pad <= 0 || align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    if (align == '=') {
        jbuf_puts(b, sign);
        put_fill(b, s, left);
    } else {
        put_fill(b, s, left);
        jbuf_puts(b, sign);
    }
    jbuf_add(b, body->p, body->n, body->origin);
    put_fill(b, s, pad - left);
}

static void put_number(jbuf *b, jvalue v, const spec *s)
{
    jctx *c = b->c;
    char digits[512], sign[4] = "";
    jbuf body = { .c = c };
    bool negative = v.kind == J_FLOAT ? signbit(v.f) : jvalue_int(v) < 0;
    bool whole = v.kind != J_FLOAT && (s->type == 0 || strchr("dxXobi", s->type));
    double f = jvalue_float(v);
    if (whole)
        int_digits(digits, 72, negative ? 0 - (uint64_t)jvalue_int(v) : (uint64_t)jvalue_int(v),
                   s->type);
    else if (fabs(f) > 1e300 && isfinite(f) && s->type && strchr("fF%", s->type))
        jctx_fail(c, "the number is too large for a format without an exponent");
    else if (!float_digits(c, digits, sizeof digits, fabs(f), s))
        return;
    if (jctx_failed(c))
        return;
    if (negative || (s->sign && s->sign != '-'))
        sign[0] = negative ? '-' : s->sign;
    if (whole && s->alternate && s->type && strchr("xXob", s->type)) {
        size_t n = strlen(sign);
        sign[n] = '0';
        sign[n + 1] = s->type;
        sign[n + 2] = '\0';
    }
    put_grouped(&body, digits, s->group);
    jbuf_puts(&body, s->type == '%' ? "%" : "");
    put_field(b, s, sign, &body, true);
}

static void put_text(jbuf *b, jvalue v, const spec *s, bool repr)
{
    jbuf body = { .c = b->c };
    if (repr)
        jprint_repr(&body, v);
    else
        jprint_str(&body, v);
    if (s->precision >= 0 && !jctx_failed(b->c)) {
        jvalue whole = jbuf_value(&body);
        size_t n = jctx_failed(b->c) ? 0 : jpython_offset(whole.str, (size_t)s->precision);
        body.n = n < body.n ? n : body.n;
    }
    put_field(b, s, "", &body, false);
}

/* ---- "%s" ---- */

static const char *read_flags(const char *p, const char *end, spec *s)
{
    for (; p < end && *p && strchr("-+ #0", *p); p++) {
        s->align = *p == '-' ? '<' : s->align;
        s->sign = *p == '+' || (*p == ' ' && !s->sign) ? *p : s->sign;
        s->alternate = s->alternate || *p == '#';
        if (*p == '0' && s->align != '<')
            s->fill[0] = '0';
    }
    s->align = s->align ? s->align : s->fill[0] ? '=' : '>';
    p = read_int(p, end, &s->width);
    if (p < end && *p == '.') {
        s->precision = 0;
        p = read_int(p + 1, end, &s->precision);
    }
    return p;
}

static void put_percent(jbuf *b, jvalue v, spec *s, char type)
{
    jctx *c = b->c;
    s->type = type == 'i' || type == 'u' ? 'd' : type;
    if (type == 's' || type == 'r') {
        s->align = s->align == '=' ? '>' : s->align;
        s->fill[0] = '\0';
        put_text(b, v, s, type == 'r');
    } else if (!strchr("dxXoeEfFgG", s->type)) {
        jctx_fail(c, "the format character '%c' is not supported", type);
    } else if (v.kind == J_UNDEFINED) {
        jctx_fail(c, "%s", v.why);
    } else if (!jvalue_is_number(v) || (v.kind == J_FLOAT && strchr("xXo", s->type))) {
        jctx_fail(c, "%%%c needs a number, found '%s'", type, jvalue_type(v));
    } else {
        bool truncates = s->type == 'd' && v.kind == J_FLOAT;
        if (truncates && !(fabs(v.f) < 9e18))
            jctx_fail(c, "a number is beyond 64 bits");
        else if (s->type == 'd' && s->precision > 0)
            jctx_fail(c, "a precision for %%d is not supported");
        else
            put_number(b, truncates ? jint((int64_t)v.f) : v, s);
    }
}

typedef struct percent_values {
    jvalue all;
    size_t next;
} percent_values;

static jvalue next_value(jctx *c, percent_values *v)
{
    bool tuple = v->all.kind == J_TUPLE;
    size_t n = tuple ? v->all.seq->n : 1;
    if (v->next >= n)
        return jctx_fail(c, "not enough arguments for the format string");
    return tuple ? v->all.seq->v[v->next++] : (v->next++, v->all);
}

/* One conversion, p after its %; returns where it ends. */
static const char *one_percent(jbuf *b, const char *p, const char *end, percent_values *values)
{
    jctx *c = b->c;
    spec s = { .width = -1, .precision = -1 };
    jvalue v = jundefined("");
    bool named = p < end && *p == '(';
    if (named) {
        const char *close = memchr(p, ')', (size_t)(end - p));
        const jvalue *found = close && values->all.kind == J_DICT
                                  ? jdict_get_text(values->all.dict, p + 1, (size_t)(close - p - 1))
                                  : NULL;
        if (!found) {
            jctx_fail(c, "a name in the format string is not in the mapping");
            return end;
        }
        v = *found;
        values->next = 1;
        p = close + 1;
    }
    p = read_flags(p, end, &s);
    if (p == end) {
        jctx_fail(c, "the format string is not complete");
        return end;
    }
    if (*p == '%')
        jbuf_puts(b, "%");
    else
        put_percent(b, named ? v : next_value(c, values), &s, *p);
    return p + 1;
}

jvalue jformat_percent(jctx *c, const jstr *format, jvalue values)
{
    jbuf b = { .c = c };
    percent_values v = { .all = values };
    for (const char *p = format->p, *end = p + format->n; p < end && !jctx_failed(c);) {
        const char *percent = memchr(p, '%', (size_t)(end - p));
        size_t at = (size_t)(p - format->p), n = (size_t)((percent ? percent : end) - p);
        jbuf_sub(&b, format, at, n);
        p = percent ? one_percent(&b, percent + 1, end, &v) : end;
    }
    bool item = values.kind == J_DICT || values.kind == J_LIST || values.kind == J_RANGE ||
                values.kind == J_UNDEFINED; /* what Python takes for a mapping */
    bool unused = values.kind == J_TUPLE ? v.next < values.seq->n : v.next == 0 && !item;
    if (unused && !jctx_failed(c))
        return jctx_fail(c, "not all arguments were converted by the format string");
    return jbuf_value(&b);
}

/* ---- "{}" ---- */

static bool is_align(char ch)
{
    return ch == '<' || ch == '>' || ch == '^' || ch == '=';
}

/* [[fill]align][sign][#][0][width][group][.precision][type] */
static bool read_spec(const char *p, const char *end, spec *s)
{
    int k = p < end ? utf8_decode(p, (size_t)(end - p), NULL) : 0;
    *s = (spec){ .width = -1, .precision = -1 };
    if (k > 0 && p + k < end && is_align(p[k])) {
        memcpy(s->fill, p, (size_t)k);
        s->align = p[k];
        p += k + 1;
    } else if (p < end && is_align(*p)) {
        s->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) {
        s->sign = *p++;
    }
    if (p < end && *p == '#') {
        s->alternate = true;
        p++;
    }
    if (p < end && *p == '0') {
        s->zero = true;
        if (!s->fill[0])
            s->fill[0] = '0';
        p++;
    }
    p = read_int(p, end, &s->width);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.')
        p = read_int(p + 1, end, &s->precision);
    if (p < end)
        s->type = *p++;
    bool plain = !s->group || (!s->zero && !(s->type && strchr("xXob", s->type)));
    return p == end && plain && (!s->type || strchr("sdxXobeEfFgG%", s->type)) &&
           s->width < WIDTH_MAX;
}

static void put_braces(jbuf *b, jvalue v, const char *p, const char *end)
{
    spec s;
    if (p == end) {
        jprint_str(b, v);
        return;
    }
    if (!read_spec(p, end, &s)) {
        jctx_fail(b->c, "the format \"%.*s\" is not supported", (int)(end - p < 40 ? end - p : 40),
                  p);
        return;
    }
    bool whole = v.kind != J_FLOAT && (s.type == 0 || strchr("dxXob", s.type));
    if (v.kind == J_STR && (s.type == 0 || s.type == 's') && !s.sign && !s.group && !s.alternate &&
        s.align != '=') {
        put_text(b, v, &s, false);
    } else if (jvalue_is_number(v) && s.type != 's' && !(v.kind == J_FLOAT && s.type == 'd') &&
               !(whole && s.precision >= 0)) {
        s.align = s.align ? s.align : s.zero ? '=' : '\0';
        put_number(b, v, &s);
    } else
        jctx_fail(b->c, "a format cannot be applied to '%s'", jvalue_type(v));
}

/* The argument that a field names: "", "0", "name", "0.attr", "name[key]". */
static jvalue find_field(jctx *c, const char *p, const char *end, const jargs *args, size_t *next)
{
    size_t n = 0;
    int64_t index = -1;
    jvalue v = jundefined("");
    while (p + n < end && p[n] != '.' && p[n] != '[')
        n++;
    read_int(p, p + n, &index);
    size_t i = n == 0 ? (*next)++ : (size_t)index;
    if (n == 0 || index >= 0) {
        if (i >= args->n)
            return jctx_fail(c, "the format string names an argument that is not there");
        v = args->v[i];
    } else {
        const jdict keywords = { .v = args->kw, .n = args->n_kw };
        const jvalue *named = jdict_get_text(&keywords, p, n);
        if (!named)
            return jctx_fail(c, "the format string names an argument that is not there");
        v = *named;
    }
    for (p += n; p < end && !jctx_failed(c);) {
        bool item = *p++ == '[';
        for (n = 0; p + n < end && (item ? p[n] != ']' : p[n] != '.' && p[n] != '[');)
            n++;
        index = -1;
        bool number = item && read_int(p, p + n, &index) == p + n && n > 0;
        jvalue key = number ? jint(index) : jvalue_str(c, p, n, NULL);
        v = item ? jops_item(c, v, key) : jops_attribute(c, v, key);
        p += n + (item ? 1 : 0);
    }
    return v;
}

/* A field between its braces. */
static void put_replacement(jbuf *b, const char *p, const char *end, const jargs *args,
                            size_t *next)
{
    const char *colon = memchr(p, ':', (size_t)(end - p));
    const char *name_end = colon ? colon : end;
    const char *bang = memchr(p, '!', (size_t)(name_end - p));
    jvalue v = find_field(b->c, p, bang ? bang : name_end, args, next);
    if (jctx_failed(b->c))
        return;
    if (bang) {
        jbuf text = { .c = b->c };
        if (bang + 2 != name_end || (bang[1] != 'r' && bang[1] != 's')) {
            jctx_fail(b->c, "a conversion in the format string is not supported");
            return;
        }
        if (bang[1] == 'r')
            jprint_repr(&text, v);
        else
            jprint_str(&text, v);
        v = jbuf_value(&text);
    }
    put_braces(b, v, colon ? colon + 1 : end, end);
}

jvalue jformat_braces(jctx *c, const jstr *format, const jargs *args)
{
    jbuf b = { .c = c };
    size_t next = 0;
    const char *p = format->p, *end = p + format->n;
    while (p < end && !jctx_failed(c)) {
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p) {
            jbuf_putc(&b, *p, 0);
            p += 2;
        } else if (*p == '{') {
            const char *close = memchr(p, '}', (size_t)(end - p));
            if (!close || memchr(p + 1, '{', (size_t)(close - p - 1)))
                return jctx_fail(c, "the format string is not valid or nests its fields");
            put_replacement(&b, p + 1, close, args, &next);
            p = close + 1;
        } else if (*p == '}') {
            return jctx_fail(c, "a single } stands in the format string");
        } else {
            jbuf_sub(&b, format, (size_t)(p - format->p), 1);
            p++;
        }
    }
    return jbuf_value(&b);
}
