#include "data/dataset.h"

#include "base/mem.h"
#include "format/strtab.h"
#include "data/shuffle.h"
#include "data/source.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { IGNORE = -100 };

struct dataset {
    dataset_options opt;
    source *src;
    const record_format **formats; /* one a file */
    const chat_format *chat;       /* what conversations are rendered with */
    int32_t bos, eos;              /* -1: none */
    dataset_counts seen;
    /* the sequences of the last position */
    id_list ids;
    int32_t *labels;
    size_t n_labels;
    sequence *list;
    size_t cap_list;
    strtab domains; /* that were met */
};

bool over_length_find(const char *name, over_length *out)
{
    static const char *const names[] = { "drop", "truncate", "split", "error" };
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (over_length)i;
            return true;
        }
    return false;
}

static pesc_status find_formats(dataset *d)
{
    size_t n = source_files(d->src);
    d->formats = mem_zalloc(n, sizeof *d->formats);
    if (!d->formats)
        return fail_nomem("the data formats", n * sizeof *d->formats);
    for (size_t i = 0; i < n; i++) {
        uint64_t first = source_file_first(d->src, i);
        if (d->opt.format && !(d->formats[i] = record_format_find(d->opt.format)))
            return fail(PESC_USAGE,
                        "the data format \"%s\" is not known; leave it out to have it "
                        "found by looking",
                        d->opt.format);
        if (d->opt.format)
            continue;
        json_t *v;
        TRY(source_record(d->src, first, &v));
        d->formats[i] = record_format_detect(v);
        json_decref(v);
        if (!d->formats[i]) {
            char why[1024];
            snprintf(why, sizeof why, "%s", pesc_last_error());
            return fail(PESC_FORMAT, "%s: %s", source_where(d->src, first), why);
        }
    }
    return PESC_OK;
}

static pesc_status find_template(dataset *d)
{
    d->chat = d->opt.template ? chat_find(d->opt.template)
              : d->opt.chat   ? d->opt.chat
                              : chat_find("camelidae");
    if (!d->chat)
        return fail(PESC_USAGE, "the template \"%s\" is not known; see pesc help chat for the list",
                    d->opt.template);
    return PESC_OK;
}

pesc_status dataset_open(dataset **out, const dataset_options *opt)
{
    *out = NULL;
    dataset *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("a data set", sizeof *d);
    d->opt = *opt;
    d->bos = opt->tok ? tokenizer_bos(opt->tok) : -1;
    d->eos = opt->tok ? tokenizer_eos(opt->tok) : -1;
    pesc_status s = source_open(&d->src, opt->paths, opt->n_paths);
    if (s == PESC_OK)
        s = find_formats(d);
    if (s == PESC_OK)
        s = find_template(d);
    if (s != PESC_OK) {
        dataset_close(d);
        return s;
    }
    *out = d;
    return PESC_OK;
}

void dataset_close(dataset *d)
{
    if (!d)
        return;
    source_close(d->src);
    mem_free(d->formats);
    mem_free(d->ids.ids);
    mem_free(d->labels);
    mem_free(d->list);
    strtab_free(&d->domains);
    mem_free(d);
}

uint64_t dataset_count(const dataset *d)
{
    return source_count(d->src);
}

size_t dataset_files(const dataset *d)
{
    return source_files(d->src);
}

const char *dataset_format(const dataset *d, size_t file)
{
    return record_format_name(d->formats[file]);
}

const char *dataset_template(const dataset *d)
{
    return chat_name(d->chat);
}

dataset_counts dataset_seen(const dataset *d)
{
    return d->seen;
}

uint64_t dataset_hash(const dataset *d)
{
    uint64_t h = source_hash(d->src);
    for (size_t i = 0; i < source_files(d->src); i++) {
        const char *f = dataset_format(d, i);
        h = XXH3_64bits_withSeed(f, strlen(f), h);
    }
    return XXH3_64bits_withSeed(chat_name(d->chat), strlen(chat_name(d->chat)), h);
}

static pesc_status grow_labels(dataset *d)
{
    if (d->ids.n <= d->n_labels)
        return PESC_OK;
    int32_t *p = mem_grow(d->labels, d->ids.cap, sizeof *p);
    if (!p)
        return fail_nomem("the labels of a record", d->ids.cap * sizeof *p);
    d->labels = p;
    d->n_labels = d->ids.cap;
    return PESC_OK;
}

