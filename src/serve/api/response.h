/* response: the JSON of answers, whole or as events. */
#ifndef PESC_SERVE_API_RESPONSE_H
#define PESC_SERVE_API_RESPONSE_H

#include "serve/api/call.h"
#include "serve/api/responsestore.h"

/* The answer to a request that is not streamed. */
void response_whole(const call *c, str *out);
/* Events for what is new of a choice; with its end, where it is done. */
void response_events(choice *c, str *out);
/* The events after all choices. */
void response_last_events(call *c, str *out);

/* ---- parts ---- */

json_t *response_ids(const int32_t *ids, size_t n);
/* {"token", "logprob", "bytes"} of a token in the place of `at`. */
json_t *response_logprob(const choice *c, const token_logprob *at, int32_t id, float value);
/* In milliseconds, under the names of llama.cpp's server. */
json_t *response_timings(const call *c);
/* A token as the vocabulary writes it; null: there is none. t NULL: there is no vocabulary. */
json_t *response_token(const tokenizer *t, int32_t id);
/* The bytes of a token as a list, which need not be UTF-8; text: its text. t NULL: those of text.
 */
json_t *response_bytes(const tokenizer *t, int32_t id, const str *text);

/* The message of a chat. */
json_t *response_message(const choice *c);
/* The log-probability of token i of those that are reported, with the most likely ones. */
json_t *response_token_logprobs(const choice *c, size_t i);

/* Whether the part is in the answer: the request may leave thoughts out. */
bool response_shows(const choice *c, const turn_part *p);
/* Calls `put` for what is new of each part of the turn, from the one that events go on with; ends:
 * nothing more of it will be. True: the answer is finished, and so are all parts. */
bool response_parts(choice *c, void (*put)(choice *c, const turn_part *p, bool ends, str *out),
                    str *out);

/* ---- messages_response.c, responses_response.c: other dialects ---- */

void messages_whole(const call *c, str *out);
void messages_events(choice *c, str *out);
void responses_whole(const call *c, str *out);
void responses_events(choice *c, str *out);

/* ---- embeddings.c ---- */

void embeddings_whole(const call *c, str *out);

/* ---- native.c: for llama.cpp's own endpoint ---- */

void native_whole(const call *c, str *out);
void native_events(choice *h, str *out);

#endif
