/* apikeys: the keys of clients. */
#ifndef PESC_SERVE_APIKEYS_H
#define PESC_SERVE_APIKEYS_H

#include "serve/server.h"

pesc_status apikeys_read(pesc_server *s, const char *path);
/* Which of the keys the text of n bytes is, from 1; 0: none. In constant time. */
size_t apikeys_match(const pesc_server *s, const char *text, size_t n);

#endif
