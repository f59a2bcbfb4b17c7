#include "run/runbase.h"

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "run/runstate.h"

#include <string.h>
#include <xxhash.h>

/* ---- whether it is the same ---- */

enum {
    SAMPLE = 64,         /* bytes of a block */
    ALL_SAMPLES = 4096,  /* of a model, at least one a tensor */
    TENSOR_SAMPLES = 16, /* most of a tensor */
};

static uint64_t hash_samples(const weight *w, size_t n, uint64_t h)
{
    size_t size = w->bytes < SAMPLE ? w->bytes : SAMPLE, last = w->bytes - size;
    for (size_t i = 0; w->data && i < n; i++) { /* the first and the last block are among them */
        size_t at = n > 1 ? (size_t)((double)last * (double)i / (double)(n - 1)) : last / 2;
        h = XXH3_64bits_withSeed(w->data + at, size, h);
    }
    return h;
}

static uint64_t hash_header(const weight *w, uint64_t h)
{
    h = XXH3_64bits_withSeed(w->name, strlen(w->name), h);
    h = XXH3_64bits_withSeed(w->ne, (size_t)w->nd * sizeof *w->ne, h + (uint64_t)w->dt);
    return XXH3_64bits_withSeed(&w->bytes, sizeof w->bytes, h);
}

void runbase_identify(runbase_identity *out, const json_t *config, const weights *ws)
{
    str text = { 0 };
    uint64_t tensors = 0, samples = 0;
    size_t count = weights_stored_count(ws), n = ALL_SAMPLES / (count ? count : 1);
    n = n < 1 ? 1 : n > TENSOR_SAMPLES ? TENSOR_SAMPLES : n;
    for (size_t i = 0; i < count; i++) {
        tensors = hash_header(weights_stored_at(ws, i), tensors);
        samples = hash_samples(weights_stored_at(ws, i), n, samples);
    }
    *out = (runbase_identity){ 0 };
    if (config) {
        json_put(&text, config, JSON_COMPACT | JSON_SORT_KEYS);
        str_hex(out->config, text.n ? XXH3_64bits(text.p, text.n) : 0);
    }
    str_hex(out->tensors, tensors);
    str_hex(out->samples, samples);
    str_free(&text);
}

pesc_status runbase_check(const runbase_identity *then, const runbase_identity *now,
                          const char *run, const char *base)
{
    if (!then->tensors[0]) {
        log_notice("%s: was saved by an earlier version of pesc, which did not record enough to "
                   "see whether its base %s has changed since",
                   run, base);
        return PESC_OK;
    }
    bool tensors = strcmp(then->tensors, now->tensors) != 0;
    if (tensors || strcmp(then->samples, now->samples) != 0)
        return fail(PESC_FORMAT,
                    "%s: its base %s has changed since it was trained: %s; give the model it was "
                    "trained on with --base DIR",
                    run, base,
                    tensors ? "the names, shapes or dtypes of its tensors differ"
                            : "the tensors have other numbers");
    if (strcmp(then->config, now->config) != 0)
        log_notice("%s: the configuration of its base %s has changed since it was trained", run,
                   base);
    return PESC_OK;
}

/* ---- where it is ---- */

/* The last part of a path, or the last two where that is a checkpoint of a run. */
static const char *own_name(const char *path)
{
    const char *last = strrchr(path, '/'), *at = last;
    if (last && runstate_step_of(last + 1) >= 0)
        while (at > path && at[-1] != '/')
            at--;
    else
        at = last ? last + 1 : path;
    return at;
}

/* dir/name when something is there; else NULL. */
static pesc_status look_at(char **out, const char *dir, const char *name)
{
    char *path = io_join(dir, name);
    *out = NULL;
    if (!path)
        return fail_nomem(dir, strlen(name));
    pesc_status s = io_kind_of(path) != IO_NONE ? io_absolute(out, path) : PESC_OK;
    mem_free(path);
    return s;
}

static pesc_status search(char **out, const runbase_place *p, const char *run)
{
    if (p->relative[0])
        TRY(look_at(out, run, p->relative));
    if (*out)
        return PESC_OK;
    char *beside = io_join(run, "..");
    pesc_status s = beside ? look_at(out, beside, own_name(p->path)) : fail_nomem(run, 4);
    mem_free(beside);
    return s;
}

pesc_status runbase_find(char **out, const runbase_place *p)
{
    char *run = NULL;
    *out = NULL;
    if (io_kind_of(p->path) != IO_NONE) {
        *out = mem_strdup(p->path);
        return *out ? PESC_OK : fail_nomem(p->path, strlen(p->path));
    }
    TRY(io_absolute(&run, p->run));
    pesc_status s = search(out, p, run);
    if (s == PESC_OK && *out)
        log_notice("%s: its base is not at %s any more; %s is used", run, p->path, *out);
    mem_free(run);
    return s;
}

pesc_status runbase_missing(const char *run, const char *path)
{
    return fail(PESC_IO, "%s: the base of this run, %s, is not there; give --base DIR", run, path);
}

