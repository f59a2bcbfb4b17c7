#include "eval/mathtext.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

/* ---- the words and pieces of version 3.1 ---- */

static const char *const substitutions[][2] = {
    { "an ", "" },          { "a ", "" },
    { ".$", "$" },          { "\\$", "" },
    { "\\ ", "" },          { " ", "" },
    { "mbox", "text" },     { ",\\text{and}", "," },
    { "\\text{and}", "," }, { "\\text{m}", "\\text{}" },
};

/* In this order. Those of letters alone are words, the others are pieces of LaTeX. */
static const char *const removed[] = {
    "square",       "ways",
    "integers",     "dollars",
    "mph",          "inches",
    "ft",           "hours",
    "km",           "units",
    "\\ldots",      "sue",
    "points",       "feet",
    "minutes",      "digits",
    "cents",        "degrees",
    "cm",           "gm",
    "pounds",       "meters",
    "meals",        "edges",
    "students",     "childrentickets",
    "multiples",    "\\text{s}",
    "\\text{.}",    "\\text{\ns}",
    "\\text{}^2",   "\\text{}^3",
    "\\text{\n}",   "\\text{}",
    "\\mathrm{th}", "^\\circ",
    "^{\\circ}",    "\\;",
    ",\\!",         "{,}",
    "\"",           "\\dots",
};
enum { N_REMOVED = sizeof removed / sizeof *removed };

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word(const char *piece)
{
    return is_letter(piece[0]); /* no piece of LaTeX begins with one */
}

/* ---- characters ---- */

static bool is_word_character(uint32_t cp)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return cp == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

/* Bytes of the character at `at`; a byte that is not UTF-8 stands for itself. 0 at the end. */
static size_t character(slice s, size_t at, uint32_t *cp)
{
    if (at >= s.n)
        return 0;
    *cp = (unsigned char)s.p[at];
    int n = utf8_decode(s.p + at, s.n - at, cp);
    return n > 0 ? (size_t)n : 1;
}

static bool word_character_at(slice s, size_t at)
{
    uint32_t cp;
    return character(s, at, &cp) > 0 && is_word_character(cp);
}

static bool word_character_before(slice s, size_t at)
{
    size_t from = at;
    while (from > 0 && at - from < 4 && (from == at || ((unsigned char)s.p[from] & 0xC0) == 0x80))
        from--;
    return from < at && word_character_at(s, from);
}

static bool starts(slice s, size_t at, const char *with)
{
    size_t n = strlen(with);
    return s.n - at >= n && memcmp(s.p + at, with, n) == 0;
}

/* The place of a character in the line that begins at `at`; NULL: not on this line. */
static const char *on_line(slice s, size_t at, char c, bool last)
{
    const char *from = s.p + at, *end = memchr(from, '\n', s.n - at);
    size_t n = end ? (size_t)(end - from) : s.n - at;
    return last ? memrchr(from, c, n) : memchr(from, c, n);
}

/* ---- rules; each reads s and appends to out ---- */

/* Deletes a word that stands alone and has no backslash before it. */
static void delete_whole_word(str *out, slice s, const char *word)
{
    size_t n = strlen(word), copied = 0;
    for (size_t at = 0; at < s.n; at++) {
        if (!starts(s, at, word) || word_character_before(s, at) || word_character_at(s, at + n) ||
            (at > 0 && s.p[at - 1] == '\\'))
            continue;
        str_add(out, s.p + copied, at - copied);
        copied = at + n;
        at = copied - 1;
    }
    str_add(out, s.p + copied, s.n - copied);
}

/* Deletes a word everywhere but in names of commands (a backslash and letters). */
static void delete_outside_commands(str *out, slice s, const char *word)
{
    size_t from = 0, at = 0;
    while (at < s.n) {
        size_t end = at + 1;
        while (s.p[at] == '\\' && end < s.n && is_letter(s.p[end]))
            end++;
        if (s.p[at] == '\\' && end > at + 1) {
            pytext_replace(out, (slice){ s.p + from, at - from }, word, "");
            str_add(out, s.p + at, end - at);
            from = end;
        }
        at = end;
    }
    pytext_replace(out, (slice){ s.p + from, s.n - from }, word, "");
}

/* Of each line with two dollar signs keeps what stands between the first two, with them. */
static void keep_first_formula(str *out, slice s, const char *unused)
{
    (void)unused;
    for (size_t at = 0; at <= s.n;) {
        const char *end = memchr(s.p + at, '\n', s.n - at);
        size_t n = end ? (size_t)(end - s.p) - at : s.n - at;
        const char *first = on_line(s, at, '$', false);
        const char *second = first ? on_line(s, (size_t)(first - s.p) + 1, '$', false) : NULL;
        if (second)
            str_add(out, first, (size_t)(second - first) + 1);
        else
            str_add(out, s.p + at, n);
        if (end)
            str_putc(out, '\n');
        at += n + 1;
    }
}

