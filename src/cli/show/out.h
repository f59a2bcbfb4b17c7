/* out: the output of the command, and its failures.
 *
 * Results go to standard output, as text or (--json) as JSON; sentences go to standard error. A
 * failure is a pesc_status and one sentence, as in the library: the command's own through
 * out_fail(), the library's through pesc_last_error(). */
#ifndef PESC_CLI_OUT_H
#define PESC_CLI_OUT_H

#include <pesc/pesc.h>

#include <stdio.h>

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        pesc_status try_status_ = (expr);                                                          \
        if (try_status_ != PESC_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

/* Keeps the sentence and returns `s`. It is printed as one line: control characters, newlines, bidi
 * marks and bytes that are not UTF-8 become escapes. */
pesc_status out_fail(pesc_status s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
pesc_status out_nomem(const char *what);
/* Prints the sentence of the failure `s`, and with `as_json` the same as an object on standard
 * output unless a whole result was written; forgets it and returns the exit code. */
int out_report(pesc_status s, bool as_json);

/* The sentence that out_report() would print. */
const char *out_sentence(pesc_status s);
/* Every sentence begins with `who`, which is kept: one of several processes. */
void out_prefix(const char *who);

/* Text for a reader's eyes or a pipe: a terminal never receives control characters but newline
 * and tab, a pipe or file gets the bytes as they are. */
void out_write(const char *text, size_t n);
/* Text beside the results, to standard error; dim at a terminal, which receives no control
 * characters from the text. */
void out_aside(const char *text, size_t n);
/* A name that comes from a file: one line of visible characters, also in a pipe. */
void out_name(const char *text);
void out_line_of_ids(const int32_t *ids, size_t n); /* separated by spaces */
/* Flushes standard output; fails when something could not be written. */
pesc_status out_flush(void);

/* JSON goes into the file from now on; NULL: to standard output again. */
void out_json_to(FILE *f);

/* Writes JSON. key is NULL for the outermost value and inside arrays. Bytes that are
 * not UTF-8 become U+FFFD, numbers that are not finite become null. */
void out_begin(const char *key, char kind); /* '{' or '[' */
void out_end(void);                         /* the outermost end is followed by a newline */
void out_string(const char *key, const char *text, size_t n);
void out_text(const char *key, const char *text); /* NUL-terminated */
void out_int(const char *key, int64_t v);
void out_real(const char *key, double v);
void out_measure(const char *key, double v); /* six digits, for times and rates */
void out_bool(const char *key, bool v);
void out_ids(const char *key, const int32_t *ids, size_t n);
/* Fields of the open object: "name=%s loss=%g seconds=%.6g step=%ld", values as for printf(); %.6g
 * is out_measure(). */
void out_fields(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An object of such fields alone. */
void out_object(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "13.5 GiB", "6.74 B", "14.6 G": for people. The buffer is the caller's. */
typedef char out_number[32];
const char *out_bytes(out_number buffer, uint64_t bytes);
const char *out_count(out_number buffer, uint64_t n);
const char *out_flop(out_number buffer, uint64_t n);

#endif
