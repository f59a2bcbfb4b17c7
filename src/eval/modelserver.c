#include "eval/modelserver.h"

#include "base/mem.h"

#include <string.h>

enum { SHOWN = 4 /* names of models in a sentence */ };

static pesc_status refuse_models(const model_server *s, const json_t *list)
{
    str names = { 0 };
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const char *id = json_string_value(json_object_get(json_array_get(list, i), "id"));
        str_printf(&names, "%s%.100s", i ? ", " : "", id ? id : "?");
    }
    pesc_status st =
        fail(PESC_USAGE,
             "%s: lists %zu models (%s%s); name one of them (--served-model, "
             "--judge-model)",
             webclient_address(s->web), n, names.p ? names.p : "", n > SHOWN ? ", ..." : "");
    str_free(&names);
    return st;
}

static pesc_status find_model(model_server *s)
{
    json_t *answer = NULL;
    pesc_status st = webclient_ask(s->web, "/models", NULL, &answer);
    if (st == PESC_IO && webclient_status(s->web) == 404)
        st = PESC_OK; /* it lists none */
    if (st != PESC_OK)
        return st;
    const json_t *list = json_object_get(answer, "data");
    const char *id = json_string_value(json_object_get(json_array_get(list, 0), "id"));
    if (!id)
        st = fail(PESC_FORMAT, "%s: lists no model; name one (--served-model, --judge-model)",
                  webclient_address(s->web));
    else if (json_array_size(list) > 1)
        st = refuse_models(s, list);
    else if (!(s->model = mem_strdup(id)))
        st = fail_nomem("the name of a model", strlen(id));
    json_decref(answer);
    return st;
}

pesc_status modelserver_open(model_server *s, const web_options *opt, const char *name)
{
    *s = (model_server){ 0 };
    TRY(webclient_open(&s->web, opt));
    if (!name || !*name)
        return find_model(s);
    s->model = mem_strdup(name);
    return s->model ? PESC_OK : fail_nomem("the name of a model", strlen(name));
}

void modelserver_close(model_server *s)
{
    webclient_close(s->web);
    mem_free(s->model);
    *s = (model_server){ 0 };
}

json_t *modelserver_body(const model_server *s, int64_t max_tokens)
{
    return json_pack("{ss si sI}", "model", s->model, "temperature", 0, "max_tokens",
                     (json_int_t)max_tokens);
}

pesc_status modelserver_choice(const model_server *s, const json_t *answer, const json_t **out)
{
    *out = json_array_get(json_object_get(answer, "choices"), 0);
    return json_is_object(*out) ? PESC_OK
                                : fail(PESC_FORMAT,
                                       "%s: found an answer without \"choices\", expected one of "
                                       "OpenAI's interface",
                                       webclient_address(s->web));
}

pesc_status modelserver_content(const model_server *s, const json_t *answer, const char **out,
                                size_t *n)
{
    const json_t *choice;
    TRY(modelserver_choice(s, answer, &choice));
    const json_t *message = json_object_get(choice, "message");
    const json_t *text = json_object_get(message, "content");
    *out = json_is_string(text) ? json_string_value(text) : "";
    *n = json_string_length(text);
    return json_is_object(message) && (json_is_string(text) || !json_has(message, "content"))
               ? PESC_OK
               : fail(PESC_FORMAT, "%s: found a choice without a message of text",
                      webclient_address(s->web));
}
