#include "eval/taskdef.h"

#include "base/mem.h"

#include <string.h>

/* ---- the keys of a definition ---- */

typedef enum key_type {
    KEY_TEXT,
    KEY_NUMBER,
    KEY_COUNT,
    KEY_BOOL,
    KEY_TEMPLATE,
    KEY_TEMPLATES,
    KEY_TEXTS, /* a list of texts, or one text */
    KEY_LIST,  /* kept as JSON */
    KEY_OBJECT,
    KEY_OTHER /* read by a function of its own */
} key_type;

typedef struct key {
    const char *name;
    key_type type;
    size_t offset;
    int64_t least, most; /* of a count */
} key;
#define K(name, type, field)                                                                       \
    {                                                                                              \
        name, type, offsetof(taskdef, field), 0, 0                                                 \
    }
#define COUNT(name, field, least, most)                                                            \
    {                                                                                              \
        name, KEY_COUNT, offsetof(taskdef, field), least, most                                     \
    }

#define MAX_DOCUMENTS ((int64_t)1 << 40)
enum { MAX_SHOTS = 1000, MAX_TOKENS = 1 << 20 };

static const key keys[] = {
    K("task", KEY_TEXT, name),
    K("group", KEY_TEXT, group),
    K("version", KEY_NUMBER, version),
    K("published", KEY_TEXT, published),
    K("remark", KEY_TEXT, remark),
    K("kind", KEY_OTHER, kind),
    K("judge", KEY_OTHER, judge),
    K("data", KEY_TEXTS, places),
    K("split", KEY_TEXT, split),
    K("where", KEY_OTHER, where_column),
    K("columns", KEY_OTHER, columns),
    K("add", KEY_OTHER, added),
    COUNT("documents", documents, 0, MAX_DOCUMENTS),
    COUNT("file_documents", file_documents, 0, MAX_DOCUMENTS),
    COUNT("shot_documents", shot_documents, 0, MAX_DOCUMENTS),
    K("sha256", KEY_TEXT, sha256),
    K("shot_sha256", KEY_TEXT, shot_sha256),
    K("description", KEY_TEMPLATE, description),
    K("question", KEY_TEMPLATE, question),
    K("continuation", KEY_TEMPLATE, continuation),
    K("choices", KEY_TEMPLATES, choices),
    K("inputs", KEY_TEMPLATES, inputs),
    K("gold", KEY_TEMPLATE, gold),
    K("labels", KEY_TEMPLATES, labels),
    K("target", KEY_TEMPLATE, target),
    K("shot_target", KEY_TEMPLATE, shot_target),
    K("candidate", KEY_TEMPLATE, candidate),
    K("tools", KEY_TEMPLATE, tools),
    K("rows", KEY_LIST, rows),
    K("rubric", KEY_TEXT, rubric),
    K("target_delimiter", KEY_TEXT, target_delimiter),
    K("shot_delimiter", KEY_TEXT, shot_delimiter),
    COUNT("shots", shots, 0, MAX_SHOTS),
    K("draw", KEY_OTHER, draw),
    K("shot_split", KEY_TEXT, shot_split),
    K("shot_rows", KEY_LIST, shot_rows),
    K("suites", KEY_OBJECT, suites),
    K("subsets", KEY_OBJECT, subsets),
    K("stops", KEY_TEXTS, stops),
    K("metrics", KEY_TEXTS, metrics),
    COUNT("max_tokens", max_tokens, 1, MAX_TOKENS),
    K("filters", KEY_OTHER, filters),
    K("ignore", KEY_OTHER, ignore),
    K("ignore_case", KEY_BOOL, ignore_case),
    K("ignore_punctuation", KEY_BOOL, ignore_punctuation),
};

static const key *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

/* "arc.json: arc_easy: question" */
typedef char place[256];
static const char *place_of(const taskdef *d, const char *what, place out)
{
    snprintf(out, sizeof(place), "%s: %s: %s", d->file, d->name ? d->name : "a task", what);
    return out;
}

static pesc_status wrong_type(const taskdef *d, const char *name, const json_t *v,
                              const char *expected)
{
    place p;
    return fail(PESC_FORMAT, "%s: found %s, expected %s", place_of(d, name, p), json_kind(v),
                expected);
}

