/* head: the request line and the header fields of an HTTP/1.1 request, parsed strictly.
 *
 * RFC 9112 lets servers accept more than it demands, in the places where servers and proxies have
 * disagreed about where a request ends: bare line feeds, folded lines, several lengths. None of it
 * is accepted here, so a head that passes has one reading. */
#ifndef PESC_SERVE_HTTP_HEAD_H
#define PESC_SERVE_HTTP_HEAD_H

#include "serve/apierror.h"

#include <stdint.h>

enum {
    HEAD_MAX_LINE = 8 << 10,    /* bytes of the request line */
    HEAD_MAX_FIELDS = 16 << 10, /* bytes of all header fields */
    HEAD_MAX_COUNT = 64,        /* header fields */
    BODY_MAX = 4 << 20,         /* bytes of a body */
};

/* Bytes of the request, borrowed. */
typedef struct head_text {
    const char *p;
    size_t n;
} head_text;

typedef struct head_field {
    head_text name, value; /* without white space around them */
} head_field;

typedef struct head {
    size_t size; /* bytes of the head, with the empty line */
    head_text method, target;
    bool old;     /* HTTP/1.0 */
    bool close;   /* the client wants no further request on this connection */
    bool expects; /* 100 Continue */
    bool chunked;
    uint64_t length; /* of a body that is not chunked */
    head_field fields[HEAD_MAX_COUNT];
    int n_fields;
} head;

typedef enum head_state {
    HEAD_PARTIAL, /* good so far, but not complete */
    HEAD_GOOD,
    HEAD_BAD, /* *e says why; what was read before is in the head */
} head_state;

typedef struct head_rules {
    const char *const *hosts; /* names that Host may have, without a port; NULL: any */
    size_t n_hosts;
} head_rules;

head_state head_parse(head *h, const char *bytes, size_t n, const head_rules *rules, api_error *e);

/* The first field of that name, whatever its case; its p is NULL if there is none. */
head_text head_find(const head *h, const char *name);
/* Whether the text is this word, whatever its case. */
bool head_is(head_text t, const char *word);

/* ---- body.c: the bytes of a request after its head ----
 *
 * By Content-Length or in chunks (RFC 9112, 6 and 7), as they come. Chunks are read as strictly as
 * heads; extensions and trailers are ignored. */

enum { BODY_MAX_LINE = 1 << 10 }; /* bytes of the line of a chunk */

typedef enum body_state {
    BODY_PARTIAL,
    BODY_WHOLE,
    BODY_BAD, /* *e says why */
} body_state;

typedef struct body {
    enum { BODY_DATA, BODY_CHUNK_SIZE, BODY_CHUNK_END, BODY_TRAILER } expected;
    bool chunked;
    uint64_t left;  /* bytes of the body, or of the chunk */
    size_t trailer; /* bytes so far */
} body;

void body_open(body *b, const head *h);
/* Takes *used of n bytes: data is added to `to`. What is not used comes again, with more. */
body_state body_take(body *b, const char *bytes, size_t n, size_t *used, str *to, api_error *e);

#endif
