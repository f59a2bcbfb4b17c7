#include "data/dataset.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/shuffle.h"
#include "format/strtab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct dataset {
    dataset_options opt;
    source *src;
    const record_format **formats; /* of each file */
    template look;
    dataset *of;    /* the data set this one was split from and reads through; NULL: none */
    uint64_t *held; /* records of the files that were split off, ascending */
    uint64_t n_held;
    uint64_t *unused; /* records that have no position, by their numbers, ascending */
    uint64_t n_unused;
    template_how how;
    rendering at[2];   /* the last record that was read: both answers of a pair, */
    sequence *samples; /* [n_samples] */
    sequence *list;    /* and the sequences they were cut into */
    size_t n_samples, cap_samples, cap_list;
    rendering mixed;    /* of dataset_mismatched() */
    strtab domains;     /* of the records read so far */
    bool noticed;       /* the notice that answers are written apart was given */
    bool noticed_tools; /* that tools are left out */
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

bool dataset_has_chats(const dataset *d)
{
    for (size_t i = 0; i < source_files(d->src); i++)
        if (record_format_kind(d->formats[i]) == RECORD_CHAT)
            return true;
    return false;
}

/* Plain prompts are not what a model sees that is asked in its chat format. */
static void notice_plain_pairs(const dataset *d)
{
    for (size_t i = 0; i < source_files(d->src); i++) {
        const record_format *f = d->formats[i];
        if (record_format_class(f) == RECORD_INSTRUCTION ||
            record_format_kind(f) != RECORD_COMPLETION)
            continue;
        log_notice("%s: prompt and answers are texts: they are trained as plain text, without the "
                   "chat format \"%s\"; lists of turns are written in it",
                   source_file_path(d->src, i), template_name(&d->look));
        return;
    }
}

/* Conversations need a chat format: the one asked for or the model's. A template that pesc cannot
 * run is refused, since any other format would train the wrong prompts; a model that has none gets
 * a default, and a notice. */
static pesc_status check_template(const dataset *d)
{
    const dataset_options *o = &d->opt;
    if (!dataset_has_chats(d) || given(o->template) || o->chat)
        return PESC_OK;
    if (chat_is_own(d->look.chat))
        return PESC_OK;
    if (chat_problem(d->look.chat))
        return chat_unknown(chat_problem(d->look.chat));
    log_notice("the model has no chat template: conversations are written in the format %s; "
               "--template chooses another",
               template_name(&d->look));
    return PESC_OK;
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
    pesc_status s =
        template_how_find(&d->how, opt->keep_reasoning ? opt->reasoning : "drop", opt->turns);
    if (s == PESC_OK)
        s = source_open(&d->src, opt->paths, opt->n_paths, opt->unpack_ratio);
    if (s == PESC_OK)
        s = record_formats(d->src, given(opt->format), opt->wanted, &d->formats);
    if (s == PESC_OK)
        s = template_open(&d->look, opt->tok, given(opt->template), opt->chat);
    if (s == PESC_OK)
        s = check_template(d);
    if (s != PESC_OK) {
        dataset_close(d);
        return s;
    }
    notice_plain_pairs(d);
    *out = d;
    return PESC_OK;
}

void dataset_close(dataset *d)
{
    if (!d)
        return;
    if (!d->of) {
        template_close(&d->look);
        source_close(d->src);
        mem_free(d->formats);
        mem_free(d->held);
    }
    rendering_free(&d->at[0]);
    rendering_free(&d->at[1]);
    rendering_free(&d->mixed);
    mem_free(d->unused);
    mem_free(d->samples);
    mem_free(d->list);
    strtab_free(&d->domains);
    mem_free(d);
}

/* ---- a part for validation ---- */

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

