#include "eval/taskregistry.h"

#include "base/embed.h"
#include "base/io.h"
#include "base/mem.h"
#include "eval/taskdata.h"

#include <string.h>

#define BYTES_MAX (16u << 20)

const taskdef *registry_task(const task_registry *r, const char *name)
{
    for (size_t i = 0; i < r->n_tasks; i++)
        if (strcmp(r->tasks[i]->name, name) == 0)
            return r->tasks[i];
    return NULL;
}

const registry_group *registry_group_named(const task_registry *r, const char *name)
{
    for (size_t i = 0; i < r->n_groups; i++)
        if (strcmp(r->groups[i].name, name) == 0)
            return &r->groups[i];
    return NULL;
}

static pesc_status check_new(const task_registry *r, const char *name, const char *file)
{
    if (registry_task(r, name) || registry_group_named(r, name))
        return fail(PESC_FORMAT, "%s: there is a task or group \"%s\" already", file, name);
    return PESC_OK;
}

static pesc_status add_task(task_registry *r, json_t *json, const char *file)
{
    taskdef *d;
    TRY(taskdef_open(&d, json, file, &r->work));
    pesc_status s = check_new(r, d->name, file);
    taskdef **grown = s == PESC_OK ? mem_grow(r->tasks, r->n_tasks + 1, sizeof *grown) : NULL;
    if (s == PESC_OK && !grown)
        s = fail_nomem("a task", sizeof *grown);
    if (s != PESC_OK) {
        taskdef_close(d);
        return s;
    }
    r->tasks = grown;
    r->tasks[r->n_tasks++] = d;
    return PESC_OK;
}

/* The file's own keys, without those of the file as a whole, replaced by those of the variant. */
static pesc_status add_variant(task_registry *r, const json_t *file_json, const json_t *variant,
                               const char *file)
{
    if (!json_is_object(variant))
        return fail(PESC_FORMAT, "%s: variants: found %s, expected an object", file,
                    json_kind(variant));
    json_t *merged = json_copy((json_t *)(uintptr_t)file_json);
    if (!merged || json_object_update(merged, (json_t *)(uintptr_t)variant) != 0) {
        json_decref(merged);
        return fail_nomem("a task", 0);
    }
    json_object_del(merged, "variants");
    json_object_del(merged, "groups");
    pesc_status s = add_task(r, merged, file);
    json_decref(merged);
    return s;
}

