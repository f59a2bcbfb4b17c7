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

/* Which reasoning of answers is written, and whether it is trained. */
typedef enum reasoning_use {
    REASONING_KEEP,
    REASONING_LAST,
    REASONING_DROP,
    REASONING_MASK
} reasoning_use;
/* Which answers of a conversation are trained: all of them in one rendering, the last, or each in a
 * sample of its own, after the messages before it. */
typedef enum turns_use { TURNS_ALL, TURNS_LAST, TURNS_SPLIT } turns_use;
typedef struct template_how {
    reasoning_use reasoning;
    turns_use turns;
} template_how;
/* By the names of the options; NULL and "" are the first. */
pesc_status template_how_find(template_how *how, const char *reasoning, const char *turns);

bool template_takes_tools(const template *t); /* else those of a record are left out */
const char *template_name(const template *t); /* of the chat format, or "own" */

/* A record's tokens. Zero-initialise to start; the memory is used again by the next record. */
typedef struct rendering {
    id_list ids;
    int32_t *labels; /* [ids.n]: the id where it is trained, else TEMPLATE_IGNORE */
    size_t cap_labels;
    size_t *ends; /* [samples] of ids, one after the other; the last is ids.n */
    size_t samples, cap_ends;
    bool split; /* the template cannot hold all answers in one rendering, so TURNS_ALL became
                 * TURNS_SPLIT */
} rendering;
/* Takes reasoning out of the messages as `how` says. */
pesc_status template_render(const template *t, const template_how *how, record *r, rendering *out);
pesc_status rendering_label(rendering *r, int32_t label); /* of the last id */
void rendering_free(rendering *r);

#endif
