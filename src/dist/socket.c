#include "dist/socket.h"

#include "base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RETRY_MS = 100 };

static pesc_status resolve(struct addrinfo **out, const char *host, int32_t port)
{
    char service[16];
    struct addrinfo want = { .ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = host ? 0 : AI_PASSIVE };
    snprintf(service, sizeof service, "%d", port);
    int e = getaddrinfo(host, service, &want, out);
    return e ? fail(PESC_USAGE, "%s: is not the name of a host: %s", host ? host : "",
                    gai_strerror(e))
             : PESC_OK;
}

static void prepare(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static int32_t port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char port[16] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        getnameinfo((struct sockaddr *)&at, n, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    int v = 0;
    for (const char *p = port; *p; p++)
        v = 10 * v + (*p - '0');
    return v;
}

pesc_status socket_listen(int *out, const char *host, int32_t *port)
{
    struct addrinfo *list = NULL;
    int yes = 1, err = 0;
    *out = -1;
    TRY(resolve(&list, host, *port));
    for (struct addrinfo *a = list; a && *out < 0; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
            *out = fd;
        } else {
            err = errno;
            socket_close(fd);
        }
    }
    freeaddrinfo(list);
    if (*out < 0)
        return fail_errno(PESC_DEVICE, err, "port %d of %s: cannot be listened on", *port,
                          host ? host : "this host");
    *port = port_of(*out);
    return PESC_OK;
}

/* Whether the socket became ready in time. */
static bool wait_for(int fd, short events, double until)
{
    struct pollfd p = { fd, events, 0 };
    for (;;) {
        double left = until - clock_seconds();
        int n = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (n > 0 || (n < 0 && errno != EINTR))
            return n > 0;
        if (left <= 0)
            return false;
    }
}

pesc_status socket_accept(int *out, int listening, double seconds)
{
    *out = -1;
    if (wait_for(listening, POLLIN, clock_seconds() + seconds))
        *out = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (*out < 0)
        return fail(PESC_LOST, "no process connected within %.0f s", seconds);
    prepare(*out);
    return PESC_OK;
}

static int connect_once(const char *host, int32_t port)
{
    struct addrinfo *list = NULL;
    int fd = -1;
    if (resolve(&list, host, port) != PESC_OK)
        return -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            socket_close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

pesc_status socket_connect(int *out, const char *host, int32_t port, double seconds)
{
    double until = clock_seconds() + seconds;
    while ((*out = connect_once(host, port)) < 0 && clock_seconds() < until)
        poll(NULL, 0, RETRY_MS);
    if (*out < 0)
        return fail(PESC_LOST, "%s port %d: no process answers there after %.0f s", host, port,
                    seconds);
    prepare(*out);
    return PESC_OK;
}

pesc_status socket_send(int fd, const void *data, size_t bytes, double seconds)
{
    double until = clock_seconds() + seconds;
    for (size_t at = 0; at < bytes;) {
        if (!wait_for(fd, POLLOUT, until))
            return fail(PESC_LOST, "a process does not read what it is sent");
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fail_errno(PESC_LOST, errno, "a connection is lost");
        at += n > 0 ? (size_t)n : 0;
    }
    return PESC_OK;
}

pesc_status socket_receive(int fd, void *data, size_t bytes, double seconds)
{
    double until = clock_seconds() + seconds;
    for (size_t at = 0; at < bytes;) {
        if (!wait_for(fd, POLLIN, until))
            return fail(PESC_LOST, "a process does not answer");
        ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return fail(PESC_LOST, "a process has closed its connection");
        at += n > 0 ? (size_t)n : 0;
    }
    return PESC_OK;
}

void socket_peer(int fd, char out[SOCKET_HOST])
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    out[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&at, &n) == 0)
        getnameinfo((struct sockaddr *)&at, n, out, SOCKET_HOST, NULL, 0, NI_NUMERICHOST);
}

void socket_own(int fd, char out[SOCKET_HOST])
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        getnameinfo((struct sockaddr *)&at, n, out, SOCKET_HOST, NULL, 0, NI_NUMERICHOST);
}

void socket_close(int fd)
{
    if (fd >= 0)
        close(fd);
}
