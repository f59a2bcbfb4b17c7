/* task: benchmark tasks by name, from data files to prompts and from answers to scores.
 *
 * A task_set holds the tasks that a list of names stands for, and the groups among
 * them. A task holds its rows in memory; the prompt of a document is built when it is asked for and
 * does not depend on which others were asked for, because all few-shot examples are drawn when the
 * set is opened. Nothing here knows the model: the caller tokenizes `contexts` and `continuations`,
 * or generates until a stop string, and hands log-likelihoods or text back to task_judge().
 *
 * A set is read-only after task_open(), so several threads may build and judge documents of it. */
#ifndef PESC_EVAL_TASK_H
#define PESC_EVAL_TASK_H

#include "base/json.h"
#include "eval/digest.h"
#include "eval/metric.h"

typedef struct task_set task_set;
typedef struct eval_task eval_task;

typedef struct task_options {
    const char *data_dir; /* NULL: $PESC_DATA/bench, then ./bench */
    int64_t unpack_ratio; /* of compressed data; 0: the default of unpack.h */
    int64_t shots;        /* -1: each task's own number */
    int64_t limit;        /* documents of each task, the first ones; 0: all */
    uint32_t seed;        /* of the few-shot examples; lm-evaluation-harness has 1234 */
    const char *suite;    /* NULL or "lm-eval": the tasks' own shots; "paper": those of the paper */
    bool judge;           /* tasks with a rubric have the metric "judge" too, which is their last */
} task_options;
extern const task_options task_option_defaults;

/* `names`: task and group names and task files (ending in .json), with commas. Reads all data. An
 * unknown name is PESC_USAGE, a bad data or task file PESC_FORMAT, a missing one PESC_IO. */
pesc_status task_open(task_set **out, const char *names, const task_options *opt);
void task_close(task_set *t); /* NULL is allowed */

/* Whether the list has only names that task_open() knows (task files and built-in names). */
bool task_knows(const char *names);

/* ---- tasks ---- */

typedef enum task_kind {
    TASK_CHOICE, /* log-likelihoods of continuations */
    TASK_TEXT,   /* a generated text */
    TASK_CODE,   /* a generated text that is run in the sandbox */
    TASK_CALLS   /* a turn of a conversation in which tools may be called */
} task_kind;

typedef struct task_about {
    const char *name;   /* "mmlu_anatomy" */
    const char *label;  /* the name, with "?" after it where the data is not the published data */
    const char *note;   /* why the label has a "?", in one sentence; else "" */
    const char *remark; /* of the task on its scores, one sentence; "": none */
    const char *rubric; /* what matters in an answer, for a model that judges; NULL: none judges */
    double version;
    task_kind kind;
    int64_t shots;
    size_t n_docs;      /* to evaluate, after the limit */
    size_t n_rows;      /* that the data has */
    size_t n_filters;   /* verdicts of a document: 1, or more where several filters look at it */
    size_t n_metrics;   /* values of a verdict */
    int64_t max_tokens; /* of a generated text */
    const char *const *stops;
    size_t n_stops;
    char data_hash[DIGEST_TEXT]; /* SHA-256 of the canonical JSON of the rows of the evaluated split
                                  */
    char definition_hash[DIGEST_TEXT]; /* and of the task's definition (taskdef.h) */
} task_about;

size_t task_count(const task_set *t);
const eval_task *task_at(const task_set *t, size_t i);
bool task_has_kind(const task_set *t, task_kind kind); /* whether a task is of it */
const task_about *task_describe(const eval_task *task);
const char *task_filter_name(const eval_task *task, size_t filter); /* "none", "strict-match" */
const char *task_metric_name(const eval_task *task, size_t metric); /* "acc", "exact_match" */

/* A group's score is the mean over the documents of its tasks. */
typedef struct task_group {
    const char *name;   /* "mmlu_stem" */
    const char *parent; /* "mmlu"; NULL: none */
    double version;
    size_t *tasks; /* of the set */
    size_t n_tasks;
} task_group;
size_t task_group_count(const task_set *t);
const task_group *task_group_at(const task_set *t, size_t i);

/* ---- documents ---- */

typedef struct task_turn {
    const char *role; /* "system", "user" or "assistant" */
    char *text;
} task_turn;

typedef struct task_doc {
    size_t id; /* its place among the documents of the task */

    /* One request for each choice; one for a generated text. Request i is contexts[i], followed by
     * continuations[i] (NULL for a generated text). Where the choices share one question, all
     * contexts are the same pointer. */
    size_t n_requests;
    char **contexts;
    char **continuations;

    /* The same as a conversation: `turns` (description and few-shot examples), then a user turn
     * questions[i]; the continuation of a choice then has no delimiter: chat_continuations[i]. */
    task_turn *turns;
    size_t n_turns;
    char **questions;
    const char **chat_continuations;

    size_t n_questions; /* different ones: 1, or n_requests */
    int32_t gold;       /* the right choice; -1 for a generated text */
    const json_t *row;  /* the document; the task owns it */
    json_t *target;     /* what lm-evaluation-harness logs as target */
    json_t *tools;      /* TASK_CALLS: for the chat template; else NULL */
    char prompt_hash[DIGEST_TEXT], target_hash[DIGEST_TEXT], doc_hash[DIGEST_TEXT];
} task_doc;

/* The row of a document, with the columns that the task adds; i < n_docs. The task owns it. */
const json_t *task_doc_row(const eval_task *task, size_t i);

/* i < n_docs. Everything is owned by the document but `row`. */
pesc_status task_doc_build(task_doc *out, const eval_task *task, size_t i);
void task_doc_free(task_doc *d);

/* A task's hash is the digest (digest.h) of doc_hash, prompt_hash and target_hash of every
 * document, in this order; the prompt_hash of a context that a chat template made is digest_text()
 * of it. */

/* ---- answers ---- */

typedef struct task_answer {
    const double *logprobs; /* TASK_CHOICE: of each request */
    const char *text;       /* generated, cut at its stop string; TASK_CALLS: a message, JSON */
    size_t n_text;
    bool passed; /* TASK_CODE: what the sandbox found */
} task_answer;

enum { TASK_METRICS_MAX = 4 };
typedef struct task_verdict {
    str filtered;                    /* the text that was compared; empty for choices */
    double values[TASK_METRICS_MAX]; /* in the order of task_metric_name() */
    bool undecided; /* the values are 0, but an algebra system could find the answer equal */
} task_verdict;

/* out: n_filters verdicts, zeroed by the caller; task_verdict_free() each. */
pesc_status task_judge(const eval_task *task, const task_doc *doc, const task_answer *answer,
                       task_verdict *out);
void task_verdict_free(task_verdict *v);

/* ---- the list of all tasks ---- */

typedef struct task_row {
    const char *name;
    const char *parent; /* the group it belongs to; NULL: none */
    bool group;
    double version;
    int64_t documents; /* that the published data has */
    int64_t shots;
    const char *metric; /* the first */
    bool present;       /* the data file is there; of a group: of all its tasks */
} task_row;

/* The built-in tasks that are in no group, then each group before its tasks. */
typedef struct task_list {
    task_row *rows;
    size_t n;
    void *registry; /* what the texts of the rows point into */
} task_list;
pesc_status task_list_open(task_list *out, const char *data_dir);
void task_list_free(task_list *l);

#endif
