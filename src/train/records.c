#include "train/domains.h"
#include "train/trainer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/stats.h"
#include "format/modeldir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define SAVED "records.json"

enum {
    MAX_SAVED = 1 << 26,
    MAX_LISTED = 1 << 22 /* records that are not used; of more, a resumed run reads all again */
};

/* ---- opening ---- */

static dataset_options data_options(const pesc_trainer *t, bool eval)
{
    const pesc_train_options *o = &t->opt;
    dataset_options d = { .paths = eval ? o->eval_data : o->data,
                          .n_paths = eval ? o->n_eval_data : o->n_data,
                          .seq_len = (int32_t)o->seq_len,
                          .shuffle = o->shuffle && !eval,
                          .seed = (uint64_t)o->seed,
                          DATASET_RECORDS(o),
                          DATASET_MODEL(t->m) };
    preference_kind kind = t->objective.rule.kind;
    d.wanted = preference_has_pairs(kind) ? RECORD_PAIR
               : kind == PREFERENCE_KTO   ? RECORD_LABELLED
                                          : RECORD_INSTRUCTION;
    over_length_find(o->over_length, &d.over);
    return d;
}

pesc_status records_open(pesc_trainer *t)
{
    dataset_options d = data_options(t, false), e = data_options(t, true);
    if (e.n_paths && t->opt.val_split > 0)
        return fail(PESC_USAGE, "eval_data and val_split are both given; give one of them");
    TRY(dataset_open(&t->data, &d));
    if (t->opt.val_split > 0)
        return dataset_split(t->data, t->opt.val_split, &t->eval_data);
    return e.n_paths ? dataset_open(&t->eval_data, &e) : PESC_OK;
}

pesc_status records_batch(pesc_trainer *t)
{
    enum { SAMPLE = 1024, MOST = 1 << 20 };
    pesc_train_options *o = &t->opt;
    uint64_t n = dataset_count(t->data), sample = n < SAMPLE ? n : SAMPLE;
    double tokens = 0, used = 0;
    if (!o->batch_tokens)
        return PESC_OK;
    for (uint64_t i = 0; i < sample; i++) {
        const sequence *list;
        size_t count;
        TRY(dataset_at(t->data, i * n / sample, &list, &count));
        used += count > 0;
        for (size_t k = 0; k < count; k++)
            tokens += list[k].n;
    }
    double mean = used > 0 ? tokens / used : 0, many = round((double)o->batch_tokens / mean);
    o->batch = mean > 0 && many < MOST ? (many < 1 ? 1 : (int64_t)many) : MOST;
    log_notice("batch_tokens %lld: a record has %.1f tokens on average, so batch is %lld records",
               (long long)o->batch_tokens, mean, (long long)o->batch);
    o->batch_tokens = 0; /* run.yaml has the batch */
    return PESC_OK;
}

/* ---- RUN/records.json ---- */

/* What a check of the records of a data set finds. */
typedef struct findings {
    pesc_data_report report;
    stats_list unused;
} findings;

static json_t *read_saved(const pesc_trainer *t)
{
    json_t *v = NULL;
    char *path = io_join(t->opt.output, SAVED);
    if (!path || io_kind_of(path) != IO_FILE || json_read(&v, path, MAX_SAVED) != PESC_OK)
        v = NULL; /* then the records are read again */
    mem_free(path);
    return v;
}

/* Everything that decides what a check finds. */
static void key_of(const pesc_trainer *t, const dataset *d, char out[17])
{
    const dataset_options *o = dataset_how(d);
    char text[256];
    int n = snprintf(text, sizeof text, "%s %s %016llx %llu %llu %d %d %d %d %s %s", PESC_VERSION,
                     t->files.saver.about.tokenizer_hash, (unsigned long long)dataset_hash(d),
                     (unsigned long long)dataset_count(d), (unsigned long long)o->seed, o->seq_len,
                     (int)o->over, o->vocab, (int)o->keep_reasoning, o->reasoning, o->turns);
    str_hex(out, XXH3_64bits(text, (size_t)n));
}

/* As run.yaml has it: absolute, so that the working directory of a later resume does not matter. A
 * name need not be UTF-8, JSON is. */
static void path_text(const source *s, size_t i, char *out, size_t cap)
{
    char *whole = NULL;
    const char *path = source_file_path(s, i);
    if (io_absolute(&whole, path) == PESC_OK)
        path = whole;
    utf8_visible(out, cap, path, strlen(path));
    mem_free(whole);
}

