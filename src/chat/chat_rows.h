/* chat_rows: what a chat format is (private to chat.c and chat_formats.c).
 *
 * In every literal \1 stands for the tokenizer's BOS token and \2 for its EOS token. An assistant's
 * turn is open, lead, text, close, after: the conversation handed to the model for an answer ends
 * with open; lead, text and close are what the model has to say, so they are trained. */
#ifndef PESC_CHAT_CHAT_ROWS_H
#define PESC_CHAT_CHAT_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#define CHAT_BOS "\1"
#define CHAT_EOS "\2"

/* Where a system message goes. */
typedef enum chat_system {
    SYSTEM_ANYWHERE,   /* a turn of its own, wherever it stands */
    SYSTEM_FIRST,      /* a turn of its own, only as the first message */
    SYSTEM_GATHERED,   /* all of them before everything else, system.close between two */
    SYSTEM_FIRST_USER, /* the first message; goes inside the first user turn, before its text */
    SYSTEM_LAST_USER,  /* the same, inside a user turn that ends the conversation, else nowhere */
    SYSTEM_NEVER
} chat_system;

typedef enum chat_role {
    ROLE_SYSTEM,
    ROLE_USER,
    ROLE_ASSISTANT,
    ROLE_TOOL, /* what a tool returned */
    ROLE_FUNCTION,
    ROLES
} chat_role;

/* Whose text loses its outer white space: a set of roles. */
#define TRIM(role) (1u << (role))
#define TRIM_ALL (TRIM(ROLES) - 1)

typedef struct chat_turn {
    const char *open, *close;
} chat_turn;

struct chat_format {
    const char *name;
    const char *begin;        /* once, before everything */
    chat_turn turn[ROLES];    /* of tool and function, NULL: the format has no place for it */
    const char *tool_between; /* instead of close and open between two tool turns; NULL: both */
    const char *lead, *after; /* of the assistant's turn; NULL: nothing */
    chat_system system;
    const char *default_system; /* said when the first message is not a system one; NULL: nothing */
    bool alternate;             /* user and assistant in turn, the user first */
    bool skip_empty_system;
    bool think; /* reasoning up to </think> leaves old answers and is set apart in a last one */
    unsigned trim;
    const char *stops[4];
    const char *needs[4];  /* control tokens the tokenizer must have */
    const char *marks[4];  /* a Jinja template with all of these ... */
    const char *absent[6]; /* ... and none of these is this format; no marks: never recognised */
};

extern const struct chat_format chat_rows[]; /* a row without a name ends it */
extern const char *const chat_row_names[];   /* the same names, NULL-terminated */

#endif
