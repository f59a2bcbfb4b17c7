/* generate: one completion of a session, for those who want its text and for those who want it told
 * apart as the turn of a conversation. */
#ifndef PESC_INFER_GENERATE_H
#define PESC_INFER_GENERATE_H

#include "chat/chat_turn.h"
#include "infer/session.h"

/* Who hears what is generated. */
typedef struct listener {
    pesc_text_fn text; /* NULL: the text is not wanted */
    pesc_turn_fn turn; /* with rules; NULL likewise */
    void *ud;
    const turn_rules *rules; /* the completion is a turn, which is told apart so; NULL: a text */
    size_t number;           /* of the turn in its conversation: ids of calls follow from it */
    grammar *grammar;        /* of what is generated; NULL: any text */
} listener;

/* See pesc_session_complete(). o: complete options. out may be NULL, else it is cleared. */
pesc_status generate(pesc_session *s, const int32_t *ids, size_t n, const pesc_sample_options *o,
                     const listener *l, pesc_generation *out);

#endif
