#include "base/options.h"

#include "base/args.h"
#include "base/io.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- the table ---- */

static const struct {
    const char *name, *defaults;
    size_t first, now; /* bytes: of the first release, of this one */
} sizes[] = {
#define SIZES(NAME, value, name, last)                                                             \
    [PESC_OPTIONS_##NAME] = { "pesc_" #name "_options", "pesc_" #name "_defaults()",               \
                              offsetof(pesc_##name##_options, last) +                              \
                                  sizeof((pesc_##name##_options){ 0 }.last),                       \
                              sizeof(pesc_##name##_options) },
    PESC_OPTION_STRUCTS(SIZES)
#undef SIZES
};

/* The next row that declares a field of the struct; NULL after the last. Start with NULL. */
static const pesc_option *next_row(pesc_option_struct which, const pesc_option *r)
{
    size_t n;
    const pesc_option *rows = pesc_option_rows(&n);
    for (r = r ? r + 1 : rows; r < rows + n; r++)
        if (r->of == which && !(r > rows && r[-1].of == r->of && r[-1].at == r->at))
            return r; /* an ALSO row repeats the field of the row before it */
    return NULL;
}

/* ---- fields ---- */

static bool is_text(const pesc_option *r)
{
    return r->kind <= PESC_OPTION_WORDS;
}

static bool is_int(const pesc_option *r)
{
    return r->kind == PESC_OPTION_INT || r->kind == PESC_OPTION_AUTO_INT;
}

static bool is_auto(const pesc_option *r)
{
    return r->kind == PESC_OPTION_AUTO_INT || r->kind == PESC_OPTION_AUTO_REAL;
}

static bool is_number(const pesc_option *r)
{
    return is_int(r) || r->kind == PESC_OPTION_REAL || r->kind == PESC_OPTION_AUTO_REAL;
}

static const void *field(const pesc_option *r, const void *options)
{
    return (const char *)options + r->at;
}

/* "" for an absent text. */
static const char *text_of(const pesc_option *r, const void *options)
{
    const char *text = *(const char *const *)field(r, options);
    return text ? text : "";
}

static double number_of(const pesc_option *r, const void *options)
{
    return is_int(r) ? (double)*(const int64_t *)field(r, options)
                     : *(const double *)field(r, options);
}

static const char *const *list_of(const pesc_option *r, const void *options, size_t *n)
{
    *n = *(const size_t *)(const void *)((const char *)options + r->count_at);
    return *(const char *const *const *)field(r, options);
}

/* ---- text of a value ---- */

enum { NUMBER = 48 }; /* bytes that hold any number */

/* The shortest text that reads back as the same number: 0.1, 100, 1e30, 2.5e-8. */
static const char *put_real(double v, char *out)
{
    double back;
    if (v > -1e6 && v < 1e6 && v == (double)(int64_t)v) {
        snprintf(out, NUMBER, "%.0f", v);
        return out;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, NUMBER, "%.*g", digits, v);
        if (str_to_f64(out, &back) && back == v)
            break;
    }
    char *e = strchr(out, 'e'), *to = e ? e + 1 : NULL;
    if (!to)
        return out;
    to += *to == '-';
    const char *from = e + 2 + strspn(e + 2, "0"); /* after the sign */
    memmove(to, from, strlen(from) + 1);
    return out;
}

static const char *put_number(const pesc_option *r, const void *options, char *out)
{
    double v = number_of(r, options), usual;
    if (is_auto(r) && v == PESC_AUTO)
        return "auto";
    if (is_int(r)) {
        snprintf(out, NUMBER, "%lld", (long long)*(const int64_t *)field(r, options));
        return out;
    }
    return str_to_f64(r->fallback, &usual) && usual == v ? r->fallback : put_real(v, out);
}

/* The value as a user would write it; "" for an absent text and for lists. It is in `number`, or
 * belongs to the struct or the table. */
static const char *value_text(const pesc_option *r, const void *options, char *number)
{
    if (is_text(r))
        return text_of(r, options);
    if (is_number(r))
        return put_number(r, options, number);
    if (r->kind == PESC_OPTION_BOOL)
        return *(const bool *)field(r, options) ? "true" : "false";
    return "";
}

size_t pesc_option_get(const pesc_option *row, const void *options, char *text, size_t cap)
{
    char number[NUMBER];
    if (!row || !options)
        return 0;
    const char *value = value_text(row, options, number);
    if (text && cap)
        snprintf(text, cap, "%s", value);
    return strlen(value);
}

/* ---- range checks ---- */

enum { EXPECTED = 160 }; /* bytes that hold any of the following */

/* "a|b|c" as "a, b or c". */
static const char *put_choices(const char *choices, char *out)
{
    const char *last = strrchr(choices, '|');
    size_t n = 0;
    for (const char *c = choices; *c && n < EXPECTED - 5; c++) {
        const char *text = c == last ? " or " : *c == '|' ? ", " : (char[]){ *c, '\0' };
        n += (size_t)snprintf(out + n, EXPECTED - n, "%s", text);
    }
    return out;
}

/* What a user may write: "a whole number from 1 to 4096". */
static const char *expected(const pesc_option *r, char *out)
{
    char least[NUMBER], most[NUMBER];
    const char *word = is_auto(r) ? "auto or " : "";
    if (r->kind == PESC_OPTION_BOOL)
        return "true or false";
    if (r->kind == PESC_OPTION_CHOICE)
        return put_choices(r->values, out);
    if (is_int(r))
        snprintf(out, EXPECTED, "%sa whole number from %.0f to %.0f", word, r->min, r->max);
    else
        snprintf(out, EXPECTED, "%sa number from %s to %s", word, put_real(r->min, least),
                 put_real(r->max, most));
    return out;
}

static bool in_range(const pesc_option *r, double v)
{
    return (v >= r->min && v <= r->max) || (is_auto(r) && v == PESC_AUTO);
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *c = choices; n > 0 && c; c = strchr(c, '|')) {
        c += *c == '|';
        if (strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0'))
            return true;
    }
    return false;
}

static pesc_status bad_value(const pesc_option *r, const char *text, const char *where)
{
    char range[EXPECTED];
    return fail(PESC_USAGE, "%s: found \"%s\", expected %s", where ? where : r->key, text,
                expected(r, range));
}

static pesc_status check_value(const pesc_option *r, const void *options)
{
    char range[EXPECTED], number[NUMBER];
    if (r->kind == PESC_OPTION_CHOICE) {
        const char *text = text_of(r, options);
        return !*text || is_choice(r->values, text) ? PESC_OK : bad_value(r, text, NULL);
    }
    if (!is_number(r) || in_range(r, number_of(r, options)))
        return PESC_OK;
    return fail(PESC_USAGE, "%s: found %s, expected %s", r->key, put_number(r, options, number),
                expected(r, range));
}

static pesc_status check_list(const pesc_option *r, const void *options)
{
    size_t n;
    const char *const *list = list_of(r, options, &n);
    for (size_t i = 0; i < n; i++)
        if (!list || !list[i])
            return fail(PESC_USAGE, "%s: found NULL at %zu, expected %zu texts", r->key, i, n);
    return PESC_OK;
}

pesc_status options_check(pesc_option_struct which, const void *options)
{
    for (const pesc_option *r = NULL; (r = next_row(which, r));)
        TRY(r->kind == PESC_OPTION_LIST ? check_list(r, options) : check_value(r, options));
    return PESC_OK;
}

/* ---- setting ---- */

static bool set_int(const pesc_option *r, void *options, const char *text)
{
    long long v = PESC_AUTO;
    bool is_word = is_auto(r) && strcmp(text, "auto") == 0;
    if (!is_word &&
        (!str_to_i64(text, INT64_MIN, INT64_MAX, &v) || (double)v < r->min || (double)v > r->max))
        return false;
    *(int64_t *)(void *)((char *)options + r->at) = v;
    return true;
}

static bool set_real(const pesc_option *r, void *options, const char *text)
{
    double v = PESC_AUTO;
    bool is_word = is_auto(r) && strcmp(text, "auto") == 0;
    if (!is_word && (!str_to_f64(text, &v) || v < r->min || v > r->max))
        return false;
    *(double *)(void *)((char *)options + r->at) = v;
    return true;
}

static bool set_bool(const pesc_option *r, void *options, const char *text)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0)
        return false;
    *(bool *)((char *)options + r->at) = yes;
    return true;
}

/* False: not a value of this row; the field is unchanged. Not for lists. */
static bool set_value(const pesc_option *r, void *options, const char *text)
{
    if (is_int(r))
        return set_int(r, options, text);
    if (is_number(r))
        return set_real(r, options, text);
    if (r->kind == PESC_OPTION_BOOL)
        return set_bool(r, options, text);
    if (r->kind == PESC_OPTION_CHOICE && !is_choice(r->values, text))
        return false;
    *(const char **)(void *)((char *)options + r->at) = text;
    return true;
}

pesc_status pesc_option_set(const pesc_option *row, void *options, const char *text,
                            const char *where)
{
    status_clear();
    NEED(row);
    NEED(options);
    NEED(text);
    if (row->kind == PESC_OPTION_LIST)
        return fail(PESC_USAGE, "%s: is a list; assign its array and its count", row->key);
    return set_value(row, options, text) ? PESC_OK : bad_value(row, text, where);
}

/* ---- defaults, and structs of other releases ---- */

static size_t end_of(const pesc_option *r)
{
    size_t bytes = r->kind == PESC_OPTION_BOOL ? sizeof(bool) : sizeof(int64_t);
    return r->kind == PESC_OPTION_LIST ? r->count_at + sizeof(size_t) : r->at + bytes;
}
_Static_assert(sizeof(double) == sizeof(int64_t) && sizeof(const char *) == sizeof(int64_t),
               "end_of() takes all of these for 8 bytes");

void pesc_options_fill(pesc_option_struct which, void *options, size_t size)
{
    if (!options || size < sizeof size)
        return;
    memset(options, 0, size);
    memcpy(options, &size, sizeof size);
    for (const pesc_option *r = NULL; (r = next_row(which, r));)
        if (r->fallback && end_of(r) <= size) {
            bool fits = set_value(r, options, r->fallback);
            ASSERT(fits); /* the tests read every default */
        }
}

pesc_status options_take(pesc_option_struct which, void *out, const void *given)
{
    size_t size = sizes[which].now;
    pesc_options_fill(which, out, size);
    if (given) {
        memcpy(&size, given, sizeof size);
        if (size < sizes[which].first)
            return fail(PESC_USAGE, "%s has size %zu, expected at least %zu; start from %s",
                        sizes[which].name, size, sizes[which].first, sizes[which].defaults);
        TRY(args_read(out, sizes[which].now, given, sizes[which].name, "opt"));
        for (const pesc_option *r = NULL; (r = next_row(which, r));)
            if (is_text(r) && !*text_of(r, out))
                *(const char **)(void *)((char *)out + r->at) = r->fallback;
    }
    return options_check(which, out);
}

/* ---- YAML ---- */

/* A JSON string is a YAML string. */
static void put_quoted(str *out, const char *text, bool is_path)
{
    char *full = NULL;
    if (is_path && io_absolute(&full, text) == PESC_OK)
        text = full;
    json_t *v = json_string(text);
    json_put(out, v, 0);
    json_decref(v);
    mem_free(full);
}

static void put_list(str *out, const pesc_option *r, const void *options)
{
    size_t n;
    const char *const *list = list_of(r, options, &n);
    str_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        str_puts(out, i ? ", " : "");
        put_quoted(out, list[i], r->flags & PESC_OPTION_PATH);
    }
    str_puts(out, "]");
}

pesc_status options_check_utf8(pesc_option_struct which, const void *options)
{
    for (const pesc_option *r = NULL; (r = next_row(which, r));) {
        const char *text = is_text(r) ? text_of(r, options) : NULL;
        size_t n = text != NULL;
        const char *const *list = r->kind == PESC_OPTION_LIST ? list_of(r, options, &n) : &text;
        for (size_t i = 0; i < n; i++)
            if (!utf8_valid(list[i], strlen(list[i])))
                return fail(PESC_USAGE, "%s: %s: is not UTF-8; rename it", r->key, list[i]);
    }
    return PESC_OK;
}

static bool is_absent(const pesc_option *r, const void *options)
{
    size_t n = 1;
    if (r->kind == PESC_OPTION_LIST)
        (void)list_of(r, options, &n);
    return n == 0 || (is_text(r) && !*text_of(r, options));
}

void options_yaml(pesc_option_struct which, const void *options, str *out)
{
    char number[NUMBER];
    for (const pesc_option *r = NULL; (r = next_row(which, r));) {
        if (r->flags & PESC_OPTION_UNSAVED || is_absent(r, options))
            continue;
        str_printf(out, "%s: ", r->key);
        if (r->kind == PESC_OPTION_LIST)
            put_list(out, r, options);
        else if (is_text(r))
            put_quoted(out, text_of(r, options), r->flags & PESC_OPTION_PATH);
        else
            str_puts(out, value_text(r, options, number));
        str_putc(out, '\n');
    }
}

/* ---- what decides the numbers ---- */

static bool is_hashed(const pesc_option *r, unsigned except)
{
    return r->flags & PESC_OPTION_DECIDES && !(r->flags & except);
}

uint64_t options_hash(pesc_option_struct which, const void *options, unsigned except)
{
    str s = { 0 };
    char number[NUMBER];
    for (const pesc_option *r = NULL; (r = next_row(which, r));) {
        const char *text = value_text(r, options, number);
        if (is_hashed(r, except) && strcmp(text, r->fallback ? r->fallback : "") != 0)
            str_printf(&s, "%s=%s\n", r->key, text);
    }
    uint64_t h = XXH3_64bits(s.p, s.n);
    str_free(&s);
    return h;
}

/* The value of a key up to the end of its line, without quotes; NULL where it is absent. */
static const char *find_value(const char *yaml, const char *key, size_t *n)
{
    size_t len = strlen(key);
    for (const char *line = yaml; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, key, len) == 0 && strncmp(line + len, ": ", 2) == 0) {
            const char *value = line + len + 2;
            *n = strcspn(value, "\n");
            bool quoted = *n >= 2 && value[0] == '"' && value[*n - 1] == '"';
            *n -= quoted ? 2 : 0;
            return value + quoted;
        }
    return NULL;
}

