#include "tokenizer/tokchat.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

#define WHERE "the model's chat template"

static void drop_templates(tokchat *c)
{
    jinja_free(c->jinja);
    jinja_free(c->with_tools);
    mem_free(c->problem);
    c->jinja = c->with_tools = NULL;
    c->problem = NULL;
}

void tokchat_free(tokchat *c)
{
    drop_templates(c);
    json_decref(c->tokens);
    *c = (tokchat){ 0 };
}

pesc_status tokchat_compile(tokchat *c, const char *source, const char *tools)
{
    drop_templates(c);
    pesc_status s = jinja_compile(&c->jinja, source, strlen(source), WHERE);
    if (s == PESC_OK && tools)
        s = jinja_compile(&c->with_tools, tools, strlen(tools), WHERE " for tools");
    if (s == PESC_OK || s == PESC_NOMEM)
        return s;
    char *problem = mem_strdup(pesc_last_error());
    drop_templates(c);
    c->problem = problem;
    status_clear();
    return problem ? PESC_OK : fail_nomem(WHERE, strlen(source));
}

pesc_status tokchat_name_token(tokchat *c, const char *name, const char *token, size_t n)
{
    if (!utf8_valid(token, n))
        return PESC_OK; /* no template can name it */
    c->tokens = c->tokens ? c->tokens : json_object();
    json_t *text = c->tokens ? json_stringn(token, n) : NULL;
    return c->tokens && json_object_set_new(c->tokens, name, text) == 0 ? PESC_OK
                                                                        : fail_nomem(WHERE, n);
}

pesc_status tokchat_name_tokens(tokchat *c, const json_t *config)
{
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(config, names[i]);
        v = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(v))
            TRY(tokchat_name_token(c, names[i], json_string_value(v), json_string_length(v)));
    }
    return PESC_OK;
}
