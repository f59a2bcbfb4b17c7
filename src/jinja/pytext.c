#include "jinja/pytext.h"

#include "base/utf8.h"
#include "base/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- characters ---- */

bool pytext_is_space(uint32_t cp)
{
    return unicode_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

/* The character at s.p + at; a byte that is not UTF-8 stands for itself. */
static uint32_t character(slice s, size_t at, size_t *len)
{
    uint32_t cp = (unsigned char)s.p[at];
    int n = utf8_decode(s.p + at, s.n - at, &cp);
    *len = n > 0 ? (size_t)n : 1;
    return cp;
}

static void put_character(str *out, uint32_t cp)
{
    char bytes[4];
    str_add(out, bytes, (size_t)utf8_encode(cp, bytes));
}

static bool is_stripped(slice c, uint32_t cp, const slice *chars)
{
    return chars ? memmem(chars->p, chars->n, c.p, c.n) != NULL : pytext_is_space(cp);
}

slice pytext_strip_chars(slice s, int sides, const slice *chars)
{
    size_t len;
    while ((sides & PYTEXT_LEFT) && s.n > 0) {
        uint32_t cp = character(s, 0, &len);
        if (!is_stripped((slice){ s.p, len }, cp, chars))
            break;
        s = (slice){ s.p + len, s.n - len };
    }
    while ((sides & PYTEXT_RIGHT) && s.n > 0) {
        uint32_t cp = unicode_last(s.p, s.n, &len);
        if (!is_stripped((slice){ s.p + s.n - len, len }, cp, chars))
            break;
        s.n -= len;
    }
    return s;
}

slice pytext_strip(slice s)
{
    return pytext_strip_chars(s, PYTEXT_BOTH, NULL);
}

size_t pytext_length(slice s)
{
    size_t n = 0, len;
    for (size_t at = 0; at < s.n; at += len, n++)
        character(s, at, &len);
    return n;
}

/* ---- case ---- */

/* Ranges of characters, from and to in turn. */
static bool is_in(const uint32_t *ranges, size_t n, uint32_t cp)
{
    size_t i = 0;
    while (i < n && cp > ranges[i + 1])
        i += 2;
    return i < n && cp >= ranges[i];
}

#define IS_IN(ranges, cp) is_in(ranges, sizeof(ranges) / sizeof *(ranges), cp)

int pytext_case(uint32_t cp)
{
    static const uint32_t upper[] = {
        0x2160, 0x216f, 0x24b6, 0x24cf, 0x1f130, 0x1f149, 0x1f150, 0x1f169, 0x1f170, 0x1f189
    }; /* Other_Uppercase */
    static const uint32_t lower[] = {
        0xaa,    0xaa,    0xba,    0xba,    0x2b0,   0x2b8,   0x2c0,   0x2c1,  0x2e0,  0x2e4,
        0x345,   0x345,   0x37a,   0x37a,   0x1d2c,  0x1d6a,  0x1d78,  0x1d78, 0x1d9b, 0x1dbf,
        0x2071,  0x2071,  0x207f,  0x207f,  0x2090,  0x209c,  0x2170,  0x217f, 0x24d0, 0x24e9,
        0x2c7c,  0x2c7d,  0xa69c,  0xa69d,  0xa770,  0xa770,  0xa7f8,  0xa7f9, 0xab5c, 0xab5f,
        0x10780, 0x10780, 0x10783, 0x10785, 0x10787, 0x107b0, 0x107b2, 0x107ba
    }; /* Other_Lowercase */
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k == UTF8PROC_CATEGORY_LT                       ? 't'
           : k == UTF8PROC_CATEGORY_LU || IS_IN(upper, cp) ? 'u'
           : k == UTF8PROC_CATEGORY_LL || IS_IN(lower, cp) ? 'l'
                                                           : 0;
}

bool pytext_is_alnum(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool pytext_is_digit(uint32_t cp)
{
    static const uint32_t digits[] = {
        0xb2,   0xb3,   0xb9,    0xb9,    0x1369,  0x1371,  0x19da,  0x19da,  0x2070,  0x2070,
        0x2074, 0x2079, 0x2080,  0x2089,  0x2460,  0x2468,  0x2474,  0x247c,  0x2488,  0x2490,
        0x24ea, 0x24ea, 0x24f5,  0x24fd,  0x24ff,  0x24ff,  0x2776,  0x277e,  0x2780,  0x2788,
        0x278a, 0x2792, 0x10a40, 0x10a43, 0x10e60, 0x10e68, 0x11052, 0x1105a, 0x1f100, 0x1f10a
    };
    return IS_IN(digits, cp);
}

/* Unicode's Case_Ignorable: marks, modifiers, format characters and the word-internal points. */
static bool is_case_ignorable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027 || cp == 0x387 || cp == 0x55F || cp == 0x5F4 ||
               cp == 0xFE13 || cp == 0xFE52 || cp == 0xFE55 || cp == 0xFF07 || cp == 0xFF0E ||
               cp == 0xFF1A;
    }
}

