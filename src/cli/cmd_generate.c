/* cmd_generate: one completion. */
#include "cli/command.h"
#include "cli/show/dialog.h"
#include "cli/opt/ids.h"
#include "cli/opt/input.h"
#include "cli/opt/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pesc_status read_ids(const options *o, int32_t **ids, size_t *n)
{
    ids_table t;
    TRY(ids_read_json(o->ids, &t));
    *ids = t.ids;
    *n = t.n_each;
    return t.n_seqs == 1 ? PESC_OK
                         : out_fail(PESC_FORMAT, "%s: found %zu sequences, expected one",
                                    input_name(o->ids), t.n_seqs);
}

/* A chat model often ends at once where a bare text is to be continued. */
static void suggest_chat(const options *o, const open_model *m)
{
    const char *format = pesc_model_chat_format(m->model);
    if (!o->quiet && !o->json && format[0])
        fprintf(stderr,
                "pesc: note: the answer is empty; %s has a chat template (%s): --chat writes the "
                "prompt as a message\n",
                o->model, format);
}

static pesc_status prompt_ids(const options *o, const open_model *m, dialog *talk, int32_t **ids,
                              size_t *n)
{
    if (o->ids)
        return read_ids(o, ids, n);
    if (o->chat) {
        TRY(dialog_open(talk, m, o));
        TRY(dialog_push(talk, "user", o->prompt));
        return dialog_encode(talk, ids, n);
    }
    const pesc_tokenizer *t;
    unsigned flags = (o->sample.add_special ? PESC_ADD_SPECIAL : 0u) |
                     (o->sample.parse_special ? PESC_PARSE_SPECIAL : 0u);
    TRY(open_tokenizer(m, o, &t));
    return ids_encode(t, o->prompt, strlen(o->prompt), flags, ids, n);
}

/* Without --ctx a session holds as many tokens as prompt and answer need. */
static int32_t context_for(const options *o, const open_model *m, size_t n_prompt)
{
    int64_t need = (int64_t)n_prompt + o->sample.max_tokens;
    if (o->ctx)
        return (int32_t)o->ctx;
    if (m->info.context > 0 && need > m->info.context)
        need = m->info.context;
    return need > INT32_MAX ? INT32_MAX : (int32_t)need;
}

/* The grammar of the answer: of --schema, --grammar or --regex; *g NULL: none is asked for. */
static pesc_status open_grammar(const options *o, const open_model *m, pesc_grammar **g)
{
    const char *path = o->schema ? o->schema : o->grammar;
    pesc_grammar_kind kind = o->schema    ? PESC_GRAMMAR_SCHEMA
                             : o->grammar ? PESC_GRAMMAR_GBNF
                                          : PESC_GRAMMAR_REGEX;
    char *text = NULL;
    size_t n = 0;
    if (o->regex) {
        pesc_status st = pesc_grammar_open(g, m->model, kind, o->regex, strlen(o->regex));
        return st == PESC_FORMAT ? out_fail(PESC_USAGE, "--regex: %s", pesc_last_error()) : st;
    }
    if (!path)
        return PESC_OK;
    TRY(input_read(path, &text, &n));
    pesc_status st = pesc_grammar_open(g, m->model, kind, text, n);
    free(text);
    return st == PESC_OK ? st : out_fail(st, "%s: %s", input_name(path), pesc_last_error());
}

static pesc_status open_session(const options *o, open_model *m, size_t n_prompt, pesc_session **s)
{
    pesc_grammar *g = NULL;
    TRY(open_grammar(o, m, &g));
    pesc_status st = pesc_session_open(s, m->model, context_for(o, m, n_prompt));
    if (st == PESC_OK && g)
        st = pesc_session_constrain(*s, g);
    pesc_grammar_close(g);
    return st;
}

static pesc_status generate_text(const options *o, open_model *m, dialog *talk, int32_t **ids)
{
    size_t n = 0;
    pesc_session *s = NULL;
    pesc_sample_options sampling;
    pesc_generation g = PESC_INIT(pesc_generation);
    TRY(open_from(m, o));
    TRY(open_sampling(m, o, &sampling));
    TRY(prompt_ids(o, m, talk, ids, &n));
    if (n == 0)
        return out_fail(PESC_USAGE, "generate: the prompt has no tokens, expected at least one");
    pesc_status st = open_session(o, m, n, &s);
    if (st == PESC_OK)
        st = pesc_session_complete(s, *ids, n, o->chat ? &talk->sampling : &sampling,
                                   o->json ? NULL : dialog_emit, NULL, &g);
    if (st == PESC_OK && o->json)
        dialog_json(&g, NULL);
    else if (st == PESC_OK)
        putchar('\n');
    if (st == PESC_OK && !o->chat && g.n_text == 0)
        suggest_chat(o, m);
    pesc_generation_free(&g);
    pesc_session_close(s);
    return st;
}

pesc_status cmd_generate(const options *o)
{
    if (!o->prompt == !o->ids)
        return out_fail(PESC_USAGE, "generate: found %s of --prompt and --ids, expected one",
                        o->prompt ? "both" : "none");
    if (o->chat && o->ids)
        return out_fail(PESC_USAGE, "generate: --chat needs --prompt, found --ids");
    if (!o->chat && ((o->system && *o->system) || (o->chat_format && *o->chat_format)))
        return out_fail(PESC_USAGE, "generate: --%s needs --chat",
                        o->system && *o->system ? "system" : "chat-format");
    if (!!o->schema + !!o->grammar + !!o->regex > 1)
        return out_fail(PESC_USAGE, "generate: found several of --schema, --grammar and --regex, "
                                    "expected one");
    open_model m = { 0 };
    dialog talk = { 0 };
    int32_t *ids = NULL;
    pesc_status st = generate_text(o, &m, &talk, &ids);
    dialog_close(&talk);
    free(ids);
    open_free(&m);
    return st;
}
