/* The listening socket. A connection stays here until the head of its first request is complete;
 * the bytes are looked at, not taken (MSG_PEEK), and checked. Then libmicrohttpd gets the socket.
 * This keeps clients that send slowly or wrongly away from the thread that serves the others.
 *
 * The same loop watches the sockets of exchanges whose answers are being generated: libmicrohttpd
 * does not look at a connection that is suspended. */
#include "serve/exchange.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/head.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD_SECONDS = 10, /* for a head: of the first request, from the connection on */
    /* of a later one, from the answer before on: libmicrohttpd reads it, byte by byte if need be,
     * and does not tell when it begins */
    LATER_HEAD_SECONDS = HTTP_IDLE_SECONDS + HEAD_SECONDS,
    PING_SECONDS = 15, /* of silence in a stream */
    PER_ADDRESS = 32,  /* connections of an address of another machine */
    BACKLOG = 1024,
    EVENTS = 64,         /* that are taken from epoll at a time */
    DISCARD = 256 << 10, /* bytes that are read before a connection is closed */
};

/* What an event of epoll is about: a kind and a number. */
enum { ABOUT_LISTEN, ABOUT_STOP, ABOUT_HEAD, ABOUT_EXCHANGE, ABOUT_BITS = 2 };

typedef struct visitor {
    enum { CLOSED, WAITING, HANDED_ON } state;
    struct sockaddr_storage address;
    socklen_t n_address;
    double deadline; /* for a head; INFINITY: a request is being served */
    bool spoke;      /* a part of the head has come */
} visitor;

struct gate {
    int listener, epoll;
    bool full; /* there is no file descriptor for a new connection: none is accepted for a while */
    pthread_mutex_t lock; /* of the next three */
    visitor *visitors;    /* [n_visitors], by socket */
    size_t n_visitors;
    int32_t n_open;
    char head[HEAD_MAX + 1024];
};

static uint64_t about(int kind, uint64_t number)
{
    return number << ABOUT_BITS | (uint64_t)kind;
}

static bool add_event(const gate *g, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event e = { .events = events, .data.u64 = data };
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* ---- listening ---- */

static bool is_loopback(const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
    return a->sa_family == AF_INET    ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
           : a->sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)
                                      : false;
}

static pesc_status listen_on(pesc_server *s, gate *g, const struct addrinfo *a)
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
    g->listener = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (g->listener >= 0)
        (void)setsockopt(g->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (g->listener < 0 || bind(g->listener, a->ai_addr, a->ai_addrlen) != 0 ||
        listen(g->listener, BACKLOG) != 0 ||
        getsockname(g->listener, (struct sockaddr *)(void *)&bound, &n) != 0)
        return fail_errno(PESC_DEVICE, errno, "cannot listen on %s, port %d", s->opt.host,
                          (int)s->opt.port);
    s->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    return PESC_OK;
}

pesc_status gate_open(pesc_server *s)
{
    gate *g = s->gate = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("a server", sizeof *g);
    g->listener = -1;
    pthread_mutex_init(&g->lock, NULL);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (g->epoll < 0)
        return fail_errno(PESC_DEVICE, errno, "cannot watch connections");
    char port[16];
    struct addrinfo *found,
        hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE };
    snprintf(port, sizeof port, "%d", (int)s->opt.port);
    const char *host = strcmp(s->opt.host, "localhost") == 0 ? "127.0.0.1" : s->opt.host;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        return fail(PESC_USAGE, "host: found \"%s\", expected an address such as 127.0.0.1: %s",
                    s->opt.host, gai_strerror(error));
    pesc_status st = listen_on(s, g, found);
    freeaddrinfo(found);
    if (st == PESC_OK && !(add_event(g, g->listener, EPOLLIN, about(ABOUT_LISTEN, 0)) &&
                           add_event(g, s->stop_event, EPOLLIN, about(ABOUT_STOP, 0))))
        st = fail_errno(PESC_DEVICE, errno, "cannot watch connections");
    return st;
}

void gate_close(gate *g)
{
    if (!g)
        return;
    for (size_t fd = 0; fd < g->n_visitors; fd++)
        if (g->visitors[fd].state == WAITING)
            close((int)fd);
    if (g->listener >= 0)
        close(g->listener);
    if (g->epoll >= 0)
        close(g->epoll);
    pthread_mutex_destroy(&g->lock);
    mem_free(g->visitors);
    mem_free(g);
}

/* ---- connections ---- */

