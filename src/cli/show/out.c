#include "cli/show/out.h"

#include <utf8proc.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEPTH = 8 };
/* The JSON being written: how its open parts end, whether the next value needs a comma, and whether
 * a document is complete. */
static struct {
    char close[MAX_DEPTH];
    int depth;
    bool comma, whole;
} json;

/* Length of the valid UTF-8 character at s, or 0; *cp: its code point. */
static size_t utf8_at(const unsigned char *s, size_t n, uint32_t *cp)
{
    utf8proc_int32_t found = 0;
    utf8proc_ssize_t length = utf8proc_iterate(s, n < 4 ? (utf8proc_ssize_t)n : 4, &found);
    *cp = length > 0 ? (uint32_t)found : 0;
    return length > 0 ? (size_t)length : 0;
}

/* Whether a character controls a terminal: C0, DEL, C1. */
static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
}

/* Controls, line and paragraph separators, and what has no shape of its own: bidi marks, joiners,
 * annotations, tags. In a sentence they could forge another. src/base/utf8.c has the same list. */
static bool is_hidden(uint32_t cp)
{
    static const uint32_t ranges[][2] = {
        { 0xAD, 0xAD },     { 0x61C, 0x61C },   { 0x180E, 0x180E },
        { 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F },
        { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE007F },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (cp >= ranges[i][0] && cp <= ranges[i][1])
            return true;
    return is_control(cp);
}

/* A text may have lines and marks of direction; a sentence is one line of what can be seen. */
typedef enum manner { AS_TEXT, AS_SENTENCE } manner;

static void write_visible(FILE *f, const char *text, size_t n, manner how)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t cp;
        length = utf8_at(s + i, n - i, &cp);
        bool shown =
            how == AS_SENTENCE ? !is_hidden(cp) : s[i] == '\n' || s[i] == '\t' || !is_control(cp);
        if (length && shown) {
            fwrite(s + i, 1, length, f);
            continue;
        }
        if (length > 1)
            fprintf(f, "\\u{%04X}", cp);
        else
            fprintf(f, "\\x%02X", s[i]);
        length = length ? length : 1;
    }
}

/* ---- failures ---- */

static char sentence[4096];

pesc_status out_fail(pesc_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    return s;
}

pesc_status out_nomem(const char *what)
{
    return out_fail(PESC_NOMEM, "not enough memory for %s", what);
}

static const char *prefix = "";

void out_prefix(const char *who)
{
    prefix = who;
}

const char *out_sentence(pesc_status s)
{
    const char *text = sentence[0] ? sentence : pesc_last_error();
    return text[0] ? text : pesc_status_text(s);
}

int out_report(pesc_status s, bool as_json)
{
    const char *text = out_sentence(s);
    char *line = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&line, &n); /* one write: several processes may report at once */
    FILE *to = f ? f : stderr;
    fprintf(to, "pesc: %s", prefix);
    write_visible(to, text, strlen(text), AS_SENTENCE);
    fputc('\n', to);
    if (f && fclose(f) == 0)
        fwrite(line, 1, n, stderr);
    free(line);
    int code = pesc_status_exit_code(s);
    if (as_json && !json.whole) {
        json.depth = 0; /* end the document that was being written */
        json.comma = false;
        out_begin(NULL, '{');
        out_object("error", "code=%d message=%s", code, text);
        out_end();
        fflush(stdout);
    }
    sentence[0] = '\0';
    return code;
}

/* ---- text ---- */

void out_aside(const char *text, size_t n)
{
    bool terminal = isatty(STDERR_FILENO);
    fputs(terminal ? "\033[2m" : "", stderr);
    write_visible(stderr, text, n, AS_TEXT);
    fputs(terminal ? "\033[0m" : "", stderr);
}

void out_write(const char *text, size_t n)
{
    if (isatty(STDOUT_FILENO))
        write_visible(stdout, text, n, AS_TEXT);
    else
        fwrite(text, 1, n, stdout);
}

void out_name(const char *text)
{
    write_visible(stdout, text, strlen(text), AS_SENTENCE);
}

pesc_status out_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return PESC_OK;
    clearerr(stdout);
    return out_fail(PESC_DISK, "standard output cannot be written: %s",
                    errno ? strerror(errno) : "an earlier write failed");
}

/* ---- JSON ---- */

static FILE *json_file; /* NULL: standard output */

void out_json_to(FILE *f)
{
    json_file = f;
    json.whole = false;
}

static FILE *json_out(void)
{
    return json_file ? json_file : stdout;
}

