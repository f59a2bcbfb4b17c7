/* stats: a data set read from its first record to its last, before anything is trained on it. Of
 * the records only the number of each length is kept, so quantiles are exact and memory is bounded
 * by the longest record. */
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

/* Two buckets an octave: 1, 2, 3, 4-5, 6-7, 8-11, 12-15, ... */
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

static void finish(const lengths *l, pesc_data_report *r)
{
    if (l->all == 0)
        return;
    r->shortest = quantile(l, 0);
    r->median = quantile(l, 50);
    r->p90 = quantile(l, 90);
    r->p99 = quantile(l, 99);
    r->longest = quantile(l, 100);
    fill_buckets(l, r);
}

/* Counts one record. What is wrong with a record is counted; what is wrong with the machine, the
 * template or the options concerns all records and fails. */
static pesc_status count(pesc_data *d, uint64_t index, lengths *l, pesc_data_report *r)
{
    sequence q;
    pesc_status s = dataset_whole(d->set, index, &q);
    if (s == PESC_NOMEM || s == PESC_USAGE || s == PESC_IO)
        return s;
    int32_t trained = s == PESC_OK ? dataset_targets(&q) : 0;
    if (s == PESC_OK) {
        r->tokens += (uint64_t)q.n;
        r->trained += (uint64_t)trained;
        r->over_length += q.n > d->seq_len;
        TRY(add_length(l, (size_t)q.n));
        if (trained > 0)
            return PESC_OK;
    }
    r->bad += s != PESC_OK;
    r->without_target += s == PESC_OK;
    if (s == PESC_OK && !r->first[0])
        (void)dataset_no_target(d->set, index);
    if (!r->first[0])
        snprintf(r->first, sizeof r->first, "%s", pesc_last_error());
    return PESC_OK;
}

pesc_status pesc_data_survey(pesc_data *d, pesc_data_report *out)
{
    status_clear();
    *out = (pesc_data_report){ .records = dataset_count(d->set) };
    lengths l = { 0 };
    pesc_status s = PESC_OK;
    for (uint64_t i = 0; i < out->records && s == PESC_OK; i++) {
        s = count(d, i, &l, out);
        if (i % 256 == 0)
            log_progress("reading records", i, out->records);
    }
    if (s == PESC_OK)
        finish(&l, out);
    mem_free(l.count);
    return s;
}
