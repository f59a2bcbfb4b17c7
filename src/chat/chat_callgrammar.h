/* chat_callgrammar: a GBNF grammar of what a model may say in its turn, from the patterns by which
 * it is read: well-formed calls of tools with arguments by their schemas, a content that may be
 * constrained, thoughts before it. */
#ifndef PESC_CHAT_CHAT_CALLGRAMMAR_H
#define PESC_CHAT_CHAT_CALLGRAMMAR_H

#include "chat/chat_turn.h"

typedef enum call_choice {
    CALLS_AUTO,     /* content, calls or both */
    CALLS_NONE,     /* no call */
    CALLS_REQUIRED, /* calls only */
} call_choice;

typedef struct turn_limits {
    const chat_speech *speech;
    const json_t *tools; /* that may be called; NULL: none */
    call_choice choice;
    bool one_call;
    bool thoughts, inside; /* see turn_rules */
    /* What the content must be, as the right side of a rule; NULL: any text. */
    const char *content;
} turn_limits;

/* How an answer within the limits is taken apart. */
turn_rules turn_rules_of(const turn_limits *l);
/* Whether the limits leave something to constrain: a grammar is needed. */
bool turn_needs_grammar(const turn_limits *l);
/* Appends the grammar. */
pesc_status turn_grammar(const turn_limits *l, str *out);
/* Appends a text as GBNF writes it, with control tokens of SPEECH_CONTROL. */
void gbnf_text(const char *text, size_t n, str *out);

#endif
