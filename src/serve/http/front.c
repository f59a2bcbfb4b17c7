/* The listening socket, its limits, and the loop. */
#include "serve/http/connection.h"

#include "base/clock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    PING_SECONDS = 15, /* of silence in a stream */
    FLUSH_SECONDS = 1, /* for answers that are complete when the server ends */
    PER_ADDRESS = 32,  /* connections of an address of another machine */
    BACKLOG = 1024,
    EVENTS = 64, /* that are taken from epoll at a time */
};

/* ---- listening ---- */

static bool is_loopback(const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
    return a->sa_family == AF_INET    ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
           : a->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)
                                      : false;
}

static pesc_status listen_on(pesc_server *s, front *f, const struct addrinfo *a)
{
    int on = 1;
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    s->loopback = is_loopback(a->ai_addr);
    if (!s->loopback && s->n_keys == 0)
        return fail(PESC_USAGE,
                    "%s is an address that other machines can reach: give "
                    "--api-key-file, or listen on 127.0.0.1",
                    s->opt.host);
    f->listener = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (f->listener >= 0)
        (void)setsockopt(f->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (f->listener < 0 || bind(f->listener, a->ai_addr, a->ai_addrlen) != 0 ||
        listen(f->listener, BACKLOG) != 0 ||
        getsockname(f->listener, (struct sockaddr *)(void *)&bound, &n) != 0)
        return fail_errno(PESC_DEVICE, errno, "cannot listen on %s, port %d", s->opt.host,
                          (int)s->opt.port);
    s->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    return PESC_OK;
}

/* The data of the loop's own three descriptors points to the front, that of a connection to itself.
 */
static bool add_event(const front *f, int fd, uint32_t events, const int *data)
{
    struct epoll_event e = { .events = events, .data.ptr = (void *)(uintptr_t)data };
    return epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

pesc_status front_open(pesc_server *s)
{
    front *f = s->front = mem_zalloc(1, sizeof *f);
    if (!f)
        return fail_nomem("a server", sizeof *f);
    f->srv = s;
    f->listener = -1;
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->epoll < 0 || f->wake < 0)
        return fail_errno(PESC_DEVICE, errno, "cannot watch connections");
    TRY(thread_queue_open(&f->large, 1, connection_run_large));
    char port[16];
    struct addrinfo *found,
        hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE };
    snprintf(port, sizeof port, "%d", (int)s->opt.port);
    const char *host = strcmp(s->opt.host, "localhost") == 0 ? "127.0.0.1" : s->opt.host;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return fail(PESC_USAGE, "host: found \"%s\", expected an address such as 127.0.0.1: %s",
                    s->opt.host, gai_strerror(error));
    pesc_status st = listen_on(s, f, found);
    freeaddrinfo(found);
    if (st == PESC_OK && !(add_event(f, f->listener, EPOLLIN, &f->listener) &&
                           add_event(f, f->wake, EPOLLIN | EPOLLET, &f->wake) &&
                           add_event(f, s->stop_event, EPOLLIN, &s->stop_event)))
        st = fail_errno(PESC_DEVICE, errno, "cannot watch connections");
    return st;
}

static void free_closed(front *f)
{
    for (connection *c = f->closed, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    f->closed = NULL;
}

void front_close(front *f)
{
    if (!f)
        return;
    thread_queue_close(f->large, connection_drop_large);
    while (f->open)
        connection_close(f, f->open);
    free_closed(f);
    const int all[] = { f->listener, f->wake, f->epoll };
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            close(all[i]);
    mem_free(f);
}

/* ---- new connections ---- */

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->ss_family != b->ss_family)
        return false;
    return b->ss_family == AF_INET
               ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
               : memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

/* Whether the limits allow one more. */
static bool has_room(const front *f, const struct sockaddr_storage *a)
{
    int32_t same = 0;
    if (f->n_open >= f->srv->opt.max_connections)
        return false;
    if (is_loopback((const struct sockaddr *)(const void *)a))
        return true;
    for (const connection *c = f->open; c; c = c->next)
        same += same_address(&c->address, a);
    return same < PER_ADDRESS;
}