static pesc_status read_count(const taskdef *d, const key *k, const json_t *v, int64_t *out)
{
    place p;
    if (!json_is_integer(v))
        return wrong_type(d, k->name, v, "a whole number");
    *out = json_integer_value(v);
    if (*out < k->least || *out > k->most)
        return fail(PESC_FORMAT, "%s: found %lld, expected %lld to %lld", place_of(d, k->name, p),
                    (long long)*out, (long long)k->least, (long long)k->most);
    return PESC_OK;
}

static pesc_status open_template(const taskdef *d, const char *name, const json_t *v,
                                 task_template **out)
{
    place p;
    if (!json_is_string(v))
        return wrong_type(d, name, v, "a text");
    return task_template_open(out, json_string_value(v), place_of(d, name, p), d->work);
}

static pesc_status read_templates(const taskdef *d, const char *name, const json_t *v,
                                  taskdef_templates *out)
{
    out->list = json_is_string(v);
    size_t n = out->list ? 1 : json_array_size(v);
    if (n == 0)
        return wrong_type(d, name, v, "a text or a list of texts");
    out->at = mem_zalloc(n, sizeof *out->at);
    if (!out->at)
        return fail_nomem("a task", n);
    for (; out->n < n; out->n++)
        TRY(open_template(d, name, out->list ? v : json_array_get(v, out->n), &out->at[out->n]));
    return PESC_OK;
}

static pesc_status read_texts(const taskdef *d, const char *name, const json_t *v,
                              taskdef_texts *out)
{
    bool one = json_is_string(v);
    if (!one && !json_is_array(v))
        return wrong_type(d, name, v, "a text or a list of texts");
    size_t n = one ? 1 : json_array_size(v);
    out->at = mem_zalloc(n ? n : 1, sizeof *out->at);
    if (!out->at)
        return fail_nomem("a task", n);
    for (; out->n < n; out->n++) {
        const json_t *item = one ? v : json_array_get(v, out->n);
        if (!json_is_string(item))
            return wrong_type(d, name, item, "a text");
        out->at[out->n] = json_string_value(item);
    }
    return PESC_OK;
}

static pesc_status read_plain(taskdef *d, const key *k, const json_t *v)
{
    void *field = (char *)d + k->offset;
    switch (k->type) {
    case KEY_TEXT:
        *(const char **)field = json_string_value(v);
        return json_is_string(v) ? PESC_OK : wrong_type(d, k->name, v, "a text");
    case KEY_NUMBER:
        *(double *)field = json_number_value(v);
        return json_is_number(v) ? PESC_OK : wrong_type(d, k->name, v, "a number");
    case KEY_COUNT:
        return read_count(d, k, v, field);
    case KEY_BOOL:
        *(bool *)field = json_is_true(v);
        return json_is_boolean(v) ? PESC_OK : wrong_type(d, k->name, v, "true or false");
    case KEY_LIST:
        *(const json_t **)field = v;
        return json_is_array(v) ? PESC_OK : wrong_type(d, k->name, v, "a list");
    case KEY_OBJECT:
        *(const json_t **)field = v;
        return json_is_object(v) ? PESC_OK : wrong_type(d, k->name, v, "an object");
    case KEY_TEMPLATE:
        return open_template(d, k->name, v, field);
    case KEY_TEMPLATES:
        return read_templates(d, k->name, v, field);
    case KEY_TEXTS:
        return read_texts(d, k->name, v, field);
    default:
        return PESC_OK;
    }
}

/* ---- keys with a form of their own ---- */

/* The position of a text among names; -1 with a sentence that lists them. */
static pesc_status read_name(const taskdef *d, const char *what, const char *const *names, size_t n,
                             int *out)
{
    const json_t *v = json_value(d->json, what);
    const char *text = json_string_value(v);
    str list = { 0 };
    if (!v)
        return PESC_OK;
    for (size_t i = 0; i < n; i++) {
        if (text && strcmp(text, names[i]) == 0) {
            *out = (int)i;
            str_free(&list);
            return PESC_OK;
        }
        str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    }
    place p;
    pesc_status s = fail(PESC_FORMAT, "%s: \"%s\" is not known; it is one of %s",
                         place_of(d, what, p), text ? text : "", list.p ? list.p : "");
    str_free(&list);
    return s;
}