/* Replaces command{content} by the content: up to the first brace on the line, or to the last. */
static void unwrap(str *out, slice s, const char *command, bool to_last)
{
    size_t n = strlen(command);
    for (size_t at = 0; at < s.n; at++) {
        const char *close = starts(s, at, command) ? on_line(s, at + n, '}', to_last) : NULL;
        if (!close) {
            str_putc(out, s.p[at]);
            continue;
        }
        str_add(out, s.p + at + n, (size_t)(close - s.p) - at - n);
        at = (size_t)(close - s.p);
    }
}

static void unwrap_first(str *out, slice s, const char *command)
{
    unwrap(out, s, command, false);
}

static void unwrap_last(str *out, slice s, const char *command)
{
    unwrap(out, s, command, true);
}

/* fracab -> frac{a}{b} */
static void brace_fractions(str *out, slice s, const char *name)
{
    uint32_t a, b;
    for (size_t at = 0; at < s.n; at++) {
        size_t from = at + strlen(name);
        size_t n = starts(s, at, name) ? character(s, from, &a) : 0;
        size_t m = n && a != '{' ? character(s, from + n, &b) : 0;
        if (!m || b == '\n') {
            str_putc(out, s.p[at]);
            continue;
        }
        str_printf(out, "%s{", name);
        str_add(out, s.p + from, n);
        str_puts(out, "}{");
        str_add(out, s.p + from + n, m);
        str_putc(out, '}');
        at = from + n + m - 1;
    }
}

/* sqrt[3]a -> sqrt[3]{a} */
static void brace_indexed_roots(str *out, slice s, const char *name)
{
    uint32_t cp;
    for (size_t at = 0; at < s.n; at++) {
        size_t from = at + strlen(name), end = 0, n = 0;
        const char *close = NULL;
        if (starts(s, at, name) && from < s.n && s.p[from] == '[')
            close = memchr(s.p + from + 1, ']', s.n - from - 1);
        if (close) {
            end = (size_t)(close - s.p) + 1;
            n = character(s, end, &cp);
        }
        if (!n || !is_word_character(cp)) {
            str_putc(out, s.p[at]);
            continue;
        }
        str_add(out, s.p + at, end - at);
        str_putc(out, '{');
        str_add(out, s.p + end, n);
        str_putc(out, '}');
        at = end + n - 1;
    }
}

/* sqrta -> sqrt{a} */
static void brace_roots(str *out, slice s, const char *name)
{
    uint32_t cp;
    for (size_t at = 0; at < s.n; at++) {
        size_t from = at + strlen(name);
        size_t n = starts(s, at, name) ? character(s, from, &cp) : 0;
        if (!n || cp == '{' || cp == '[') {
            str_putc(out, s.p[at]);
            continue;
        }
        str_printf(out, "%s{", name);
        str_add(out, s.p + from, n);
        str_putc(out, '}');
        at = from + n - 1;
    }
}

static void delete_text(str *out, slice s, const char *piece)
{
    pytext_replace(out, s, piece, "");
}

/* ---- the normal form ---- */

static size_t count_digits(slice s, size_t *at)
{
    uint32_t cp;
    size_t n = 0, len;
    while ((len = character(s, *at, &cp)) > 0 &&
           utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND) {
        *at += len;
        n++;
    }
    return n;
}

/* 1 to 3 digits, then groups of a comma and 3 digits, at least one; perhaps a minus first. */
static bool has_grouped_thousands(slice s)
{
    size_t at = s.n > 0 && s.p[0] == '-', groups = 0;
    size_t head = count_digits(s, &at);
    if (head < 1 || head > 3)
        return false;
    for (; at < s.n; groups++) {
        if (s.p[at++] != ',' || count_digits(s, &at) != 3)
            return false;
    }
    return groups > 0;
}

/* Applies a rule to the text in place. */
static void apply(str *text, void (*rule)(str *, slice, const char *), const char *arg)
{
    str done = { 0 };
    str_puts(&done, "");
    rule(&done, slice_of(text), arg);
    done.failed = done.failed || text->failed;
    str_free(text);
    *text = done;
}

