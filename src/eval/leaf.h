/* leaf: one task with its rows and its few-shot examples, ready to build prompts from. */
#ifndef PESC_EVAL_LEAF_H
#define PESC_EVAL_LEAF_H

#include "eval/taskdata.h"

struct task_leaf {
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
typedef struct leaf_files {
    char *dir;
    struct {
        taskdata *data;
        const json_t *columns; /* that its rows were checked for */
    } * at;
    size_t n;
} leaf_files;
void leaf_files_free(leaf_files *f);

/* `def` and `files` must outlive the leaf. */
pesc_status leaf_open(task_leaf **out, const taskdef *def, leaf_files *files,
                      const task_options *opt);
void leaf_close(task_leaf *l); /* NULL is allowed */

/* The texts that a list of templates gives for a row: a new array of strings. */
pesc_status leaf_texts(const taskdef_templates *from, const json_t *row, json_t **out);

/* The position of the right choice. PESC_FORMAT: not a choice, or not a label. */
pesc_status leaf_gold(const taskdef *def, const json_t *row, int32_t *out);

#endif
