/* conversation: the next turn of a conversation, with thoughts and calls of tools. Part of pesc.h.
 */
#ifndef PESC_CONVERSATION_H
#define PESC_CONVERSATION_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_conversation {
    size_t size;
    const char *format;   /* as in pesc_chat_tokenize() */
    const char *messages; /* a JSON array, with what OpenAI's chat interface allows in messages:
                           * roles, content, tool_calls, results of tools, reasoning_content */
    const char *tools;    /* a JSON array of the tools that may be called, likewise; NULL: none */
    const char *tool_format; /* how calls are written; NULL: found from the chat template */
} pesc_conversation;

/* Receives what the model says as it is generated, in whole characters: a thought, or content;
 * false stops the generation. */
typedef bool (*pesc_turn_fn)(void *ud, bool thought, const char *text, size_t n);

/* Generates the turn of the assistant that comes next, as pesc_session_complete() does after the
 * ids of the conversation. out->message is the turn as one more message of it. A call in it is
 * complete, of one of the tools, and its arguments are as the tool's schema asks, as far as that
 * can be enforced; only where max_tokens has cut it they may be the beginning of such. emit may be
 * NULL. PESC_UNSUPPORTED: the chat template takes no tools, or does not show how calls are written.
 * PESC_USAGE: the session has a grammar, which cannot be together with tools. */
pesc_status pesc_session_answer(pesc_session *s, const pesc_conversation *c,
                                const pesc_sample_options *opt, pesc_turn_fn emit, void *ud,
                                pesc_generation *out);

#endif
