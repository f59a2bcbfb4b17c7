/* runs: the training runs of some folders, for a page that shows them. Folders are looked through
 * at each request; a run is told by a hash of its path. Logs are read as they grow: a page asks for
 * what follows the bytes it has, and of a long log gets lines at even distances. */
#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/options.h"
#include "run/runstate.h"
#include "serve/api/endpoints.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum {
    MAX_DEPTH = 3,      /* of a run below a folder */
    MAX_RUNS = 500,     /* that are listed */
    MAX_SEEN = 20000,   /* directories that are looked into */
    MAX_TEXT = 4 << 20, /* bytes of run.yaml and results.json */
    TAIL = 64 << 10,    /* bytes in which the last line of a log is searched */
    N_LINES = 2000,     /* of an answer */
    N_BYTES = 4 << 20,
    N_SAMPLES = 5,
    ID = 17,
};

pesc_status runs_open(pesc_server *s, const char *const *folders, size_t n)
{
    static const char *const here[] = { "." };
    if (n == 0)
        folders = here, n = 1;
    s->folders = mem_zalloc(n, sizeof *s->folders);
    if (!s->folders)
        return fail_nomem("folders of runs", n);
    for (size_t i = 0; i < n; i++) {
        if (!folders[i] || io_kind_of(folders[i]) != IO_DIR)
            return fail(PESC_IO, "%s: is not a directory; expected a run, or a folder of runs",
                        folders[i] ? folders[i] : "");
        TRY(io_absolute(&s->folders[s->n_folders], folders[i]));
        s->n_folders++;
    }
    return PESC_OK;
}

void runs_close(pesc_server *s)
{
    for (size_t i = 0; i < s->n_folders; i++)
        mem_free(s->folders[i]);
    mem_free(s->folders);
}

/* ---- looking through folders ---- */

typedef struct walk {
    bool (*found)(void *ud, const char *path, const char *name); /* false: enough */
    void *ud;
    size_t seen;
} walk;

static bool is_run(const char *dir)
{
    static const char *const logs[] = { "metrics.jsonl", "run.json" };
    bool found = false;
    for (size_t i = 0; i < 2 && !found; i++) {
        char *path = io_join(dir, logs[i]);
        found = path && io_kind_of(path) == IO_FILE;
        mem_free(path);
    }
    return found;
}

/* name: of the directory below its folder. */
static bool look(walk *w, const char *dir, const char *name, int depth)
{
    char **names = NULL;
    size_t n = 0;
    if (++w->seen > MAX_SEEN)
        return false;
    if (is_run(dir))
        return w->found(w->ud, dir, name);
    bool more = true;
    if (depth == MAX_DEPTH || io_list(dir, &names, &n) != PESC_OK)
        return true;
    for (size_t i = 0; i < n && more; i++) {
        char *path = *names[i] == '.' ? NULL : io_join(dir, names[i]);
        char *below = path && *name ? io_join(name, names[i]) : NULL;
        struct stat st;
        if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            more = look(w, path, below ? below : names[i], depth + 1);
        mem_free(path);
        mem_free(below);
    }
    io_list_free(names, n);
    return more;
}

static void look_through(const pesc_server *s, walk *w)
{
    for (size_t i = 0; i < s->n_folders; i++)
        if (!look(w, s->folders[i], "", 0))
            return;
}

static void id_of(const char *path, char id[ID])
{
    str_hex(id, XXH3_64bits(path, strlen(path)));
}

/* ---- logs ---- */

/* A line as an object; NULL: it is none. */
static json_t *line_at(const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, 0, NULL);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

static io_map *open_log(const char *run, const char *name)
{
    io_map *log = NULL;
    char *path = io_join(run, name);
    if (path && io_kind_of(path) == IO_FILE && io_map_open(&log, path) != PESC_OK)
        log = NULL;
    mem_free(path);
    return log;
}

/* The bytes of whole lines. */
static size_t whole_lines(const io_map *log)
{
    size_t n = log ? log->size : 0;
    while (n > 0 && log->data[n - 1] != '\n')
        n--;
    return n;
}