/* Labels of ids[from..): the ids themselves, or nothing. */
static pesc_status label(dataset *d, size_t from, bool trained)
{
    TRY(grow_labels(d));
    for (size_t i = from; i < d->ids.n; i++)
        d->labels[i] = trained ? d->ids.ids[i] : IGNORE;
    return PESC_OK;
}

static pesc_status put_text(dataset *d, const char *text, bool trained)
{
    size_t from = d->ids.n;
    TRY(tokenizer_encode(d->opt.tok, text, strlen(text), 0, &d->ids));
    return label(d, from, trained);
}

static pesc_status put_id(dataset *d, int32_t id, bool trained)
{
    size_t from = d->ids.n;
    if (id < 0)
        return PESC_OK;
    TRY(id_list_add(&d->ids, id));
    return label(d, from, trained);
}

static pesc_status render_chat(dataset *d, const record *r)
{
    unsigned char *trained = NULL;
    pesc_status s =
        chat_encode_masked(d->chat, d->opt.tok, r->messages, r->n, r->masked, &d->ids, &trained);
    if (s == PESC_OK)
        s = grow_labels(d);
    int32_t last = -1;
    for (size_t i = 0; s == PESC_OK && i < d->ids.n; i++) {
        d->labels[i] = trained[i] ? d->ids.ids[i] : IGNORE;
        if (trained[i])
            last = d->ids.ids[i];
    }
    mem_free(trained);
    if (s == PESC_OK && last >= 0 && last != d->eos && !tokenizer_is_special(d->opt.tok, last))
        s = fail(PESC_USAGE,
                 "the template \"%s\" ends an answer without an end token, so the "
                 "model would never learn to stop; choose another template",
                 chat_name(d->chat));
    return s;
}

static pesc_status render(dataset *d, const record *r)
{
    d->ids.n = 0;
    if (r->kind == RECORD_IDS) {
        for (size_t i = 0; i < r->n_ids; i++)
            TRY(id_list_add(&d->ids, r->ids[i]));
        TRY(grow_labels(d));
        memcpy(d->labels, r->labels, r->n_ids * sizeof *d->labels);
        return PESC_OK;
    }
    if (!d->opt.tok)
        return fail(PESC_UNSUPPORTED,
                    "the model has no tokenizer, so only records of input_ids and "
                    "labels can be trained on");
    if (r->kind == RECORD_CHAT)
        return render_chat(d, r);
    TRY(put_id(d, d->bos, false));
    TRY(put_text(d, r->messages[0].content, r->kind == RECORD_TEXT));
    if (r->kind == RECORD_COMPLETION)
        TRY(put_text(d, r->messages[1].content, true));
    return put_id(d, d->eos, true);
}

/* The first position has nothing before it, so it is never predicted. */
int32_t dataset_targets(const sequence *s)
{
    int32_t targets = 0;
    for (int32_t i = 1; i < s->n; i++)
        targets += s->labels[i] != IGNORE;
    return targets;
}

static pesc_status check_ids(const dataset *d)
{
    for (size_t i = 0; i < d->ids.n; i++)
        if (d->ids.ids[i] < 0 || d->ids.ids[i] >= d->opt.vocab || d->labels[i] >= d->opt.vocab)
            return fail(PESC_FORMAT,
                        "token %zu is %d, but the model's vocabulary has %d entries: the tokenizer "
                        "and the model do not belong together",
                        i, d->ids.ids[i], d->opt.vocab);
    return PESC_OK;
}

static pesc_status no_target(void)
{
    return fail(PESC_FORMAT, "has nothing to train on: every token is masked or the answer is "
                             "empty");
}

