/* Endpoints that generate nothing. */
#include "serve/api/response.h"
#include "serve/api/endpoints.h"

#include <string.h>

bool handle_health(exchange *x)
{
    pthread_mutex_lock(&x->srv->lock);
    bool serves = x->srv->state == SERVER_SERVES;
    pthread_mutex_unlock(&x->srv->lock);
    return serves ? exchange_reply(x, json_pack("{s:s}", "status", "ok"))
                  : api_shutting_down(&x->error);
}

bool handle_version(exchange *x)
{
    return exchange_reply(x, json_pack("{s:s}", "version", pesc_version()));
}

bool handle_metrics(exchange *x)
{
    pesc_server *s = x->srv;
    size_t n;
    const char *const *names = endpoint_names(&n);
    bool vllm = s->opt.metrics_alias && strcmp(s->opt.metrics_alias, "vllm") == 0;
    pthread_mutex_lock(&s->lock);
    metrics_now now = { s->running, s->waiting + s->n_inbox, s->pages, s->pages_used };
    prometheus_text(&s->metrics, &now, names, n, vllm ? s->models[0].name : NULL, &x->out);
    expertload_metrics(s, &x->out);
    pthread_mutex_unlock(&s->lock);
    x->status = 200;
    x->type = "text/plain; version=0.0.4; charset=utf-8";
    return true;
}

/* What one key asks for is not shown to another. */
bool handle_requests(exchange *x)
{
    pesc_server *s = x->srv;
    json_t *list = json_array();
    pthread_mutex_lock(&s->lock);
    for (const exchange *o = s->live; o; o = o->next)
        if (o->call && o->key == x->key)
            json_array_append_new(
                list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "id", o->id, "path", o->path,
                                "model", o->call->model->name, "state",
                                o->call->state == CALL_RUNS ? "running" : "waiting",
                                "prompt_tokens", (json_int_t)o->prompt_tokens, "generated_tokens",
                                (json_int_t)o->generated_tokens, "expert_counts",
                                expertload_counts(&s->load, o->call->expert_counts)));
    pthread_mutex_unlock(&s->lock);
    return exchange_reply(x, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

/* As llama.cpp's server has it: a list of all slots, those that run first. Of requests of another
 * key it is only said that they run. */
bool handle_slots(exchange *x)
{
    pesc_server *s = x->srv;
    json_t *list = json_array();
    pthread_mutex_lock(&s->lock);
    const exchange *o = s->live;
    for (int64_t i = 0; i < s->opt.max_streams; i++) {
        while (o && !(o->call && o->call->state == CALL_RUNS))
            o = o->next;
        const exchange *own = o && o->key == x->key ? o : NULL;
        json_array_append_new(list,
                              json_pack("{s:I, s:i, s:b, s:s?, s:I, s:I}", "id", (json_int_t)i,
                                        "n_ctx", (int)s->context, "is_processing", o != NULL,
                                        "request", own ? own->id : NULL, "n_prompt_tokens",
                                        (json_int_t)(own ? own->prompt_tokens : 0), "n_decoded",
                                        (json_int_t)(own ? own->generated_tokens : 0)));
        o = o ? o->next : NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return exchange_reply(x, list);
}

/* As llama.cpp's server has them, without paths of this machine. */
bool handle_props(exchange *x)
{
    const pesc_server *s = x->srv;
    const tokenizer *t = s->m->tok;
    api_request r;
    api_defaults(&r, API_NATIVE, &s->rules);
    json_t *params =
        json_pack("{s:f, s:I, s:f, s:f, s:I, s:i}", "temperature", r.sample.temperature, "top_k",
                  (json_int_t)r.sample.top_k, "top_p", r.sample.top_p, "min_p", r.sample.min_p,
                  "n_predict", (json_int_t)r.max_tokens, "seed", -1);
    return exchange_reply(
        x, json_pack("{s:{s:i, s:o}, s:i, s:s, s:o, s:o, s:s?, s:s}", "default_generation_settings",
                     "n_ctx", (int)s->context, "params", params, "total_slots",
                     (int)s->opt.max_streams, "model_alias", s->models[0].name, "bos_token",
                     response_token(t, t ? tokenizer_bos(t) : -1), "eos_token",
                     response_token(t, t ? tokenizer_eos(t) : -1), "chat_template",
                     t ? tokenizer_chat_template(t) : NULL, "build_info", pesc_version()));
}