static pesc_status read_enums(taskdef *d)
{
    static const char *const kinds[] = { "choice", "text", "code", "calls" };
    static const char *const draws[] = { "first", "random", "other" };
    static const char *const judges[] = { "choice", "match",   "minerva", "hendrycks",
                                          "intent", "overlap", "code",    "calls" };
    static const int own[] = { JUDGE_CHOICE, JUDGE_MATCH, JUDGE_CODE, JUDGE_CALLS }; /* of a kind */
    enum { KINDS = sizeof kinds / sizeof *kinds, JUDGES = sizeof judges / sizeof *judges };
    int kind = -1, draw = DRAW_FIRST;
    place p;
    TRY(read_name(d, "kind", kinds, KINDS, &kind));
    if (kind < 0)
        return fail(PESC_FORMAT, "%s is missing; it is choice, text, code or calls",
                    place_of(d, "kind", p));
    int judge = own[kind];
    TRY(read_name(d, "judge", judges, JUDGES, &judge));
    TRY(read_name(d, "draw", draws, 3, &draw));
    bool of_texts = judge != JUDGE_CHOICE && judge != JUDGE_CODE && judge != JUDGE_CALLS;
    if (kind == TASK_TEXT ? !of_texts : judge != own[kind])
        return fail(PESC_FORMAT, "%s: \"%s\" does not judge tasks of the kind \"%s\"",
                    place_of(d, "judge", p), judges[judge], kinds[kind]);
    d->kind = (task_kind)kind;
    d->judge = (taskdef_judge)judge;
    d->draw = (taskdef_draw)draw;
    return PESC_OK;
}

static pesc_status read_where(taskdef *d)
{
    const json_t *v = json_value(d->json, "where");
    if (!v)
        return PESC_OK;
    d->where_column = json_string_value(json_array_get(v, 0));
    d->where_value = json_string_value(json_array_get(v, 1));
    return d->where_column && d->where_value && json_array_size(v) == 2
               ? PESC_OK
               : wrong_type(d, "where", v, "a list of a column and a text");
}

static pesc_status read_columns(taskdef *d)
{
    static const char *const types[] = { "text", "texts", "integer", "label", "object", "list" };
    const json_t *v = json_value(d->json, "columns");
    const char *name;
    json_t *type;
    place p;
    if (!json_is_object(v) || json_object_size(v) == 0)
        return fail(PESC_FORMAT, "%s: expected an object of column names and their types",
                    place_of(d, "columns", p));
    d->columns = mem_zalloc(json_object_size(v), sizeof *d->columns);
    if (!d->columns)
        return fail_nomem("a task", 0);
    json_object_foreach((json_t *)(uintptr_t)v, name, type)
    {
        const char *text = json_string_value(type);
        bool known = false;
        for (size_t i = 0; text && i < sizeof types / sizeof *types; i++)
            known = known || strcmp(types[i], text) == 0;
        if (!known)
            return fail(
                PESC_FORMAT,
                "%s: the type of \"%s\" is one of text, texts, integer, label, object, list",
                place_of(d, "columns", p), name);
        d->columns[d->n_columns++] = (taskdef_column){ name, text };
    }
    return PESC_OK;
}

static pesc_status read_added(taskdef *d)
{
    const json_t *v = json_value(d->json, "add");
    const char *name;
    json_t *value;
    if (!v)
        return PESC_OK;
    if (!json_is_object(v))
        return wrong_type(d, "add", v, "an object of column names and templates");
    d->added = mem_zalloc(json_object_size(v), sizeof *d->added);
    if (!d->added)
        return fail_nomem("a task", 0);
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        d->added[d->n_added].name = name;
        TRY(open_template(d, name, value, &d->added[d->n_added++].value));
    }
    return PESC_OK;
}

static pesc_status read_filter(const taskdef *d, const json_t *v, taskdef_filter *f)
{
    static const char *const allowed[] = { "name", "regex", "take", "strip", "fallback" };
    const char *key_name, *take = json_string_value(json_object_get(v, "take"));
    json_t *value;
    place p;
    place_of(d, "filters", p);
    json_object_foreach((json_t *)(uintptr_t)v, key_name, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
            known = known || strcmp(allowed[i], key_name) == 0;
        if (!known)
            return fail(PESC_FORMAT, "%s: the key \"%s\" is not known", p, key_name);
    }
    json_where w = { v, p };
    const char *pattern = NULL;
    f->fallback = "[invalid]";
    TRY(json_get_str(w, "name", true, &f->name));
    TRY(json_get_str(w, "regex", false, &pattern));
    TRY(json_get_str(w, "fallback", false, &f->fallback));
    TRY(json_get_bool(w, "strip", false, &f->strip));
    f->last = take && strcmp(take, "last") == 0;
    if (json_has(v, "take") && !f->last && !(take && strcmp(take, "first") == 0))
        return fail(PESC_FORMAT, "%s: take: expected \"first\" or \"last\"", p);
    return pattern ? pyregex_open(&f->regex, pattern, p, d->work) : PESC_OK;
}