bool pytext_ends_word(slice s, size_t at, size_t len)
{
    size_t n = at, step;
    uint32_t cp = 0;
    bool before = false, after = false;
    while (n > 0 && is_case_ignorable(cp = unicode_last(s.p, n, &step)))
        n -= step;
    before = n > 0 && pytext_case(cp);
    for (n = at + len; n < s.n && is_case_ignorable(cp = character(s, n, &step));)
        n += step;
    after = n < s.n && pytext_case(cp);
    return before && !after;
}

static void lower_character(str *out, slice s, size_t at, size_t len, uint32_t cp)
{
    if (cp == 0x130) /* the one character whose lower case is two: i and a dot above */
        str_puts(out, "i\u0307");
    else if (cp == 0x3A3)
        str_puts(out, pytext_ends_word(s, at, len) ? "\u03C2" : "\u03C3");
    else if (cp < 0x80)
        str_putc(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
    else if (len == 1)
        str_putc(out, s.p[at]);
    else
        put_character(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

void pytext_lower(str *out, slice s)
{
    str_add(out, "", 0);
    for (size_t at = 0, len; at < s.n; at += len) {
        uint32_t cp = character(s, at, &len);
        lower_character(out, s, at, len, cp);
    }
}

/* ---- searching ---- */

size_t pytext_find(slice s, const char *what)
{
    const char *at = memmem(s.p, s.n, what, strlen(what));
    return at ? (size_t)(at - s.p) : s.n;
}

size_t pytext_find_last(slice s, const char *what)
{
    size_t n = strlen(what);
    for (size_t at = s.n >= n ? s.n - n + 1 : 0; at-- > 0;)
        if (memcmp(s.p + at, what, n) == 0)
            return at;
    return s.n;
}

void pytext_replace(str *out, slice s, const char *before, const char *after)
{
    size_t n = strlen(before);
    for (size_t at; (at = pytext_find(s, before)) < s.n;) {
        str_add(out, s.p, at);
        str_puts(out, after);
        s = (slice){ s.p + at + n, s.n - at - n };
    }
    str_add(out, s.p, s.n);
}

/* ---- values as Python writes them ---- */

static bool is_printable(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' || !(k == UTF8PROC_CATEGORY_CN || k >= UTF8PROC_CATEGORY_ZS);
}

size_t pytext_escape(char out[PYTEXT_ESCAPE_MAX], uint32_t cp, char quote)
{
    static const char from[] = "\n\r\t\\", to[] = "nrt\\";
    const char *at = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    int n = 0;
    if (at || cp == (uint32_t)quote)
        n = snprintf(out, PYTEXT_ESCAPE_MAX, "\\%c", at ? to[at - from] : quote);
    else if (!is_printable(cp))
        n = snprintf(out, PYTEXT_ESCAPE_MAX,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
    return (size_t)n;
}

char pytext_quote(slice s)
{
    return memchr(s.p, '\'', s.n) && !memchr(s.p, '"', s.n) ? '"' : '\'';
}

void pytext_repr_text(str *out, slice s)
{
    char quote = pytext_quote(s), escape[PYTEXT_ESCAPE_MAX];
    str_putc(out, quote);
    for (size_t at = 0, len; at < s.n; at += len) {
        uint32_t cp = character(s, at, &len);
        size_t n = pytext_escape(escape, cp, quote);
        str_add(out, n ? escape : s.p + at, n ? n : len);
    }
    str_putc(out, quote);
}

/* The digits and the exponent of the shortest form d.ddd. */
static int shortest(double f, char digits[32])
{
    char text[48];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, fabs(f));
        if (strtod(text, NULL) == fabs(f))
            break;
    }
    size_t n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    int exponent = 0;
    sscanf(p, "e%d", &exponent);
    return exponent;
}

void pytext_float(char out[PYTEXT_FLOAT_MAX], double f)
{
    char digits[32];
    const char *sign = signbit(f) ? "-" : "";
    if (!isfinite(f)) {
        snprintf(out, PYTEXT_FLOAT_MAX, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int e = f == 0 ? (digits[0] = '0', digits[1] = '\0', 0) : shortest(f, digits);
    int n = (int)strlen(digits);
    if (e < -4 || e >= 16)
        snprintf(out, PYTEXT_FLOAT_MAX, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, e < 0 ? '-' : '+', abs(e));
    else if (e < 0)
        snprintf(out, PYTEXT_FLOAT_MAX, "%s0.%.*s%s", sign, -e - 1, "000", digits);
    else if (n <= e + 1)
        snprintf(out, PYTEXT_FLOAT_MAX, "%s%s%.*s.0", sign, digits, e + 1 - n, "0000000000000000");
    else
        snprintf(out, PYTEXT_FLOAT_MAX, "%s%.*s.%s", sign, e + 1, digits, digits + e + 1);
}

static void put_float(str *out, double f)
{
    char text[PYTEXT_FLOAT_MAX];
    pytext_float(text, f);
    str_puts(out, text);
}

/* As deep as the parser lets a text nest. */
void pytext_repr(str *out, const json_t *v)
{
    const char *key, *comma = "";
    json_t *value;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_STRING:
        pytext_repr_text(out, (slice){ json_string_value(v), json_string_length(v) });
        break;
    case JSON_INTEGER:
        str_printf(out, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        put_float(out, json_real_value(v));
        break;
    case JSON_ARRAY:
        str_putc(out, '[');
        json_array_foreach((json_t *)(uintptr_t)v, i, value)
        {
            str_puts(out, i ? ", " : "");
            pytext_repr(out, value);
        }
        str_putc(out, ']');
        break;
    case JSON_OBJECT:
        str_putc(out, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, value)
        {
            str_puts(out, comma);
            pytext_repr_text(out, (slice){ key, strlen(key) });
            str_puts(out, ": ");
            pytext_repr(out, value);
            comma = ", ";
        }
        str_putc(out, '}');
        break;
    default:
        str_puts(out, json_is_true(v) ? "True" : json_is_false(v) ? "False" : "None");
    }
}

void pytext_str(str *out, const json_t *v)
{
    if (json_is_string(v))
        str_add(out, json_string_value(v), json_string_length(v));
    else
        pytext_repr(out, v);
}

/* ---- JSON ---- */

size_t pytext_json_escape(char out[PYTEXT_ESCAPE_MAX], uint32_t cp, bool ascii)
{
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";
    const char *at = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    int n = 0;
    if (at)
        n = snprintf(out, PYTEXT_ESCAPE_MAX, "\\%c", to[at - from]);
    else if (cp < ' ' || (ascii && cp > 0x7e && cp < 0x10000))
        n = snprintf(out, PYTEXT_ESCAPE_MAX, "\\u%04x", cp);
    else if (ascii && cp > 0x7e)
        n = snprintf(out, PYTEXT_ESCAPE_MAX, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                     0xdc00 + ((cp - 0x10000) & 0x3ff));
    return (size_t)n;
}

static void json_text(str *out, slice s)
{
    char escape[PYTEXT_ESCAPE_MAX];
    str_putc(out, '"');
    for (size_t at = 0, len; at < s.n; at += len) {
        size_t n = pytext_json_escape(escape, character(s, at, &len), false);
        str_add(out, n ? escape : s.p + at, n ? n : len);
    }
    str_putc(out, '"');
}

static void new_line(str *out, int depth)
{
    str_putc(out, '\n');
    for (int i = 0; i < depth; i++)
        str_puts(out, "  ");
}

static void json_value_text(str *out, const json_t *v, int depth)
{
    const char *key, *comma = "";
    json_t *value;
    size_t i;
    bool list = json_is_array(v);
    if (json_is_string(v)) {
        json_text(out, (slice){ json_string_value(v), json_string_length(v) });
    } else if (json_is_boolean(v) || json_is_null(v)) {
        str_puts(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    } else if (json_is_number(v)) {
        pytext_repr(out, v);
    } else if (json_array_size(v) + json_object_size(v) == 0) {
        str_puts(out, list ? "[]" : "{}");
    } else {
        str_putc(out, list ? '[' : '{');
        json_array_foreach((json_t *)(uintptr_t)v, i, value)
        {
            str_puts(out, i ? "," : "");
            new_line(out, depth + 1);
            json_value_text(out, value, depth + 1);
        }
        json_object_foreach((json_t *)(uintptr_t)v, key, value)
        {
            str_puts(out, comma);
            new_line(out, depth + 1);
            json_text(out, (slice){ key, strlen(key) });
            str_puts(out, ": ");
            json_value_text(out, value, depth + 1);
            comma = ",";
        }
        new_line(out, depth);
        str_putc(out, list ? ']' : '}');
    }
}

void pytext_json(str *out, const json_t *v)
{
    json_value_text(out, v, 0);
}

/* ---- literals ---- */

typedef struct literal {
    slice s;
    size_t at;
    str *out;
    int depth;
} literal;

static char peek(const literal *l)
{
    return l->at < l->s.n ? l->s.p[l->at] : '\0';
}

static void skip_spaces(literal *l)
{
    while (peek(l) && strchr(" \t\n\r\f", peek(l)))
        l->at++;
}

static size_t skip_digits(literal *l)
{
    size_t from = l->at;
    while (peek(l) >= '0' && peek(l) <= '9')
        l->at++;
    return l->at - from;
}

/* An integer without leading zeros, or a decimal number without an exponent. */
static bool literal_number(literal *l, bool negative)
{
    char text[64];
    size_t from = l->at, whole = skip_digits(l), part = 0;
    bool real = peek(l) == '.';
    if (real) {
        l->at++;
        part = skip_digits(l);
    }
    size_t n = l->at - from - (real && !part); /* "2." is 2.0 */
    if (whole + part == 0 || n >= sizeof text)
        return false;
    memcpy(text, l->s.p + from, n);
    text[n] = '\0';
    if (real) {
        double value;
        if (!str_to_f64(text, &value))
            return false;
        put_float(l->out, negative ? -value : value);
        return true;
    }
    bool zero = strspn(text, "0") == n;
    if (text[0] == '0' && !zero)
        return false;
    str_printf(l->out, "%s%s", negative && !zero ? "-" : "", zero ? "0" : text);
    return true;
}

/* A string without escapes, printed as repr() prints it. */
static bool literal_string(literal *l)
{
    char quote = peek(l);
    size_t from = ++l->at;
    while (peek(l) && peek(l) != quote && peek(l) != '\\' && peek(l) != '\n')
        l->at++;
    if (peek(l) != quote)
        return false;
    pytext_repr_text(l->out, (slice){ l->s.p + from, l->at++ - from });
    return true;
}

static bool literal_value(literal *l);

static bool literal_items(literal *l, char close)
{
    size_t n = 0;
    bool comma = true;
    str_putc(l->out, l->s.p[l->at++]);
    for (skip_spaces(l); peek(l) != close; skip_spaces(l)) {
        if (!comma)
            return false;
        str_puts(l->out, n++ ? ", " : "");
        if (!literal_value(l))
            return false;
        skip_spaces(l);
        comma = peek(l) == ',';
        l->at += comma;
    }
    l->at++;
    if (close == ')' && n == 1 && !comma)
        return false; /* only parentheses around a value: no user of this needs them */
    str_puts(l->out, close == ')' && n == 1 ? ",)" : close == ')' ? ")" : "]");
    return true;
}

static bool literal_value(literal *l)
{
    static const char *const words[] = { "True", "False", "None" };
    skip_spaces(l);
    char c = peek(l);
    if (c == '[' || c == '(') {
        bool ok = ++l->depth < 64 && literal_items(l, c == '[' ? ']' : ')');
        l->depth--;
        return ok;
    }
    if (c == '\'' || c == '"')
        return literal_string(l);
    for (size_t i = 0; i < 3; i++)
        if (str_starts(l->s.p + l->at, words[i])) {
            l->at += strlen(words[i]);
            str_puts(l->out, words[i]);
            return true;
        }
    l->at += c == '-' || c == '+';
    skip_spaces(l);
    return literal_number(l, c == '-');
}

bool pytext_literal(str *out, slice s)
{
    size_t before = out->n;
    str copy = { 0 };
    str_add(&copy, s.p, s.n);
    literal l = { .s = slice_of(&copy), .out = out };
    bool ok = s.n >= 2 && s.p[0] == '[' && s.p[s.n - 1] == ']' && str_ok(&copy) &&
              literal_value(&l) && l.at == s.n;
    out->failed = out->failed || !str_ok(&copy);
    str_free(&copy);
    if (!ok && out->p) {
        out->n = before;
        out->p[before] = '\0';
    }
    return ok;
}
