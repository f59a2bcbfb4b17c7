/* speech: what the answers of a call may say. */
#ifndef PESC_SERVE_API_SPEECH_H
#define PESC_SERVE_API_SPEECH_H

#include "serve/api/call.h"

/* Sets c->turn and c->grammar; the prompts of the call are read. False: *e says why not. */
bool speech_open(call *c, api_error *e);

#endif