pesc_status dataset_split(dataset *d, double part, dataset **out)
{
    uint64_t all = source_count(d->src), n = (uint64_t)((double)all * part + 0.5);
    *out = NULL;
    if (all < 2)
        return fail(PESC_USAGE, "the data has one record, which cannot be split into two parts");
    n = n < 1 ? 1 : n >= all ? all - 1 : n;
    dataset *v = mem_zalloc(1, sizeof *v);
    uint64_t *held = mem_alloc(n, sizeof *held);
    if (!v || !held) {
        mem_free(v);
        mem_free(held);
        return fail_nomem("the records for validation", n * sizeof *held);
    }
    for (uint64_t i = 0; i < n; i++)
        held[i] = shuffle_at((rng_key){ d->opt.seed, rng_stream(SHUFFLE_HELD, 0, 0) }, all, i);
    qsort(held, n, sizeof *held, ascending);
    *v = (dataset){
        .opt = d->opt, .src = d->src, .formats = d->formats, .look = d->look, .how = d->how, .of = d
    };
    v->opt.shuffle = false;
    v->held = d->held = held;
    v->n_held = d->n_held = n;
    *out = v;
    return PESC_OK;
}

/* The number, counted with the records of an ascending list, of record `index` without them. */
static uint64_t skip(const uint64_t *list, uint64_t n, uint64_t index)
{
    uint64_t low = 0, high = n; /* records of the list before it: a binary search */
    while (low < high) {
        uint64_t mid = (low + high) / 2;
        if (list[mid] - mid <= index)
            low = mid + 1;
        else
            high = mid;
    }
    return index + low;
}

/* The place in the files of a record of this data set: those held out, or all others. */
static uint64_t place_of(const dataset *d, uint64_t index)
{
    ASSERT(index < dataset_count(d));
    return d->of ? d->held[index] : skip(d->held, d->n_held, index);
}

pesc_status dataset_leave_out(dataset *d, const uint64_t *indexes, size_t n)
{
    uint64_t *own = n ? mem_alloc(n, sizeof *own) : NULL;
    if (n && !own)
        return fail_nomem("the records that are not used", n * sizeof *own);
    if (n)
        memcpy(own, indexes, n * sizeof *own);
    mem_free(d->unused);
    d->unused = own;
    d->n_unused = n;
    return PESC_OK;
}

/* ---- facts ---- */

uint64_t dataset_count(const dataset *d)
{
    return d->of ? d->n_held : source_count(d->src) - d->n_held;
}

uint64_t dataset_used(const dataset *d)
{
    return dataset_count(d) - d->n_unused;
}

const source *dataset_source(const dataset *d)
{
    return d->src;
}

const dataset_options *dataset_how(const dataset *d)
{
    return &d->opt;
}

const char *dataset_format(const dataset *d, size_t path)
{
    const char *name;
    for (size_t i = 0; i < source_files(d->src); i++)
        if (source_file_given(d->src, i, &name) == path)
            return record_format_name(d->formats[i]);
    return "";
}

const char *dataset_template(const dataset *d)
{
    return template_name(&d->look);
}

uint64_t dataset_hash(const dataset *d)
{
    uint64_t h = source_hash(d->src);
    for (size_t i = 0; i < source_files(d->src); i++) {
        const char *f = record_format_name(d->formats[i]);
        h = XXH3_64bits_withSeed(f, strlen(f), h);
    }
    bool own = chat_is_own(d->look.chat);
    const char *look = own ? tokenizer_chat_template(d->opt.tok) : template_name(&d->look);
    return XXH3_64bits_withSeed(look, strlen(look), h);
}

/* Nothing predicts the first token. */
int32_t dataset_targets(const sequence *s)
{
    int32_t targets = 0;
    for (int32_t i = 1; i < s->n; i++)
        targets += s->labels[i] != TEMPLATE_IGNORE;
    return targets;
}

bool dataset_trains(const sequence *samples, size_t n)
{
    bool pair = n > 1 && samples[0].role != ANSWER_ONLY;
    size_t trained = 0;
    for (size_t i = 0; i < n; i++)
        trained += dataset_targets(&samples[i]) > 0;
    return trained >= (pair ? n : 1);
}