static void shorten(str *text)
{
    static const struct {
        void (*rule)(str *, slice, const char *);
        const char *arg;
    } rules[] = {
        { keep_first_formula, NULL },    { unwrap_first, "\\text{" }, { unwrap_first, "\\textbf{" },
        { unwrap_first, "\\overline{" }, { unwrap_last, "\\boxed{" }, { brace_fractions, "frac" },
        { brace_indexed_roots, "sqrt" }, { brace_roots, "sqrt" },     { delete_text, "$" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        apply(text, rules[i].rule, rules[i].arg);
}

void minerva_normalize(str *out, slice answer)
{
    str text = { 0 };
    size_t equals = pytext_find_last(answer, "=");
    if (equals < answer.n)
        answer = (slice){ answer.p + equals + 1, answer.n - equals - 1 };
    str_add(&text, answer.p, answer.n);
    for (size_t i = 0; i < N_REMOVED; i++)
        if (is_word(removed[i]))
            apply(&text, delete_whole_word, removed[i]);
    for (size_t i = 0; i < sizeof substitutions / sizeof *substitutions; i++) {
        str done = { 0 };
        pytext_replace(&done, slice_of(&text), substitutions[i][0], substitutions[i][1]);
        done.failed = done.failed || text.failed;
        str_free(&text);
        text = done;
    }
    for (size_t i = 0; i < N_REMOVED; i++)
        apply(&text, is_word(removed[i]) ? delete_outside_commands : delete_text, removed[i]);
    shorten(&text);
    if (has_grouped_thousands(slice_of(&text)))
        apply(&text, delete_text, ",");
    str_add(out, text.p, text.n);
    out->failed = out->failed || text.failed;
    str_free(&text);
}

/* ---- the answer in a text ---- */

/* The answer that begins at `from`: up to one character before the first closing sentence on the
 * same line that has a character after it. False: there is none. */
static bool closed_answer(slice s, size_t from, slice *out)
{
    static const char closing[] = " I hope it is correct";
    const char *newline = memchr(s.p + from, '\n', s.n - from);
    size_t end = newline ? (size_t)(newline - s.p) : s.n;
    slice line = { s.p + from, end - from };
    uint32_t cp;
    size_t first = character(line, 0, &cp);
    for (size_t at = first; first && at + sizeof closing - 1 < line.n; at++) {
        if (!starts(line, at, closing))
            continue;
        size_t last = at - 1;
        while (last > 0 && ((unsigned char)line.p[last] & 0xC0) == 0x80)
            last--;
        *out = (slice){ line.p, last };
        return true;
    }
    return false;
}

void minerva_extract(str *out, slice text)
{
    static const char opening[] = "Final Answer: The final answer is";
    str all = { 0 };
    slice found = { "[invalidanswer]", 15 };
    str_add(&all, text.p, text.n);
    str_puts(&all, "I hope it is correct.");
    slice s = slice_of(&all);
    for (size_t at = 0; at + sizeof opening - 1 <= s.n; at++)
        if (starts(s, at, opening) && closed_answer(s, at + sizeof opening - 1, &found)) {
            found = pytext_strip(found);
            break;
        }
    str_add(out, found.p, found.n);
    out->failed = out->failed || all.failed;
    str_free(&all);
}

/* ---- rational numbers ---- */

enum { DIGITS_MAX = 15 };

typedef struct rational {
    int64_t above, below; /* below > 0 */
} rational;

static bool take_text(slice *s, const char *text)
{
    size_t n = strlen(text);
    if (s->n < n || memcmp(s->p, text, n) != 0)
        return false;
    *s = (slice){ s->p + n, s->n - n };
    return true;
}

/* Digits at the front of s, as a number; false when there are none or too many. */
static bool take_digits(slice *s, int64_t *number, size_t *n_digits)
{
    size_t n = 0;
    for (; n < s->n && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
        if (*n_digits + n >= DIGITS_MAX)
            return false;
        *number = *number * 10 + (s->p[n] - '0');
    }
    *s = (slice){ s->p + n, s->n - n };
    *n_digits += n;
    return n > 0;
}

static bool take_whole(slice *s, int64_t *out)
{
    size_t digits = 0;
    bool minus = take_text(s, "-");
    *out = 0;
    if (!take_digits(s, out, &digits))
        return false;
    *out = minus ? -*out : *out;
    return true;
}

static bool take_fraction(slice *s, rational *out)
{
    bool frac = take_text(s, "\\frac{") || take_text(s, "\\dfrac{") || take_text(s, "\\tfrac{");
    return frac && take_whole(s, &out->above) && take_text(s, "}{") && take_whole(s, &out->below) &&
           take_text(s, "}");
}

/* 12, 1.5, .5 or 3/4. */
static bool take_number(slice *s, rational *out)
{
    size_t digits = 0, whole;
    *out = (rational){ 0, 1 };
    bool any = take_digits(s, &out->above, &digits);
    whole = digits;
    if (any && take_text(s, "/"))
        return take_whole(s, &out->below);
    if (!take_text(s, "."))
        return any;
    if (!take_digits(s, &out->above, &digits))
        return false;
    for (size_t i = whole; i < digits; i++)
        out->below *= 10;
    return true;
}

static bool parse(slice s, rational *out)
{
    bool minus = take_text(&s, "-");
    slice start = s;
    if (!take_fraction(&s, out)) {
        s = start;
        if (!take_number(&s, out))
            return false;
    }
    if (s.n > 0 || out->below == 0)
        return false;
    if (minus != (out->below < 0))
        out->above = -out->above;
    out->below = out->below < 0 ? -out->below : out->below;
    return true;
}

bool rational_compare(slice a, slice b, bool *equal)
{
    rational x, y;
    if (!parse(a, &x) || !parse(b, &y))
        return false;
    *equal = (__int128)x.above * y.below == (__int128)y.above * x.below;
    return true;
}
