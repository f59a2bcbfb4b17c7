/* jscan: strict JSON read in place, for files too large to be made into objects.
 *
 * A cursor over the text; the caller asks for what must come next. Nothing is kept but the cursor,
 * nothing recurses, and every failure names the file and the byte. Base/json is for
 * everything small. */
#ifndef PESC_FORMAT_JSCAN_H
#define PESC_FORMAT_JSCAN_H

#include "base/status.h"
#include "base/str.h"

enum { JSCAN_MAX_STRING = 4096, JSCAN_MAX_DEPTH = 64 };

typedef struct jscan {
    const char *file; /* for messages */
    const char *text;
    size_t n, at;
    size_t base; /* where text[0] is in the file */
} jscan;

/* "FILE: byte N: sentence", PESC_FORMAT; N is the byte of text[at]. */
pesc_status jscan_fail(const jscan *j, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The next byte after white space, not consumed; 0 at the end. */
char jscan_peek(jscan *j);
pesc_status jscan_expect(jscan *j, char c);

/* One string, unescaped. Invalid UTF-8, a lone surrogate, NUL and more than JSCAN_MAX_STRING bytes
 * are refused. */
pesc_status jscan_string(jscan *j, str *out);

/* A whole number without sign, fraction, exponent or leading zero. */
pesc_status jscan_u64(jscan *j, uint64_t *out);

/* Any value, checked and forgotten; at most JSCAN_MAX_DEPTH deep. */
pesc_status jscan_skip(jscan *j);

/* Walks an object or array whose opening bracket was consumed. `count` starts at 0 and counts;
 * false in *more: the closing bracket was consumed. jscan_member also reads the key and its colon.
 */
pesc_status jscan_member(jscan *j, size_t *count, bool *more, str *key);
pesc_status jscan_element(jscan *j, size_t *count, bool *more);

#endif
