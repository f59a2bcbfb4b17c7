#include "eval/taskrows.h"
#include "jinja/pytext.h"

#include "base/mem.h"
#include "eval/pyrandom.h"

#include <string.h>

/* ---- data files ---- */

static pesc_status get_file(task_files *f, const taskdef *def, const char *split,
                            const taskdata **out)
{
    datafiles files = { 0 };
    const json_t *columns = json_value(def->json, "columns");
    pesc_status s = taskdata_find(&files, def, split, f->dir);
    *out = NULL;
    for (size_t i = 0; s == PESC_OK && files.n && i < f->n; i++)
        if (strcmp(f->at[i].data->place, files.paths[0]) == 0 &&
            json_equal(f->at[i].columns, columns))
            *out = f->at[i].data;
    datafiles_free(&files);
    if (s != PESC_OK || *out)
        return s;
    void *grown = mem_grow(f->at, f->n + 1, sizeof *f->at);
    if (!grown)
        return fail_nomem("a data file", sizeof *f->at);
    f->at = grown;
    f->at[f->n].columns = columns;
    TRY(taskdata_open(&f->at[f->n].data, def, split, f->dir, f->unpack_ratio));
    *out = f->at[f->n++].data;
    return PESC_OK;
}

void task_files_free(task_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        taskdata_close(f->at[i].data);
    mem_free(f->at);
    mem_free(f->dir);
    *f = (task_files){ 0 };
}

/* ---- rows ---- */

/* The failure of a row, with the file or task and the row's number before it. */
static pesc_status in_row(pesc_status s, const char *where, size_t row)
{
    char why[512];
    if (s != PESC_FORMAT)
        return s;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    return fail(s, "%s: row %zu: %s", where, row + 1, why);
}

static bool belongs(const taskdef *def, const json_t *row)
{
    if (!def->where_column)
        return true;
    const char *value = json_string_value(json_object_get(row, def->where_column));
    return value && strcmp(value, def->where_value) == 0;
}

/* A row with the columns that the task adds; the row itself where it adds none. */
static pesc_status with_added(const taskdef *def, json_t *row, json_t **out)
{
    json_t *copy = def->n_added ? json_copy(row) : json_incref(row);
    pesc_status s = copy ? PESC_OK : fail_nomem("a row", 0);
    for (size_t i = 0; s == PESC_OK && i < def->n_added; i++) {
        json_t *value = NULL;
        s = task_template_value(def->added[i].value, copy, &value);
        if (s == PESC_OK && json_object_set_new(copy, def->added[i].name, value) != 0)
            s = fail_nomem("a row", 0);
    }
    if (s == PESC_OK)
        *out = copy;
    else
        json_decref(copy);
    return s;
}

/* The rows of a file that belong to the task, at most `limit` of them (0: all), as a new array. */
static pesc_status take_rows(const taskdef *def, const json_t *rows, const char *where,
                             size_t limit, json_t ***out, size_t *n)
{
    size_t all = json_array_size(rows);
    *n = 0;
    *out = mem_zalloc(all ? all : 1, sizeof **out);
    if (!*out)
        return fail_nomem("the rows of a task", all * sizeof **out);
    for (size_t i = 0; i < all && (limit == 0 || *n < limit); i++) {
        json_t *row = json_array_get(rows, i);
        if (!belongs(def, row))
            continue;
        TRY(in_row(with_added(def, row, &(*out)[*n]), where, i));
        ++*n;
    }
    return PESC_OK;
}

/* ---- gold ---- */

