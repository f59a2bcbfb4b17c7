/* chat_calls: how models write calls of tools and thoughts.
 *
 * A format of calls is a row of patterns, found from the chat template by texts that it has, or
 * named by the user. chat_turn.h reads what a model says by them, chat_callgrammar.c constrains it
 * by the same patterns. In a pattern stand:
 *
 *     %n  the name of the function       %i  the id of the call
 *     %A  its arguments, a JSON object   %O  a JSON object with the keys `keys`
 *     %P  parameters, each as `param` says: %k its name, %v its value, %s whether it is a string
 *     %L  arguments in a notation of the family's own (chat_notation.h)
 *
 * White space in a pattern is optional and of any length, but inside `param` it is one line end. */
#ifndef PESC_CHAT_CHAT_CALLS_H
#define PESC_CHAT_CHAT_CALLS_H

#include "chat/chat_notation.h"
#include "tokenizer/tokenizer.h"

typedef enum call_ids {
    CALL_IDS_ANY,     /* of the server's making */
    CALL_IDS_NINE,    /* of nine letters and digits */
    CALL_IDS_COUNTED, /* functions.NAME:N, N counted over the conversation */
} call_ids;

typedef struct call_format {
    const char *name;
    const char *find[2]; /* the template has all of these */
    const char *begin, *call, *between, *end, *param;
    const char *keys[3]; /* of %O: name, arguments, id; NULL: no such key */
    const notation *notation;
    const char *stops[2]; /* control tokens that end the turn beside the model's own */
    call_ids ids;
    bool plain;    /* it begins like any text, not with a marker */
    bool single;   /* one call a turn */
    bool channels; /* gpt-oss: messages with headers instead of patterns */
} call_format;

const char *const *call_format_names(void); /* NULL-terminated */

/* Whether these are tools as requests have them: an array of functions, each with a name that any
 * format can write, and parameters that are a JSON Schema. apart: no two may have the same name, so
 * that a call says which one is meant. PESC_USAGE: the sentence says what is wrong. */
pesc_status tools_check(const json_t *tools, bool apart);

/* The texts between which a thought stands. */
typedef struct thought_format {
    const char *begin, *end;
} thought_format;

/* A control token inside a text or a pattern is spelled as its id between two bytes that are in no
 * UTF-8, so what only spells it out is another text. */
#define SPEECH_CONTROL "\xfe%d\xff"
enum { SPEECH_OPENS = '\xfe', SPEECH_CLOSES = '\xff' };

/* Marks of messages with headers. */
typedef enum channel_mark {
    MARK_START,
    MARK_CHANNEL,
    MARK_CONSTRAIN,
    MARK_MESSAGE,
    MARK_END,
    MARK_CALL,
    MARK_RETURN,
    N_CHANNEL_MARKS
} channel_mark;

/* What a model says beside content, for one tokenizer: patterns have control tokens spelled. */
typedef struct chat_speech {
    const call_format *calls; /* NULL: the format is not known */
    char *begin, *call, *between, *end, *param;
    char *quote; /* of the notation; NULL: it has none */
    char *lead;  /* with which the first call begins */
    const thought_format *thought;
    char *think_begin, *think_end; /* its texts; NULL: no thoughts */
    char *marks[N_CHANNEL_MARKS];  /* with calls->channels */
} chat_speech;

/* template NULL: none. name: a format of calls; NULL or "": found from the template.
 * PESC_USAGE: there is no format of that name. */
pesc_status chat_speech_open(chat_speech **out, const tokenizer *t, const char *jinja,
                             const char *name);
void chat_speech_close(chat_speech *s); /* NULL is allowed */

#endif
