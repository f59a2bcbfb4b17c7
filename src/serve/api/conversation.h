/* conversation: the messages of a request as token ids. */
#ifndef PESC_SERVE_API_CONVERSATION_H
#define PESC_SERVE_API_CONVERSATION_H

#include "serve/api/prompts.h"

/* Appends the ids: the only place where chat templates are applied. A message may have what
 * OpenAI's API allows in it, as far as the model's own template can use it; what is not known is
 * refused by name, or, where requests may have unknown fields, passed to the template. */
bool conversation_encode(const prompt_maker *m, const api_request *r, id_list *out, api_error *e);

#endif
