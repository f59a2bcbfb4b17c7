/* engine: the thread that owns the scheduler. It takes calls from the inbox, runs one forward after
 * another, and adds what comes out to the answers. A failure of a request ends the request; a
 * failure of a forward ends the requests that the scheduler has, and a new scheduler is opened. */
#ifndef PESC_SERVE_ENGINE_H
#define PESC_SERVE_ENGINE_H

#include "serve/server.h"

pesc_status engine_open(pesc_server *s);
/* Hands over a call, which the engine then owns, with its exchange. False: *e says why, and the
 * call is still the caller's. */
bool engine_add(pesc_server *s, call *c, api_error *e);
/* The client has left: the call is not generated any more. Under the lock. */
void engine_cancel(pesc_server *s, call *c);
/* Ends running calls with an error and the thread. */
void engine_close(pesc_server *s);

#endif
