/* answer: what a model says after a prompt: its tokens, where they end, and their text.
 *
 * A token is given to answer_token(), which keeps it, decides whether the answer ends with it, and
 * decodes it. The text grows in whole characters; as many bytes at its end are not certain as could
 * still become a stop string. */
#ifndef PESC_INFER_ANSWER_H
#define PESC_INFER_ANSWER_H

#include "base/str.h"
#include "chat/chat_turn.h"
#include "model/forward.h"

/* Where answers end: at tokens and at stop strings. Decoding leaves control tokens out of the text;
 * so a stop string that is the name of one, as most of a chat format are, is known by its id. */
typedef struct answer_ends {
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const char **stops; /* [n_stops], borrowed strings; "" is ignored */
    size_t n_stops;
} answer_ends;

/* Each adds to what is there; zero-initialise to start. */
pesc_status answer_ends_add_ids(answer_ends *e, const int32_t *ids, size_t n);
pesc_status answer_ends_add_model(answer_ends *e, const pesc_model *m); /* its end tokens */
/* m: whose tokenizer may have them as control tokens. */
pesc_status answer_ends_add_stops(answer_ends *e, const pesc_model *m, const char *const *stops,
                                  size_t n);
/* Control tokens that end a turn of calls. f NULL: none. */
pesc_status answer_ends_add_calls(answer_ends *e, const pesc_model *m, const call_format *f);
void answer_ends_free(answer_ends *e);
bool answer_ends_at(const answer_ends *e, int32_t id);

typedef struct answer_rules {
    const answer_ends *ends; /* borrowed */
    int64_t min_tokens; /* a stop string that ends in one of the first so many does not count */
    bool keep_stop;     /* the stop string is part of the answer */
    bool controls;      /* where control tokens stand in the text is kept */
    unsigned decode;    /* flags of decode_open() */
} answer_rules;

typedef enum answer_end {
    ANSWER_GROWS,
    ANSWER_TOKEN, /* ended by an end token, which is the last of its ids and has no text */
    ANSWER_STOP   /* ended by a stop string */
} answer_end;

/* A control token, which has no text. */
typedef struct answer_control {
    size_t at; /* bytes of the text before it */
    int32_t id;
} answer_control;

typedef struct answer {
    const tokenizer *tok; /* borrowed; NULL: the answer has no text */
    answer_rules rules;
    decode_stream *decode;
    id_list ids;    /* generated */
    str decoded;    /* the text of all of them, valid UTF-8; also what follows a stop string */
    size_t n;       /* bytes of it that are the answer */
    size_t certain; /* bytes of the answer that nothing to come can change */
    size_t ignored; /* bytes of the first min_tokens */
    answer_control *controls; /* [n_controls], with the rule of that name */
    size_t n_controls, cap_controls;
    size_t told, controls_told; /* bytes and control tokens that answer_tell() has passed on */
    answer_end end;
    const char *stop; /* the stop string that ended it; NULL: none */
} answer;

/* The answer to a prompt of n ids, which are not kept. tok NULL: there is no text. */
pesc_status answer_open(answer *a, const tokenizer *tok, const answer_rules *rules,
                        const int32_t *prompt, size_t n);
void answer_close(answer *a); /* also one that is all zeros */

/* The next token; only while the answer grows. */
pesc_status answer_token(answer *a, int32_t id);
/* No token follows: what was held back is added to the text, and all of the answer is certain. */
pesc_status answer_finish(answer *a);

/* Gives the turn what has become certain since the call before. */
pesc_status answer_tell(answer *a, chat_turn *t);

/* Its text: the first a->n bytes, of which a->certain are certain. Never NULL; valid until the next
 * call. */
const char *answer_text(const answer *a);

#endif