static pesc_status check_ids(const dataset *d, const rendering *r)
{
    for (size_t i = 0; i < r->ids.n; i++)
        if (r->ids.ids[i] < 0 || r->ids.ids[i] >= d->opt.vocab || r->labels[i] >= d->opt.vocab)
            return fail(PESC_FORMAT,
                        "token %zu is %d, but the model's vocabulary has %d entries: the tokenizer "
                        "and the model do not belong together",
                        i, r->ids.ids[i], d->opt.vocab);
    return PESC_OK;
}

/* Cuts a sample into sequences of at most seq_len, which it adds to the n of d->list. Where
 * other records would be split, answers of preferences are cut, since they are scored as a whole.
 */
static pesc_status cut(dataset *d, const sequence *sample, size_t *n)
{
    size_t total = (size_t)sample->n, len = (size_t)d->opt.seq_len, pieces = 1;
    if (total > len) {
        if (d->opt.over == OVER_ERROR)
            return fail(PESC_FORMAT,
                        "is %zu tokens long, over seq_len %d; raise it, or choose "
                        "over_length drop%s",
                        total, d->opt.seq_len,
                        sample->role == ANSWER_ONLY ? ", truncate or split" : " or truncate");
        bool split = d->opt.over == OVER_SPLIT && sample->role == ANSWER_ONLY;
        pieces = d->opt.over == OVER_DROP ? 0 : split ? (total + len - 1) / len : 1;
    }
    for (size_t i = 0; i < pieces; i++) {
        if (!mem_room((void **)&d->list, &d->cap_list, *n, sizeof *d->list))
            return fail_nomem("the pieces of a record", d->cap_list * sizeof *d->list);
        size_t at = i * len, left = total - at;
        int32_t here = (int32_t)(left < len ? left : len);
        sequence piece = *sample;
        piece.ids += at;
        piece.labels += at;
        piece.n = here;
        if (dataset_targets(&piece) > 0)
            d->list[(*n)++] = piece;
    }
    return PESC_OK;
}

/* Cuts the samples into d->list. Both answers of a pair are used or none. */
static pesc_status cut_all(dataset *d, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < d->n_samples; i++)
        TRY(cut(d, &d->samples[i], n));
    if (d->samples[0].role != ANSWER_ONLY && *n < d->n_samples)
        *n = 0;
    return PESC_OK;
}

/* Puts the place before the sentence of a failure and the record after it. */
static pesc_status show(dataset *d, uint64_t place, pesc_status s)
{
    char why[1024];
    const char *bytes = "";
    size_t shown = 0;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    (void)source_bytes(d->src, place, &bytes, &shown);
    return fail(s, "%s: %s: %.*s%s", source_where(d->src, place), why,
                (int)(shown < 200 ? shown : 200), bytes, shown > 200 ? "..." : "");
}

/* Each once, for the first record that has it. */
static void notice_changes(dataset *d, const record *r, const rendering *at, uint64_t place)
{
    bool tools = r->tools && !template_takes_tools(&d->look);
    if (at->split && !d->noticed)
        log_notice("%s: the template writes an answer in another way when messages follow it, so "
                   "each answer of such a record is a sample of its own, as with --turns split",
                   source_where(d->src, place));
    if (tools && !d->noticed_tools)
        log_notice("%s: tools is left out, because the template \"%s\" has no place for it",
                   source_where(d->src, place), template_name(&d->look));
    d->noticed = d->noticed || at->split;
    d->noticed_tools = d->noticed_tools || tools;
}

/* The record `v` of a row of class RECORD_INSTRUCTION as tokens. */
static pesc_status render(dataset *d, const record_format *f, const json_t *v, uint64_t place,
                          rendering *to)
{
    record r = { 0 };
    pesc_status s = record_read(&r, f, v);
    if (s == PESC_OK)
        s = template_render(&d->look, &d->how, &r, to);
    if (s == PESC_OK)
        s = check_ids(d, to);
    notice_changes(d, &r, to, place);
    record_free(&r);
    return s;
}

