#include "eval/task.h"

#include "base/io.h"
#include "base/mem.h"
#include "eval/taskrows.h"
#include "eval/taskregistry.h"

#include <string.h>

const task_options task_option_defaults = { .shots = -1, .seed = 1234 };

struct task_set {
    task_registry registry;
    task_files files;
    eval_task **tasks;
    size_t n_tasks;
    task_group *groups;
    size_t n_groups;
};

/* ---- names ---- */

static bool is_file_name(const char *name)
{
    return str_ends(name, ".json");
}

/* Calls `visit` for each name of a list with commas; blanks around a name do not count. */
static pesc_status each_name(const char *names, pesc_status (*visit)(void *ud, const char *name),
                             void *ud)
{
    char name[1024];
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, ",");
        slice s = pytext_strip((slice){ p, n });
        p += n + (p[n] == ',');
        if (s.n >= sizeof name)
            return fail(PESC_USAGE, "the name of a task is longer than %zu bytes", sizeof name - 1);
        if (s.n == 0)
            continue;
        memcpy(name, s.p, s.n);
        name[s.n] = '\0';
        TRY(visit(ud, name));
    }
    return PESC_OK;
}

static pesc_status read_task_file(void *ud, const char *name)
{
    task_set *t = ud;
    return is_file_name(name) ? registry_read(&t->registry, name) : PESC_OK;
}

/* ---- opening ---- */

typedef struct opening {
    task_set *t;
    const task_options *opt;
    int depth; /* groups inside groups */
} opening;

