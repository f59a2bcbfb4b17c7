/* front: the HTTP/1.1 server. One thread, that of pesc_server_run(), accepts connections, reads
 * requests and writes answers; it never blocks. The handler of a request with a large body runs
 * on a thread of its own, and the engine adds to answers from a third. */
#ifndef PESC_SERVE_HTTP_FRONT_H
#define PESC_SERVE_HTTP_FRONT_H

#include "serve/exchange.h"

typedef struct front front;

/* Listens. */
pesc_status front_open(pesc_server *s);
void front_close(front *f); /* NULL is allowed; ends all connections */

/* Serves until s->stop_event; then no new requests are generated, and those that are have the time
 * of drain. */
void front_run(front *f);
/* Sends what is left of answers that are complete, for a second at most. */
void front_flush(front *f);

/* Something was added to the answer, or its state has changed. Under the server's lock. True: the
 * front must be woken, best without the lock, which it then takes. */
bool front_notify(front *f, exchange *x);
void front_wake(front *f);
/* It is about to be detached. Under the server's lock. */
void front_forget(front *f, exchange *x);

#endif
