#include "eval/evalresults.h"

#include "base/log.h"
#include "base/mem.h"
#include "eval/digest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

static const char config_name[] = "evaluation.json", results_name[] = "results.json";

static pesc_status no_memory(void)
{
    return fail_nomem("the results of an evaluation", 0);
}

/* ---- what is evaluated ---- */

static json_t *task_config(const task_about *a)
{
    return json_pack("{sf sI sI ss ss}", "version", a->version, "shots", (json_int_t)a->shots,
                     "documents", (json_int_t)a->n_docs, "data_hash", a->data_hash,
                     "definition_hash", a->definition_hash);
}

/* Everything that a score depends on; NULL: out of memory. */
static json_t *config_of(const taskrun *r, const task_set *set, const taskrun_options *opt)
{
    json_t *tasks = json_object(), *all = json_copy(r->model);
    for (size_t i = 0; tasks && i < task_count(set); i++) {
        const task_about *a = task_describe(task_at(set, i));
        json_object_set_new(tasks, a->name, task_config(a));
    }
    json_t *how = json_pack("{sI ss so sO ss sb}", "seed", (json_int_t)opt->tasks.seed, "suite",
                            opt->tasks.suite ? opt->tasks.suite : "lm-eval", "tasks", tasks,
                            "chat_template_sha", json_object_get(r->chat, "chat_template_sha"),
                            "sandbox", r->sandbox, "samples", opt->samples);
    if (json_object_update(all, how) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(how);
    return all;
}

static pesc_status write_text(const char *dir, const char *name, const str *text)
{
    char *path = io_join(dir, name);
    pesc_status s = path ? io_write_file(path, text->p, text->n) : no_memory();
    mem_free(path);
    return s;
}

static pesc_status to_text(str *out, const json_t *v)
{
    if (v)
        json_put(out, v, JSON_INDENT(2));
    str_putc(out, '\n');
    return v && str_ok(out) ? PESC_OK : no_memory();
}

static pesc_status write_json(const char *dir, const char *name, const json_t *v)
{
    str text = { 0 };
    pesc_status s = to_text(&text, v);
    if (s == PESC_OK)
        s = write_text(dir, name, &text);
    str_free(&text);
    return s;
}

static bool is_output(const char *name)
{
    return strcmp(name, results_name) == 0 ||
           (str_starts(name, "samples_") && str_ends(name, ".jsonl"));
}

/* Whether an evaluation with this configuration writes the file. */
static bool writes(const json_t *about, const char *name)
{
    char file[SAMPLES_NAME];
    const char *task;
    json_t *v;
    if (about && strcmp(name, results_name) == 0)
        return true;
    json_object_foreach(json_object_get(about, "tasks"), task, v)
    {
        samples_name(file, task);
        if (strcmp(name, file) == 0)
            return true;
    }
    return false;
}

/* A file that the evaluation before has not written is somebody's own. */
static pesc_status check_file(const char *dir, const char *name, const json_t *now,
                              const json_t *then)
{
    if (!is_output(name) || writes(then, name) || (then && !writes(now, name)))
        return PESC_OK;
    return fail(PESC_USAGE,
                "%s: holds %s, which no evaluation.json there speaks of; move it away, or give "
                "another directory",
                dir, name);
}

/* Removes what the evaluation before has written, or refuses before anything is removed. then: its
 * configuration; NULL: there was none. */
static pesc_status clear_dir(const char *dir, const json_t *now, const json_t *then)
{
    char **names;
    size_t n;
    TRY(io_list(dir, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++)
        s = check_file(dir, names[i], now, then);
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        char *path = writes(then, names[i]) ? io_join(dir, names[i]) : NULL;
        s = path ? io_remove(path) : PESC_OK;
        mem_free(path);
    }
    io_list_free(names, n);
    return s;
}

/* The first key whose value differs; NULL: none does. */
static const char *first_difference(json_t *now, const json_t *then)
{
    const char *key;
    json_t *v;
    json_object_foreach(now, key, v) if (!json_equal(v, json_object_get(then, key))) return key;
    return NULL;
}

/* The configuration of the evaluation before; *out NULL: there was none. */
static pesc_status read_config(json_t **out, const char *dir)
{
    *out = NULL;
    char *path = io_join(dir, config_name);
    if (!path)
        return no_memory();
    pesc_status s = PESC_OK;
    if (io_kind_of(path) != IO_NONE) {
        s = json_read(out, path, MAX_BYTES);
        if (s != PESC_NOMEM && !json_is_object(json_object_get(*out, "tasks")))
            s = fail(PESC_USAGE,
                     "%s: is not from an evaluation; move it away, or give another "
                     "directory",
                     path);
    }
    mem_free(path);
    return s;
}

static pesc_status compare_config(const char *dir, json_t *now)
{
    json_t *then;
    pesc_status s = read_config(&then, dir);
    const char *differs = then ? first_difference(now, then) : config_name;
    if (s == PESC_OK && differs) {
        s = clear_dir(dir, now, then);
        if (s == PESC_OK && then)
            log_notice("%s: is from an evaluation with another %s; it begins again", dir, differs);
        if (s == PESC_OK)
            s = write_json(dir, config_name, now);
    }
    json_decref(then);
    return s;
}

pesc_status evalresults_begin(const taskrun *r, const task_set *set, const taskrun_options *opt)
{
    json_t *now = config_of(r, set, opt);
    pesc_status s = now ? io_make_dir(opt->dir) : no_memory();
    if (s == PESC_OK)
        s = compare_config(opt->dir, now);
    json_decref(now);
    return s;
}

/* ---- scores ---- */

/* A name as the harness writes it: "acc,none", "acc_stderr,none". */
static void put_score(json_t *to, const char *metric, const char *filter, metric_score s)
{
    char key[160];
    snprintf(key, sizeof key, "%s,%s", metric, filter);
    json_object_set_new(to, key, isnan(s.mean) ? json_string("N/A") : json_real(s.mean));
    snprintf(key, sizeof key, "%s_stderr,%s", metric, filter);
    json_object_set_new(to, key, isnan(s.error) ? json_string("N/A") : json_real(s.error));
}

/* Where a score comes from: a task, or a group of tasks that have the same values. */
typedef struct score_source {
    const taskrun *r;
    const samples *like;
    const task_group *group; /* NULL: a task */
} score_source;

static json_t *scores_of(const score_source *from, const char *name)
{
    const samples *s = from->like;
    const task_about *a = s->about;
    json_t *o = json_pack("{ss}", "alias", name);
    for (int reference = 0; o && reference < (a->kind == TASK_CHOICE ? 1 : 2); reference++)
        for (size_t f = 0; f < a->n_filters; f++)
            for (size_t m = 0; m < a->n_metrics; m++) {
                size_t value = samples_value(s, reference, f, m);
                char metric[80];
                snprintf(metric, sizeof metric, "%s%s", task_metric_name(s->task, m),
                         reference ? "_reference" : "");
                put_score(o, metric, task_filter_name(s->task, f),
                          from->group ? taskrun_group_score(from->r, from->group, value)
                                      : samples_score(s, value));
            }
    return o;
}

/* The digest of the hashes of all documents, which their lines hold. */
static pesc_status task_hash(const samples *s, char out[DIGEST_TEXT])
{
    static const char *const keys[] = { "doc_hash", "prompt_hash", "target_hash" };
    digest *d;
    TRY(digest_open(&d));
    for (size_t i = 0; i < s->about->n_docs; i++) {
        const char *end = strchr(s->lines[i], '\n');
        json_t *line = json_loadb(s->lines[i], (size_t)(end - s->lines[i]), JSON_ALLOW_NUL, NULL);
        for (int k = 0; line && k < 3; k++) {
            const char *hash = json_string_value(json_object_get(line, keys[k]));
            digest_add(d, hash ? hash : "", hash ? strlen(hash) : 0);
        }
        json_decref(line);
    }
    digest_close(d, out);
    return PESC_OK;
}

static pesc_status put_task(json_t *all, const taskrun *r, const samples *s)
{
    const task_about *a = s->about;
    char hash[DIGEST_TEXT];
    TRY(task_hash(s, hash));
    json_object_set_new(json_object_get(all, "results"), a->name,
                        scores_of(&(score_source){ r, s, NULL }, a->label));
    if (samples_undecided(s))
        json_object_set_new(json_object_get(json_object_get(all, "results"), a->name), "undecided",
                            json_integer((json_int_t)samples_undecided(s)));
    json_object_set_new(json_object_get(all, "versions"), a->name, json_real(a->version));
    json_object_set_new(json_object_get(all, "n-shot"), a->name, json_integer(a->shots));
    json_object_set_new(json_object_get(all, "n-samples"), a->name,
                        json_pack("{sI sI}", "original", (json_int_t)a->n_rows, "effective",
                                  (json_int_t)a->n_docs));
    json_object_set_new(json_object_get(all, "task_hashes"), a->name, json_string(hash));
    return PESC_OK;
}

static void put_group(json_t *all, const taskrun *r, const task_group *g)
{
    json_t *names = json_array();
    score_source from = { r, &r->tasks[g->tasks[0]], g };
    for (size_t i = 0; i < g->n_tasks; i++)
        json_array_append_new(names, json_string(r->tasks[g->tasks[i]].about->name));
    json_object_set_new(json_object_get(all, "groups"), g->name, scores_of(&from, g->name));
    json_object_set_new(json_object_get(all, "group_subtasks"), g->name, names);
    json_object_set_new(json_object_get(all, "versions"), g->name, json_real(g->version));
}

bool evalresults_has_score(const taskrun *r, const task_group *g)
{
    const samples *first = g->n_tasks ? &r->tasks[g->tasks[0]] : NULL;
    for (size_t i = 0; i < g->n_tasks; i++) {
        const samples *s = &r->tasks[g->tasks[i]];
        if (s->n_values != first->n_values || s->about->n_metrics != first->about->n_metrics)
            return false;
        for (size_t m = 0; m < s->about->n_metrics; m++)
            if (strcmp(task_metric_name(s->task, m), task_metric_name(first->task, m)) != 0)
                return false;
    }
    return first != NULL;
}

static pesc_status build(json_t **out, const taskrun *r, const task_set *set,
                         const taskrun_options *opt)
{
    json_t *all = *out = json_pack("{s{} s{} s{} s{} s{} s{} s{} so}", "results", "groups",
                                   "group_subtasks", "versions", "n-shot", "n-samples",
                                   "task_hashes", "config", config_of(r, set, opt));
    pesc_status s = json_object_update(all, r->chat) == 0 ? PESC_OK : no_memory();
    for (size_t i = 0; s == PESC_OK && i < r->n; i++)
        s = put_task(all, r, &r->tasks[i]);
    for (size_t i = 0; s == PESC_OK && i < task_group_count(set); i++)
        if (evalresults_has_score(r, task_group_at(set, i)))
            put_group(all, r, task_group_at(set, i));
    return s;
}

pesc_status evalresults_text(str *out, const taskrun *r, const task_set *set,
                             const taskrun_options *opt)
{
    json_t *all;
    pesc_status s = build(&all, r, set, opt);
    json_object_set_new(all, "tokens",
                        json_pack("{sI sI}", "requested", (json_int_t)r->count.requested,
                                  "computed", (json_int_t)r->count.computed));
    if (s == PESC_OK)
        s = to_text(out, all);
    json_decref(all);
    return s;
}

pesc_status evalresults_write(const taskrun *r, const task_set *set, const taskrun_options *opt)
{
    json_t *all;
    pesc_status s = build(&all, r, set, opt);
    if (s == PESC_OK)
        s = write_json(opt->dir, results_name, all);
    json_decref(all);
    return s;
}
