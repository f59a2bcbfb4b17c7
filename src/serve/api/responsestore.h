/* responsestore: conversations of /v1/responses that later requests may go on with, of bounded
 * size: the one that was used least recently is forgotten first. */
#ifndef PESC_SERVE_API_RESPONSESTORE_H
#define PESC_SERVE_API_RESPONSESTORE_H

#include "serve/api/prompts.h"

struct call;
struct exchange;
typedef struct responsestore responsestore;

pesc_status responsestore_open(responsestore **out);
void responsestore_close(responsestore *s); /* NULL is allowed */

/* Whether the conversation of the call is kept when it is complete. */
bool responsestore_wants(const struct call *c);
/* Keeps it, where that is wanted. */
void responsestore_keep(const struct call *c);
/* Puts the conversation that the request goes on with before its messages. False: *e says why not.
 */
bool responsestore_go_on(struct call *c, api_error *e);

#endif