void gate_watch(gate *g, int fd, uint64_t number)
{
    (void)add_event(g, fd, EPOLLRDHUP | EPOLLONESHOT, about(ABOUT_EXCHANGE, number));
}

void gate_unwatch(gate *g, int fd)
{
    (void)epoll_ctl(g->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* The socket is open until this returns, so its number cannot be that of a new connection yet. */
void gate_closed(gate *g, int fd)
{
    pthread_mutex_lock(&g->lock);
    g->n_open -= g->visitors[fd].state != CLOSED;
    g->visitors[fd].state = CLOSED;
    pthread_mutex_unlock(&g->lock);
}

void gate_serves(gate *g, int fd, bool serves)
{
    pthread_mutex_lock(&g->lock);
    g->visitors[fd].deadline = serves ? INFINITY : clock_seconds() + LATER_HEAD_SECONDS;
    pthread_mutex_unlock(&g->lock);
}

/* The other fields of a visitor that waits belong to this thread. */
static bool is_waiting(gate *g, size_t fd)
{
    pthread_mutex_lock(&g->lock);
    bool waits = g->visitors[fd].state == WAITING;
    pthread_mutex_unlock(&g->lock);
    return waits;
}

static void dismiss(gate *g, int fd, const api_error *e)
{
    if (e)
        http_send_error(fd, e);
    /* What is left unread would make the kernel reset the connection and discard the answer. */
    for (size_t n = 0; e && n < DISCARD;) {
        ssize_t got = recv(fd, g->head, sizeof g->head, MSG_DONTWAIT);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    gate_closed(g, fd);
    close(fd);
}

static bool same_address(const visitor *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)&a->address, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)&a->address, *b6 = (const void *)b;
    if (a->address.ss_family != b->ss_family)
        return false;
    return b->ss_family == AF_INET
               ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
               : memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

/* Whether the limits allow one more. */
static bool has_room(const pesc_server *s, const gate *g, const struct sockaddr_storage *a)
{
    int32_t same = 0;
    if (g->n_open >= s->opt.max_connections)
        return false;
    if (is_loopback((const struct sockaddr *)(const void *)a))
        return true;
    for (size_t i = 0; i < g->n_visitors; i++)
        same += g->visitors[i].state != CLOSED && same_address(&g->visitors[i], a);
    return same < PER_ADDRESS;
}

/* False: no memory. */
static bool enter(gate *g, int fd, const struct sockaddr_storage *a, socklen_t n)
{
    size_t need = (size_t)fd + 1;
    if (need > g->n_visitors) {
        visitor *more = mem_grow(g->visitors, 2 * need, sizeof *more);
        if (!more)
            return false;
        memset(more + g->n_visitors, 0, (2 * need - g->n_visitors) * sizeof *more);
        g->visitors = more;
        g->n_visitors = 2 * need;
    }
    g->visitors[fd] = (visitor){
        .state = WAITING, .address = *a, .n_address = n, .deadline = clock_seconds() + HEAD_SECONDS
    };
    g->n_open++;
    return true;
}

static void accept_one(pesc_server *s, gate *g, int fd, const struct sockaddr_storage *a,
                       socklen_t n)
{
    api_error e;
    pthread_mutex_lock(&g->lock);
    bool room = has_room(s, g, a), in = enter(g, fd, a, n);
    pthread_mutex_unlock(&g->lock);
    if (!in) {
        close(fd);
    } else if (!room) {
        api_refuse(&e, 503, "too_many_connections", NULL,
                   "there are too many connections; try again later");
        dismiss(g, fd, &e);
    } else if (!add_event(g, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, about(ABOUT_HEAD, (uint64_t)fd))) {
        dismiss(g, fd, NULL);
    }
}

/* Clients that are not accepted wait in the kernel; their event would come again and again. */
static void set_full(gate *g, bool full)
{
    struct epoll_event e = { .events = full ? 0 : EPOLLIN, .data.u64 = about(ABOUT_LISTEN, 0) };
    (void)epoll_ctl(g->epoll, EPOLL_CTL_MOD, g->listener, &e);
    g->full = full;
}

static void accept_all(pesc_server *s, gate *g)
{
    struct sockaddr_storage a;
    for (int i = 0; i < EVENTS; i++) {
        socklen_t n = sizeof a;
        int fd =
            accept4(g->listener, (struct sockaddr *)(void *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            set_full(g, true);
        if (fd < 0)
            return;
        accept_one(s, g, fd, &a, n);
    }
}

/* Looks at what has come of a head. */
static void look(pesc_server *s, gate *g, int fd)
{
    api_error e;
    head_rules rules = { s->hosts, s->n_hosts };
    visitor *v = &g->visitors[fd];
    ssize_t n = recv(fd, g->head, sizeof g->head, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        dismiss(g, fd, NULL);
        return;
    }
    v->spoke = true;
    switch (head_check(g->head, (size_t)n, &rules, &e)) {
    case HEAD_PARTIAL:
        break;
    case HEAD_BAD:
        dismiss(g, fd, &e);
        break;
    case HEAD_GOOD:
        gate_unwatch(g, fd);
        pthread_mutex_lock(&g->lock);
        v->state = HANDED_ON;
        v->deadline = INFINITY;
        pthread_mutex_unlock(&g->lock);
        http_take(s, fd, &v->address, v->n_address);
    }
}

/* ---- the loop ---- */

static exchange *find_exchange(const pesc_server *s, uint64_t number)
{
    exchange *x = s->live;
    while (x && x->number != number)
        x = x->next;
    return x;
}

/* The client of an exchange has closed its side. */
static void notice_leaving(pesc_server *s, uint64_t number)
{
    pthread_mutex_lock(&s->lock);
    exchange *x = find_exchange(s, number);
    if (x && x->conn && !x->finished) {
        x->broken = true;
        if (x->call)
            engine_cancel(s, x->call);
        exchange_resume(x);
    }
    pthread_mutex_unlock(&s->lock);
}

static void take_event(pesc_server *s, const struct epoll_event *e)
{
    gate *g = s->gate;
    uint64_t number = e->data.u64 >> ABOUT_BITS;
    switch ((int)(e->data.u64 & ((1 << ABOUT_BITS) - 1))) {
    case ABOUT_LISTEN:
        accept_all(s, g);
        break;
    case ABOUT_HEAD:
        if (is_waiting(g, number))
            look(s, g, (int)number);
        break;
    case ABOUT_EXCHANGE:
        notice_leaving(s, number);
        break;
    case ABOUT_STOP:
        break;
    }
}

/* Ends a connection of libmicrohttpd, which sends nothing on it now. The lock keeps its socket open
 * (gate_closed). */
static void end_late(gate *g, int fd, const api_error *e)
{
    pthread_mutex_lock(&g->lock);
    if (g->visitors[fd].state == HANDED_ON && clock_seconds() >= g->visitors[fd].deadline) {
        http_send_error(fd, e);
        (void)shutdown(fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Heads that take too long. */
static void end_slow_heads(gate *g)
{
    double now = clock_seconds();
    api_error e;
    api_refuse(&e, 408, "head_timeout", NULL, "the head of the request took more than %d seconds",
               HEAD_SECONDS);
    for (size_t fd = 0; fd < g->n_visitors; fd++) {
        if (!is_waiting(g, fd))
            end_late(g, (int)fd, &e);
        else if (now >= g->visitors[fd].deadline)
            dismiss(g, (int)fd, g->visitors[fd].spoke ? &e : NULL);
    }
}

/* Streams that have been silent for long. */
static void ping_streams(pesc_server *s)
{
    static const char ping[] = ": ping\n\n";
    double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    for (exchange *x = s->live; x; x = x->next)
        if (x->conn && x->call && x->stream && x->queued && now - x->pushed > PING_SECONDS) {
            str_add(&x->out, ping, sizeof ping - 1);
            x->pushed = now;
            exchange_resume(x);
        }
    pthread_mutex_unlock(&s->lock);
}

static bool is_idle(pesc_server *s)
{
    pthread_mutex_lock(&s->lock);
    bool idle = s->n_active == 0;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

void gate_run(pesc_server *s)
{
    struct epoll_event events[EVENTS];
    double looked = 0, deadline = 0; /* deadline 0: not draining */
    while (deadline == 0 || (clock_seconds() < deadline && !is_idle(s))) {
        int n = epoll_wait(s->gate->epoll, events, EVENTS, deadline == 0 ? 1000 : 20);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == about(ABOUT_STOP, 0) && deadline == 0) {
                gate_unwatch(s->gate, s->stop_event);
                deadline = clock_seconds() + (double)s->opt.drain;
                pthread_mutex_lock(&s->lock);
                s->draining = true;
                pthread_mutex_unlock(&s->lock);
            }
            take_event(s, &events[i]);
        }
        if (clock_seconds() - looked >= 1) {
            looked = clock_seconds();
            end_slow_heads(s->gate);
            ping_streams(s);
            if (s->gate->full)
                set_full(s->gate, false);
        }
    }
}