static void write_quoted(const char *text, size_t n)
{
    static const char named[] = "\"\\\n\t\r\b\f", names[] = "\"\\ntrbf";
    const unsigned char *s = (const unsigned char *)text;
    putc('"', json_out());
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t cp;
        length = utf8_at(s + i, n - i, &cp);
        const char *name = length == 1 && s[i] ? strchr(named, s[i]) : NULL;
        if (!length) {
            fputs("\xEF\xBF\xBD", json_out());
            length = 1;
        } else if (name) {
            putc('\\', json_out());
            putc(names[name - named], json_out());
        } else if (is_control(cp)) {
            fprintf(json_out(), "\\u%04x", cp);
        } else {
            fwrite(s + i, 1, length, json_out());
        }
    }
    putc('"', json_out());
}

/* There may be millions of ids: without printf() and its lock. */
static void write_int(int64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (v < 0)
        putc_unlocked('-', json_out());
    fwrite_unlocked(digits + at, 1, sizeof digits - at, json_out());
}

void out_line_of_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i)
            putchar_unlocked(' ');
        write_int(ids[i]);
    }
    putchar('\n');
}

static void before(const char *key)
{
    if (json.comma && json.depth > 0)
        putc_unlocked(',', json_out());
    json.comma = true;
    if (key) {
        write_quoted(key, strlen(key));
        putc(':', json_out());
    }
}

void out_begin(const char *key, char kind)
{
    before(key);
    putc(kind, json_out());
    json.close[json.depth++] = kind == '{' ? '}' : ']';
    json.comma = false;
}

void out_end(void)
{
    putc(json.close[--json.depth], json_out());
    json.comma = json.depth > 0;
    json.whole = json.depth == 0;
    if (json.whole)
        putc('\n', json_out());
}

void out_string(const char *key, const char *text, size_t n)
{
    before(key);
    write_quoted(text, n);
}

void out_text(const char *key, const char *text)
{
    out_string(key, text, strlen(text));
}

void out_int(const char *key, int64_t v)
{
    before(key);
    write_int(v);
}

/* The shortest form of `digits` or more that reads back as the same number; 17 always do. */
static void write_real(const char *key, double v, int digits, int most)
{
    char text[40] = "null";
    before(key);
    for (; digits <= most && isfinite(v); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    fputs(text, json_out());
}

void out_real(const char *key, double v)
{
    write_real(key, v, 15, 17);
}

void out_measure(const char *key, double v)
{
    write_real(key, v, 6, 6);
}

void out_bool(const char *key, bool v)
{
    before(key);
    fputs(v ? "true" : "false", json_out());
}

void out_ids(const char *key, const int32_t *ids, size_t n)
{
    out_begin(key, '[');
    for (size_t i = 0; i < n; i++)
        out_int(NULL, ids[i]);
    out_end();
}

static void write_field(const char *key, const char *conversion, size_t n, va_list *values)
{
    switch (conversion[n - 1]) {
    case 's':
        out_text(key, va_arg(*values, const char *));
        break;
    case 'g':
        (n > 1 ? out_measure : out_real)(key, va_arg(*values, double));
        break;
    default:
        out_int(key, n > 1 ? va_arg(*values, int64_t) : va_arg(*values, int));
    }
}

static void write_fields(const char *format, va_list *values)
{
    char key[48];
    while (*format) {
        size_t n_key = strcspn(format, "=");
        const char *conversion = format + n_key + 2; /* after "=%" */
        size_t n = strcspn(conversion, " ");
        snprintf(key, sizeof key, "%.*s", (int)n_key, format);
        write_field(key, conversion, n, values);
        format = conversion + n + (conversion[n] == ' ');
    }
}

void out_fields(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    write_fields(format, &values);
    va_end(values);
}

void out_object(const char *key, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    out_begin(key, '{');
    write_fields(format, &values);
    out_end();
    va_end(values);
}

/* ---- numbers for people ---- */

static const char *scaled(out_number buffer, uint64_t n, double step, const char *const units[5])
{
    double v = (double)n;
    int u = 0;
    while (v >= step - 0.5 && u < 4) {
        v /= step;
        u++;
    }
    snprintf(buffer, sizeof(out_number), u && v < 99.95 ? "%.3g%s%s" : "%.0f%s%s", v,
             units[u][0] ? " " : "", units[u]);
    return buffer;
}

const char *out_bytes(out_number buffer, uint64_t bytes)
{
    return scaled(buffer, bytes, 1024,
                  (const char *const[]){ "bytes", "KiB", "MiB", "GiB", "TiB" });
}

const char *out_count(out_number buffer, uint64_t n)
{
    return scaled(buffer, n, 1000, (const char *const[]){ "", "K", "M", "B", "T" });
}

const char *out_flop(out_number buffer, uint64_t n)
{
    return scaled(buffer, n, 1000, (const char *const[]){ "", "k", "M", "G", "T" });
}