static json_t *last_line(const char *run, const char *name)
{
    io_map *log = open_log(run, name);
    size_t end = whole_lines(log), from = end > TAIL ? end - TAIL : 0, begin = end ? end - 1 : 0;
    while (begin > from && log->data[begin - 1] != '\n')
        begin--;
    json_t *v = end ? line_at((const char *)log->data + begin, end - begin) : NULL;
    io_map_close(log);
    return v;
}

/* Every `every`-th line, and the last. */
static void add_lines(json_t *lines, const char *text, size_t n, size_t every)
{
    size_t number = 0;
    for (const char *at = text, *end = text + n; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (number % every == 0 || stop + 1 == end) {
            json_t *v = line_at(at, (size_t)(stop - at));
            if (v)
                json_array_append_new(lines, v);
        }
        at = stop + 1;
    }
}

/* What a log has after `from` bytes; from the beginning, where it is shorter now. */
static json_t *lines_after(const char *run, const char *name, size_t from)
{
    io_map *log = open_log(run, name);
    size_t end = whole_lines(log), count = 0;
    bool again = from > end;
    from = again ? 0 : from;
    const char *text = log ? (const char *)log->data + from : "";
    for (size_t i = 0; i < end - from; i++)
        count += text[i] == '\n';
    size_t by_bytes = (end - from + N_BYTES - 1) / N_BYTES,
           by_count = (count + N_LINES - 1) / N_LINES;
    size_t every = by_bytes > by_count ? by_bytes : by_count;
    json_t *lines = json_array();
    if (end > from)
        add_lines(lines, text, end - from, every);
    io_map_close(log);
    return json_pack("{s:I, s:b, s:o}", "to", (json_int_t)end, "again", (int)again, "lines", lines);
}

/* ---- the list ---- */

/* Its process holds a lock on a file while it trains. The kernel's list of locks is read, because
 * trying the lock could be in the way of a run that begins. */
static bool is_running(const char *run)
{
    struct stat st;
    char line[256], inode[32], *path = io_join(run, "lock");
    bool there = path && stat(path, &st) == 0, held = false;
    FILE *locks = there ? fopen("/proc/locks", "re") : NULL;
    mem_free(path);
    snprintf(inode, sizeof inode, ":%llu ", there ? (unsigned long long)st.st_ino : 0);
    while (locks && !held && fgets(line, sizeof line, locks))
        held = strstr(line, "FLOCK") && strstr(line, inode);
    if (locks)
        fclose(locks);
    return held;
}

static double changed(const char *run)
{
    struct stat st;
    char *path = io_join(run, "metrics.jsonl");
    double when = path && stat(path, &st) == 0 ? (double)st.st_mtime : 0;
    mem_free(path);
    return when;
}

static char *read_text(const char *run, const char *name)
{
    char *text = NULL, *path = io_join(run, name);
    size_t n;
    if (path && io_kind_of(path) == IO_FILE && io_read_file(path, MAX_TEXT, &text, &n) != PESC_OK)
        text = NULL;
    mem_free(path);
    return text;
}

static void put_settings(json_t *v, const char *yaml)
{
    static const char *const keys[] = { "method", "steps", "epochs" };
    char value[1024];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        options_value(PESC_OPTIONS_TRAIN, yaml, keys[i], value, sizeof value);
        json_object_set_new(v, keys[i], json_string(value));
    }
}

static bool add_run(void *ud, const char *path, const char *name)
{
    json_t *list = ud;
    char id[ID], *yaml = read_text(path, "run.yaml");
    const char *slash = strrchr(path, '/');
    id_of(path, id);
    json_t *last = last_line(path, "metrics.jsonl"), *eval = last_line(path, "eval.jsonl");
    json_t *v = json_pack("{s:s, s:s, s:s, s:b, s:f, s:o?, s:o?}", "id", id, "name",
                          *name   ? name
                          : slash ? slash + 1
                                  : path,
                          "path", path, "running", (int)is_running(path), "changed", changed(path),
                          "last", last, "last_eval", eval);
    if (v && yaml)
        put_settings(v, yaml);
    mem_free(yaml);
    if (v)
        json_array_append_new(list, v);
    return json_array_size(list) < MAX_RUNS;
}

