/* head: the request line and the header fields of an HTTP/1.1 request, checked strictly.
 *
 * libmicrohttpd accepts more than RFC 9112 demands, in the places where servers and proxies have
 * disagreed about where a request ends: bare line feeds, folded lines, several lengths. A head that
 * passes here has one reading. */
#ifndef PESC_SERVE_HEAD_H
#define PESC_SERVE_HEAD_H

#include "serve/api.h"

enum {
    HEAD_MAX_LINE = 8 << 10,    /* bytes of the request line */
    HEAD_MAX_FIELDS = 16 << 10, /* bytes of all header fields */
    HEAD_MAX_COUNT = 64,        /* header fields */
    HEAD_MAX = HEAD_MAX_LINE + HEAD_MAX_FIELDS + 4,
};

typedef enum head_state {
    HEAD_PARTIAL, /* good so far, but not complete */
    HEAD_GOOD,
    HEAD_BAD, /* *e says why */
} head_state;

typedef struct head_rules {
    const char *const *hosts; /* names that Host may have, without a port; NULL: any */
    size_t n_hosts;
} head_rules;

head_state head_check(const char *bytes, size_t n, const head_rules *rules, api_error *e);

#endif
