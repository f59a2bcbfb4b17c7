/* digest: SHA-256 as lower-case hexadecimal text. */
#ifndef PESC_EVAL_DIGEST_H
#define PESC_EVAL_DIGEST_H

#include "base/status.h"

enum { DIGEST_TEXT = 65 }; /* 64 digits and the terminator */

void digest_text(char out[DIGEST_TEXT], const char *p, size_t n);

/* Of bytes that come in pieces. */
typedef struct digest digest;
pesc_status digest_open(digest **out);
void digest_add(digest *d, const char *p, size_t n);
void digest_close(digest *d, char out[DIGEST_TEXT]); /* both may be NULL */

#endif
