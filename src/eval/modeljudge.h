/* modeljudge: a model that scores answers, behind a server with OpenAI's interface.
 *
 * It sees the task, the rubric (what matters in an answer), and two answers, one of which is the
 * reference, without being told which; it gives each 0 to 10. It is asked twice, with the answers
 * in either order, because judges favour a position; the score of an answer is the mean of its two
 * scores. A verdict without two scores counts 0, as in the ESFT paper, and is counted. */
#ifndef PESC_EVAL_MODELJUDGE_H
#define PESC_EVAL_MODELJUDGE_H

#include "eval/digest.h"
#include "eval/modelserver.h"

enum { JUDGE_ORDERS = 2, JUDGE_BEST = 10 };

typedef struct modeljudge {
    model_server server;
    char prompt_hash[DIGEST_TEXT]; /* of what every question of it begins with */
} modeljudge;

/* Close it in any case. */
pesc_status modeljudge_open(modeljudge *j, const web_options *opt, const char *model);
void modeljudge_close(modeljudge *j); /* also one that is all zeros */

typedef struct judge_question {
    const char *task, *rubric, *reference, *answer;
    bool answer_first;
} judge_question;

/* The conversation that is sent; NULL: out of memory. For json_decref(). */
json_t *modeljudge_messages(const judge_question *q);

/* What a verdict says: the scores of the first and the second answer; false: it does not. */
bool modeljudge_read(const char *verdict, double scores[JUDGE_ORDERS]);

/* Asks in both orders (answer_first is set here); done() gets each verdict, as an object {"place"
 * (of the answer, 1 or 2), "score", "reference_score", "text"}, whose scores are null where it
 * cannot be read. */
typedef struct judge_asker {
    pesc_status (*done)(void *ud, json_t *verdict); /* takes it */
    void (*drop)(void *ud);                         /* see web_request */
    void *ud;
} judge_asker;
pesc_status modeljudge_ask(modeljudge *j, judge_question q, judge_asker by);

#endif