/* Adds the samples of a rendering to d->samples. */
static pesc_status list_samples(dataset *d, const rendering *at, answer_role role, uint64_t index)
{
    size_t begin = 0;
    for (size_t i = 0; i < at->samples; begin = at->ends[i++]) {
        if (!mem_room((void **)&d->samples, &d->cap_samples, d->n_samples, sizeof *d->samples))
            return fail_nomem("the samples of a record", d->cap_samples * sizeof *d->samples);
        d->samples[d->n_samples++] = (sequence){ .ids = at->ids.ids + begin,
                                                 .labels = at->labels + begin,
                                                 .n = (int32_t)(at->ends[i] - begin),
                                                 .role = role,
                                                 .record = index };
    }
    return PESC_OK;
}

static const char *const sides[] = { "", "chosen: ", "rejected: " };

/* Both answers of a pair, or the one of a labelled record: a sample each, since the last turn of
 * each alone is trained. */
static pesc_status read_answers(dataset *d, const record_format *f, const json_t *v, uint64_t place,
                                uint64_t index)
{
    pair_answers both;
    const record_format *as;
    pesc_status s = record_answers(&both, f, v, &as);
    for (size_t i = 0; i < both.n && s == PESC_OK; i++) {
        s = render(d, as, both.record[i], place, &d->at[i]);
        if (s == PESC_OK)
            s = list_samples(d, &d->at[i], both.role[i], index);
        if (s == PESC_FORMAT && both.n > 1) {
            char why[1024];
            snprintf(why, sizeof why, "%s", pesc_last_error());
            s = fail(s, "%s%s", sides[both.role[i]], why);
        }
    }
    pair_free(&both);
    return s;
}

/* Reads a record into d->samples. */
static pesc_status read_record(dataset *d, uint64_t index)
{
    json_t *v;
    uint64_t place = place_of(d, index);
    d->n_samples = 0;
    TRY(source_record(d->src, place, &v));
    const record_format *f = d->formats[source_file_of(d->src, place)];
    pesc_status s;
    if (record_format_class(f) == RECORD_INSTRUCTION) {
        s = render(d, f, v, place, &d->at[0]);
        if (s == PESC_OK)
            s = list_samples(d, &d->at[0], ANSWER_ONLY, index);
    } else {
        s = read_answers(d, f, v, place, index);
    }
    json_decref(v);
    return s == PESC_OK || s == PESC_NOMEM || s == PESC_USAGE ? s : show(d, place, s);
}

pesc_status dataset_samples(dataset *d, uint64_t index, const sequence **list, size_t *n)
{
    TRY(read_record(d, index));
    *list = d->samples;
    *n = d->n_samples;
    return PESC_OK;
}

static pesc_status nothing_trained(const dataset *d)
{
    const char *side = "";
    for (size_t i = 0; d->n_samples > 1 && i < d->n_samples && !*side; i++)
        if (dataset_targets(&d->samples[i]) == 0)
            side = sides[d->samples[i].role];
    return fail(PESC_FORMAT,
                "%shas nothing to train on: every token is masked or the answer is empty", side);
}

pesc_status dataset_check(dataset *d, uint64_t index, const sequence **samples, size_t *n_samples,
                          size_t *n)
{
    *n = *n_samples = 0;
    *samples = NULL;
    TRY(dataset_samples(d, index, samples, n_samples));
    pesc_status s = dataset_trains(d->samples, d->n_samples) ? cut_all(d, n) : nothing_trained(d);
    return s == PESC_OK || s == PESC_NOMEM ? s : show(d, place_of(d, index), s);
}

/* ---- prompts with the answers of others ---- */

/* The tokens of a sequence before its answer. */
static int32_t prompt_length(const sequence *s)
{
    int32_t n = 0;
    while (n < s->n && s->labels[n] == TEMPLATE_IGNORE)
        n++;
    return n;
}

/* Copies tokens from..end to d->mixed as far as seq_len allows; as labels only where `trained`. */
static pesc_status mix_in(dataset *d, const sequence *s, int32_t from, int32_t end, bool trained)
{
    for (int32_t i = from; i < end && d->mixed.ids.n < (size_t)d->opt.seq_len; i++) {
        TRY(id_list_add(&d->mixed.ids, s->ids[i]));
        TRY(rendering_label(&d->mixed, trained ? s->labels[i] : TEMPLATE_IGNORE));
    }
    return PESC_OK;
}

