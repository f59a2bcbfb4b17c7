/* chat_template: conversations written by the model's own chat template.
 *
 * The template comes with the tokenizer (tokenizer_config.json, chat_template.jinja,
 * chat_template.json, GGUF) and is compiled when that is opened. It sees messages, tools,
 * documents, add_generation_prompt, the named special tokens (bos_token, ...) and whatever
 * variables the caller adds, as with Hugging Face's apply_chat_template.
 *
 * One thing is stricter than there: control tokens count only where the template writes them. The
 * text of a message, tool or variable stays text, so nothing a user writes can close a turn. */
#ifndef PESC_CHAT_CHAT_TEMPLATE_H
#define PESC_CHAT_CHAT_TEMPLATE_H

#include "jinja/jinja.h"
#include "tokenizer/tokenizer.h"

/* Whether the tokenizer has a template that can be run. A template that pesc wrote for a built-in
 * format, or one that cannot be compiled, is none. */
bool chat_template_runs(const tokenizer *t);
/* Whether it reads `tools`; for chat_template_runs() only. */
bool chat_template_takes_tools(const tokenizer *t);
/* Why the template cannot be compiled, with its line; NULL: it can, or there is none. */
const char *chat_template_problem(const tokenizer *t);

typedef struct chat_request {
    const json_t *messages;  /* an array of objects, with what OpenAI's API allows in them */
    const json_t *tools;     /* an array; NULL: none */
    const json_t *variables; /* an object with further variables, which win; NULL: none */
    bool generation;         /* the text ends where the assistant is to speak */
    bool open;            /* for chat_template_encode(): it ends with the text of the last message,
                           * as chat_encode_open() says */
    const struct tm *now; /* see jinja.h; NULL: the current time */
} chat_request;

/* The text, with the origin of each byte. For chat_template_runs() only. */
pesc_status chat_template_render(const tokenizer *t, const chat_request *r, jinja_text *out);

/* Appends the ids of the conversation. For chat_template_runs() only. */
pesc_status chat_template_encode(const tokenizer *t, const chat_request *r, id_list *ids);

/* The same for training (`generation` is ignored): `trained` receives one byte an id, for
 * mem_free(): 1 for what the assistant has to say, up to the control token that ends its turn.
 * masked[i] not 0 leaves message i out of it; masked may be NULL.
 *
 * What the assistant says is what stands inside {% generation %}, or without that by prefix
 * difference: the conversation up to a message, rendered alone, must be the beginning of the whole
 * one, and all text of the message must follow it before any text of another message. PESC_USAGE
 * where a template does not keep this rule: masks would be wrong. */
pesc_status chat_template_train(const tokenizer *t, const chat_request *r,
                                const unsigned char *masked, id_list *ids, unsigned char **trained);

/* The control token that ends an answer, found by rendering one; *id -1: none was found. Fails only
 * for want of memory. */
pesc_status chat_template_stop(const tokenizer *t, int32_t *id);

#endif
