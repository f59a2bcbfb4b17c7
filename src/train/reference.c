#include "train/reference.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define SAVED "reference.json"

enum {
    MAX_SAVED = 1 << 30,
    AT_ONCE = 64 /* positions of the data that are read together */
};

static const char what[] = "the log-probabilities of the reference";
static const char *const names[] = { "data", "eval_data" };

void reference_close(reference *r)
{
    mem_free(r->rows);
    *r = (reference){ 0 };
}

/* ---- computing ---- */

/* The values of a record, as processes exchange them. */
typedef struct found {
    uint64_t record;
    reference_row row;
} found;

/* Where the values of one data set are collected; t->objective.batch has the current records. */
typedef struct collection {
    pesc_trainer *t;
    reference *to;
} collection;

static pesc_status score(pesc_trainer *t, const micro_batch *b, const float **losses)
{
    train_output got;
    const train_input in = { .seqs = b->seqs,
                             .n_seqs = b->n_seqs,
                             .rows = b->rows,
                             .targets = b->targets,
                             .weights = b->weights,
                             .n_targets = b->n_targets };
    TRY(model_loss(t->m, t->pass, &in, &got));
    *losses = got.losses;
    return PESC_OK;
}

/* Whether a sequence is the rejected answer of a pair, whose record its chosen one has named. */
static bool is_second(const collection *c, const batch_answer *a)
{
    return a->role == ANSWER_REJECTED && preference_has_pairs(c->t->objective.rule.kind);
}

/* *out: those of the batch, in the order of their positions; it is moved past them. */
static pesc_status score_answers(const collection *c, batch *b, found **out)
{
    const float *losses;
    for (int32_t i = 0; i < batch_mismatched_micros(b); i++) {
        const micro_batch m = batch_mismatched(b, i);
        TRY(score(c->t, &m, &losses));
        for (int32_t s = 0; s < m.n_seqs; s++)
            c->to->rows[m.spans[s].tag].other =
                objective_logp(losses, &m.spans[s], 0, m.spans[s].n_targets);
    }
    for (int32_t i = 0; i < batch_micros(b); i++) {
        const micro_batch m = batch_micro(b, i);
        TRY(score(c->t, &m, &losses));
        for (int32_t s = 0; s < m.n_seqs; s++) {
            const batch_answer *a = batch_answer_of(b, &m.spans[s]);
            double logp = objective_logp(losses, &m.spans[s], a->first, a->n);
            if (is_second(c, a)) {
                (*out)[-1].row.other = logp;
                continue;
            }
            double other = c->to->rows[a->record].other;
            *(*out)++ = (found){ a->record, { logp, other } };
        }
    }
    return PESC_OK;
}

/* The positions first..end of an epoch. */
static pesc_status score_positions(const collection *c, batch *b, uint64_t first, uint64_t end,
                                   found *out)
{
    found *next = out;
    for (uint64_t at = first; at < end; at += AT_ONCE) {
        uint64_t n = end - at < AT_ONCE ? end - at : AT_ONCE;
        if (c->t->opt.stop && *c->t->opt.stop)
            return fail(PESC_STOPPED, "stopped while %s were computed; nothing was trained", what);
        log_progress("reference", at - first, end - first);
        TRY(batch_load(b, at, (int32_t)n));
        TRY(score_answers(c, b, &next));
    }
    log_progress("reference", end - first, end - first);
    return PESC_OK;
}

/* Each process computes a part of the positions; then all have all. */
static pesc_status collect(const collection *c, batch *b, uint64_t used, found *all)
{
    peers *p = c->t->peers;
    uint64_t size = (uint64_t)peers_size(p), rank = (uint64_t)peers_rank(p);
    uint64_t first = rank * used / size, end = (rank + 1) * used / size;
    peer_part *parts = mem_alloc(size, sizeof *parts);
    if (!parts)
        return fail_nomem(what, size * sizeof *parts);
    for (uint64_t r = 0; r < size; r++) {
        uint64_t from = r * used / size;
        parts[r] = (peer_part){ all + from, ((r + 1) * used / size - from) * sizeof *all };
    }
    pesc_status s = peers_agree(p, what, score_positions(c, b, first, end, all + first));
    if (s == PESC_OK)
        s = peers_gather(p, what, parts);
    mem_free(parts);
    for (uint64_t i = 0; i < used && s == PESC_OK; i++)
        c->to->rows[all[i].record] = all[i].row;
    return s;
}

