/* bodytext: what must be known of a body's JSON text before it is parsed.
 *
 * jansson's parser is recursive and has no limit of nesting of its own, its integers have 64 bits
 * with a sign, and of a number that is out of range it does not say in which field it is. */
#ifndef PESC_SERVE_API_BODYTEXT_H
#define PESC_SERVE_API_BODYTEXT_H

#include "serve/apierror.h"

#include <stdint.h>

/* Whether nesting and numbers are within limits. The text has n bytes and a NUL. A `seed` from 2^63
 * to 2^64 - 1 is taken out of it: *seed has its bits, *has_seed is true and the text has a 0. */
bool bodytext_check(char *text, size_t n, int64_t *seed, bool *has_seed, api_error *e);

#endif
