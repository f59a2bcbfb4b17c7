/* chat_formats: the built-in chat formats. The text of each is share/chat/NAME.jinja; here is what
 * a template does not say. */
#ifndef PESC_CHAT_CHAT_FORMATS_H
#define PESC_CHAT_CHAT_FORMATS_H

#include "base/status.h"
#include "base/str.h"

typedef struct chat_format {
    const char *name;
    const char *stops[4];  /* where the assistant's turn ends besides EOS */
    const char *needs[4];  /* control tokens the tokenizer must have */
    const char *marks[4];  /* a Jinja template with all of these ... */
    const char *absent[6]; /* ... and none of these is this format; no marks: never recognised */
} chat_format;

const chat_format *chat_find(const char *name); /* NULL: unknown */
const char *chat_name(const chat_format *f);
const char *const *chat_names(void); /* NULL-terminated */
/* Some are control tokens, to be matched by id. */
const char *const *chat_stops(const chat_format *f, size_t *n);

/* The Jinja source of the format; its first line names the format. */
void chat_source(const chat_format *f, const char **text, size_t *n);
/* The format whose source begins so; NULL: none. */
const chat_format *chat_named(const char *jinja);
/* The format a Jinja template describes, by its first line or its marks; NULL: none. */
const chat_format *chat_recognise(const char *jinja);

/* Fails with `why` and the list of formats a user may name. */
pesc_status chat_unknown(const char *why);

#endif
