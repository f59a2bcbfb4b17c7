/* functioncalls: tasks in which a model is to call tools (`"kind": "calls"`), scored as the
 * Berkeley function calling leaderboard scores the calls of a turn by their syntax.
 *
 * What is expected is a list of calls, {"name": {"argument": [allowed value, ...], ...}}, in any
 * order; no others may be made. An argument is right if it equals one of the allowed values, and
 * may be left out if "" is among them; arguments that are not listed are wrong. Texts are compared
 * without case, blanks, quotes and the characters , . / - _ * ^; numbers by their value; arrays
 * item by item. An allowed value that is an object has lists of allowed values itself. */
#ifndef PESC_EVAL_FUNCTIONCALLS_H
#define PESC_EVAL_FUNCTIONCALLS_H

#include "base/json.h"

/* The tools of a row as chat templates expect them: those of OpenAI's interface, or their functions
 * alone, also with the types of Python that the leaderboard's files have (dict, float, tuple, any).
 * A new reference. PESC_FORMAT: not tools. */
pesc_status functioncalls_tools(const json_t *given, json_t **out);

/* Whether the list of expected calls is well-formed: PESC_FORMAT says why not. */
pesc_status functioncalls_check(const json_t *expected);

/* Whether the calls of an answer, a message as chat_turn_message() makes it, are the expected ones.
 */
bool functioncalls_match(const json_t *message, const json_t *expected);

#endif
