/* serveranswers: the answers of a model behind a server with OpenAI's interface.
 *
 * Texts are generated with /v1/completions from the prompts as they are, or, with the option chat
 * and for calls of tools, with /v1/chat/completions from conversations. Of a choice the server says
 * how likely its tokens are, by /v1/completions with echo and logprobs: the tokens of context and
 * continuation after as many as the context has alone, as loglik.h counts them. The tokenizer is
 * the server's, so a context that is too long is the server's to refuse. */
#ifndef PESC_EVAL_SERVERANSWERS_H
#define PESC_EVAL_SERVERANSWERS_H

#include "eval/answerer.h"

/* opt->server names the server; it must outlive the answerer. */
pesc_status serveranswers_open(answerer *out, const taskrun_options *opt);

#endif
