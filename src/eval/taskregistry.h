/* taskregistry: the tasks and groups that files define.
 *
 * A file describes one task, or a family: "variants" is a list of objects whose keys replace those
 * of the file, one task each. "groups" is a list of groups: {"group": name, "parent": name,
 * "version": 2}, whose score is the mean over the documents of the tasks that name it; or {"group":
 * name, "members": [names]}, a list that has no score of its own. A file may hold groups alone. */
#ifndef PESC_EVAL_TASKREGISTRY_H
#define PESC_EVAL_TASKREGISTRY_H

#include "eval/taskdef.h"

typedef struct registry_group {
    const char *name;
    const char *parent; /* NULL: none */
    char *file;         /* that defines it */
    double version;
    const json_t *members; /* NULL: the tasks and groups that name it */
} registry_group;

typedef struct task_registry {
    taskdef **tasks;
    size_t n_tasks;
    registry_group *groups;
    size_t n_groups;
    json_t *files; /* which the groups' texts point into */
    allowance work;
} task_registry;

/* Zero-initialise a registry to start; it may not be moved. Each call adds to it; after a failure
 * it holds what was read. */
pesc_status registry_parse(task_registry *r, const char *text, size_t n, const char *file);
pesc_status registry_read(task_registry *r, const char *path);
pesc_status registry_builtin(task_registry *r); /* the files that are embedded */
void registry_free(task_registry *r);

const taskdef *registry_task(const task_registry *r, const char *name); /* NULL: none */
const registry_group *registry_group_named(const task_registry *r,
                                           const char *name); /* NULL: none */

#endif
