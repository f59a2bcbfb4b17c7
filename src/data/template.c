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

static int index_of(const char *const *names, const char *name)
{
    int i = 0;
    while (name && *name && names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

pesc_status template_how_find(template_how *how, const char *reasoning, const char *turns)
{
    static const char *const uses[] = { "keep", "last", "drop", "mask", NULL };
    static const char *const answers[] = { "all", "last", "split", NULL };
    int use = index_of(uses, reasoning), answer = index_of(answers, turns);
    if (!uses[use])
        return fail(PESC_USAGE, "reasoning: found \"%.40s\", expected keep, last, drop or mask",
                    reasoning);
    if (!answers[answer])
        return fail(PESC_USAGE, "turns: found \"%.40s\", expected all, last or split", turns);
    *how = (template_how){ (reasoning_use)use, (turns_use)answer };
    return PESC_OK;
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
    mem_free(r->ends);
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

pesc_status rendering_label(rendering *r, int32_t label)
{
    TRY(grow_labels(r));
    r->labels[r->ids.n - 1] = label;
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

static pesc_status end_sample(rendering *out)
{
    if (!mem_room((void **)&out->ends, &out->cap_ends, out->samples, sizeof *out->ends))
        return fail_nomem("the samples of a record", out->cap_ends * sizeof *out->ends);
    out->ends[out->samples++] = out->ids.n;
    return PESC_OK;
}

/* Labels of the ids from `from` on; an answer without an end token would never teach to stop. */
static pesc_status label_answers(const template *t, rendering *out, size_t from,
                                 const unsigned char *trained)
{
    TRY(grow_labels(out));
    bool any = false, ends = false; /* ends: the last answer has an end token */
    for (size_t i = from; i < out->ids.n; i++) {
        int32_t id = out->ids.ids[i];
        bool here = trained[i - from];
        out->labels[i] = here ? id : TEMPLATE_IGNORE;
        if (!here)
            continue;
        bool end = id == t->eos || tokenizer_is_special(t->tok, id);
        ends = end || (ends && i > from && trained[i - from - 1]);
        any = true;
    }
    return !any || ends ? PESC_OK
                        : fail(PESC_USAGE,
                               "the template \"%s\" ends an answer without an end token, so the "
                               "model would never learn to stop; choose another template",
                               template_name(t));
}

/* Adds a sample: the first n messages, of which those that are not masked are trained. */
static pesc_status render_messages(const template *t, const template_how *how, const record *r,
                                   size_t n, const unsigned char *masked, bool *apart,
                                   rendering *out)
{
    unsigned char *trained = NULL;
    size_t from = out->ids.n;
    json_t *first = json_array();
    for (size_t i = 0; first && i < n; i++)
        if (json_array_append(first, json_array_get(r->messages, i)) != 0) {
            json_decref(first);
            first = NULL;
        }
    if (!first)
        return fail_nomem("a conversation", n);
    const chat_request talk = { .messages = first,
                                .masked = masked,
                                .tools = r->tools,
                                .apart = apart,
                                .reasoning = how->reasoning == REASONING_MASK
                                                 ? CHAT_REASONING_READ
                                                 : CHAT_REASONING_TRAINED };
    pesc_status s = chat_write(t->chat, &talk, NULL, &out->ids, &trained);
    json_decref(first);
    if (s == PESC_USAGE) { /* not what was asked for is wrong, but this record */
        char why[512];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = fail(PESC_FORMAT, "%s", why);
    }
    if (s == PESC_OK)
        s = label_answers(t, out, from, trained);
    mem_free(trained);
    return s == PESC_OK ? end_sample(out) : s;
}

static bool is_trained(const record *r, size_t i)
{
    return record_is_answer(r, i) && !r->masked[i];
}

/* A sample for each answer from number `from` on. REASONING_LAST: those before it have none. */
static pesc_status render_apart(const template *t, const template_how *how, record *r, size_t from,
                                rendering *out)
{
    unsigned char *masked = mem_alloc(r->n, 1);
    pesc_status s = masked ? PESC_OK : fail_nomem("a conversation", r->n);
    for (size_t i = from; s == PESC_OK && i < r->n; i++) {
        memset(masked, 1, r->n);
        masked[i] = 0;
        if (is_trained(r, i))
            s = render_messages(t, how, r, i + 1, masked, NULL, out);
        if (s == PESC_OK && how->reasoning == REASONING_LAST)
            s = chat_drop_reasoning(json_array_get(r->messages, i));
    }
    mem_free(masked);
    return s;
}

static pesc_status drop_reasoning(const template_how *how, record *r)
{
    size_t last = r->n;
    while (last > 0 && !record_is_answer(r, last - 1))
        last--;
    bool all = how->reasoning == REASONING_DROP;
    bool some = how->reasoning == REASONING_LAST && how->turns != TURNS_SPLIT;
    for (size_t i = 0; (all || some) && i < r->n; i++)
        if (all || i + 1 != last)
            TRY(chat_drop_reasoning(json_array_get(r->messages, i)));
    return PESC_OK;
}

static pesc_status render_chat(const template *t, const template_how *how, record *r,
                               rendering *out)
{
    bool apart = false;
    size_t last = r->n;
    TRY(drop_reasoning(how, r));
    while (last > 0 && !is_trained(r, last - 1))
        last--;
    if (how->turns == TURNS_SPLIT && last > 0)
        return render_apart(t, how, r, 0, out);
    if (how->turns == TURNS_LAST && last > 0)
        return render_apart(t, how, r, last - 1, out);
    pesc_status s = render_messages(t, how, r, r->n, r->masked, &apart, out);
    if (s == PESC_OK || s == PESC_NOMEM || !apart || last == 0)
        return s;
    out->ids.n = 0;
    out->split = true;
    return render_apart(t, how, r, 0, out);
}

static pesc_status render_ids(const record *r, rendering *out)
{
    for (size_t i = 0; i < r->n_ids; i++)
        TRY(id_list_add(&out->ids, r->ids[i]));
    TRY(grow_labels(out));
    memcpy(out->labels, r->labels, r->n_ids * sizeof *out->labels);
    return PESC_OK;
}

static pesc_status render_text(const template *t, const record *r, rendering *out)
{
    TRY(put_id(out, t->bos, false));
    size_t from = out->ids.n;
    const char *text = record_text(r, 0);
    if (r->kind == RECORD_COMPLETION) {
        TRY(put_completion(t, out, text, record_text(r, 1)));
    } else {
        TRY(tokenizer_encode(t->tok, text, strlen(text), 0, &out->ids));
        TRY(label(out, from, true));
    }
    return put_id(out, t->eos, true);
}

pesc_status template_render(const template *t, const template_how *how, record *r, rendering *out)
{
    out->ids.n = out->samples = 0;
    out->split = false;
    if (r->kind != RECORD_IDS && !t->tok)
        return fail(PESC_UNSUPPORTED,
                    "the model has no tokenizer, so only records of input_ids and "
                    "labels can be trained on");
    if (r->kind == RECORD_CHAT)
        return render_chat(t, how, r, out);
    TRY(r->kind == RECORD_IDS ? render_ids(r, out) : render_text(t, r, out));
    return end_sample(out);
}
