/* dialog: a conversation with a model: its messages, the chat format they are written in, and how
 * answers are sampled. For `chat` and `generate --chat`. */
#ifndef PESC_CLI_DIALOG_H
#define PESC_CLI_DIALOG_H

#include "cli/command.h"
#include "cli/opt/open.h"

#include <jansson.h>

typedef struct dialog {
    const open_model *m; /* borrowed */
    const char *format;  /* NULL: the model's own template */
    pesc_sample_options sampling;
    const char **stops; /* of the user and of the format */
    json_t *messages;   /* an array, as OpenAI's chat interface has them */
    json_t *tools;      /* likewise; NULL: none */
} dialog;

/* Picks the format and the sampling by the options; the system message is the only one, if there is
 * any. Closed by dialog_close() even when it failed. */
pesc_status dialog_open(dialog *d, const open_model *m, const options *o);
void dialog_close(dialog *d);

pesc_status dialog_push(dialog *d, const char *role, const char *content);
pesc_status dialog_add(dialog *d, json_t *message); /* takes it; NULL: there was no memory */
size_t dialog_size(const dialog *d);                /* in messages */
bool dialog_is_from(const dialog *d, size_t i, const char *role); /* message i */
void dialog_cut(dialog *d, size_t n);                             /* keeps the first n messages */

/* Ids of the conversation, in which all messages are texts, up to where the answer begins, for
 * free(). */
pesc_status dialog_encode(const dialog *d, int32_t **ids, size_t *n);

/* The next turn, see pesc_session_answer(). */
pesc_status dialog_answer(const dialog *d, pesc_session *s, const char *tool_format,
                          pesc_turn_fn emit, void *ud, pesc_generation *g);

/* The messages as {"messages": [{"role": ..., "content": ...}, ...]}, a record of training data. */
pesc_status dialog_save(const dialog *d, const char *path);
/* Replaces the messages by those of such a file; a file that is refused changes nothing. */
pesc_status dialog_load(dialog *d, const char *path);

/* A pesc_text_fn: writes and flushes the text, so that it is visible before the next token. */
bool dialog_emit(void *ud, const char *text, size_t n);
/* turn: the answer as a message; NULL: it is a text. */
void dialog_json(const pesc_generation *g, const json_t *turn);

#endif
