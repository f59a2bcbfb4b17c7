/* chat_turn: what a model says in its turn, taken apart while it grows: thoughts, content, calls.
 *
 * The text is given as it is generated; the parts grow at their ends and are never taken back, so
 * what a stream shows adds up to the whole. A text that could still become a marker is held back.
 * The work is linear in the text. */
#ifndef PESC_CHAT_CHAT_TURN_H
#define PESC_CHAT_CHAT_TURN_H

#include "base/json.h"
#include "chat/chat_calls.h"

typedef enum turn_kind { TURN_THOUGHT, TURN_CONTENT, TURN_CALL } turn_kind;

typedef struct turn_part {
    turn_kind kind;
    str text;   /* of a call its arguments, JSON */
    char *name; /* of the function */
    char *id;   /* that the model gave the call; NULL: none */
    bool whole; /* the call is complete */
} turn_part;

typedef struct turn_rules {
    const chat_speech *speech; /* borrowed, like tools; NULL: all is content */
    const json_t *tools;       /* as requests have them; NULL: calls stay text */
    bool thoughts;             /* they are told from content */
    bool inside;               /* the prompt has opened a thought */
    /* A grammar sees to it that what begins like a call becomes one of a tool: its arguments are
     * shown while they grow. Otherwise a call is one when it is complete, and text if it never is.
     */
    bool sure;
    bool one_call; /* what follows the first call is dropped */
} turn_rules;

typedef struct chat_turn chat_turn;

pesc_status chat_turn_open(chat_turn **out, const turn_rules *rules);
void chat_turn_close(chat_turn *t); /* NULL is allowed */

/* More text; control tokens are given by their ids. */
pesc_status chat_turn_text(chat_turn *t, const char *text, size_t n);
pesc_status chat_turn_control(chat_turn *t, int32_t id);
pesc_status chat_turn_finish(chat_turn *t); /* nothing follows */

/* Whether what comes next belongs to a thought. */
bool chat_turn_thinks(const chat_turn *t);

/* The parts so far, in their order. */
const turn_part *chat_turn_parts(const chat_turn *t, size_t *n);

/* The id of the call that is part i: the model's, or one of the shape that the format wants, which
 * follows from `key` and `seed`. */
enum { CALL_ID_ROOM = 160 };
void chat_turn_call_id(const chat_turn *t, size_t i, const char *key, uint64_t seed,
                       char id[CALL_ID_ROOM]);
/* What was said as a message of the conversation: content, null beside calls where nothing was
 * said; reasoning_content and tool_calls, where there are any. key, seed: see chat_turn_call_id().
 * The caller's; NULL: no memory. */
json_t *chat_turn_message(const chat_turn *t, const char *key, uint64_t seed);

/* The parameters of a tool of that name; *known: there is one. NULL: it has none. */
const json_t *tool_parameters(const json_t *tools, const char *name, bool *known);

#endif