/* Cuts the record into sequences of at most seq_len. */
static pesc_status cut(dataset *d, size_t *n)
{
    size_t total = d->ids.n, len = (size_t)d->opt.seq_len, pieces = 1;
    if (total > len) {
        d->seen.dropped += d->opt.over == OVER_DROP;
        d->seen.truncated += d->opt.over == OVER_TRUNCATE;
        d->seen.split += d->opt.over == OVER_SPLIT;
        if (d->opt.over == OVER_ERROR)
            return fail(PESC_FORMAT,
                        "is %zu tokens long, over seq_len %d; raise it, or choose "
                        "over_length drop, truncate or split",
                        total, d->opt.seq_len);
        pieces = d->opt.over == OVER_DROP    ? 0
                 : d->opt.over == OVER_SPLIT ? (total + len - 1) / len
                                             : 1;
    }
    if (pieces > d->cap_list) {
        sequence *p = mem_grow(d->list, pieces, sizeof *p);
        if (!p)
            return fail_nomem("the pieces of a record", pieces * sizeof *p);
        d->list = p;
        d->cap_list = pieces;
    }
    *n = 0;
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * len, left = total - at;
        int32_t here = (int32_t)(left < len ? left : len);
        sequence piece = { d->ids.ids + at, d->labels + at, here };
        if (dataset_targets(&piece) > 0)
            d->list[(*n)++] = piece;
    }
    return PESC_OK;
}

/* Puts the place before the sentence of a failure and the record behind it. */
static pesc_status show(dataset *d, uint64_t index, pesc_status s)
{
    char why[1024];
    const char *bytes = "";
    size_t shown = 0;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    (void)source_bytes(d->src, index, &bytes, &shown);
    return fail(s, "%s: %s: %.*s%s", source_where(d->src, index), why,
                (int)(shown < 200 ? shown : 200), bytes, shown > 200 ? "..." : "");
}

pesc_status dataset_no_target(dataset *d, uint64_t index)
{
    return show(d, index, no_target());
}

pesc_status dataset_whole(dataset *d, uint64_t index, sequence *out)
{
    json_t *v;
    TRY(source_record(d->src, index, &v));
    record r = { 0 };
    pesc_status s = record_read(&r, d->formats[source_file_of(d->src, index)], v);
    if (s == PESC_OK)
        s = render(d, &r);
    if (s == PESC_OK)
        s = check_ids(d);
    record_free(&r);
    json_decref(v);
    *out = (sequence){ d->ids.ids, d->labels, (int32_t)d->ids.n };
    return s == PESC_OK || s == PESC_NOMEM || s == PESC_USAGE ? s : show(d, index, s);
}

/* "data/maths.test.jsonl" is about "maths.test". */
static size_t file_name(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    const char *dot = strrchr(*name, '.');
    return dot > *name ? (size_t)(dot - *name) : strlen(*name);
}

pesc_status dataset_domain(dataset *d, uint64_t index, size_t *number, const char **name)
{
    json_t *v;
    TRY(source_record(d->src, index, &v));
    const json_t *field = json_object_get(v, "domain");
    const char *said = json_string_value(field);
    size_t n = json_string_length(field);
    if (n == 0)
        n = file_name(source_file_path(d->src, source_file_of(d->src, index)), &said);
    int64_t at = strtab_find(&d->domains, said, n);
    bool full = at < 0 && d->domains.n == PESC_DATA_DOMAINS;
    if (at < 0 && !full)
        at = strtab_add(&d->domains, said, n);
    json_decref(v);
    if (full)
        return fail(PESC_FORMAT,
                    "%s: domain: is the %dth different one; the field should name a few kinds of "
                    "text",
                    source_where(d->src, index), PESC_DATA_DOMAINS + 1);
    if (at < 0)
        return fail_nomem("a domain", n);
    *number = (size_t)at;
    *name = d->domains.names[at];
    return PESC_OK;
}

static pesc_status read_one(dataset *d, uint64_t index, size_t *n)
{
    sequence whole;
    TRY(dataset_whole(d, index, &whole));
    pesc_status s = dataset_targets(&whole) > 0 ? cut(d, n) : no_target();
    return s == PESC_OK || s == PESC_NOMEM ? s : show(d, index, s);
}

pesc_status dataset_at(dataset *d, uint64_t position, const sequence **list, size_t *n)
{
    uint64_t count = source_count(d->src), epoch = position / count, index = position % count;
    if (d->opt.shuffle)
        index = shuffle_at((rng_key){ d->opt.seed, rng_stream(3, epoch, 0) }, count, index);
    TRY(read_one(d, index, n));
    *list = d->list;
    return PESC_OK;
}
