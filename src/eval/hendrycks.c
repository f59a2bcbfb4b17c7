#include "eval/mathtext.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* ---- the answer in a solution ---- */

/* The end of the braces that open after the start, just after the last one; 0 when they do not
 * close. */
static size_t balanced_end(slice s)
{
    long open = 0;
    for (size_t i = 0; i < s.n; i++) {
        open += s.p[i] == '{';
        if (s.p[i] == '}' && --open == 0)
            return i + 1;
    }
    return 0;
}

pesc_status boxed_answer(slice solution, slice *out)
{
    static const char spaced[] = "\\boxed ", braced[] = "\\boxed{";
    const size_t n = sizeof spaced - 1;
    size_t at = pytext_find_last(solution, spaced);
    if (at < solution.n) {
        *out = (slice){ solution.p + at + n, solution.n - at - n };
        out->n = pytext_find(*out, "$");
        return PESC_OK;
    }
    at = pytext_find_last(solution, "\\boxed");
    slice rest = { solution.p + at, solution.n - at };
    size_t end = balanced_end(rest);
    if (rest.n < n || memcmp(rest.p, braced, n) != 0 || end == 0)
        return fail(PESC_FORMAT, "the solution has no answer in \\boxed{...}");
    *out = (slice){ rest.p + n, end - 1 - n };
    return PESC_OK;
}

slice boxed_dollars(slice text)
{
    const char *first = memchr(text.p, '$', text.n), *last = memrchr(text.p, '$', text.n);
    return first == last ? text : (slice){ first + 1, (size_t)(last - first) - 1 };
}

/* ---- the normal form ---- */

/* Each rule changes the text in place and returns false where the reference raises. */
typedef bool rule(str *text, const char *before, const char *after);

static void move_text(str *text, str *done)
{
    done->failed = done->failed || text->failed;
    str_free(text);
    *text = *done;
}

static bool replace(str *text, const char *before, const char *after)
{
    str done = { 0 };
    pytext_replace(&done, slice_of(text), before, after);
    move_text(text, &done);
    return true;
}

static size_t count(slice s, const char *what)
{
    size_t n = 0;
    for (size_t at; (at = pytext_find(s, what)) < s.n; n++)
        s = (slice){ s.p + at + strlen(what), s.n - at - strlen(what) };
    return n;
}

static size_t character(slice s, size_t at)
{
    int n = at < s.n ? utf8_decode(s.p + at, s.n - at, NULL) : 0;
    return at >= s.n ? 0 : n > 0 ? (size_t)n : 1;
}

/* "\text{ " begins a unit; two of them are an exception. */
static bool cut_units(str *text, const char *mark, const char *unused)
{
    (void)unused;
    size_t n = count(slice_of(text), mark);
    if (n > 1)
        return false;
    if (n == 1) {
        text->n = pytext_find(slice_of(text), mark);
        text->p[text->n] = '\0';
    }
    return true;
}

static bool lead_zero(str *text, const char *point, const char *with)
{
    str done = { 0 };
    if (text->n == 0 || text->p[0] != *point)
        return true;
    str_puts(&done, with);
    str_add(&done, text->p + 1, text->n - 1);
    move_text(text, &done);
    return true;
}

/* "x=5" is 5, when the name has at most two characters and there is one equals sign. */
static bool cut_name(str *text, const char *equals, const char *unused)
{
    (void)unused;
    slice s = slice_of(text);
    size_t at = pytext_find(s, equals);
    if (count(s, equals) != 1 || pytext_length((slice){ s.p, at }) > 2)
        return true;
    str done = { 0 };
    str_add(&done, s.p + at + 1, s.n - at - 1);
    move_text(text, &done);
    return true;
}

/* \sqrt3 -> \sqrt{3}; nothing after \sqrt is an exception. */
static bool brace_roots(str *text, const char *root, const char *unused)
{
    str done = { 0 };
    slice s = slice_of(text);
    size_t n = strlen(root);
    bool ok = true;
    (void)unused;
    str_puts(&done, "");
    for (size_t at; (at = pytext_find(s, root)) < s.n;) {
        str_add(&done, s.p, at + n);
        s = (slice){ s.p + at + n, s.n - at - n };
        size_t len = character(s, 0);
        if (len == 0 || pytext_find(s, root) == 0) {
            ok = false;
            break;
        }
        if (s.p[0] != '{') {
            str_putc(&done, '{');
            str_add(&done, s.p, len);
            str_putc(&done, '}');
            s = (slice){ s.p + len, s.n - len };
        }
    }
    str_add(&done, s.p, s.n);
    move_text(text, &done);
    return ok;
}

