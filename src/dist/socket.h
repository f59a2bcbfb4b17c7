/* socket: TCP connections between the processes of a run. All block, with a time limit. */
#ifndef PESC_DIST_SOCKET_H
#define PESC_DIST_SOCKET_H

#include "base/status.h"

enum { SOCKET_HOST = 64 }; /* bytes of a numeric address */

/* Listens on a port of one address of this host; port 0: any, *port receives it. `host` NULL: on
 * all addresses. */
pesc_status socket_listen(int *out, const char *host, int32_t *port);

/* The next connection; PESC_LOST when none comes in time. */
pesc_status socket_accept(int *out, int listening, double seconds);

/* Tries until something listens there; PESC_LOST when the time is over. */
pesc_status socket_connect(int *out, const char *host, int32_t port, double seconds);

/* All bytes or PESC_LOST. */
pesc_status socket_send(int fd, const void *data, size_t bytes, double seconds);
pesc_status socket_receive(int fd, void *data, size_t bytes, double seconds);

/* The numeric address of the other end, and of this one. */
void socket_peer(int fd, char out[SOCKET_HOST]);
void socket_own(int fd, char out[SOCKET_HOST]);

void socket_close(int fd); /* below 0 is allowed */

#endif