pesc_status dataset_mismatched(dataset *d, uint64_t index, uint64_t block, sequence *out)
{
    const sequence *own, *other;
    size_t n;
    uint64_t used = dataset_used(d), low = 0, high = d->n_unused;
    while (low < high) { /* records before it that are not used */
        uint64_t mid = (low + high) / 2;
        if (d->unused[mid] < index)
            low = mid + 1;
        else
            high = mid;
    }
    uint64_t rank = index - low, first = rank / block * block;
    uint64_t end = first + block < used ? first + block : used;
    uint64_t before = rank == first ? end - 1 : rank - 1;
    d->mixed.ids.n = 0;
    TRY(dataset_samples(d, index, &own, &n));
    TRY(mix_in(d, own, 0, prompt_length(own), false));
    TRY(dataset_samples(d, skip(d->unused, d->n_unused, before), &other, &n));
    TRY(mix_in(d, other, prompt_length(other), other->n, true));
    *out = (sequence){ .ids = d->mixed.ids.ids,
                       .labels = d->mixed.labels,
                       .n = (int32_t)d->mixed.ids.n,
                       .record = index };
    return PESC_OK;
}

/* "data/maths.test.jsonl.gz" is about "maths.test"; of "org/maths:test", which stands for several
 * files, all of them are about "maths:test". */
static size_t file_name(const source *src, size_t file, const char **name)
{
    const char *given, *slash;
    (void)source_file_given(src, file, &given);
    slash = strrchr(given, '/');
    *name = slash ? slash + 1 : given;
    size_t n = strlen(*name);
    if (strcmp(given, source_file_path(src, file)) != 0)
        return n;
    static const char *const packed[] = { ".gz", ".xz", ".zst" };
    for (size_t i = 0; i < 3; i++)
        n -= n == strlen(*name) && str_ends(*name, packed[i]) ? strlen(packed[i]) : 0;
    const char *dot = memrchr(*name, '.', n);
    return dot > *name ? (size_t)(dot - *name) : n;
}

pesc_status dataset_domain(dataset *d, uint64_t index, size_t *number, const char **name)
{
    json_t *v;
    uint64_t place = place_of(d, index);
    TRY(source_record(d->src, place, &v));
    const json_t *field = json_object_get(v, "domain");
    const char *said = json_string_value(field);
    size_t n = json_string_length(field);
    char shown[128]; /* it becomes part of tables: one line of what can be seen */
    if (n == 0)
        n = file_name(d->src, source_file_of(d->src, place), &said);
    utf8_visible(shown, sizeof shown, said, n);
    json_decref(v);
    n = strlen(shown);
    int64_t at = strtab_find(&d->domains, shown, n);
    bool full = at < 0 && d->domains.n == PESC_DATA_DOMAINS;
    if (at < 0 && !full)
        at = strtab_add(&d->domains, shown, n);
    if (full)
        return fail(PESC_FORMAT,
                    "%s: domain: is the %dth different one; the field should name a few kinds of "
                    "text",
                    source_where(d->src, place), PESC_DATA_DOMAINS + 1);
    if (at < 0)
        return fail_nomem("a domain", n);
    *number = (size_t)at;
    *name = d->domains.names[at];
    return PESC_OK;
}

uint64_t dataset_record(const dataset *d, uint64_t position)
{
    uint64_t count = dataset_used(d), epoch = position / count, index = position % count;
    if (d->opt.shuffle)
        index =
            shuffle_at((rng_key){ d->opt.seed, rng_stream(SHUFFLE_EPOCH, epoch, 0) }, count, index);
    return skip(d->unused, d->n_unused, index);
}

pesc_status dataset_at(dataset *d, uint64_t position, const sequence **list, size_t *n)
{
    const sequence *samples;
    size_t n_samples;
    TRY(dataset_check(d, dataset_record(d, position), &samples, &n_samples, n));
    *list = d->list;
    return PESC_OK;
}
