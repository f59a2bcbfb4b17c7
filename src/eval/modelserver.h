/* modelserver: one model behind a server with OpenAI's interface: which it is, and what is asked of
 * it. */
#ifndef PESC_EVAL_MODELSERVER_H
#define PESC_EVAL_MODELSERVER_H

#include "eval/webclient.h"

typedef struct model_server {
    webclient *web;
    char *model;
} model_server;

/* name: of the model there; NULL or "": the only one that the server lists. PESC_USAGE: it lists
 * several. Close it in any case. */
pesc_status modelserver_open(model_server *s, const web_options *opt, const char *name);
void modelserver_close(model_server *s); /* also one that is all zeros */

/* What a request for a greedy answer begins with: the model and temperature 0; NULL: no memory. */
json_t *modelserver_body(const model_server *s, int64_t max_tokens);

/* The first choice of an answer; PESC_FORMAT: there is none. */
pesc_status modelserver_choice(const model_server *s, const json_t *answer, const json_t **out);

/* The text of a message of chat/completions: borrowed. */
pesc_status modelserver_content(const model_server *s, const json_t *answer, const char **out,
                                size_t *n);

#endif