static json_t *describe(const pesc_trainer *t, const dataset *d, const findings *r)
{
    char key[17], hash[17];
    const source *s = dataset_source(d);
    json_t *files = json_array();
    for (size_t i = 0; i < source_files(s); i++) {
        char path[4096];
        path_text(s, i, path, sizeof path);
        str_hex(hash, source_file_hash(s, i));
        json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "path", path, "bytes",
                                               (json_int_t)source_file_bytes(s, i), "xxh3", hash));
    }
    key_of(t, d, key);
    json_t *v =
        json_pack("{s:s, s:I, s:I, s:I, s:o}", "key", key, "records", (json_int_t)dataset_count(d),
                  "over_length", (json_int_t)r->report.over_length, "unused",
                  (json_int_t)r->unused.n, "files", files);
    if (!r->unused.n || r->unused.n > MAX_LISTED)
        return v;
    json_t *list = json_array();
    for (size_t i = 0; i < r->unused.n; i++)
        json_array_append_new(list, json_integer((json_int_t)r->unused.at[i]));
    json_object_set_new(v, "unused_records", list);
    return v;
}

/* The text of the file, kept until the run directory may be written. */
static pesc_status put_saved(pesc_trainer *t, const findings r[2])
{
    str text = { 0 };
    json_t *v = json_pack("{s:o}", "data", describe(t, t->data, &r[0]));
    if (v && t->eval_data)
        json_object_set_new(v, "eval_data", describe(t, t->eval_data, &r[1]));
    json_put(&text, v, JSON_INDENT(1));
    str_puts(&text, "\n");
    pesc_status s = v && str_ok(&text) ? PESC_OK : fail_nomem(SAVED, 0);
    json_decref(v);
    if (s != PESC_OK)
        str_free(&text);
    t->files.records = text.p;
    return s;
}

pesc_status records_save(const pesc_trainer *t)
{
    const char *text = t->files.records;
    char *path = io_join(t->opt.output, SAVED);
    pesc_status s = !path  ? fail_nomem(SAVED, 0)
                    : text ? io_write_file(path, text, strlen(text))
                           : PESC_OK;
    mem_free(path);
    return s;
}

/* False where the list is not there, or not one of ascending numbers of records. */
static bool take_unused(const json_t *list, findings *r)
{
    size_t n = json_array_size(list);
    if (n != r->report.unused)
        return false;
    r->unused.at = n ? mem_alloc(n, sizeof *r->unused.at) : NULL;
    r->unused.cap = r->unused.at ? n : 0;
    for (size_t i = 0; i < r->unused.cap; i++) {
        json_int_t at = json_integer_value(json_array_get(list, i));
        if (at < 0 || (uint64_t)at >= r->report.records ||
            (i && (uint64_t)at <= r->unused.at[i - 1]))
            return false;
        r->unused.at[r->unused.n++] = (uint64_t)at;
    }
    return r->unused.n == n;
}

/* Whether these records were checked before; then what was found. */
static bool is_checked(const pesc_trainer *t, const dataset *d, const json_t *saved, findings *r)
{
    char key[17];
    const char *was = json_string_value(json_object_get(saved, "key"));
    key_of(t, d, key);
    if (!was || strcmp(was, key) != 0)
        return false;
    r->report = (pesc_data_report){
        .records = dataset_count(d),
        .over_length = (uint64_t)json_integer_value(json_object_get(saved, "over_length")),
        .unused = (uint64_t)json_integer_value(json_object_get(saved, "unused")),
    };
    return take_unused(json_object_get(saved, "unused_records"), r);
}

/* ---- what has changed ---- */

static const json_t *saved_file(const json_t *files, const char *path)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *f = json_array_get(files, i);
        const char *was = json_string_value(json_object_get(f, "path"));
        if (was && strcmp(was, path) == 0)
            return f;
    }
    return NULL;
}

/* How the files of a data set differ from those that were saved under a key. */
static void compare(const dataset *d, const json_t *saved, str *how)
{
    const source *s = dataset_source(d);
    const json_t *files = json_object_get(saved, "files");
    for (size_t i = 0; files && i < source_files(s); i++) {
        char path[4096], hash[17];
        path_text(s, i, path, sizeof path);
        str_hex(hash, source_file_hash(s, i));
        const json_t *f = saved_file(files, path);
        const char *was = json_string_value(json_object_get(f, "xxh3"));
        long long bytes = (long long)json_integer_value(json_object_get(f, "bytes"));
        const char *comma = how->n ? ", " : "";
        if (!was)
            str_printf(how, "%s%s is new", comma, path);
        else if (strcmp(was, hash) != 0)
            str_printf(how, "%s%s had %lld bytes with hash %s and has %llu with hash %s", comma,
                       path, bytes, was, (unsigned long long)source_file_bytes(s, i), hash);
    }
    if (json_array_size(files) > source_files(s))
        str_printf(how, "%s%zu files are no longer given", how->n ? ", " : "",
                   json_array_size(files) - source_files(s));
}

void records_changed(const pesc_trainer *t, str *how)
{
    json_t *saved = read_saved(t);
    compare(t->data, json_object_get(saved, "data"), how);
    json_decref(saved);
}

/* Losses of other validation data are not those of the run so far. */
static void tell_other_validation(const pesc_trainer *t, const json_t *saved)
{
    str how = { 0 };
    if (t->eval_data)
        compare(t->eval_data, json_object_get(saved, "eval_data"), &how);
    if (how.n && !t->opt.val_split)
        log_notice("the validation data has changed (%s): losses before and after it cannot be "
                   "compared",
                   how.p);
    str_free(&how);
}

