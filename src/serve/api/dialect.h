/* dialect: requests of Anthropic's /v1/messages and OpenAI's /v1/responses as requests of
 * /v1/chat/completions, which the rest of the server knows. */
#ifndef PESC_SERVE_API_DIALECT_H
#define PESC_SERVE_API_DIALECT_H

#include "base/json.h"
#include "serve/apierror.h"

typedef enum api_dialect { DIALECT_CHAT, DIALECT_MESSAGES, DIALECT_RESPONSES } api_dialect;

/* A body that is being rewritten. */
typedef struct rewriting {
    const json_t *from;
    json_t *to;       /* of the chat */
    json_t *messages; /* its field of that name, borrowed from `to` */
    str system;       /* what all system messages say */
    str *ignored;     /* what is dropped, separated by commas */
    bool lenient;     /* fields that are not known are dropped, too */
    bool counts;      /* the tokens are counted only */
    api_error *e;
} rewriting;

/* A field of the dialect. */
typedef struct dialect_field {
    const char *name;
    const char *as; /* the same in a chat; NULL: it is accepted without a use */
    bool (*set)(rewriting *w, const json_t *v); /* instead */
} dialect_field;

/* Reads all fields by the table; null is absent. */
bool dialect_fields(rewriting *w, const dialect_field *rows, size_t n);
bool dialect_refuse(rewriting *w, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void dialect_ignore(rewriting *w, const char *what);
/* Takes the value. False: there is no memory. */
bool dialect_set(rewriting *w, json_t *to, const char *key, json_t *v);
bool dialect_add(rewriting *w, json_t *list, json_t *v);
void dialect_system(rewriting *w, const char *text); /* one more system text */

/* Makes the body of a chat, the caller's. False: *e says why not. */
typedef bool dialect_reader(const json_t *body, json_t **chat, bool lenient, str *ignored,
                            api_error *e);
dialect_reader messages_to_chat, messages_to_count, responses_to_chat;

#endif