static pesc_status add_task(opening *o, const taskdef *def)
{
    task_set *t = o->t;
    for (size_t i = 0; i < t->n_tasks; i++)
        if (t->tasks[i]->def == def)
            return PESC_OK;
    eval_task **grown = mem_grow(t->tasks, t->n_tasks + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("a task", sizeof *grown);
    t->tasks = grown;
    TRY(task_load(&t->tasks[t->n_tasks], def, &t->files, o->opt));
    t->n_tasks++;
    return PESC_OK;
}

static pesc_status add_named(void *ud, const char *name);

static bool is_in(const char *name, const char *group)
{
    return name && strcmp(name, group) == 0;
}

static pesc_status add_group(opening *o, const registry_group *g)
{
    const task_registry *r = &o->t->registry;
    if (++o->depth > 8)
        return fail(PESC_FORMAT, "the group \"%s\" is inside itself", g->name);
    for (size_t i = 0; i < json_array_size(g->members); i++) {
        const char *name = json_string_value(json_array_get(g->members, i));
        TRY(add_named(o, name ? name : ""));
    }
    for (size_t i = 0; !g->members && i < r->n_groups; i++)
        if (is_in(r->groups[i].parent, g->name))
            TRY(add_group(o, &r->groups[i]));
    for (size_t i = 0; !g->members && i < r->n_tasks; i++)
        if (is_in(r->tasks[i]->group, g->name))
            TRY(add_task(o, r->tasks[i]));
    o->depth--;
    return PESC_OK;
}

/* The tasks of a file given by its path are those that it defines and those of its groups. */
static pesc_status add_file_tasks(opening *o, const char *file)
{
    const task_registry *r = &o->t->registry;
    for (size_t i = 0; i < r->n_tasks; i++)
        if (strcmp(r->tasks[i]->file, file) == 0)
            TRY(add_task(o, r->tasks[i]));
    for (size_t i = 0; i < r->n_groups; i++)
        if (strcmp(r->groups[i].file, file) == 0)
            TRY(add_group(o, &r->groups[i]));
    return PESC_OK;
}

static pesc_status add_named(void *ud, const char *name)
{
    opening *o = ud;
    const taskdef *def = registry_task(&o->t->registry, name);
    const registry_group *g = registry_group_named(&o->t->registry, name);
    if (is_file_name(name))
        return add_file_tasks(o, name);
    if (def)
        return add_task(o, def);
    return g ? add_group(o, g)
             : fail(PESC_USAGE,
                    "the task \"%s\" is not known; pesc eval --list prints the names, and a file "
                    "of records or a task file (.json) is given by its path",
                    name);
}

/* ---- groups ---- */

/* Whether a task is in a group, directly or through the group's groups. */
static bool task_is_in(const task_registry *r, const taskdef *def, const char *group)
{
    const char *name = def->group;
    for (int depth = 0; name && depth < 8; depth++) {
        if (strcmp(name, group) == 0)
            return true;
        const registry_group *g = registry_group_named(r, name);
        name = g ? g->parent : NULL;
    }
    return false;
}

/* Each group with a score of its own whose tasks are all in the set. */
static pesc_status find_group(task_set *t, const registry_group *g)
{
    const task_registry *r = &t->registry;
    size_t all = 0;
    task_group *out = &t->groups[t->n_groups];
    *out = (task_group){ .name = g->name, .parent = g->parent, .version = g->version };
    for (size_t i = 0; i < r->n_tasks; i++)
        all += task_is_in(r, r->tasks[i], g->name);
    out->tasks = mem_alloc(t->n_tasks + 1, sizeof *out->tasks);
    if (!out->tasks)
        return fail_nomem("a group", t->n_tasks);
    for (size_t i = 0; i < t->n_tasks; i++)
        if (task_is_in(r, t->tasks[i]->def, g->name))
            out->tasks[out->n_tasks++] = i;
    if (all > 0 && out->n_tasks == all)
        t->n_groups++;
    else
        mem_free(out->tasks);
    return PESC_OK;
}

static pesc_status find_groups(task_set *t)
{
    t->groups = mem_zalloc(t->registry.n_groups + 1, sizeof *t->groups);
    if (!t->groups)
        return fail_nomem("the groups", t->registry.n_groups);
    for (size_t i = 0; i < t->registry.n_groups; i++)
        if (!t->registry.groups[i].members)
            TRY(find_group(t, &t->registry.groups[i]));
    return PESC_OK;
}

/* ---- the set ---- */

static pesc_status check_options(const task_options *opt)
{
    if (opt->suite && strcmp(opt->suite, "lm-eval") != 0 && strcmp(opt->suite, "paper") != 0)
        return fail(PESC_USAGE, "the suite \"%s\" is not known; it is lm-eval or paper",
                    opt->suite);
    if (opt->shots < -1 || opt->shots > 10000 || opt->limit < 0)
        return fail(PESC_USAGE, "shots and limit are not negative, and shots at most 10000");
    return PESC_OK;
}

static pesc_status fill_set(task_set *t, const char *names, const task_options *opt)
{
    opening o = { .t = t, .opt = opt };
    TRY(check_options(opt));
    TRY(registry_builtin(&t->registry));
    TRY(each_name(names, read_task_file, t));
    if (!(t->files.dir = taskdata_dir(opt->data_dir)))
        return fail_nomem("the data directory", 0);
    t->files.unpack_ratio = opt->unpack_ratio;
    TRY(each_name(names, add_named, &o));
    if (t->n_tasks == 0)
        return fail(PESC_USAGE, "the list of tasks is empty");
    return find_groups(t);
}

pesc_status task_open(task_set **out, const char *names, const task_options *opt)
{
    *out = NULL;
    task_set *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("a set of tasks", sizeof *t);
    pesc_status s = fill_set(t, names, opt);
    if (s == PESC_OK)
        *out = t;
    else
        task_close(t);
    return s;
}

void task_close(task_set *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_tasks; i++)
        task_unload(t->tasks[i]);
    for (size_t i = 0; i < t->n_groups; i++)
        mem_free(t->groups[i].tasks);
    mem_free(t->tasks);
    mem_free(t->groups);
    task_files_free(&t->files);
    registry_free(&t->registry);
    mem_free(t);
}

static pesc_status check_name(void *ud, const char *name)
{
    const task_registry *r = ud;
    return is_file_name(name) || registry_task(r, name) || registry_group_named(r, name)
               ? PESC_OK
               : PESC_USAGE;
}

bool task_knows(const char *names)
{
    task_registry r = { 0 };
    bool known = registry_builtin(&r) == PESC_OK && each_name(names, check_name, &r) == PESC_OK;
    registry_free(&r);
    return known;
}

size_t task_count(const task_set *t)
{
    return t->n_tasks;
}

const eval_task *task_at(const task_set *t, size_t i)
{
    return t->tasks[i];
}

bool task_has_kind(const task_set *t, task_kind kind)
{
    for (size_t i = 0; i < t->n_tasks; i++)
        if (t->tasks[i]->about.kind == kind)
            return true;
    return false;
}

const task_about *task_describe(const eval_task *task)
{
    return &task->about;
}

const json_t *task_doc_row(const eval_task *task, size_t i)
{
    return task->docs[i];
}

const char *task_filter_name(const eval_task *task, size_t filter)
{
    return task->def->filters[filter].name;
}

const char *task_metric_name(const eval_task *task, size_t metric)
{
    return metric < task->def->metrics.n ? task->def->metrics.at[metric] : "judge";
}

size_t task_group_count(const task_set *t)
{
    return t->n_groups;
}

const task_group *task_group_at(const task_set *t, size_t i)
{
    return &t->groups[i];
}
