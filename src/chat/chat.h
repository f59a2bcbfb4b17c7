/* chat: conversations as text, as ids, and as what is trained.
 *
 * Who writes a conversation is chosen once, when a writer is opened: the template that comes with
 * the tokenizer, or a built-in format (share/chat/NAME.jinja). Both are Jinja and run by the same
 * interpreter. The template of a model sees messages, tools, documents, add_generation_prompt, the
 * named special tokens (bos_token, ...) and the variables of the caller, as with Hugging Face's
 * apply_chat_template; a built-in format sees messages, add_generation_prompt, bos_token and
 * eos_token.
 *
 * One thing is stricter than there: control tokens count only where the template writes them. The
 * text of a message, tool or variable stays text, so nothing a user writes can close a turn. */
#ifndef PESC_CHAT_CHAT_H
#define PESC_CHAT_CHAT_H

#include "base/json.h"
#include "chat/chat_formats.h"
#include "tokenizer/tokenizer.h"

#include <time.h>

/* What stands for the model's own template where a format is named. */
#define CHAT_OWN "own"

typedef struct chat_writer chat_writer;

/* name: a built-in format; NULL, "" or CHAT_OWN: the template that the tokenizer brings, where it
 * can be run, else `otherwise`, which may be NULL. A template that pesc wrote for a built-in format
 * is not run, so that the format stands for it. A writer without either opens too and refuses to
 * write. t is borrowed and may be NULL. PESC_USAGE: there is no format of that name. */
pesc_status chat_open(chat_writer **out, const tokenizer *t, const char *name,
                      const chat_format *otherwise);
void chat_close(chat_writer *w); /* NULL is allowed */

bool chat_is_own(const chat_writer *w); /* whether the model's own template writes */
/* The built-in format that writes; NULL: the own template, or nothing. */
const chat_format *chat_built_in(const chat_writer *w);
const chat_format *chat_otherwise(const chat_writer *w); /* as chat_open() was given it */
bool chat_takes_tools(const chat_writer *w);             /* whether the template reads `tools` */
/* The own template with which conversations with tools are written; NULL: none. Borrowed. */
const char *chat_tool_source(const chat_writer *w);
/* What becomes of the reasoning of answers: reasoning_content, reasoning or thinking of a message,
 * or what its text has in <think> at its beginning. */
typedef enum chat_reasoning {
    CHAT_REASONING_GIVEN,   /* the template gets it, and may leave it out */
    CHAT_REASONING_TRAINED, /* an answer that is trained must have it */
    CHAT_REASONING_READ,    /* the same, but its text is not trained */
} chat_reasoning;
/* Takes the reasoning out of a message. Fails only for want of memory. */
pesc_status chat_drop_reasoning(json_t *message);

/* Whether a system message may follow others: some templates of models refuse it or leave it out.
 * Built-in formats say so themselves. */
bool chat_takes_late_system(const chat_writer *w);
/* Why the own template cannot be compiled, with its line; NULL: it can, or there is none. */
const char *chat_problem(const chat_writer *w);

/* How a conversation ends. */
typedef enum chat_end {
    CHAT_WHOLE,  /* with the end of the last turn */
    CHAT_PROMPT, /* where the assistant is to speak */
    CHAT_GO_ON,  /* with the text of the last message, without white space that the template
                  * removes, for a model to go on with it */
} chat_end;

typedef struct chat_request {
    /* An array of objects, with what OpenAI's API allows in them: the template gets them with one
     * text of the parts, arguments of calls, null content and reasoning in the form it reads; or:
     */
    const json_t *messages;
    const pesc_message *list; /* [n], where messages is NULL */
    size_t n;
    chat_end end;
    const unsigned char *masked; /* [messages]: an answer that is not trained; NULL: all are */
    const json_t *tools;         /* an array, for the own template; NULL: none */
    const json_t *variables;     /* an object with further variables, which win; NULL: none */
    const struct tm *now;        /* see jinja.h; NULL: the current time */
    chat_reasoning reasoning;    /* where `trained` is asked for */
    bool *apart; /* set where each answer must be written with the messages before it alone; NULL */
} chat_request;

/* Appends a conversation as text, with control tokens spelled out, and as ids. `trained` receives
 * one byte for each id added, for mem_free(): 1 for what the assistant has to say, up to the
 * control token that ends its turn. Each of the three may be NULL; trained only with ids.
 *
 * What the assistant says is what stands inside {% generation %}, or without that by prefix
 * difference: the conversation up to a message, rendered alone, must be the beginning of the whole
 * one, and all text of the message must follow it before any text of another message.
 *
 * PESC_USAGE: the template refuses the conversation or does not keep this rule, nothing writes, or
 * the last message cannot be continued; with `trained` also where the template leaves out a call,
 * the result of a tool, or reasoning that is to be there. PESC_UNSUPPORTED: the tokenizer lacks a
 * token of the format. */
pesc_status chat_write(const chat_writer *w, const chat_request *r, str *text, id_list *ids,
                       unsigned char **trained);

/* What the conversation ends with of a thought, which stands between the texts `begin` and `end`:
 * in what the template writes where the assistant is to speak, or in the last message, where that
 * is to be continued. r has JSON messages. */
typedef enum thought_state {
    THOUGHT_FREE,   /* nothing: the model may begin with one */
    THOUGHT_OPEN,   /* its beginning: the answer begins inside it */
    THOUGHT_CLOSED, /* its end: there is none */
} thought_state;
pesc_status chat_thought_state(const chat_writer *w, const chat_request *r, const char *begin,
                               const char *end, thought_state *out);

/* Whether the own template reads the variable. */
bool chat_reads(const chat_writer *w, const char *variable);

/* The control token that ends an answer of the own template, found by rendering one; *id -1: none
 * was found, or the template is not the own one. Fails only for want of memory. */
pesc_status chat_stop_token(const chat_writer *w, int32_t *id);

#endif