bool handle_runs(exchange *x)
{
    json_t *list = json_array();
    walk w = { add_run, list, 0 };
    look_through(x->srv, &w);
    return exchange_reply(x, json_pack("{s:f, s:o}", "now", clock_wall(), "runs", list));
}

/* ---- one run ---- */

typedef struct wanted {
    const char *id;
    char *path;
} wanted;

static bool is_wanted(void *ud, const char *path, const char *name)
{
    wanted *w = ud;
    char id[ID];
    (void)name;
    id_of(path, id);
    if (strcmp(id, w->id) == 0)
        w->path = mem_strdup(path);
    return !w->path;
}

static void add_samples(json_t *samples, const char *dir)
{
    char **names = NULL;
    size_t n = 0;
    if (io_list(dir, &names, &n) != PESC_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        io_map *log = str_starts(names[i], "samples_") && str_ends(names[i], ".jsonl")
                          ? open_log(dir, names[i])
                          : NULL;
        const char *at = log ? (const char *)log->data : NULL,
                   *end = at ? at + whole_lines(log) : at;
        for (int k = 0; at < end && k < N_SAMPLES; k++) {
            const char *stop = memchr(at, '\n', (size_t)(end - at));
            json_t *v = stop - at < TAIL ? line_at(at, (size_t)(stop - at)) : NULL;
            if (v)
                json_array_append_new(samples,
                                      json_pack("{s:s, s:o}", "file", names[i], "line", v));
            at = stop + 1;
        }
        io_map_close(log);
    }
    io_list_free(names, n);
}

/* results.json of evaluations in a folder of the run, and one level below. */
static void add_results(json_t *results, json_t *samples, const char *dir, int depth)
{
    char **names = NULL, *text = read_text(dir, "results.json");
    size_t n = 0;
    json_t *v = text ? line_at(text, strlen(text)) : NULL;
    if (v) {
        json_array_append_new(results, json_pack("{s:s, s:o}", "path", dir, "results", v));
        add_samples(samples, dir);
    }
    mem_free(text);
    if (depth == 0 || io_list(dir, &names, &n) != PESC_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        char *path =
            *names[i] == '.' || str_starts(names[i], "checkpoint-") ? NULL : io_join(dir, names[i]);
        struct stat st;
        if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            add_results(results, samples, path, depth - 1);
        mem_free(path);
    }
    io_list_free(names, n);
}

static json_t *details(const char *run)
{
    char *yaml = read_text(run, "run.yaml");
    json_t *results = json_array(), *samples = json_array();
    add_results(results, samples, run, 2);
    json_t *v = json_pack("{s:s, s:o, s:o}", "yaml", yaml ? yaml : "", "results", results,
                          "samples", samples);
    mem_free(yaml);
    return v;
}

/* /v1/runs/ID/metrics/FROM (validation, routing), /v1/runs/ID/details. */
bool handle_run(exchange *x)
{
    static const char *const logs[][2] = { { "metrics", "metrics.jsonl" },
                                           { "validation", "eval.jsonl" },
                                           { "routing", "routing.jsonl" } };
    char *part = strchr(x->argument, '/'), *from;
    if (part)
        *part++ = '\0';
    wanted w = { .id = x->argument };
    walk all = { is_wanted, &w, 0 };
    look_through(x->srv, &all);
    if (!w.path)
        return api_refuse(&x->error, 404, "not_found", NULL, "there is no run %.40s", x->argument);
    json_t *v = NULL;
    bool known = part && strcmp(part, "details") == 0;
    if (known)
        v = details(w.path);
    if (part && (from = strchr(part, '/')))
        *from++ = '\0';
    else
        from = NULL;
    for (size_t i = 0; i < 3 && part && !known; i++) {
        long long at = 0;
        known = strcmp(part, logs[i][0]) == 0 && (!from || str_to_i64(from, 0, INT64_MAX, &at));
        if (known)
            v = lines_after(w.path, logs[i][1], (size_t)at);
    }
    mem_free(w.path);
    return known ? exchange_reply(x, v)
                 : api_refuse(&x->error, 404, "not_found", NULL,
                              "a run has metrics, validation, routing and details");
}
