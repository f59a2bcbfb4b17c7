/* template: a record as token ids, and which of them are trained.
 *
 * Conversations are written in a chat format, and the answers are trained with their end token. A
 * completion is BOS, prompt, completion, EOS, of which the last two are trained; plain text is BOS,
 * text, EOS, all trained but BOS. Control tokens that stand in a record's text stay text. */
#ifndef PESC_DATA_TEMPLATE_H
#define PESC_DATA_TEMPLATE_H

#include "data/record.h"
#include "chat/chat.h"

enum { TEMPLATE_IGNORE = -100 }; /* the label of a token that is not trained, as elsewhere */

typedef struct template
{
    const tokenizer *tok; /* borrowed; NULL: only token ids can be rendered */
    chat_writer *chat;    /* of conversations */
    int32_t bos, eos;     /* -1: none */
}
template;

/* name: a chat format, or "own" for the model's own template; NULL: the own one where it can be
 * run, else the model's format, and where that is NULL too, camelidae. */
pesc_status template_open(template *t, const tokenizer *tok, const char *name,
                          const chat_format *model);
void template_close(template *t); /* one that is all zeros too */

bool template_takes_tools(const template *t); /* else those of a record are left out */
const char *template_name(const template *t); /* of the chat format, or "own" */

/* A record's tokens. Zero-initialise to start; the memory is used again by the next record. */
typedef struct rendering {
    id_list ids;
    int32_t *labels; /* [ids.n]: the id where it is trained, else TEMPLATE_IGNORE */
    size_t cap_labels;
} rendering;
pesc_status template_render(const template *t, const record *r, rendering *out);
void rendering_free(rendering *r);

#endif
