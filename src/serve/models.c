/* Names of models, and the endpoints that list them. */
#include "serve/server.h"

#include "attach/served_adapters.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "serve/api/endpoints.h"

#include <string.h>

/* The last part of the model's path. */
static const char *last_part(const char *path, size_t *n)
{
    *n = strlen(path);
    while (*n > 1 && path[*n - 1] == '/')
        --*n;
    const char *slash = memrchr(path, '/', *n);
    if (!slash || *n == 1)
        return path;
    *n -= (size_t)(slash + 1 - path);
    return slash + 1;
}

/* option: what gives the name. It is written into headers, logs and figures. */
static pesc_status add_model(pesc_server *s, const char *option, const char *name, size_t n)
{
    char shown[256];
    utf8_visible(shown, sizeof shown, name, n);
    if (strlen(shown) != n || memcmp(shown, name, n) != 0)
        return fail(
            PESC_USAGE,
            "%s: found the name \"%s\", expected at most %zu bytes of UTF-8 without control "
            "characters",
            option, shown, sizeof shown - 1);
    served_model *more = mem_grow(s->models, s->n_models + 1, sizeof *more);
    char *copy = mem_strndup(name, n);
    if (more)
        s->models = more;
    if (!more || !copy) {
        mem_free(copy);
        return fail_nomem("the name of a model", n);
    }
    s->models[s->n_models++] = (served_model){ .name = copy };
    return PESC_OK;
}

/* An option whose values are NAME=DIR. */
typedef struct named_dirs {
    const char *option;
    adapter_kind kind;
    const char *const *values;
    size_t n;
} named_dirs;

static pesc_status add_adapter(pesc_server *s, const named_dirs *from, const char *text,
                               served_adapter *out)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return fail(PESC_USAGE, "%s: found \"%s\", expected NAME=DIR", from->option, text);
    size_t n = (size_t)(equals - text);
    for (size_t i = 0; i < s->n_models; i++)
        if (strlen(s->models[i].name) == n && memcmp(s->models[i].name, text, n) == 0)
            return fail(PESC_USAGE, "%s: two models have the name \"%s\"", from->option,
                        s->models[i].name);
    TRY(add_model(s, from->option, text, n));
    s->models[s->n_models - 1].adapter = (int32_t)s->n_models - 1;
    *out = (served_adapter){ .kind = from->kind, .dir = equals + 1 };
    return PESC_OK;
}

pesc_status models_open(pesc_server *s)
{
    const named_dirs options[] = {
        { "lora", ADAPTER_LORA, s->opt.lora, s->opt.n_lora },
        { "patch", ADAPTER_PATCH, s->opt.patch, s->opt.n_patch },
    };
    size_t len = 0, n = 0;
    const char *name = s->opt.served_name;
    if (name)
        len = strlen(name);
    else
        name = last_part(s->m->dir->path, &len);
    TRY(add_model(s, "served_name", name, len));
    served_adapter *all = mem_zalloc(s->opt.n_lora + s->opt.n_patch + 1, sizeof *all);
    pesc_status st = all ? PESC_OK : fail_nomem("the names of models", sizeof *all);
    for (size_t o = 0; o < sizeof options / sizeof *options; o++)
        for (size_t i = 0; st == PESC_OK && i < options[o].n; i++)
            st = add_adapter(s, &options[o], options[o].values[i], &all[n++]);
    if (st == PESC_OK) {
        DEVICE_CALL(s->m->dev);
        st = served_adapters_open(s->m, all, n);
    }
    mem_free(all);
    return st;
}

void models_close(pesc_server *s)
{
    for (size_t i = 0; i < s->n_models; i++)
        mem_free(s->models[i].name);
    mem_free(s->models);
}

const served_model *models_find(const pesc_server *s, const char *name, api_error *e)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (!name || strcmp(name, s->models[i].name) == 0)
            return &s->models[i];
    api_refuse(e, 404, "model_not_found", "model",
               "the model \"%.100s\" does not exist; this server has \"%s\"", name,
               s->models[0].name);
    return NULL;
}

/* ---- endpoints ---- */

static json_t *model_json(const pesc_server *s, const served_model *m)
{
    const config *c = &s->m->shape.cfg;
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s?, s:i, s:{s:i, s:i, s:i}}", "id", m->name,
                     "object", "model", "created", (json_int_t)s->created, "owned_by", "pesc",
                     "root", m->name, "parent", m->adapter ? s->models[0].name : NULL,
                     "max_model_len", (int)s->context, "meta", "n_vocab", (int)c->vocab,
                     "n_ctx_train", (int)c->context, "n_embd", (int)c->dim);
}

bool handle_models(exchange *x)
{
    json_t *all = json_array();
    for (size_t i = 0; i < x->srv->n_models; i++)
        json_array_append_new(all, model_json(x->srv, &x->srv->models[i]));
    return exchange_reply(x, json_pack("{s:s, s:o}", "object", "list", "data", all));
}

bool handle_model(exchange *x)
{
    const served_model *m = models_find(x->srv, x->argument, &x->error);
    return m && exchange_reply(x, model_json(x->srv, m));
}