pesc_status task_texts(const taskdef_templates *from, const json_t *row, json_t **out)
{
    if (from->list) {
        TRY(task_template_value(from->at[0], row, out));
        if (json_is_array(*out))
            return PESC_OK;
        pesc_status s = fail(PESC_FORMAT, "found %s, expected a list", json_kind(*out));
        json_decref(*out);
        *out = NULL;
        return s;
    }
    *out = json_array();
    pesc_status s = *out ? PESC_OK : fail_nomem("a list of choices", 0);
    for (size_t i = 0; s == PESC_OK && i < from->n; i++) {
        json_t *text = NULL;
        s = task_template_value(from->at[i], row, &text);
        if (s == PESC_OK && json_array_append_new(*out, text) != 0)
            s = fail_nomem("a list of choices", 0);
    }
    if (s != PESC_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return s;
}

/* Where a label stands among the labels, compared as texts. -1: nowhere. */
static pesc_status find_label(const taskdef *def, const json_t *row, const char *label,
                              int32_t *out)
{
    json_t *labels = NULL, *item;
    size_t i;
    *out = -1;
    TRY(task_texts(&def->labels, row, &labels));
    str text = { 0 };
    bool ok = true;
    json_array_foreach(labels, i, item)
    {
        str_clear(&text);
        pytext_str(&text, item);
        ok = ok && str_ok(&text);
        if (*out < 0 && text.p && strcmp(text.p, label) == 0)
            *out = (int32_t)i;
    }
    str_free(&text);
    json_decref(labels);
    return ok ? PESC_OK : fail_nomem("a label", 0);
}

static pesc_status find_gold(const taskdef *def, const json_t *row, size_t n, const str *label,
                             int32_t *out)
{
    long long position;
    if (def->labels.n > 0) {
        TRY(find_label(def, row, label->p, out));
        if (*out < 0 || (size_t)*out >= n)
            return fail(PESC_FORMAT, "the right answer is \"%s\", which is not a label of a choice",
                        label->p);
        return PESC_OK;
    }
    if (!str_to_i64(label->p, 0, 1 << 30, &position) || (size_t)position >= n)
        return fail(PESC_FORMAT, "the right answer is \"%s\", expected a number from 0 to %zu",
                    label->p, n - 1);
    *out = (int32_t)position;
    return PESC_OK;
}

pesc_status task_gold(const taskdef *def, const json_t *row, int32_t *out)
{
    json_t *choices = NULL;
    str label = { 0 };
    TRY(task_texts(def->inputs.n ? &def->inputs : &def->choices, row, &choices));
    size_t n = json_array_size(choices);
    json_decref(choices);
    str_puts(&label, "");
    pesc_status s = n ? task_template_text(def->gold, row, &label)
                      : fail(PESC_FORMAT, "the question has no choices");
    if (s == PESC_OK)
        s = find_gold(def, row, n, &label, out);
    str_free(&label);
    return s;
}

/* What the templates of the task may do with its rows: each is filled in for its own document and
 * as a few-shot example of others, once for the prompt and once for the verdict. */
static void allow_work(const eval_task *l, const taskdata *data, uint64_t uses)
{
    enum { TIMES = 2 };
    size_t rows = json_array_size(data->rows);
    uint64_t row = ALLOWANCE_ROW + ALLOWANCE_ROW_BYTE * (uint64_t)(data->bytes / (rows ? rows : 1));
    allowance_add(l->def->work, TIMES * row * uses);
}

static pesc_status read_gold(eval_task *l)
{
    if (l->def->kind != TASK_CHOICE)
        return PESC_OK;
    l->gold = mem_alloc(l->about.n_docs + 1, sizeof *l->gold);
    if (!l->gold)
        return fail_nomem("the right answers", l->about.n_docs * sizeof *l->gold);
    for (size_t i = 0; i < l->about.n_docs; i++)
        TRY(in_row(task_gold(l->def, l->docs[i], &l->gold[i]), l->def->name, i));
    return PESC_OK;
}

/* ---- few-shot examples ---- */

static pesc_status draw_other(const eval_task *l, pyrandom *r, const json_t *doc, uint32_t *drawn,
                              uint32_t *out)
{
    uint32_t k = (uint32_t)l->about.shots, n = 0;
    TRY(pyrandom_sample(r, (uint32_t)l->n_pool, k + 1, drawn));
    for (uint32_t i = 0; i <= k && n < k; i++)
        if (!json_equal(l->pool[drawn[i]], doc))
            out[n++] = drawn[i];
    if (n == k)
        return PESC_OK;
    /* Two or more copies of the document were drawn: draw again from all other rows. */
    enum { ROW_WORK = 4 };
    allowance_take(l->def->work, ROW_WORK * (uint64_t)l->n_pool);
    if (allowance_left(l->def->work) == 0)
        return allowance_spent("rows that equal each other");
    uint32_t *others = mem_alloc(l->n_pool, sizeof *others), n_others = 0;
    if (!others)
        return fail_nomem("few-shot examples", l->n_pool * sizeof *others);
    for (size_t i = 0; i < l->n_pool; i++)
        if (!json_equal(l->pool[i], doc))
            others[n_others++] = (uint32_t)i;
    pesc_status s = n_others < k ? fail(PESC_FORMAT, "too few few-shot examples differ from it")
                                 : pyrandom_sample(r, n_others, k, out);
    for (uint32_t i = 0; s == PESC_OK && i < k; i++)
        out[i] = others[out[i]];
    mem_free(others);
    return s;
}

/* The generator goes on from document to document, as in the reference. */
static pesc_status draw_all(eval_task *l, uint32_t seed)
{
    size_t k = (size_t)l->about.shots;
    pyrandom r;
    uint32_t *more = mem_alloc(k + 1, sizeof *more);
    l->drawn = mem_alloc(l->about.n_docs * k, sizeof *l->drawn);
    pesc_status s = more && l->drawn ? PESC_OK : fail_nomem("few-shot examples", k);
    pyrandom_seed(&r, seed);
    for (size_t i = 0; s == PESC_OK && i < l->about.n_docs; i++) {
        uint32_t *out = l->drawn + i * k;
        if (l->def->draw == DRAW_OTHER)
            s = in_row(draw_other(l, &r, l->docs[i], more, out), l->def->name, i);
        else if (l->def->draw == DRAW_RANDOM)
            s = pyrandom_sample(&r, (uint32_t)l->n_pool, (uint32_t)k, out);
        else
            for (size_t j = 0; j < k; j++)
                out[j] = (uint32_t)j;
    }
    mem_free(more);
    return s;
}

static pesc_status open_pool(eval_task *l, task_files *files, const taskdata **data)
{
    const taskdef *def = l->def;
    const json_t *rows = def->shot_rows;
    if (!rows && !def->shot_split)
        return fail(PESC_USAGE, "%s: the task has no few-shot examples: --shots must be 0",
                    def->name);
    if (!rows) {
        TRY(get_file(files, def, def->shot_split, data));
        rows = (*data)->rows;
        allow_work(l, *data, json_array_size(rows));
        TRY(taskdef_check_templates(def, json_array_get(rows, 0)));
        return take_rows(def, rows, (*data)->place, 0, &l->pool, &l->n_pool);
    }
    l->pool = mem_zalloc(json_array_size(rows) + 1, sizeof *l->pool);
    if (!l->pool)
        return fail_nomem("few-shot examples", 0);
    for (; l->n_pool < json_array_size(rows); l->n_pool++)
        l->pool[l->n_pool] = json_incref(json_array_get(rows, l->n_pool));
    return PESC_OK;
}

static pesc_status take_shots(eval_task *l, task_files *files, const task_options *opt,
                              const taskdata **data)
{
    size_t need = (size_t)l->about.shots + (l->def->draw == DRAW_OTHER);
    if (l->about.shots == 0)
        return PESC_OK;
    TRY(open_pool(l, files, data));
    if (need > l->n_pool || l->n_pool > UINT32_MAX)
        return fail(PESC_USAGE, "%s: %lld shots were asked for; there are %zu examples",
                    l->def->name, (long long)l->about.shots, l->n_pool);
    return draw_all(l, opt->seed);
}

/* ---- whether the data is the published data ---- */

static void compare(str *note, const char *what, const taskdata *data, int64_t documents,
                    const char *sha256)
{
    size_t n = json_array_size(data->rows);
    if (note->n > 0)
        return;
    if (documents && (int64_t)n != documents)
        str_printf(note, "%s has %zu %s; the published data has %lld", data->place, n, what,
                   (long long)documents);
    else if (sha256 && strcmp(sha256, data->sha256) != 0)
        str_printf(note, "%s is not the published data: its %s have another SHA-256", data->place,
                   what);
}

/* Names a copy that is known to be in circulation. */
static void name_subset(str *note, const taskdef *def, const taskdata *data)
{
    char rows[32];
    snprintf(rows, sizeof rows, "%zu", json_array_size(data->rows));
    const char *name = json_string_value(json_object_get(def->subsets, rows));
    if (note->n > 0 && name)
        str_printf(note, " (as many as %s)", name);
}

static pesc_status describe(eval_task *l, const taskdata *data, const taskdata *shot_data)
{
    const taskdef *def = l->def;
    str note = { 0 }, label = { 0 }, definition = { 0 };
    compare(&note, "rows", data, def->file_documents, def->sha256);
    name_subset(&note, def, data);
    if (shot_data)
        compare(&note, "rows for few-shot examples", shot_data, def->shot_documents,
                def->shot_sha256);
    str_printf(&label, "%s%s", def->name, note.n ? "?" : "");
    str_puts(&note, "");
    l->note = note.p;
    l->label = label.p;
    l->about.note = note.p;
    l->about.label = label.p;
    memcpy(l->about.data_hash, data->sha256, sizeof l->about.data_hash);
    json_put(&definition, def->json, JSON_SORT_KEYS | JSON_COMPACT);
    digest_text(l->about.definition_hash, definition.p, definition.n);
    bool ok = str_ok(&note) && str_ok(&label) && str_ok(&definition);
    str_free(&definition);
    return ok ? PESC_OK : fail_nomem("a task", 0);
}

/* ---- a task ---- */

static int64_t shots_of(const taskdef *def, const task_options *opt)
{
    const json_t *suite = opt->suite ? json_object_get(def->suites, opt->suite) : NULL;
    return opt->shots >= 0 ? opt->shots : suite ? json_integer_value(suite) : def->shots;
}

static pesc_status fill_task(eval_task *l, task_files *files, const task_options *opt)
{
    const taskdef *def = l->def;
    const taskdata *data, *shot_data = NULL;
    TRY(get_file(files, def, def->rows ? NULL : def->split, &data));
    for (size_t i = 0; i < json_array_size(data->rows); i++)
        l->about.n_rows += belongs(def, json_array_get(data->rows, i));
    if (l->about.n_rows == 0)
        return fail(PESC_FORMAT, "%s: no row has %s \"%s\"", data->place, def->where_column,
                    def->where_value);
    allow_work(l, data, l->about.n_rows * (1 + (uint64_t)l->about.shots));
    TRY(taskdef_check_templates(def, json_array_get(data->rows, 0)));
    TRY(take_rows(def, data->rows, data->place, (size_t)opt->limit, &l->docs, &l->about.n_docs));
    TRY(read_gold(l));
    TRY(take_shots(l, files, opt, &shot_data));
    return describe(l, data, shot_data);
}

pesc_status task_load(eval_task **out, const taskdef *def, task_files *files,
                      const task_options *opt)
{
    *out = NULL;
    eval_task *l = mem_zalloc(1, sizeof *l);
    if (!l)
        return fail_nomem("a task", sizeof *l);
    l->def = def;
    l->about = (task_about){ .name = def->name,
                             .remark = def->remark ? def->remark : "",
                             .rubric = opt->judge ? def->rubric : NULL,
                             .version = def->version,
                             .kind = def->kind,
                             .shots = shots_of(def, opt),
                             .n_filters = def->n_filters,
                             .n_metrics = def->metrics.n + (opt->judge && def->rubric),
                             .max_tokens = def->max_tokens,
                             .stops = def->stops.at,
                             .n_stops = def->stops.n };
    pesc_status s = fill_task(l, files, opt);
    if (s == PESC_OK)
        *out = l;
    else
        task_unload(l);
    return s;
}

void task_unload(eval_task *l)
{
    if (!l)
        return;
    for (size_t i = 0; l->docs && i < l->about.n_docs; i++)
        json_decref(l->docs[i]);
    for (size_t i = 0; l->pool && i < l->n_pool; i++)
        json_decref(l->pool[i]);
    mem_free(l->docs);
    mem_free(l->pool);
    mem_free(l->gold);
    mem_free(l->drawn);
    mem_free(l->label);
    mem_free(l->note);
    mem_free(l);
}
