/* chatprompt: the requests of a document as a conversation in the model's chat format, as
 * lm-evaluation-harness writes them with --apply_chat_template --fewshot_as_multiturn.
 *
 * The description is the system message, each few-shot example a turn of the user and one of the
 * assistant, the question the last turn of the user; a choice follows without a delimiter. A format
 * that refuses the system message gets the conversation without it. */
#ifndef PESC_EVAL_CHATPROMPT_H
#define PESC_EVAL_CHATPROMPT_H

#include "arch/model.h"
#include "chat/chat_callgrammar.h"
#include "eval/task.h"

typedef struct chatprompt {
    const chat_writer *writer;
    chat_speech *speech; /* of tasks in which tools are called; NULL: there are none */
    turn_rules turn;     /* how their answers are told apart, without the tools of a document */
    bool without_system; /* a system message was refused; a notice has said so */
} chatprompt;

/* calls: there are tasks in which tools are called. PESC_UNSUPPORTED: the model has no chat
 * template that can be run, and no format is known; or calls, and the template takes no tools or
 * does not show how the model writes calls. m must outlive it. */
pesc_status chatprompt_open(chatprompt *c, const pesc_model *m, bool calls);
void chatprompt_close(chatprompt *c); /* also one that is all zeros */

/* The model's chat template, a Jinja text, appended to `out`. */
pesc_status chatprompt_template(const pesc_model *m, str *out);

/* Replaces contexts, continuations and prompt_hash of a document as it was built. */
pesc_status chatprompt_apply(chatprompt *c, task_doc *d);

#endif
