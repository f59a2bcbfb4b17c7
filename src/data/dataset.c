#include "data/dataset.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/shuffle.h"
#include "format/strtab.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct dataset {
    dataset_options opt;
    source *src;
    const record_format **formats; /* one a file */
    template look;
    dataset_counts seen;
    rendering at;   /* the last record that was read, */
    sequence *list; /* and the sequences it was cut into */
    size_t cap_list;
    strtab domains; /* that were met */
    bool told;      /* that reasoning is left out */
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

static const char *given(const char *name)
{
    return name && *name ? name : NULL;
}

pesc_status dataset_open(dataset **out, const dataset_options *opt)
{
    *out = NULL;
    if (opt->n_paths == 0)
        return fail(PESC_USAGE, "no data file was given");
    dataset *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("a data set", sizeof *d);
    d->opt = *opt;
    pesc_status s = source_open(&d->src, opt->paths, opt->n_paths);
    if (s == PESC_OK)
        s = record_formats(d->src, given(opt->format), &d->formats);
    if (s == PESC_OK)
        s = template_init(&d->look, opt->tok, given(opt->template), opt->chat);
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
    rendering_free(&d->at);
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
    return chat_name(d->look.chat);
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
    return XXH3_64bits_withSeed(chat_name(d->look.chat), strlen(chat_name(d->look.chat)), h);
}

/* The first position has nothing before it, so it is never predicted. */
int32_t dataset_targets(const sequence *s)
{
    int32_t targets = 0;
    for (int32_t i = 1; i < s->n; i++)
        targets += s->labels[i] != TEMPLATE_IGNORE;
    return targets;
}

static pesc_status check_ids(const dataset *d)
{
    for (size_t i = 0; i < d->at.ids.n; i++)
        if (d->at.ids.ids[i] < 0 || d->at.ids.ids[i] >= d->opt.vocab ||
            d->at.labels[i] >= d->opt.vocab)
            return fail(PESC_FORMAT,
                        "token %zu is %d, but the model's vocabulary has %d entries: the tokenizer "
                        "and the model do not belong together",
                        i, d->at.ids.ids[i], d->opt.vocab);
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
    size_t total = d->at.ids.n, len = (size_t)d->opt.seq_len, pieces = 1;
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
        sequence piece = { d->at.ids.ids + at, d->at.labels + at, here };
        if (dataset_targets(&piece) > 0)
            d->list[(*n)++] = piece;
    }
    return PESC_OK;
}

/* Puts the place before the sentence of a failure and the record after it. */
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
    pesc_status s =
        record_read(&r, d->formats[source_file_of(d->src, index)], v, d->opt.keep_reasoning);
    if (s == PESC_OK)
        s = template_render(&d->look, &r, &d->at);
    if (s == PESC_OK)
        s = check_ids(d);
    if (r.left_out && !d->told)
        log_notice("%s: reasoning_content is left out", source_where(d->src, index));
    d->told = d->told || r.left_out;
    record_free(&r);
    json_decref(v);
    *out = (sequence){ d->at.ids.ids, d->at.labels, (int32_t)d->at.ids.n };
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
