#include "eval/taskbook.h"

#include "base/embed.h"
#include "base/io.h"
#include "base/mem.h"

#include <string.h>

#define BYTES_MAX (16u << 20)

const taskdef *taskbook_task(const taskbook *b, const char *name)
{
    for (size_t i = 0; i < b->n_tasks; i++)
        if (strcmp(b->tasks[i]->name, name) == 0)
            return b->tasks[i];
    return NULL;
}

const taskbook_group *taskbook_group_named(const taskbook *b, const char *name)
{
    for (size_t i = 0; i < b->n_groups; i++)
        if (strcmp(b->groups[i].name, name) == 0)
            return &b->groups[i];
    return NULL;
}

static pesc_status check_new(const taskbook *b, const char *name, const char *file)
{
    if (taskbook_task(b, name) || taskbook_group_named(b, name))
        return fail(PESC_FORMAT, "%s: there is a task or group \"%s\" already", file, name);
    return PESC_OK;
}

static pesc_status add_task(taskbook *b, json_t *json, const char *file)
{
    taskdef *d;
    TRY(taskdef_open(&d, json, file, &b->work));
    pesc_status s = check_new(b, d->name, file);
    taskdef **grown = s == PESC_OK ? mem_grow(b->tasks, b->n_tasks + 1, sizeof *grown) : NULL;
    if (s == PESC_OK && !grown)
        s = fail_nomem("a task", sizeof *grown);
    if (s != PESC_OK) {
        taskdef_close(d);
        return s;
    }
    b->tasks = grown;
    b->tasks[b->n_tasks++] = d;
    return PESC_OK;
}

/* The file's own keys, without those of the file as a whole, replaced by those of the variant. */
static pesc_status add_variant(taskbook *b, const json_t *file_json, const json_t *variant,
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
    pesc_status s = add_task(b, merged, file);
    json_decref(merged);
    return s;
}

static pesc_status add_group(taskbook *b, const json_t *v, const char *file)
{
    json_where w = { v, file };
    taskbook_group g = { .members = json_value(v, "members") };
    TRY(json_get_str(w, "group", true, &g.name));
    TRY(json_get_str(w, "parent", false, &g.parent));
    TRY(json_get_f64(w, "version", false, &g.version));
    if (g.members && !json_is_array(g.members))
        return fail(PESC_FORMAT, "%s: members: found %s, expected a list of names", file,
                    json_kind(g.members));
    TRY(check_new(b, g.name, file));
    taskbook_group *grown = mem_grow(b->groups, b->n_groups + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("a group", sizeof *grown);
    b->groups = grown;
    b->groups[b->n_groups++] = g;
    return PESC_OK;
}

static pesc_status add_file(taskbook *b, const json_t *json, const char *file)
{
    const json_t *groups = json_value(json, "groups"), *variants = json_value(json, "variants");
    if (!json_is_object(json))
        return fail(PESC_FORMAT, "%s: found %s, expected an object", file, json_kind(json));
    if ((groups && !json_is_array(groups)) || (variants && !json_is_array(variants)))
        return fail(PESC_FORMAT, "%s: groups and variants are lists", file);
    for (size_t i = 0; i < json_array_size(groups); i++)
        TRY(add_group(b, json_array_get(groups, i), file));
    for (size_t i = 0; i < json_array_size(variants); i++)
        TRY(add_variant(b, json, json_array_get(variants, i), file));
    return variants || (groups && json_object_size(json) == 1) ? PESC_OK
                                                               : add_variant(b, json, json, file);
}

pesc_status taskbook_parse(taskbook *b, const char *text, size_t n, const char *file)
{
    json_t *json;
    TRY(json_parse(&json, text, n, file));
    if (!b->files) {
        b->files = json_array();
        allowance_open(&b->work);
    }
    if (!b->files || json_array_append_new(b->files, json) != 0)
        return fail_nomem("a task file", n);
    return add_file(b, json, file);
}

pesc_status taskbook_read(taskbook *b, const char *path)
{
    char *text;
    size_t n;
    TRY(io_read_file(path, BYTES_MAX, &text, &n));
    pesc_status s = taskbook_parse(b, text, n, path);
    mem_free(text);
    return s;
}

pesc_status taskbook_builtin(taskbook *b)
{
    for (size_t i = 0; i < embedded_tasks.n; i++) {
        const embedded_file *f = &embedded_tasks.v[i];
        TRY(taskbook_parse(b, f->text, f->n, f->name));
    }
    return PESC_OK;
}

void taskbook_free(taskbook *b)
{
    for (size_t i = 0; i < b->n_tasks; i++)
        taskdef_close(b->tasks[i]);
    mem_free(b->tasks);
    mem_free(b->groups);
    json_decref(b->files);
    *b = (taskbook){ 0 };
}