/* ---- the check ---- */

static const char *const names[] = { "training data", "validation data" };

/* Tells what becomes of records that are longer than seq_len. */
static void tell_lengths(const pesc_trainer *t, const char *name, const pesc_data_report *r)
{
    static const char *const becomes[] = { "are dropped", "are cut there",
                                           "are split into several sequences", "" };
    char none[96] = "";
    over_length over = dataset_how(t->data)->over;
    if (r->over_length == 0)
        return;
    if (over != OVER_DROP && r->unused)
        snprintf(none, sizeof none, "; %llu of them have no answer before that and are not used",
                 (unsigned long long)r->unused);
    log_notice("%s: %llu of %llu records are longer than seq_len %lld and %s%s", name,
               (unsigned long long)r->over_length, (unsigned long long)r->records,
               (long long)t->opt.seq_len, becomes[over], none);
}

/* Of both data sets, so that one run of the command shows all that is wrong. */
static pesc_status refuse_bad(const findings r[2])
{
    char first[sizeof r[0].report.first] = "";
    uint64_t bad[2] = { 0 };
    for (int i = 1; i >= 0; i--) {
        bad[i] = r[i].report.bad + r[i].report.without_target;
        if (bad[i])
            snprintf(first, sizeof first, "%s", r[i].report.first);
    }
    int at = bad[0] ? 0 : 1;
    if (!bad[at])
        return PESC_OK;
    return fail(PESC_FORMAT,
                "%s: %llu of %llu records cannot be used, and nothing was trained; the first: %s",
                names[at], (unsigned long long)bad[at], (unsigned long long)r[at].report.records,
                first);
}

static const char checking[] = "checking the records";

/* Rank 0 reads the records, or what is known of them. */
static pesc_status find(pesc_trainer *t, findings r[2])
{
    dataset *const sets[] = { t->data, t->eval_data };
    static const char *const keys[] = { "data", "eval_data" };
    json_t *saved = read_saved(t);
    bool known = t->opt.resume;
    pesc_status s = PESC_OK;
    for (int i = 0; i < 2 && sets[i] && s == PESC_OK; i++)
        if (!is_checked(t, sets[i], json_object_get(saved, keys[i]), &r[i])) {
            known = false;
            r[i].unused.n = 0;
            s = stats_read(sets[i], t->opt.stop, &r[i].report, &r[i].unused);
        }
    if (s == PESC_OK && t->opt.resume)
        tell_other_validation(t, saved);
    json_decref(saved);
    TRY(s);
    TRY(refuse_bad(r));
    if (r[0].unused.n == r[0].report.records)
        return fail(PESC_USAGE, "every record is longer than seq_len %lld and %s",
                    (long long)t->opt.seq_len,
                    dataset_how(t->data)->over == OVER_DROP
                        ? "is dropped; raise seq_len, or choose over_length truncate or split"
                        : "has no answer within it; raise seq_len");
    for (int i = 0; i < 2 && sets[i]; i++)
        tell_lengths(t, names[i], &r[i].report);
    if (t->own.n_domains)
        TRY(domains_check(&t->own, t->data));
    t->over_length = r[0].report.over_length;
    return known ? PESC_OK : put_saved(t, r);
}

/* Leaves out of a data set what rank 0 found. A process with other data, whose numbers these are
 * not, is refused before its first step. */
static pesc_status leave_out(peers *p, dataset *d, stats_list *unused)
{
    uint64_t n = unused->n;
    TRY(peers_follow(p, checking, &n, sizeof n));
    if (n > unused->cap) {
        uint64_t *at = mem_grow(unused->at, n, sizeof *at);
        if (!at)
            return fail_nomem("the records that are not used", n * sizeof *at);
        unused->at = at;
        unused->cap = n;
    }
    if (n)
        TRY(peers_follow(p, checking, unused->at, n * sizeof *unused->at));
    unused->n = n;
    while (unused->n && unused->at[unused->n - 1] >= dataset_count(d))
        unused->n--;
    return dataset_leave_out(d, unused->at, unused->n);
}

pesc_status records_check(pesc_trainer *t)
{
    findings r[2] = { 0 };
    uint64_t tok = 0;
    pesc_status s = modeldir_hash_tokenizer(t->m->dir->root, &tok);
    str_hex(t->files.saver.about.tokenizer_hash, tok);
    if (s == PESC_OK && peers_lead(t->peers))
        s = find(t, r);
    s = peers_agree(t->peers, checking, s);
    if (s == PESC_OK)
        s = leave_out(t->peers, t->data, &r[0].unused);
    if (s == PESC_OK && t->eval_data)
        s = leave_out(t->peers, t->eval_data, &r[1].unused);
    mem_free(r[0].unused.at);
    mem_free(r[1].unused.at);
    return s;
}