/* Without filters the text is judged as it is, under the name "none". */
static pesc_status read_filters(taskdef *d)
{
    const json_t *v = json_value(d->json, "filters");
    if (v && (!json_is_array(v) || json_array_size(v) == 0))
        return wrong_type(d, "filters", v, "a list of objects");
    size_t n = v ? json_array_size(v) : 1;
    d->filters = mem_zalloc(n, sizeof *d->filters);
    if (!d->filters)
        return fail_nomem("a task", n);
    d->n_filters = n;
    if (!v)
        d->filters[0] = (taskdef_filter){ .name = "none", .fallback = "" };
    for (size_t i = 0; v && i < n; i++)
        TRY(read_filter(d, json_array_get(v, i), &d->filters[i]));
    return PESC_OK;
}

static pesc_status read_ignore(taskdef *d)
{
    const json_t *v = json_value(d->json, "ignore");
    place p;
    if (!v)
        return PESC_OK;
    if (!json_is_array(v))
        return wrong_type(d, "ignore", v, "a list of regular expressions");
    d->ignore = mem_zalloc(json_array_size(v) + 1, sizeof *d->ignore);
    if (!d->ignore)
        return fail_nomem("a task", 0);
    for (; d->n_ignore < json_array_size(v); d->n_ignore++) {
        const char *pattern = json_string_value(json_array_get(v, d->n_ignore));
        if (!pattern)
            return wrong_type(d, "ignore", json_array_get(v, d->n_ignore), "a text");
        TRY(pyregex_open(&d->ignore[d->n_ignore], pattern, place_of(d, "ignore", p), d->work));
    }
    return PESC_OK;
}

/* ---- a whole definition ---- */

static pesc_status read_keys(taskdef *d)
{
    const char *name;
    json_t *v;
    place p;
    json_object_foreach(d->json, name, v)
    {
        const key *k = find_key(name);
        if (!k)
            return fail(PESC_FORMAT, "%s: this key is not known", place_of(d, name, p));
        TRY(read_plain(d, k, v));
    }
    TRY(read_enums(d));
    TRY(read_where(d));
    TRY(read_columns(d));
    TRY(read_added(d));
    TRY(read_filters(d));
    return read_ignore(d);
}

static const struct {
    taskdef_judge judge;
    const char *metric;
} metrics_of[] = {
    { JUDGE_CHOICE, "acc" },
    { JUDGE_CHOICE, "acc_norm" },
    { JUDGE_MATCH, "exact_match" },
    { JUDGE_MINERVA, "exact_match" },
    { JUDGE_HENDRYCKS, "exact_match" },
    { JUDGE_INTENT, "exact_match" },
    { JUDGE_OVERLAP, "rouge_l" },
    { JUDGE_OVERLAP, "chrf" },
    { JUDGE_CODE, "pass@1" },
    { JUDGE_CODE, "pass_at_1" },
    { JUDGE_CALLS, "exact_match" },
};

static pesc_status check_metrics(const taskdef *d)
{
    place p;
    size_t most = TASK_METRICS_MAX - (d->rubric != NULL);
    if (d->metrics.n == 0 || d->metrics.n > most)
        return fail(PESC_FORMAT, "%s: expected 1 to %zu names", place_of(d, "metrics", p), most);
    if (d->rubric && d->kind != TASK_TEXT)
        return fail(PESC_FORMAT, "%s: is for tasks of the kind text", place_of(d, "rubric", p));
    for (size_t i = 0; i < d->metrics.n; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof metrics_of / sizeof *metrics_of; k++)
            known = known || (metrics_of[k].judge == d->judge &&
                              strcmp(metrics_of[k].metric, d->metrics.at[i]) == 0);
        if (!known)
            return fail(PESC_FORMAT, "%s: \"%s\" is not a metric of such a task",
                        place_of(d, "metrics", p), d->metrics.at[i]);
    }
    return PESC_OK;
}

