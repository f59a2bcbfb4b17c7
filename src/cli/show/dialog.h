/* dialog: a conversation with a model: its messages, the chat format they are written in, and how
 * answers are sampled. For `chat` and `generate --chat`. */
#ifndef PESC_CLI_DIALOG_H
#define PESC_CLI_DIALOG_H

#include "cli/command.h"
#include "cli/opt/open.h"

typedef struct dialog {
    const open_model *m; /* borrowed */
    const char *format;  /* NULL: the model's own template */
    pesc_sample_options sampling;
    const char **stops; /* of the user and of the format */
    pesc_message *messages;
    size_t n; /* the first message is the system's; its content is NULL if there is none */
} dialog;

/* Picks the format and the sampling by the options, with the system message as the only one. Closed
 * by dialog_close() even when it failed. */
pesc_status dialog_open(dialog *d, const open_model *m, const options *o);
void dialog_close(dialog *d);

/* Copies the content, which may be NULL; the role is borrowed. */
pesc_status dialog_push(dialog *d, const char *role, const char *content);
void dialog_cut(dialog *d, size_t n); /* keeps the first n messages */

/* Ids of the conversation up to where the answer begins, for free(). */
pesc_status dialog_encode(const dialog *d, int32_t **ids, size_t *n);

/* The messages as {"messages": [{"role": ..., "content": ...}, ...]}, a record of training data. */
pesc_status dialog_save(const dialog *d, const char *path);
/* Replaces the messages by those of such a file; a file that is refused changes nothing. */
pesc_status dialog_load(dialog *d, const char *path);

/* A pesc_text_fn: writes and flushes the text, so that it is visible before the next token. */
bool dialog_emit(void *ud, const char *text, size_t n);
void dialog_json(const pesc_generation *g);

#endif
