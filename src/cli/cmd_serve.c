/* cmd_serve: an HTTP server: of a model (serve), or of the page of runs (runs). */
#include "cli/command.h"
#include "cli/opt/open.h"

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

/* The server's threads inherit the handlers; any of them may run one. SIGHUP stays ignored where it
 * is, under nohup. */
static void catch_signals(pesc_server *s)
{
    struct sigaction hup, a = { .sa_handler = s ? stop : SIG_DFL, .sa_flags = SA_RESTART };
    sigemptyset(&a.sa_mask);
    if (s)
        serving = s;
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
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

/* An option whose values are NAME=DIR, a model of its own, or DIR alone, which is applied to MODEL
 * itself, as everywhere. */
typedef struct named_option {
    const char *flag;
    const char *const **values; /* the option's; afterwards the named ones */
    size_t *n;
    const char **whole; /* receives the directory without a name */
    const char **named; /* room for all values */
} named_option;

static pesc_status split_names(const named_option *a)
{
    size_t n = 0;
    for (size_t i = 0; i < *a->n; i++) {
        const char *text = (*a->values)[i];
        if (text[strcspn(text, "=/")] == '=') {
            a->named[n++] = text;
            continue;
        }
        if (*a->whole)
            return out_fail(PESC_USAGE,
                            "serve: %s: found \"%s\" and \"%s\", expected NAME=DIR, or one "
                            "DIR for MODEL itself",
                            a->flag, *a->whole, text);
        *a->whole = text;
    }
    *a->values = a->named;
    *a->n = n;
    return PESC_OK;
}

static pesc_status run_server(const options *o, pesc_server *s)
{
    signal(SIGPIPE, SIG_IGN);
    catch_signals(s);
    say_ready(o, s);
    pesc_status st = pesc_server_run(s);
    catch_signals(NULL);
    return st;
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
    if (st == PESC_OK)
        st = run_server(o, s);
    pesc_server_close(s);
    open_free(&m);
    return st;
}

pesc_status cmd_runs(const options *o)
{
    pesc_server *s = NULL;
    pesc_status st = pesc_runs_open(&s, o->inputs, o->n_inputs, &o->serve);
    if (st == PESC_OK)
        st = run_server(o, s);
    pesc_server_close(s);
    return st;
}

pesc_status cmd_serve(const options *o)
{
    options own = *o;
    size_t n_lora = o->serve.n_lora, n_patch = o->serve.n_patch;
    const char **named = calloc(n_lora + n_patch + 1, sizeof *named);
    if (!named)
        return out_fail(PESC_NOMEM, "serve: out of memory");
    named_option lora = { "--lora", &own.serve.lora, &own.serve.n_lora, &own.load.lora, named };
    named_option patch = { "--patch", &own.serve.patch, &own.serve.n_patch, &own.load.patch,
                           named + n_lora };
    pesc_status st = split_names(&lora);
    if (st == PESC_OK)
        st = split_names(&patch);
    if (st == PESC_OK)
        st = serve(&own);
    free(named);
    return st;
}
