/* cmd_serve: an HTTP server. */
#include "cli/command.h"
#include "cli/open.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

/* NAME=DIR is a model of its own; a directory alone is applied to MODEL itself, as everywhere. */
static pesc_status split_loras(options *o, const char **named)
{
    size_t n = 0;
    for (size_t i = 0; i < o->serve.n_lora; i++) {
        const char *text = o->serve.lora[i];
        if (text[strcspn(text, "=/")] == '=') {
            named[n++] = text;
            continue;
        }
        if (o->load.lora)
            return out_fail(PESC_USAGE,
                            "serve: --lora: found \"%s\" and \"%s\", expected NAME=DIR, or one "
                            "DIR for MODEL itself",
                            o->load.lora, text);
        o->load.lora = text;
    }
    o->serve.lora = named;
    o->serve.n_lora = n;
    return PESC_OK;
}

static pesc_status serve(const options *o)
{
    open_model m = { 0 };
    pesc_server *s = NULL;
    pesc_serve_options opt = o->serve;
    if (!o->quiet)
        opt.log = write_line;
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_server_open(&s, m.model, &opt);
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

pesc_status cmd_serve(const options *o)
{
    options own = *o;
    const char **named = calloc(o->serve.n_lora + 1, sizeof *named);
    if (!named)
        return out_fail(PESC_NOMEM, "serve: out of memory");
    pesc_status st = split_loras(&own, named);
    if (st == PESC_OK)
        st = serve(&own);
    free(named);
    return st;
}
