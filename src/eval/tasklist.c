/* tasklist: all built-in tasks and groups with what a user asks about them. */
#include "base/mem.h"
#include "eval/taskbook.h"
#include "eval/taskdata.h"

#include <string.h>

typedef struct listing {
    taskbook *book;
    char *dir;
    task_list *out;
} listing;

static pesc_status add_row(listing *l, task_row row)
{
    task_row *grown = mem_grow(l->out->rows, l->out->n + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("the list of tasks", sizeof *grown);
    l->out->rows = grown;
    l->out->rows[l->out->n++] = row;
    return PESC_OK;
}

static pesc_status describe(const listing *l, const taskdef *def, task_row *row)
{
    char *path = NULL;
    TRY(taskdata_find(&path, def, def->split, l->dir));
    *row = (task_row){ .name = def->name,
                       .parent = def->group,
                       .version = def->version,
                       .documents = def->documents,
                       .shots = def->shots,
                       .metric = def->metrics.at[0],
                       .present = path };
    mem_free(path);
    return PESC_OK;
}

/* Whether a task belongs to a group: through its own group, that group's parent, or the names that
 * a list has. */
static bool is_member(const taskbook *b, const char *name, const char *parent,
                      const taskbook_group *g, int depth)
{
    for (size_t i = 0; i < json_array_size(g->members); i++)
        if (strcmp(json_string_value(json_array_get(g->members, i)), name) == 0)
            return true;
    const taskbook_group *up = parent ? taskbook_group_named(b, parent) : NULL;
    if (!up || depth > 8)
        return false;
    return up == g || is_member(b, up->name, up->parent, g, depth + 1);
}

/* A group's row sums up those of its tasks. */
static pesc_status add_group(listing *l, const taskbook_group *g)
{
    task_row sum = { .name = g->name, .parent = g->parent, .group = true, .version = g->version };
    sum.present = true;
    for (size_t i = 0; i < l->book->n_tasks; i++) {
        const taskdef *def = l->book->tasks[i];
        task_row row;
        if (!is_member(l->book, def->name, def->group, g, 0))
            continue;
        TRY(describe(l, def, &row));
        sum.documents += row.documents;
        sum.shots = row.shots;
        sum.metric = sum.metric ? sum.metric : row.metric;
        sum.present = sum.present && row.present;
    }
    return add_row(l, sum);
}

static pesc_status add_tasks(listing *l, const char *group)
{
    for (size_t i = 0; i < l->book->n_tasks; i++) {
        const taskdef *def = l->book->tasks[i];
        task_row row;
        if (group ? !def->group || strcmp(def->group, group) != 0 : def->group != NULL)
            continue;
        TRY(describe(l, def, &row));
        TRY(add_row(l, row));
    }
    return PESC_OK;
}

static pesc_status fill_list(listing *l)
{
    TRY(taskbook_builtin(l->book));
    TRY(add_tasks(l, NULL));
    for (size_t i = 0; i < l->book->n_groups; i++) {
        TRY(add_group(l, &l->book->groups[i]));
        TRY(add_tasks(l, l->book->groups[i].name));
    }
    return PESC_OK;
}

pesc_status task_list_open(task_list *out, const char *data_dir)
{
    *out = (task_list){ .book = mem_zalloc(1, sizeof(taskbook)) };
    listing l = { .book = out->book, .dir = taskdata_dir(data_dir), .out = out };
    pesc_status s =
        l.book && l.dir ? fill_list(&l) : fail_nomem("the list of tasks", sizeof(taskbook));
    mem_free(l.dir);
    if (s != PESC_OK)
        task_list_free(out);
    return s;
}

void task_list_free(task_list *l)
{
    if (l->book)
        taskbook_free(l->book);
    mem_free(l->book);
    mem_free(l->rows);
    *l = (task_list){ 0 };
}