/* The base that run.json names: a run that has not saved a checkpoint has no other record. */
static pesc_status described_base(char **out, const char *run)
{
    json_t *v = NULL;
    const char *path = NULL;
    char *file = io_join(run, "run.json");
    pesc_status s = file ? json_read(&v, file, 1 << 20) : fail_nomem(run, 16);
    if (s == PESC_OK)
        s = json_get_str((json_where){ v, file }, "base", true, &path);
    if (s == PESC_OK)
        s = runbase_find(out, &(runbase_place){ run, path, "" });
    if (s == PESC_OK && !*out)
        s = runbase_missing(run, path);
    json_decref(v);
    mem_free(file);
    return s;
}

static pesc_status checkpoint_base(char **out, const char *checkpoint)
{
    runstate_chain c;
    TRY(runstate_resolve(&c, checkpoint, NULL));
    *out = mem_strdup(c.dirs[1]);
    pesc_status s = !*out                         ? fail_nomem(c.dirs[1], strlen(c.dirs[1]))
                    : io_kind_of(*out) == IO_NONE ? runbase_missing(checkpoint, *out)
                                                  : PESC_OK;
    runstate_chain_free(&c);
    return s;
}

pesc_status pesc_run_base(const char *run, const pesc_events *ev, char *out, size_t n)
{
    status_clear();
    NEED(run);
    NEED_ARRAY(out, n);
    LOG_EVENTS(ev);
    char *checkpoint = NULL, *base = NULL;
    TRY(runstate_newest(run, RUNSTATE_SIZES, &checkpoint));
    pesc_status s = checkpoint ? checkpoint_base(&base, checkpoint) : described_base(&base, run);
    if (s == PESC_OK && strlen(base) >= n)
        s = fail(PESC_USAGE, "%s: is longer than %zu bytes", base, n);
    if (s == PESC_OK)
        memcpy(out, base, strlen(base) + 1);
    mem_free(base);
    mem_free(checkpoint);
    return s;
}

pesc_status runbase_relative(char **out, const char *from, const char *to)
{
    str s = { 0 };
    size_t same = 0; /* bytes of the directories that both paths begin with */
    for (size_t i = 0;; i++) {
        bool ends = (from[i] == '/' || !from[i]) && (to[i] == '/' || !to[i]);
        if (ends)
            same = i;
        if (!from[i] || !to[i] || from[i] != to[i])
            break;
    }
    const char *rest = to[same] == '/' ? to + same + 1 : to + same;
    for (const char *at = from + same; *at; at++)
        if (*at == '/' && at[1])
            str_puts(&s, s.n ? "/.." : "..");
    if (*rest && s.n)
        str_putc(&s, '/');
    str_puts(&s, *rest || s.n ? rest : ".");
    *out = str_ok(&s) ? s.p : NULL;
    if (*out)
        return PESC_OK;
    str_free(&s);
    return fail_nomem(to, strlen(to));
}

/* ---- how it was held ---- */

static void read_held(runbase_held *out, const char *yaml)
{
    char method[16], double_quant[8];
    const pesc_option_struct train = PESC_OPTIONS_TRAIN;
    options_value(train, yaml, "base_dtype", out->base_dtype, sizeof out->base_dtype);
    options_value(train, yaml, "compute_dtype", out->compute_dtype, sizeof out->compute_dtype);
    options_value(train, yaml, "double_quant", double_quant, sizeof double_quant);
    options_value(train, yaml, "method", method, sizeof method);
    out->found = true;
    out->double_quant = strcmp(double_quant, "false") != 0;
    out->whole_experts = runbase_trains_experts(method);
}

bool runbase_trains_experts(const char *method)
{
    return strcmp(method, "upcycle") == 0 || strcmp(method, "esft") == 0;
}

void runbase_load(const runbase_held *h, pesc_load_options *out)
{
    static const char *const known[] = { "f32", "bf16", "nf4" };
    if (!out->base_dtype || strcmp(out->base_dtype, h->base_dtype) == 0)
        out->whole_experts = out->whole_experts || h->whole_experts;
    if (!out->base_dtype) {
        out->base_dtype = "stored";
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strcmp(h->base_dtype, known[i]) == 0)
                out->base_dtype = known[i];
        out->double_quant = h->double_quant;
    }
    if (!out->compute_dtype)
        out->compute_dtype = strcmp(h->compute_dtype, "bf16") == 0 ? "bf16" : "f32";
}

pesc_status runbase_read_held(runbase_held *out, const char *checkpoint)
{
    enum { MAX_YAML = 1 << 20 };
    char *path = io_join(checkpoint, "run.yaml"), *text = NULL;
    size_t n = 0;
    *out = (runbase_held){ .double_quant = true };
    if (!path)
        return fail_nomem(checkpoint, 16);
    pesc_status s = PESC_OK;
    if (io_kind_of(path) == IO_FILE)
        s = io_read_file(path, MAX_YAML, &text, &n);
    if (s == PESC_OK && text)
        read_held(out, text);
    mem_free(text);
    mem_free(path);
    return s;
}
