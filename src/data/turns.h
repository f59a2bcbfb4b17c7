/* turns: the turns of a conversation as data sets have them, as messages of OpenAI's API.
 *
 * What a turn may have beside its role and text: calls of tools (tool_calls, function_call, or a
 * turn that is one, as ShareGPT has it), the call that it answers, the reasoning of an answer
 * (reasoning_content, reasoning or thinking), and whether it is trained (mask, train, trainable,
 * weight). */
#ifndef PESC_DATA_TURNS_H
#define PESC_DATA_TURNS_H

#include "data/record.h"

/* Appends the turns of `list` to r->messages, which has room for them (record_room); role and
 * content are the names of these fields. Fails with a sentence that begins with "NAME[3]: ". */
pesc_status turns_read(record *r, const json_t *list, const char *name, const char *role,
                       const char *content);

/* r->tools: what the assistant may call. A list, or, as LLaMA-Factory has it, the text of one; or
 * `functions`, as OpenAI had it. */
pesc_status turns_tools(record *r, const json_t *v);

#endif
