/* jinja_buf: a text that grows, with the origin of each byte. Lives in the pool of its context. */
#ifndef PESC_JINJA_JINJA_BUF_H
#define PESC_JINJA_JINJA_BUF_H

#include "jinja/jinja_value.h"

typedef struct jbuf {
    jctx *c;
    char *p;
    uint16_t *origin; /* NULL: all from the template */
    size_t n, cap;
} jbuf; /* start with { .c = c } */

void jbuf_add(jbuf *b, const char *p, size_t n, const uint16_t *origin);
void jbuf_puts(jbuf *b, const char *text);
void jbuf_putc(jbuf *b, char ch, uint16_t origin);
void jbuf_code(jbuf *b, uint32_t cp, uint16_t origin); /* a code point as UTF-8 */
void jbuf_str(jbuf *b, const jstr *s);
void jbuf_sub(jbuf *b, const jstr *s, size_t from, size_t n); /* bytes */
void jbuf_fill(jbuf *b, char ch, int64_t count);
void jbuf_flag(jbuf *b, size_t from, uint16_t flag); /* sets a flag in the origins from there */
/* What was built; the buffer must not be used after it. */
jvalue jbuf_value(jbuf *b);

#endif
