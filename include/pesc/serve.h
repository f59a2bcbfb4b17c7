/* serve: an HTTP server that answers as OpenAI's does. Part of pesc.h. */
#ifndef PESC_SERVE_H
#define PESC_SERVE_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_serve_options {
    size_t size;
    /* One line for each request that is answered, without a newline. Called by threads of the
     * server, one at a time. NULL: no access log. */
    void (*log)(void *ud, const char *line);
    void *ud;
    PESC_SERVE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_serve_options;

typedef struct pesc_server pesc_server;

/* Listens, and starts the threads that answer; docs/serve.md has the interface. The texts of the
 * options must stay until the server is closed. The server holds the device for one forward at a
 * time. PESC_USAGE: the address reaches beyond this machine and there is no key; PESC_DEVICE: the
 * address cannot be used. */
pesc_status pesc_server_open(pesc_server **out, pesc_model *m, const pesc_serve_options *opt);
/* The same front without a model: a page of the training runs in the n folders and below them (the
 * current one where n is 0), drawn from metrics.jsonl, eval.jsonl and routing.jsonl while they grow
 * and afterwards. Of the options those of the address, of keys and of connections count. PESC_IO: a
 * folder is not there. */
pesc_status pesc_runs_open(pesc_server **out, const char *const *folders, size_t n,
                           const pesc_serve_options *opt);
int32_t pesc_server_port(const pesc_server *s); /* that it listens on; 0: s is NULL */

/* Accepts connections until pesc_server_stop(), then lets running requests end. */
pesc_status pesc_server_run(pesc_server *s);
/* From any thread or signal handler: ends pesc_server_run(). */
void pesc_server_stop(pesc_server *s);
void pesc_server_close(pesc_server *s);

#endif
