#include "serve/server.h"

#include "attach/served_adapters.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "serve/api/call.h"
#include "serve/api/endpoints.h"
#include "serve/api/responsestore.h"
#include "serve/http/front.h"

#include <xxhash.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { DEFAULT_CONTEXT = 4096 };

static pesc_status choose_chat(pesc_server *s)
{
    const char *name = s->opt.chat_format;
    bool own = !name || strcmp(name, CHAT_OWN) == 0;
    if (!own && !chat_find(name))
        return chat_unknown("chat_format: that chat format is not known");
    TRY(chat_open(&s->chat, s->m->tok, name, chat_otherwise(s->m->chat)));
    const tokenizer *t = s->m->tok;
    TRY(chat_speech_open(&s->speech, t, chat_tool_source(s->chat), s->opt.tool_format));
    s->prompts = (prompt_maker){ t, s->chat, s->speech, s->m->shape.cfg.vocab };
    return PESC_OK;
}

/* On an address of this machine alone a web page could reach the server through a name that it
 * makes point here (DNS rebinding): the names are therefore known. */
static pesc_status list_hosts(pesc_server *s)
{
    static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };
    size_t n_local = sizeof local / sizeof *local;
    if (!s->loopback && s->opt.n_allow_host == 0)
        return PESC_OK;
    s->hosts = mem_alloc(n_local + 1 + s->opt.n_allow_host, sizeof *s->hosts);
    if (!s->hosts)
        return fail_nomem("names of hosts", s->opt.n_allow_host);
    for (size_t i = 0; i < n_local; i++)
        s->hosts[s->n_hosts++] = local[i];
    s->hosts[s->n_hosts++] = s->opt.host;
    for (size_t i = 0; i < s->opt.n_allow_host; i++)
        s->hosts[s->n_hosts++] = s->opt.allow_host[i];
    return PESC_OK;
}

pesc_status server_open_front(pesc_server *s)
{
    s->created = (int64_t)clock_wall();
    s->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop_event < 0)
        return fail_errno(PESC_DEVICE, errno, "cannot open an event");
    if (s->opt.api_key_file)
        TRY(apikeys_read(s, s->opt.api_key_file));
    TRY(front_open(s));
    return list_hosts(s);
}

static pesc_status open_parts(pesc_server *s)
{
    const config *cfg = &s->m->shape.cfg;
    int32_t own = cfg->context < DEFAULT_CONTEXT ? cfg->context : DEFAULT_CONTEXT;
    s->context = s->opt.context ? (int32_t)s->opt.context : own;
    s->rules = (api_rules){ cfg->vocab, s->opt.lenient, pesc_sample_defaults() };
    TRY(pesc_model_sampling(s->m, &s->rules.sampling));
    if (s->context > cfg->context) { /* RoPE goes on, but what the model then says is worse */
        DEVICE_CALL(s->m->dev);
        log_notice("context: %d tokens are more than the %d that the model was made for; the "
                   "answers of longer conversations may be poor",
                   s->context, cfg->context);
    }
    snprintf(s->fingerprint, sizeof s->fingerprint, "b%012llx",
             (unsigned long long)XXH3_64bits(PESC_VERSION, sizeof PESC_VERSION - 1) &
                 0xffffffffffff);
    TRY(models_open(s));
    TRY(expertload_open(s));
    TRY(grammar_cache_open(&s->grammars, s->m));
    TRY(choose_chat(s));
    if (s->opt.store)
        TRY(responsestore_open(&s->responses));
    s->routes = &api_routes;
    TRY(server_open_front(s));
    return engine_open(s);
}

static pesc_status new_server(pesc_server **out, const pesc_serve_options *opt)
{
    pesc_serve_options o;
    TRY(options_take(PESC_OPTIONS_SERVE, &o, opt));
    pesc_server *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a server", sizeof *s);
    s->opt = o;
    s->stop_event = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    return PESC_OK;
}

/* st: how opening its parts went. */
static pesc_status opened(pesc_server **out, pesc_status st)
{
    if (st == PESC_OK)
        return PESC_OK;
    pesc_server_close(*out);
    *out = NULL;
    return st;
}

pesc_status pesc_server_open(pesc_server **out, pesc_model *m, const pesc_serve_options *opt)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(m);
    TRY(new_server(out, opt));
    (*out)->m = m;
    model_keep(m);
    return opened(out, open_parts(*out));
}

pesc_status pesc_runs_open(pesc_server **out, const char *const *folders, size_t n,
                           const pesc_serve_options *opt)
{
    status_clear();
    NEED(out);
    *out = NULL;
    if (n)
        NEED(folders);
    TRY(new_server(out, opt));
    (*out)->routes = &runs_routes;
    pesc_status st = runs_open(*out, folders, n);
    return opened(out, st == PESC_OK ? server_open_front(*out) : st);
}

int32_t pesc_server_port(const pesc_server *s)
{
    return s ? s->port : 0;
}

pesc_status pesc_server_run(pesc_server *s)
{
    status_clear();
    NEED(s);
    front_run(s->front);
    engine_close(s);
    front_flush(s->front);
    return s->engine_status == PESC_OK ? PESC_OK : fail(s->engine_status, "%s", s->engine_error);
}

void pesc_server_stop(pesc_server *s)
{
    uint64_t one = 1;
    if (s && write(s->stop_event, &one, sizeof one) < 0)
        return; /* the counter is not 0 already */
}

void pesc_server_close(pesc_server *s)
{
    if (!s)
        return;
    pesc_model *m = s->m;
    engine_close(s);
    front_close(s->front);
    if (s->stop_event >= 0)
        close(s->stop_event);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    mem_free(s->keys);
    mem_free(s->hosts);
    responsestore_close(s->responses);
    chat_speech_close(s->speech);
    chat_close(s->chat);
    models_close(s);
    runs_close(s);
    expertload_close(s);
    grammar_cache_close(s->grammars);
    if (m) {
        DEVICE_CALL(m->dev);
        served_adapters_close(m);
    }
    mem_free(s);
    pesc_model_close(m);
}
