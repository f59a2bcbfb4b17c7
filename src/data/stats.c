#include "data/stats.h"

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/data.h"

#include <stdio.h>
#include <string.h>

/* How many records have each length. */
typedef struct lengths {
    uint64_t *count;
    size_t cap;
    uint64_t all;
} lengths;

static pesc_status add_length(lengths *l, size_t n)
{
    if (n >= l->cap) {
        size_t cap = n + n / 2 + 64;
        uint64_t *p = mem_grow(l->count, cap, sizeof *p);
        if (!p)
            return fail_nomem("the lengths of records", cap * sizeof *p);
        memset(p + l->cap, 0, (cap - l->cap) * sizeof *p);
        l->count = p;
        l->cap = cap;
    }
    l->count[n]++;
    l->all++;
    return PESC_OK;
}

/* The length that `percent` of the records do not exceed. */
static int64_t quantile(const lengths *l, uint64_t percent)
{
    uint64_t before = 0, rank = (l->all * percent + 99) / 100;
    for (size_t n = 0; n < l->cap; n++) {
        before += l->count[n];
        if (before >= rank && before > 0)
            return (int64_t)n;
    }
    return 0;
}

/* Two buckets per power of two: 1, 2, 3, 4-5, 6-7, 8-11, 12-15, ... */
static void fill_buckets(const lengths *l, pesc_data_report *r)
{
    int64_t from = 0, next = 1;
    while (from <= r->longest && r->n_buckets < PESC_DATA_BUCKETS) {
        uint64_t here = 0;
        for (int64_t n = from; n < next && n <= r->longest; n++)
            here += l->count[n];
        if (next > r->shortest) {
            r->buckets[r->n_buckets].from = from;
            r->buckets[r->n_buckets].to = next - 1;
            r->buckets[r->n_buckets++].records = here;
        }
        bool power = (next & (next - 1)) == 0;
        from = next;
        next += next == 1 ? 1 : power ? next / 2 : next / 3;
    }
}

/* Of the records, or of the chosen answers of pairs with their prompts; and of the rejected. */
static void finish_report(const lengths l[2], pesc_data_report *r)
{
    r->pairs = l[1].all;
    r->rejected_shortest = quantile(&l[1], 0);
    r->rejected_median = quantile(&l[1], 50);
    r->rejected_p90 = quantile(&l[1], 90);
    r->rejected_p99 = quantile(&l[1], 99);
    r->rejected_longest = quantile(&l[1], 100);
    if (l->all == 0)
        return;
    r->shortest = quantile(l, 0);
    r->median = quantile(l, 50);
    r->p90 = quantile(l, 90);
    r->p99 = quantile(l, 99);
    r->longest = quantile(l, 100);
    fill_buckets(l, r);
}

/* Lists a bad record, whose sentence is the last failure. */
static void list(pesc_data_report *r)
{
    uint64_t bad = r->bad + r->without_target;
    if (bad == 1)
        snprintf(r->first, sizeof r->first, "%s", pesc_last_error());
    if (bad <= STATS_LISTED)
        log_notice("%s", pesc_last_error());
}

static pesc_status add_unused(stats_list *unused, uint64_t index)
{
    if (unused->n == unused->cap) {
        size_t cap = unused->cap * 2 + 64;
        uint64_t *p = mem_grow(unused->at, cap, sizeof *p);
        if (!p)
            return fail_nomem("the records that are not used", cap * sizeof *p);
        unused->at = p;
        unused->cap = cap;
    }
    unused->at[unused->n++] = index;
    return PESC_OK;
}

/* Counts one record. What is wrong with a record is counted; what is wrong with the machine, the
 * template or the options concerns all records and fails. */
static pesc_status count(dataset *d, uint64_t index, lengths l[2], pesc_data_report *r,
                         stats_list *unused)
{
    const sequence *samples;
    size_t n, n_samples;
    bool over = false;
    pesc_status s = dataset_check(d, index, &samples, &n_samples, &n);
    if (s != PESC_OK && s != PESC_FORMAT)
        return s;
    bool read = samples != NULL; /* even if it cannot be used */
    bool untrained = read && !dataset_trains(samples, n_samples);
    for (size_t i = 0; i < n_samples; i++) {
        bool second = n_samples > 1 && samples[i].role == ANSWER_REJECTED; /* of a pair */
        r->trained += (uint64_t)dataset_targets(&samples[i]);
        r->tokens += (uint64_t)samples[i].n;
        over = over || samples[i].n > dataset_how(d)->seq_len;
        TRY(add_length(&l[second], (size_t)samples[i].n));
    }
    r->over_length += over;
    bool no_sequence = s == PESC_OK && n == 0;
    r->unused += no_sequence;
    r->without_target += untrained;
    r->bad += s != PESC_OK && !untrained;
    if (s != PESC_OK)
        list(r);
    return no_sequence && unused ? add_unused(unused, index) : PESC_OK;
}

pesc_status stats_read(dataset *d, volatile const int *stop, pesc_data_report *out,
                       stats_list *unused)
{
    *out = (pesc_data_report){ .records = dataset_count(d) };
    lengths l[2] = { { 0 }, { 0 } };
    pesc_status s = PESC_OK;
    for (uint64_t i = 0; i < out->records && s == PESC_OK; i++) {
        s = count(d, i, l, out, unused);
        if (i % 256 != 255)
            continue;
        log_progress("checking records", i, out->records);
        if (s == PESC_OK && stop && *stop)
            s = fail(PESC_STOPPED, "stopped while the data was checked; nothing was trained");
    }
    log_progress("checking records", out->records, out->records);
    uint64_t bad = out->bad + out->without_target;
    if (s == PESC_OK && bad > STATS_LISTED)
        log_notice("and %llu more", (unsigned long long)(bad - STATS_LISTED));
    if (s == PESC_OK)
        finish_report(l, out);
    mem_free(l[0].count);
    mem_free(l[1].count);
    return s;
}

pesc_status pesc_data_survey(pesc_data *d, pesc_data_report *out)
{
    status_clear();
    NEED(d);
    NEED_SIZED(out);
    LOG_EVENTS(&d->events);
    pesc_data_report r;
    TRY(stats_read(d->set, NULL, &r, NULL));
    ARGS_WRITE(out, &r);
    return PESC_OK;
}
