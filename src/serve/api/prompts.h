/* prompts: what a request wants continued, as token ids. */
#ifndef PESC_SERVE_API_PROMPTS_H
#define PESC_SERVE_API_PROMPTS_H

#include "serve/api/api.h"
#include "chat/chat.h"

typedef struct prompt {
    id_list ids;
    str text;        /* as it is echoed; only if the request echoes */
    size_t *offsets; /* [ids.n]: code points of the text before each token; likewise */
    size_t chars;    /* code points of the text */
    thought_state thought;
} prompt;

typedef struct prompt_list {
    prompt *all;
    size_t n;
} prompt_list;

/* What prompts are made with. */
typedef struct prompt_maker {
    const tokenizer *tok;    /* NULL: only token ids are possible */
    const chat_writer *chat; /* of conversations */
    const chat_speech *speech;
    int64_t vocab;
} prompt_maker;

/* The prompts of a request of any endpoint that has them. Close the list in any case. */
bool prompts_read(prompt_list *p, const prompt_maker *m, const api_request *r, api_error *e);
void prompts_close(prompt_list *p); /* also one that is all zeros */

/* conversation.c: appends the ids of the messages of a request: the only place where chat templates
 * are applied. A message may have what OpenAI's API allows in it, as far as the model's own
 * template can use it; what is not known is refused by name, or, where requests may have unknown
 * fields, passed to the template. */
bool conversation_encode(const prompt_maker *m, const api_request *r, prompt *out, api_error *e);

/* Appends the text that one token adds after another (-1: after none), invalid UTF-8 replaced. d:
 * an open stream of t, which is used anew. */
pesc_status prompts_piece(decode_stream *d, const tokenizer *t, int32_t before, int32_t id,
                          str *out);
size_t prompts_chars(const char *text, size_t n); /* code points */

#endif