/* A client too many: it gets an error, and no connection. */
static void reject(front *f, int fd)
{
    api_error e;
    str out = { 0 };
    exchange x = { .srv = f->srv, .id = "-", .type = "application/json" };
    api_refuse(&e, 503, "too_many_connections", NULL,
               "there are too many connections; try again later");
    e.retry_after = 1;
    exchange_fail(&x, &e);
    respond_head(&x, false, true, &out);
    str_add(&out, x.out.p ? x.out.p : "", x.out.n);
    if (str_ok(&out))
        (void)send(fd, out.p, out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    /* what is left unread would make the kernel discard the answer */
    (void)recv(fd, f->buffer, sizeof f->buffer, MSG_DONTWAIT);
    close(fd);
    str_free(&x.out);
    str_free(&out);
}

/* Clients that are not accepted wait in the kernel; their event would come again and again. */
static void set_full(front *f, bool full)
{
    struct epoll_event e = { .events = full ? 0 : EPOLLIN, .data.ptr = &f->listener };
    (void)epoll_ctl(f->epoll, EPOLL_CTL_MOD, f->listener, &e);
    f->full = full;
}

static void accept_some(front *f)
{
    struct sockaddr_storage a;
    for (int i = 0; i < EVENTS; i++) {
        int on = 1;
        socklen_t n = sizeof a;
        int fd =
            accept4(f->listener, (struct sockaddr *)(void *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            set_full(f, true);
        if (fd < 0)
            return;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!has_room(f, &a))
            reject(f, fd);
        else if (!connection_open(f, fd, &a))
            close(fd);
    }
}

/* ---- answers that go on ---- */

bool front_notify(front *f, exchange *x)
{
    if (x->ready || !x->conn)
        return false;
    bool first = !f->ready;
    x->ready = true;
    x->next_ready = f->ready;
    f->ready = x;
    return first;
}

void front_wake(front *f)
{
    uint64_t one = 1;
    if (write(f->wake, &one, sizeof one) < 0)
        return; /* the counter is not 0 already */
}

void front_forget(front *f, exchange *x)
{
    exchange **at = &f->ready;
    if (!x->ready)
        return;
    while (*at != x)
        at = &(*at)->next_ready;
    *at = x->next_ready;
    x->ready = false;
}

static void advance_ready(front *f)
{
    pesc_server *s = f->srv;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        exchange *x = f->ready;
        connection *c = x ? x->conn : NULL;
        if (x) {
            f->ready = x->next_ready;
            x->ready = false;
        }
        pthread_mutex_unlock(&s->lock);
        if (!x)
            return;
        connection_advance(f, c);
    }
}

/* ---- the loop ---- */

/* Streams that have been silent for long. */
static void ping_streams(front *f)
{
    static const char ping[] = ": ping\n\n";
    double now = clock_seconds();
    pesc_server *s = f->srv;
    pthread_mutex_lock(&s->lock);
    for (exchange *x = s->live; x; x = x->next)
        if (x->state == EXCHANGE_GENERATES && x->stream && now - x->pushed > PING_SECONDS) {
            str_add(&x->out, ping, sizeof ping - 1);
            x->pushed = now;
            (void)front_notify(f, x);
        }
    pthread_mutex_unlock(&s->lock);
    advance_ready(f);
}

static void end_late(front *f)
{
    double now = clock_seconds();
    for (connection *c = f->open, *next; c; c = next) {
        next = c->next;
        if (now >= c->deadline)
            connection_deadline(f, c);
    }
}

/* Whether answers are being made or sent. */
static bool is_active(front *f)
{
    bool active = false;
    pesc_server *s = f->srv;
    pthread_mutex_lock(&s->lock);
    for (const exchange *x = s->live; x && !active; x = x->next)
        active = x->state != EXCHANGE_READS;
    pthread_mutex_unlock(&s->lock);
    return active;
}

/* Waits for events, milliseconds at most, and serves them. */
static void turn(front *f, int milliseconds, bool *stop)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(f->epoll, events, EVENTS, milliseconds);
    for (int i = 0; i < n; i++) {
        const void *data = events[i].data.ptr;
        if (data == &f->listener)
            accept_some(f);
        else if (data == &f->wake)
            advance_ready(f);
        else if (data == &f->srv->stop_event)
            *stop = true;
        else
            connection_event(f, events[i].data.ptr, events[i].events);
    }
    free_closed(f);
}

void front_run(front *f)
{
    pesc_server *s = f->srv;
    bool stop = false;
    double looked = 0, deadline = 0; /* deadline 0: not draining */
    while (deadline == 0 || (clock_seconds() < deadline && is_active(f))) {
        turn(f, deadline == 0 ? 1000 : 20, &stop);
        if (stop && deadline == 0) {
            (void)epoll_ctl(f->epoll, EPOLL_CTL_DEL, s->stop_event, NULL);
            deadline = clock_seconds() + (double)s->opt.drain;
            pthread_mutex_lock(&s->lock);
            s->state = SERVER_DRAINS;
            pthread_mutex_unlock(&s->lock);
        }
        if (clock_seconds() - looked >= 1) {
            looked = clock_seconds();
            end_late(f);
            ping_streams(f);
            if (f->full)
                set_full(f, false);
        }
    }
}

void front_flush(front *f)
{
    bool stop;
    double end = clock_seconds() + FLUSH_SECONDS;
    while (is_active(f) && clock_seconds() < end)
        turn(f, 5, &stop);
}
