/* taskbook: the tasks and groups that files define.
 *
 * A file describes one task, or a family: "variants" is a list of objects whose keys replace those
 * of the file, one task each. "groups" is a list of groups: {"group": name, "parent": name,
 * "version": 2}, whose score is the mean over the documents of the tasks that name it; or {"group":
 * name, "members": [names]}, a list that has no score of its own. A file may hold groups alone. */
#ifndef PESC_EVAL_TASKBOOK_H
#define PESC_EVAL_TASKBOOK_H

#include "eval/taskdef.h"

typedef struct taskbook_group {
    const char *name;
    const char *parent; /* NULL: none */
    double version;
    const json_t *members; /* NULL: the tasks and groups that name it */
} taskbook_group;

typedef struct taskbook {
    taskdef **tasks;
    size_t n_tasks;
    taskbook_group *groups;
    size_t n_groups;
    json_t *files; /* which the groups' texts point into */
    allowance work;
} taskbook;

/* Zero-initialise a book to start; it may not be moved. Each call adds to it; after a failure it
 * holds what was read. */
pesc_status taskbook_parse(taskbook *b, const char *text, size_t n, const char *file);
pesc_status taskbook_read(taskbook *b, const char *path);
pesc_status taskbook_builtin(taskbook *b); /* the files that are embedded */
void taskbook_free(taskbook *b);

const taskdef *taskbook_task(const taskbook *b, const char *name);               /* NULL: none */
const taskbook_group *taskbook_group_named(const taskbook *b, const char *name); /* NULL: none */

#endif
