/* body: the bytes of a request after its head, by Content-Length or in chunks (RFC 9112, 6 and 7),
 * as they come. Chunks are read as strictly as heads; extensions and trailers are ignored. */
#ifndef PESC_SERVE_HTTP_BODY_H
#define PESC_SERVE_HTTP_BODY_H

#include "serve/http/head.h"

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