/* One piece after a \frac, of n bytes: 1 done, 0 the whole text stays as it was, -1 exception. */
static int brace_fraction(str *done, slice s)
{
    size_t a = character(s, 0), b = character(s, a);
    if (a == 0)
        return -1;
    if (s.p[0] == '{') {
        str_add(done, s.p, s.n);
        return 1;
    }
    if (b == 0)
        return 0;
    str_putc(done, '{');
    str_add(done, s.p, a);
    str_putc(done, '}');
    bool braced = s.p[a] == '{';
    str_puts(done, braced ? "" : "{");
    str_add(done, s.p + a, b);
    str_puts(done, braced ? "" : "}");
    str_add(done, s.p + a + b, s.n - a - b);
    return 1;
}

static bool brace_fractions(str *text, const char *frac, const char *unused)
{
    str done = { 0 };
    slice s = slice_of(text);
    size_t n = strlen(frac), at = pytext_find(s, frac);
    int state = 1;
    (void)unused;
    str_add(&done, s.p, at);
    while (state == 1 && at < s.n) {
        s = (slice){ s.p + at + n, s.n - at - n };
        at = pytext_find(s, frac);
        str_puts(&done, frac);
        state = brace_fraction(&done, (slice){ s.p, at });
    }
    if (state == 1)
        move_text(text, &done);
    else
        str_free(&done);
    return state >= 0;
}

static bool half(str *text, const char *before, const char *after)
{
    if (text->n != strlen(before) || memcmp(text->p, before, text->n) != 0)
        return true;
    str_clear(text);
    str_puts(text, after);
    return true;
}

/* 1: a whole number as Python prints it; 0: one written otherwise (other scripts have digits too);
 * -1: int() raises. */
static int whole_number(slice s)
{
    slice t = pytext_strip(s);
    bool minus = t.n > 0 && t.p[0] == '-', sign = minus || (t.n > 0 && t.p[0] == '+');
    bool plain = t.n == s.n && (minus || !sign), underscore = true;
    t = (slice){ t.p + sign, t.n - sign };
    for (size_t at = 0, len; at < t.n; at += len) {
        uint32_t cp = (unsigned char)t.p[at];
        len = character(t, at);
        utf8_decode(t.p + at, t.n - at, &cp);
        bool digit = utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
        if (!digit && (cp != '_' || underscore))
            return -1;
        underscore = !digit;
        plain = plain && digit && len == 1;
    }
    if (underscore) /* no digit, or an underscore at the end */
        return -1;
    return plain && (t.p[0] != '0' || (t.n == 1 && !minus));
}

static bool slash(str *text, const char *mark, const char *unused)
{
    slice s = slice_of(text);
    size_t at = pytext_find(s, mark);
    (void)unused;
    if (count(s, mark) != 1)
        return true;
    slice a = { s.p, at }, b = { s.p + at + 1, s.n - at - 1 };
    int left = whole_number(a), right = whole_number(b);
    if (left < 0 || right < 0)
        return false;
    if (!left || !right)
        return true;
    str done = { 0 };
    str_printf(&done, "\\frac{%.*s}{%.*s}", (int)a.n, a.p, (int)b.n, b.p);
    move_text(text, &done);
    return true;
}

bool hendrycks_normalize(str *out, slice answer)
{
    static const struct {
        rule *apply;
        const char *before, *after;
    } rules[] = {
        { replace, "\n", "" },
        { replace, "\\!", "" },
        { replace, "\\\\", "\\" },
        { replace, "tfrac", "frac" },
        { replace, "dfrac", "frac" },
        { replace, "\\left", "" },
        { replace, "\\right", "" },
        { replace, "^{\\circ}", "" },
        { replace, "^\\circ", "" },
        { replace, "\\$", "" },
        { cut_units, "\\text{ ", "" },
        { replace, "\\%", "" },
        { replace, "\\%", "" },
        { replace, " .", " 0." },
        { replace, "{.", "{0." },
        { lead_zero, ".", "0." },
        { cut_name, "=", "" },
        { brace_roots, "\\sqrt", "" },
        { replace, " ", "" },
        { brace_fractions, "\\frac", "" },
        { half, "0.5", "\\frac{1}{2}" },
        { slash, "/", "" },
    };
    str text = { 0 };
    bool ok = true;
    str_add(&text, answer.p, answer.n);
    for (size_t i = 0; ok && i < sizeof rules / sizeof *rules; i++)
        ok = rules[i].apply(&text, rules[i].before, rules[i].after);
    str_add(out, text.p, text.n);
    out->failed = out->failed || text.failed;
    str_free(&text);
    return ok;
}

static bool same(slice a, slice b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

bool hendrycks_equal(slice a, slice b, bool *ok)
{
    str x = { 0 }, y = { 0 };
    bool both = hendrycks_normalize(&x, a);
    both = both && hendrycks_normalize(&y, b);
    bool equal = both ? same(slice_of(&x), slice_of(&y)) : same(a, b);
    *ok = str_ok(&x) && str_ok(&y);
    str_free(&x);
    str_free(&y);
    return equal;
}
