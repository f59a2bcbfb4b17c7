/* chat: conversation formats as data.
 *
 * A format is a row of literal pieces around each role's text, for models without a chat template
 * and for those who name one. A model's own template is run as written (chat_template.h); here it
 * is only recognised by its marks, which gives the format a name and its stop texts. Message text
 * is encoded with control tokens off, so nothing a user writes can close a turn. */
#ifndef PESC_CHAT_CHAT_H
#define PESC_CHAT_CHAT_H

#include "base/str.h"
#include "tokenizer/tokenizer.h"

typedef struct chat_format chat_format;

const chat_format *chat_find(const char *name); /* NULL: unknown */
const char *chat_name(const chat_format *f);
const char *const *chat_names(void); /* NULL-terminated */
/* Where the assistant's turn ends besides EOS; some are control tokens, to be matched by id. */
const char *const *chat_stops(const chat_format *f, size_t *n);

/* The format a Jinja template describes, or NULL. */
const chat_format *chat_recognise(const char *jinja);
/* Fails with `why` and the list of formats a user may name. */
pesc_status chat_unknown(const char *why);
/* Writes a Jinja template of the format, which names the format in a comment; and the format that a
 * template written so names, or NULL (chat_jinja.c). */
void chat_jinja(const chat_format *f, str *out);
const chat_format *chat_jinja_named(const char *jinja);

/* What stands for the model's own template where a format is named. */
#define CHAT_OWN "own"

/* Ids of a conversation. f NULL: as the tokenizer's own template writes it, which must be one that
 * runs. With `generation` it ends where the assistant is to speak; without, with
 * the end of the last turn. `trained` (may be NULL) receives one byte an id. Refuses roles the
 * format does not have and orders it cannot express. BOS is added once, as the format says. */
pesc_status chat_encode(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                        size_t n, bool generation, id_list *ids, unsigned char **trained);

/* A whole conversation, for training. */
typedef struct chat_record {
    const pesc_message *messages;
    size_t n;
    const unsigned char *masked; /* [n]: an answer that is not trained; NULL: all are */
    const json_t *tools;         /* for the own template; formats have no place for them; or NULL */
} chat_record;
pesc_status chat_encode_record(const chat_format *f, const tokenizer *t, const chat_record *r,
                               id_list *ids, unsigned char **trained);

/* A conversation whose last turn stays open, so that a model goes on with it: it ends with the text
 * of the last message, without the white space that the format removes. PESC_USAGE: that text is
 * empty, or the format does not write the end of it. f NULL is not allowed: chat_request.open. */
pesc_status chat_encode_open(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                             size_t n, id_list *ids);

/* The text of a conversation up to where the assistant is to speak, with the control tokens spelled
 * out, appended to `out`. Refuses what chat_encode() refuses. */
pesc_status chat_text(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                      size_t n, str *out);

#endif
