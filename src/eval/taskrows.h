/* taskrows: one task with its rows and its few-shot examples, ready to build prompts from. */
#ifndef PESC_EVAL_TASKROWS_H
#define PESC_EVAL_TASKROWS_H

#include "eval/taskdata.h"

struct eval_task {
    task_about about;
    const taskdef *def;
    json_t **docs; /* n_docs rows, with the columns that the task adds */
    int32_t *gold; /* of each document, for choices; else NULL */
    json_t **pool; /* rows that few-shot examples come from */
    size_t n_pool;
    uint32_t *drawn; /* about.shots rows of the pool for each document */
    char *label, *note;
};

/* Data files, each read once. */
typedef struct task_files {
    char *dir;
    int64_t unpack_ratio;
    struct {
        taskdata *data;
        const json_t *columns; /* that its rows were checked for */
    } * at;
    size_t n;
} task_files;
void task_files_free(task_files *f);

/* `def` and `files` must outlive the task. */
pesc_status task_load(eval_task **out, const taskdef *def, task_files *files,
                      const task_options *opt);
void task_unload(eval_task *l); /* NULL is allowed */

/* The texts that a list of templates gives for a row: a new array of strings. */
pesc_status task_texts(const taskdef_templates *from, const json_t *row, json_t **out);

/* The position of the right choice. PESC_FORMAT: not a choice, or not a label. */
pesc_status task_gold(const taskdef *def, const json_t *row, int32_t *out);

#endif
