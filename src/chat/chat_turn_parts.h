/* The inside of a chat_turn, which its files share: chat_turn.c finds thoughts and calls in a text,
 * chat_pattern.c reads a call by the patterns of its format, chat_channels.c messages with headers.
 */
#ifndef PESC_CHAT_CHAT_TURN_PARTS_H
#define PESC_CHAT_CHAT_TURN_PARTS_H

#include "chat/chat_turn.h"

typedef enum step_kind {
    STEP_TEXT,
    STEP_BLANK,
    STEP_NAME,
    STEP_ID,
    STEP_OBJECT,
    STEP_ARGUMENTS,
    STEP_PARAMETERS,
    STEP_LITERALS
} step_kind;

typedef struct pattern_step {
    step_kind kind;
    const char *text; /* [n] in the pattern */
    size_t n;
} pattern_step;

enum { MAX_STEPS = 24 };
typedef struct pattern {
    pattern_step all[MAX_STEPS];
    size_t n;
} pattern;

/* Takes a pattern apart. The text is borrowed. */
void pattern_read(pattern *p, const char *text);
/* The parts of `param`, before %k, before %v (with %s) and after it. */
typedef struct param_pattern {
    const char *open, *middle, *close;
    size_t n_open, n_middle, n_close;
} param_pattern;
void pattern_read_param(param_pattern *p, const char *text);

/* Where the reader of calls is. */
typedef enum call_phase { PHASE_OPEN, PHASE_CALL, PHASE_NEXT, PHASE_CLOSED } call_phase;
typedef enum param_phase { PARAM_OPEN, PARAM_KEY, PARAM_MIDDLE, PARAM_VALUE } param_phase;

typedef struct json_scan {
    int depth;
    bool text, escape, begun;
} json_scan;

typedef struct call_reader {
    pattern open, call;
    param_pattern param;
    call_phase phase;
    size_t step, at; /* in the pattern of the phase; in the text of the step */
    str name, id, key, value, buffer;
    str stored; /* arguments that came before the name */
    json_scan scan;
    bool wants_key, in_key, in_value, live, complete;
    param_phase params;
    bool as_json; /* a value is said to be no string */
    json_t *arguments;
} call_reader;

struct chat_turn {
    turn_rules rules;
    turn_part *parts;
    size_t n, cap;
    size_t visible; /* of the parts */
    int state;
    str pending; /* text that is not decided yet, from `decided` on */
    size_t decided;
    str raw;    /* the text since the calls began that are not visible yet */
    str blanks; /* white space that belongs to the text only if text follows */
    bool in_control, said, thought;
    size_t first_hidden; /* parts from here on are of calls that are not visible yet */
    call_reader r;
    const char *body; /* chat_channels.c: what the message is */
    pesc_status status;
};

/* The last part, which is of that kind; a new one where it is not. NULL: no memory. */
turn_part *turn_last(chat_turn *t, turn_kind kind);
turn_part *turn_add(chat_turn *t, turn_kind kind);
/* Adds text to it; white space at its ends is left out, control tokens too. */
void turn_say(chat_turn *t, turn_kind kind, const char *text, size_t n);
/* Where the first of the marks begins in the text; n - *held where none does. *which: the mark,
 * -1: none. *held: bytes at the end that could begin one. */
size_t turn_seek(const char *text, size_t n, const char *const *marks, size_t n_marks, int *which,
                 size_t *held);
void turn_drop(chat_turn *t, size_t from); /* parts from that on */

/* ---- chat_pattern.c ---- */

void call_reader_open(call_reader *r, const chat_speech *s);
void call_reader_close(call_reader *r);
void call_reader_restart(call_reader *r);
/* One more character of calls. False: it does not fit. */
bool call_reader_take(chat_turn *t, char c);
/* Begins a call, whose name is in r->name. False: it is not known. */
bool call_begin(chat_turn *t);
/* Adds a character to a JSON value. *ends: it is complete. False: it is not the beginning of an
 * object. */
bool json_scan_object(json_scan *s, char c, bool *ends);

/* ---- chat_channels.c ---- */

void channels_process(chat_turn *t);
void channels_finish(chat_turn *t);

#endif