static pesc_status compute(pesc_trainer *t, dataset *data, batch *b, reference *to)
{
    uint64_t used = dataset_used(data);
    collection c = { t, to };
    if (!used)
        return PESC_OK;
    found *all = mem_zalloc(used, sizeof *all);
    if (!all)
        return fail_nomem(what, used * sizeof *all);
    pesc_status s = collect(&c, b, used, all);
    mem_free(all);
    return s;
}

/* ---- RUN/reference.json ---- */

/* Everything that decides the values, but for the weights at the start, which a resumed run may
 * not have any more. */
static void key_of(const pesc_trainer *t, char out[17])
{
    const runstate_manifest *m = &t->files.saver.about;
    char text[256];
    int n = snprintf(text, sizeof text, "%s %s %s %llu %016llx %llu", m->base_hash, m->config_hash,
                     m->data_hash, (unsigned long long)dataset_used(t->data),
                     (unsigned long long)(t->eval_data ? dataset_hash(t->eval_data) : 0),
                     (unsigned long long)(t->eval_data ? dataset_used(t->eval_data) : 0));
    str_hex(out, XXH3_64bits(text, (size_t)n));
}

/* The weights that train, as forward reads them now: whole, whatever processes divide. */
static pesc_status hash_start(const pesc_trainer *t, char out[17])
{
    const params *p = t->params;
    const tensor *w = p->work.data ? &p->work : &p->master;
    device *dev = t->m->dev;
    size_t n = tensor_bytes(w);
    void *copy = mem_alloc(n ? n : 1, 1);
    if (!copy)
        return fail_nomem(what, n);
    pesc_status s = dev->op->download(dev, copy, w->data, n);
    str_hex(out, XXH3_64bits(copy, n));
    mem_free(copy);
    return s;
}

static void put_values(str *text, const char *name, const reference *r)
{
    str_printf(text, ",\n \"%s\": [", name);
    for (uint64_t i = 0; i < r->records; i++)
        str_printf(text, "%s[%.17g,%.17g]", i ? ",\n  " : "", r->rows[i].answer, r->rows[i].other);
    str_puts(text, "]");
}

static uint64_t hash_values(const pesc_trainer *t)
{
    const reference *r = &t->reference, *e = &t->eval_reference;
    uint64_t h = XXH3_64bits(r->rows, r->records * sizeof *r->rows);
    return e->rows ? XXH3_64bits_withSeed(e->rows, e->records * sizeof *e->rows, h) : h;
}

static pesc_status save(const pesc_trainer *t)
{
    char key[17], hash[17];
    str text = { 0 };
    key_of(t, key);
    str_hex(hash, hash_values(t));
    str_printf(&text, "{\"key\": \"%s\", \"start\": \"%s\", \"xxh3\": \"%s\"", key,
               t->reference.start, hash);
    put_values(&text, names[0], &t->reference);
    if (t->eval_data)
        put_values(&text, names[1], &t->eval_reference);
    str_puts(&text, "}\n");
    char *path = io_join(t->opt.output, SAVED);
    pesc_status s =
        path && str_ok(&text) ? io_write_file(path, text.p, text.n) : fail_nomem(SAVED, text.n);
    mem_free(path);
    str_free(&text);
    return s;
}

static bool read_values(const json_t *list, reference *to)
{
    if (json_array_size(list) != to->records)
        return false;
    for (uint64_t i = 0; i < to->records; i++) {
        const json_t *row = json_array_get(list, i);
        to->rows[i] = (reference_row){ json_number_value(json_array_get(row, 0)),
                                       json_number_value(json_array_get(row, 1)) };
    }
    return true;
}