static pesc_status add_group(task_registry *r, const json_t *v, const char *file)
{
    json_where w = { v, file };
    registry_group g = { .members = json_value(v, "members") };
    TRY(json_get_str(w, "group", true, &g.name));
    TRY(json_get_str(w, "parent", false, &g.parent));
    TRY(json_get_f64(w, "version", false, &g.version));
    if (g.members && !json_is_array(g.members))
        return fail(PESC_FORMAT, "%s: members: found %s, expected a list of names", file,
                    json_kind(g.members));
    TRY(check_new(r, g.name, file));
    registry_group *grown = mem_grow(r->groups, r->n_groups + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("a group", sizeof *grown);
    r->groups = grown;
    r->groups[r->n_groups++] = g;
    grown[r->n_groups - 1].file = mem_strdup(file);
    return grown[r->n_groups - 1].file ? PESC_OK : fail_nomem("a group", strlen(file));
}

static pesc_status add_file(task_registry *r, const json_t *json, const char *file)
{
    const json_t *groups = json_value(json, "groups"), *variants = json_value(json, "variants");
    if (!json_is_object(json))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", file, json_kind(json));
    if ((groups && !json_is_array(groups)) || (variants && !json_is_array(variants)))
        return fail(PESC_FORMAT, "%s: groups and variants are lists", file);
    for (size_t i = 0; i < json_array_size(groups); i++)
        TRY(add_group(r, json_array_get(groups, i), file));
    for (size_t i = 0; i < json_array_size(variants); i++)
        TRY(add_variant(r, json, json_array_get(variants, i), file));
    return variants || (groups && json_object_size(json) == 1) ? PESC_OK
                                                               : add_variant(r, json, json, file);
}

pesc_status registry_parse(task_registry *r, const char *text, size_t n, const char *file)
{
    json_t *json;
    TRY(json_parse(&json, text, n, file));
    if (!r->files) {
        r->files = json_array();
        allowance_open(&r->work);
    }
    if (!r->files || json_array_append_new(r->files, json) != 0)
        return fail_nomem("a task file", n);
    return add_file(r, json, file);
}

pesc_status registry_read(task_registry *r, const char *path)
{
    char *text;
    size_t n;
    TRY(io_read_file(path, BYTES_MAX, &text, &n));
    pesc_status s = registry_parse(r, text, n, path);
    mem_free(text);
    return s;
}

pesc_status registry_builtin(task_registry *r)
{
    for (size_t i = 0; i < embedded_tasks.n; i++) {
        const embedded_file *f = &embedded_tasks.v[i];
        TRY(registry_parse(r, f->text, f->n, f->name));
    }
    return PESC_OK;
}

void registry_free(task_registry *r)
{
    for (size_t i = 0; i < r->n_tasks; i++)
        taskdef_close(r->tasks[i]);
    for (size_t i = 0; i < r->n_groups; i++)
        mem_free(r->groups[i].file);
    mem_free(r->tasks);
    mem_free(r->groups);
    json_decref(r->files);
    *r = (task_registry){ 0 };
}

/* ---- the list of all tasks ---- */

typedef struct listing {
    task_registry *registry;
    char *dir;
    task_list *out;
} listing;

static pesc_status list_row(listing *l, task_row row)
{
    task_row *grown = mem_grow(l->out->rows, l->out->n + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("the list of tasks", sizeof *grown);
    l->out->rows = grown;
    l->out->rows[l->out->n++] = row;
    return PESC_OK;
}

static pesc_status describe_task(const listing *l, const taskdef *def, task_row *row)
{
    datafiles files = { 0 };
    pesc_status s = taskdata_find(&files, def, def->rows ? NULL : def->split, l->dir);
    *row = (task_row){ .name = def->name,
                       .parent = def->group,
                       .version = def->version,
                       .documents = def->documents,
                       .shots = def->shots,
                       .metric = def->metrics.at[0],
                       .present = def->rows || files.n > 0 };
    datafiles_free(&files);
    return s;
}

/* Whether a task belongs to a group: through its own group, that group's parent, or the names that
 * a list has. */
static bool is_member(const task_registry *r, const char *name, const char *parent,
                      const registry_group *g, int depth)
{
    for (size_t i = 0; i < json_array_size(g->members); i++)
        if (strcmp(json_string_value(json_array_get(g->members, i)), name) == 0)
            return true;
    const registry_group *up = parent ? registry_group_named(r, parent) : NULL;
    if (!up || depth > 8)
        return false;
    return up == g || is_member(r, up->name, up->parent, g, depth + 1);
}

/* A group's row sums up those of its tasks. */
static pesc_status list_group(listing *l, const registry_group *g)
{
    task_row sum = { .name = g->name, .parent = g->parent, .group = true, .version = g->version };
    sum.present = true;
    for (size_t i = 0; i < l->registry->n_tasks; i++) {
        const taskdef *def = l->registry->tasks[i];
        task_row row;
        if (!is_member(l->registry, def->name, def->group, g, 0))
            continue;
        TRY(describe_task(l, def, &row));
        sum.documents += row.documents;
        sum.shots = row.shots;
        sum.metric = sum.metric ? sum.metric : row.metric;
        sum.present = sum.present && row.present;
    }
    return list_row(l, sum);
}

static pesc_status list_tasks(listing *l, const char *group)
{
    for (size_t i = 0; i < l->registry->n_tasks; i++) {
        const taskdef *def = l->registry->tasks[i];
        task_row row;
        if (group ? !def->group || strcmp(def->group, group) != 0 : def->group != NULL)
            continue;
        TRY(describe_task(l, def, &row));
        TRY(list_row(l, row));
    }
    return PESC_OK;
}

static pesc_status fill_list(listing *l)
{
    TRY(registry_builtin(l->registry));
    TRY(list_tasks(l, NULL));
    for (size_t i = 0; i < l->registry->n_groups; i++) {
        TRY(list_group(l, &l->registry->groups[i]));
        TRY(list_tasks(l, l->registry->groups[i].name));
    }
    return PESC_OK;
}

pesc_status task_list_open(task_list *out, const char *data_dir)
{
    *out = (task_list){ .registry = mem_zalloc(1, sizeof(task_registry)) };
    listing l = { .registry = out->registry, .dir = taskdata_dir(data_dir), .out = out };
    pesc_status s = l.registry && l.dir ? fill_list(&l)
                                        : fail_nomem("the list of tasks", sizeof(task_registry));
    mem_free(l.dir);
    if (s != PESC_OK)
        task_list_free(out);
    return s;
}

void task_list_free(task_list *l)
{
    if (l->registry)
        registry_free(l->registry);
    mem_free(l->registry);
    mem_free(l->rows);
    *l = (task_list){ 0 };
}
