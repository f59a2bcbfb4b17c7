/* cmd_serve: an HTTP server. */
#include "cli/command.h"
#include "cli/open.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static pesc_server *serving; /* what a signal stops */

static void stop(int signal_number)
{
    (void)signal_number;
    pesc_server_stop(serving);
}

/* The server's threads inherit the handlers; any of them may run one. */
static void catch_signals(pesc_server *s)
{
    struct sigaction a = { .sa_handler = s ? stop : SIG_DFL, .sa_flags = SA_RESTART };
    sigemptyset(&a.sa_mask);
    if (s)
        serving = s;
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    if (!s)
        serving = NULL;
}

static void write_line(void *ud, const char *line)
{
    (void)ud;
    puts(line);
    fflush(stdout);
}

static void say_ready(const options *o, const pesc_server *s)
{
    bool v6 = strchr(o->serve.host, ':');
    if (o->json)
        printf("{\"host\":\"%s\",\"port\":%d}\n", o->serve.host, pesc_server_port(s));
    else if (!o->quiet)
        fprintf(stderr, "pesc: listening on http://%s%s%s:%d\n", v6 ? "[" : "", o->serve.host,
                v6 ? "]" : "", pesc_server_port(s));
    fflush(stdout);
}

pesc_status cmd_serve(const options *o)
{
    open_model m = { 0 };
    pesc_server *s = NULL;
    pesc_serve_options serve = o->serve;
    if (!o->quiet)
        serve.log = write_line;
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_server_open(&s, m.model, &serve);
    if (st == PESC_OK) {
        signal(SIGPIPE, SIG_IGN);
        catch_signals(s);
        say_ready(o, s);
        st = pesc_server_run(s);
        catch_signals(NULL);
    }
    pesc_server_close(s);
    open_free(&m);
    return st;
}
