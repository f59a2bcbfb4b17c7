/* taskdef: what a task is, read from a small JSON file.
 *
 * The built-in tasks are such files, and a user's own task is one more (see taskregistry.h).
 * Templates and regular expressions are compiled here, so that a mistake in a file is found when it
 * is read.
 */
#ifndef PESC_EVAL_TASKDEF_H
#define PESC_EVAL_TASKDEF_H

#include "eval/tasktemplate.h"
#include "eval/pyregex.h"
#include "eval/task.h"

/* Where few-shot examples come from: the first rows of the pool; k drawn at random; or k + 1 drawn,
 * of which one that equals the question is dropped. */
typedef enum taskdef_draw { DRAW_FIRST, DRAW_RANDOM, DRAW_OTHER } taskdef_draw;

typedef enum taskdef_judge {
    JUDGE_CHOICE,    /* acc, acc_norm */
    JUDGE_MATCH,     /* exact_match of texts */
    JUDGE_MINERVA,   /* exact_match of normal forms, else of rational numbers */
    JUDGE_HENDRYCKS, /* exact_match of normal forms */
    JUDGE_INTENT,    /* exact_match of ESFT's intents */
    JUDGE_OVERLAP,   /* rouge_l, chrf */
    JUDGE_CODE,      /* pass@1: the program ran without an exception */
    JUDGE_CALLS      /* exact_match of calls of tools (functioncalls.h) */
} taskdef_judge;

typedef struct taskdef_column {
    const char *name; /* "choices.text" */
    const char *type; /* "text", "texts", "integer", "label" (text or integer), "object", "list" */
} taskdef_column;

typedef struct taskdef_templates { /* a list of templates, or one that gives a list */
    task_template **at;
    size_t n;
    bool list; /* one template, whose value is a list */
} taskdef_templates;

typedef struct taskdef_filter {
    const char *name;
    pyregex *regex;       /* NULL: the text itself */
    bool last, strip;     /* the last match, not the first; white space around the text goes */
    const char *fallback; /* where the regex does not match */
} taskdef_filter;

typedef struct taskdef_texts {
    const char **at;
    size_t n;
} taskdef_texts;

typedef struct taskdef {
    json_t *json; /* the definition; the texts below point into it */
    allowance *work;
    char *file; /* for messages */
    const char *name, *group, *published;
    const char *remark; /* what a reader of the score must know; NULL: nothing */
    const char *rubric; /* what matters in an answer, for a model that judges; NULL: none may */
    double version;
    task_kind kind;
    taskdef_judge judge;

    taskdef_texts places; /* folders below the data directory, the first that exists counts */
    const char *split, *where_column, *where_value;
    const json_t *rows; /* the rows themselves; NULL: they are in files of the split */
    taskdef_column *columns;
    size_t n_columns;
    struct {
        const char *name;
        task_template *value;
    } * added; /* columns made from the others */
    size_t n_added;
    int64_t documents, file_documents, shot_documents; /* published; 0: not known */
    const char *sha256, *shot_sha256;                  /* of the canonical rows; NULL: not known */

    task_template *description, *question, *continuation;
    taskdef_templates choices, inputs; /* inputs: each choice has its own question */
    task_template *gold;               /* the right choice: its position, or one of the labels */
    taskdef_templates labels;
    task_template *target, *shot_target; /* of a generated text */
    task_template *candidate;            /* code: what stands before the answer */
    task_template *tools;                /* calls: a list of them */
    const char *target_delimiter, *shot_delimiter;

    int64_t shots;
    taskdef_draw draw;
    const char *shot_split; /* NULL: shot_rows */
    const json_t *shot_rows;
    const json_t *suites; /* {"paper": shots} */
    const json_t *
        subsets; /* {"7993": name}: other published versions of the data, by their number of rows */

    taskdef_texts stops, metrics;
    int64_t max_tokens;
    taskdef_filter *filters;
    size_t n_filters;
    pyregex **ignore; /* exact_match: deleted from both texts, in order */
    size_t n_ignore;
    bool ignore_case, ignore_punctuation;
} taskdef;

/* Reads a definition; `file` names it in messages. Takes a reference of `json`. Every mistake is
 * PESC_FORMAT with the file, the task and the key. Templates and patterns take their work off
 * `work`, which must outlive the task. */
pesc_status taskdef_open(taskdef **out, json_t *json, const char *file, allowance *work);
void taskdef_close(taskdef *d); /* NULL is allowed */

/* Refuses templates in the language before Jinja that name a column of the row. */
pesc_status taskdef_check_templates(const taskdef *d, const json_t *row);

#endif