/* The keys that a task of this kind cannot do without. */
static pesc_status check_needed(const taskdef *d)
{
    bool choice = d->kind == TASK_CHOICE, inputs = d->inputs.n > 0;
    const struct {
        const char *name;
        bool missing;
    } needed[] = {
        { "task", !d->name },
        { "split", !d->split && !d->rows },
        { "question", !d->question && !inputs },
        { "choices", choice && !inputs && d->choices.n == 0 },
        { "gold", choice && !d->gold },
        { "continuation", choice && inputs && !d->continuation },
        { "target", !choice && !d->target },
        { "tools", d->kind == TASK_CALLS && !d->tools },
        { "shot_split or shot_rows", d->shots > 0 && !d->shot_split && !d->shot_rows },
    };
    place p;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].missing)
            return fail(PESC_FORMAT, "%s: this key is missing", place_of(d, needed[i].name, p));
    return PESC_OK;
}

/* Templates in the language before Jinja, by the columns that the file names. */
static pesc_status check_columns(const taskdef *d)
{
    json_t *names = json_copy(json_array_get(d->shot_rows, 0));
    bool ok = names || (names = json_object());
    for (size_t i = 0; ok && i < d->n_columns; i++) {
        const char *name = d->columns[i].name;
        ok = json_object_setn_new(names, name, strcspn(name, "."), json_true()) == 0;
    }
    for (size_t i = 0; ok && i < d->n_added; i++)
        ok = json_object_set_new(names, d->added[i].name, json_true()) == 0;
    pesc_status s = ok ? taskdef_check_templates(d, names) : fail_nomem("a task", 0);
    json_decref(names);
    return s;
}

static pesc_status check(const taskdef *d)
{
    const char *suite;
    json_t *shots;
    TRY(check_needed(d));
    TRY(check_columns(d));
    TRY(check_metrics(d));
    json_object_foreach((json_t *)(uintptr_t)d->suites, suite, shots)
        TRY(read_count(d, &(key){ .name = "suites", .most = MAX_SHOTS }, shots, &(int64_t){ 0 }));
    return PESC_OK;
}

pesc_status taskdef_open(taskdef **out, json_t *json, const char *file, allowance *work)
{
    *out = NULL;
    taskdef *d = mem_zalloc(1, sizeof *d);
    if (!d || !(d->file = mem_strdup(file))) {
        mem_free(d);
        return fail_nomem("a task", sizeof *d);
    }
    d->json = json_incref(json);
    d->work = work;
    d->name = json_string_value(json_value(json, "task"));
    d->target_delimiter = " ";
    d->shot_delimiter = "\n\n";
    d->max_tokens = 256;
    pesc_status s = read_keys(d);
    if (d->file_documents == 0)
        d->file_documents = d->documents;
    if (s == PESC_OK)
        s = check(d);
    if (s == PESC_OK)
        *out = d;
    else
        taskdef_close(d);
    return s;
}

void taskdef_close(taskdef *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        void *field = (char *)d + keys[i].offset;
        if (keys[i].type == KEY_TEMPLATE)
            task_template_close(*(task_template **)field);
        if (keys[i].type == KEY_TEMPLATES) {
            const taskdef_templates *list = field;
            for (size_t k = 0; k < list->n; k++)
                task_template_close(list->at[k]);
            mem_free(list->at);
        }
        if (keys[i].type == KEY_TEXTS)
            mem_free(((taskdef_texts *)field)->at);
    }
    for (size_t i = 0; i < d->n_added; i++)
        task_template_close(d->added[i].value);
    for (size_t i = 0; i < d->n_filters; i++)
        pyregex_close(d->filters[i].regex);
    for (size_t i = 0; i < d->n_ignore; i++)
        pyregex_close(d->ignore[i]);
    mem_free(d->added);
    mem_free(d->filters);
    mem_free(d->ignore);
    mem_free(d->columns);
    mem_free(d->file);
    json_decref(d->json);
    mem_free(d);
}

/* Calls `visit` for each template. */
static pesc_status each_template(const taskdef *d,
                                 pesc_status (*visit)(const task_template *t, void *ud), void *ud)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const void *field = (const char *)d + keys[i].offset;
        const taskdef_templates *list = field;
        if (keys[i].type == KEY_TEMPLATE)
            TRY(visit(*(task_template *const *)field, ud));
        for (size_t k = 0; keys[i].type == KEY_TEMPLATES && k < list->n; k++)
            TRY(visit(list->at[k], ud));
    }
    for (size_t i = 0; i < d->n_added; i++)
        TRY(visit(d->added[i].value, ud));
    return PESC_OK;
}

static pesc_status check_template(const task_template *t, void *row)
{
    return task_template_check(t, row);
}

pesc_status taskdef_check_templates(const taskdef *d, const json_t *row)
{
    return each_template(d, check_template, (json_t *)(uintptr_t)row);
}
