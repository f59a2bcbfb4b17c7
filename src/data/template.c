#include "data/template.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

pesc_status template_open(template *t, const tokenizer *tok, const char *name,
                          const chat_format *model)
{
    *t = (template){ .tok = tok,
                     .bos = tok ? tokenizer_bos(tok) : -1,
                     .eos = tok ? tokenizer_eos(tok) : -1 };
    if (name && strcmp(name, CHAT_OWN) != 0 && !chat_find(name)) {
        char why[160];
        snprintf(why, sizeof why, "template: found \"%.80s\", which is no chat format of pesc",
                 name);
        return chat_unknown(why);
    }
    TRY(chat_open(&t->chat, tok, name, model ? model : chat_find("camelidae")));
    if (!name || chat_is_own(t->chat) || strcmp(name, CHAT_OWN) != 0)
        return PESC_OK;
    const char *problem = chat_problem(t->chat);
    return chat_unknown(problem ? problem : "template: the model has no chat template of its own");
}

void template_close(template *t)
{
    chat_close(t->chat);
}

bool template_takes_tools(const template *t)
{
    return chat_takes_tools(t->chat);
}

const char *template_name(const template *t)
{
    return chat_is_own(t->chat) ? CHAT_OWN : chat_name(chat_built_in(t->chat));
}

void rendering_free(rendering *r)
{
    mem_free(r->ids.ids);
    mem_free(r->labels);
    *r = (rendering){ 0 };
}

static pesc_status grow_labels(rendering *out)
{
    if (out->ids.n <= out->cap_labels)
        return PESC_OK;
    int32_t *p = mem_grow(out->labels, out->ids.cap, sizeof *p);
    if (!p)
        return fail_nomem("the labels of a record", out->ids.cap * sizeof *p);
    out->labels = p;
    out->cap_labels = out->ids.cap;
    return PESC_OK;
}

/* Labels of ids[from..): the ids themselves, or none. */
static pesc_status label(rendering *out, size_t from, bool trained)
{
    TRY(grow_labels(out));
    for (size_t i = from; i < out->ids.n; i++)
        out->labels[i] = trained ? out->ids.ids[i] : TEMPLATE_IGNORE;
    return PESC_OK;
}

/* Both as one text: a tokenizer may begin every text with a space. The seam is after the ids that
 * the prompt alone has in common with the whole, so an id that holds text of both is trained. */
static pesc_status put_completion(const template *t, rendering *out, const char *prompt,
                                  const char *completion)
{
    str both = { 0 };
    id_list alone = { 0 };
    size_t from = out->ids.n;
    str_puts(&both, prompt);
    str_puts(&both, completion);
    pesc_status s = str_ok(&both)
                        ? tokenizer_encode(t->tok, both.p ? both.p : "", both.n, 0, &out->ids)
                        : fail_nomem("a record", both.n);
    if (s == PESC_OK)
        s = tokenizer_encode(t->tok, prompt, strlen(prompt), 0, &alone);
    if (s == PESC_OK)
        s = label(out, from, true);
    for (size_t i = 0; s == PESC_OK && i < alone.n && from + i < out->ids.n; i++) {
        if (alone.ids[i] != out->ids.ids[from + i])
            break;
        out->labels[from + i] = TEMPLATE_IGNORE;
    }
    mem_free(alone.ids);
    str_free(&both);
    return s;
}

static pesc_status put_id(rendering *out, int32_t id, bool trained)
{
    size_t from = out->ids.n;
    if (id < 0)
        return PESC_OK;
    TRY(id_list_add(&out->ids, id));
    return label(out, from, trained);
}

static pesc_status render_chat(const template *t, const record *r, rendering *out)
{
    unsigned char *trained = NULL;
    const chat_request talk = {
        .list = r->messages, .n = r->n, .masked = r->masked, .tools = r->tools
    };
    pesc_status s = chat_write(t->chat, &talk, NULL, &out->ids, &trained);
    if (s == PESC_USAGE) { /* not what was asked for is wrong, but this record */
        char why[512];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = fail(PESC_FORMAT, "%s", why);
    }
    if (s == PESC_OK)
        s = grow_labels(out);
    bool any = false, ends = false; /* ends: the last answer has an end token */
    for (size_t i = 0; s == PESC_OK && i < out->ids.n; i++) {
        int32_t id = out->ids.ids[i];
        out->labels[i] = trained[i] ? id : TEMPLATE_IGNORE;
        if (!trained[i])
            continue;
        bool end = id == t->eos || tokenizer_is_special(t->tok, id);
        ends = end || (ends && i > 0 && trained[i - 1]);
        any = true;
    }
    mem_free(trained);
    if (s == PESC_OK && any && !ends)
        s = fail(PESC_USAGE,
                 "the template \"%s\" ends an answer without an end token, so the "
                 "model would never learn to stop; choose another template",
                 template_name(t));
    return s;
}

static pesc_status render_ids(const record *r, rendering *out)
{
    for (size_t i = 0; i < r->n_ids; i++)
        TRY(id_list_add(&out->ids, r->ids[i]));
    TRY(grow_labels(out));
    memcpy(out->labels, r->labels, r->n_ids * sizeof *out->labels);
    return PESC_OK;
}

pesc_status template_render(const template *t, const record *r, rendering *out)
{
    out->ids.n = 0;
    if (r->kind == RECORD_IDS)
        return render_ids(r, out);
    if (!t->tok)
        return fail(PESC_UNSUPPORTED,
                    "the model has no tokenizer, so only records of input_ids and "
                    "labels can be trained on");
    if (r->kind == RECORD_CHAT)
        return render_chat(t, r, out);
    TRY(put_id(out, t->bos, false));
    size_t from = out->ids.n;
    const char *text = r->messages[0].content;
    if (r->kind == RECORD_COMPLETION) {
        TRY(put_completion(t, out, text, r->messages[1].content));
    } else {
        TRY(tokenizer_encode(t->tok, text, strlen(text), 0, &out->ids));
        TRY(label(out, from, true));
    }
    return put_id(out, t->eos, true);
}