/* A run without a checkpoint begins at step 1, with whatever weights it begins with now. */
static bool has_checkpoint(const pesc_trainer *t)
{
    char *latest = io_join(t->opt.output, "latest");
    bool has = latest && io_kind_of(latest) == IO_DIR;
    mem_free(latest);
    return has;
}

/* Whether the file holds the values of this run, which are then read. */
static bool is_saved(pesc_trainer *t)
{
    char key[17], hash[17];
    json_t *v = NULL;
    char *path = io_join(t->opt.output, SAVED);
    bool known = path && io_kind_of(path) == IO_FILE && json_read(&v, path, MAX_SAVED) == PESC_OK;
    key_of(t, key);
    const char *was = json_string_value(json_object_get(v, "key"));
    const char *sum = json_string_value(json_object_get(v, "xxh3"));
    const char *start = json_string_value(json_object_get(v, "start"));
    known = known && was && sum && start && strcmp(was, key) == 0 &&
            read_values(json_object_get(v, names[0]), &t->reference) &&
            (!t->eval_data || read_values(json_object_get(v, names[1]), &t->eval_reference));
    str_hex(hash, hash_values(t));
    known = known && strcmp(sum, hash) == 0;
    if (known)
        snprintf(t->reference.start, sizeof t->reference.start, "%s", start);
    mem_free(path);
    json_decref(v);
    return known;
}

static pesc_status make_room(reference *r, const dataset *d)
{
    r->records = dataset_count(d);
    r->rows = mem_zalloc(r->records ? r->records : 1, sizeof *r->rows);
    return r->rows ? PESC_OK : fail_nomem(what, r->records * sizeof *r->rows);
}

static pesc_status follow(pesc_trainer *t, reference *r)
{
    return peers_follow(t->peers, what, r->rows, r->records * sizeof *r->rows);
}

pesc_status reference_open(pesc_trainer *t, reference_start start)
{
    if (!preference_has_reference(t->objective.rule.kind))
        return PESC_OK;
    TRY(make_room(&t->reference, t->data));
    if (t->eval_data)
        TRY(make_room(&t->eval_reference, t->eval_data));
    int64_t known = peers_lead(t->peers) && t->opt.resume && has_checkpoint(t) && is_saved(t);
    TRY(peers_most(t->peers, what, &known));
    if (known) {
        TRY(follow(t, &t->reference));
        return t->eval_data ? follow(t, &t->eval_reference) : PESC_OK;
    }
    memset(t->reference.rows, 0, t->reference.records * sizeof *t->reference.rows);
    if (t->eval_data)
        memset(t->eval_reference.rows, 0,
               t->eval_reference.records * sizeof *t->eval_reference.rows);
    TRY(start(t));
    TRY(hash_start(t, t->reference.start));
    TRY(compute(t, t->data, t->batch, &t->reference));
    if (t->eval_data)
        TRY(compute(t, t->eval_data, t->eval_batch, &t->eval_reference));
    t->reference.computed = true;
    return PESC_OK;
}

pesc_status reference_settle(pesc_trainer *t)
{
    const reference *r = &t->reference;
    char *was = t->state.reference_start;
    if (!r->rows)
        return PESC_OK;
    if (*was && strcmp(was, r->start) != 0)
        return r->computed
                   ? fail(PESC_USAGE,
                          "%s: %s is gone, and the weights that the run began with are not what "
                          "they were (init_from or lora has changed since); put these or " SAVED
                          " back, or begin a new run",
                          t->opt.output, SAVED)
                   : fail(PESC_USAGE,
                          "%s/%s: belongs to a run that began with other weights; put the one of "
                          "this run back, or remove it: it is then computed again",
                          t->opt.output, SAVED);
    snprintf(was, sizeof t->state.reference_start, "%s", r->start);
    return r->computed ? save(t) : PESC_OK;
}