static void copy_value(const pesc_option *r, const char *yaml, char *out, size_t cap)
{
    size_t n = 0;
    const char *value = find_value(yaml, r->key, &n);
    if (value)
        snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), value);
    else
        snprintf(out, cap, "%s", r->fallback ? r->fallback : "");
}

void options_value(pesc_option_struct which, const char *yaml, const char *key, char *out,
                   size_t cap)
{
    const pesc_option *r = next_row(which, NULL);
    while (r && strcmp(r->key, key) != 0)
        r = next_row(which, r);
    ASSERT(r); /* callers name rows of the table */
    copy_value(r, yaml, out, cap);
}

/* 1e-8 and 1e-08 are the same number. */
static bool same_value(const pesc_option *r, const char *a, const char *b)
{
    double x, y;
    return strcmp(a, b) == 0 || (is_number(r) && str_to_f64(a, &x) && str_to_f64(b, &y) && x == y);
}

void options_changed(pesc_option_struct which, const char *then, const char *now, unsigned except,
                     str *out)
{
    enum { LONGEST = 128 }; /* of a value that is worth showing */
    char a[LONGEST], b[LONGEST];
    for (const pesc_option *r = NULL; (r = next_row(which, r));) {
        if (!is_hashed(r, except))
            continue;
        copy_value(r, then, a, sizeof a);
        copy_value(r, now, b, sizeof b);
        if (!same_value(r, a, b))
            str_printf(out, "%s%s %s, now %s", out->n ? "; " : "", r->key, *a ? a : "absent",
                       *b ? b : "absent");
    }
}
