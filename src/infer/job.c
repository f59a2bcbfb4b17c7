#include "infer/scheduler_state.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

pesc_status job_open(job **out, const sched_request *r, uint64_t ticket)
{
    size_t n = (size_t)r->n;
    *out = NULL;
    job *j = mem_zalloc(1, sizeof *j);
    if (!j || !(j->ids.ids = mem_alloc(n, sizeof *j->ids.ids))) {
        mem_free(j);
        return fail_nomem("a request", n * sizeof *j->ids.ids);
    }
    memcpy(j->ids.ids, r->ids, n * sizeof *r->ids);
    j->ids.n = j->ids.cap = n;
    j->r = *r;
    j->r.ids = NULL;
    j->whole = r->n;
    j->ticket = ticket;
    j->greedy = true;
    j->guesses = guess_begin();
    j->prompt_delivered = r->first;
    if (r->sample)
        j->sample = *r->sample;
    j->on_device = !r->sample ||
                   (!r->terms && r->sample->temperature == 0 && r->sample->repetition_penalty == 1);
    *out = j;
    return PESC_OK;
}

void job_free(job *j)
{
    while (j) {
        job *joined = j->joined;
        mem_free(j->ids.ids);
        mem_free(j);
        j = joined;
    }
}

void job_reset(job *j)
{
    j->fed = j->cached = 0;
    for (; j && !j->r.row; j = j->joined) { /* with `row`, what was reported stays */
        j->logprob = 0;
        j->greedy = true;
    }
}

int32_t job_feed_end(const job *j)
{
    return (int32_t)j->ids.n - (job_is_score(j) ? 1 : 0);
}

int32_t job_first_row(const job *j)
{
    if (!job_is_score(j))
        return (j->r.first && j->prompt_delivered < j->r.n ? j->prompt_delivered
                                                           : (int32_t)j->ids.n) -
               1;
    int32_t first = j->r.row ? j->prompt_delivered : j->r.first;
    for (const job *k = j->joined; k; k = k->joined)
        first = k->r.first < first ? k->r.first : first;
    return first - 1;
}

bool job_wants_row(const job *j, int32_t at)
{
    return job_is_score(j) ? at >= j->r.first - 1 : at < j->r.n - 1 || at == (int32_t)j->ids.n - 1;
}

int32_t job_generated(const job *j)
{
    return (int32_t)j->ids.n - j->r.n;
}

/* ---- the queue ---- */

void job_queue_init(job_queue *q)
{
    *q = (job_queue){ .last = &q->first };
}

void job_queue_add(job_queue *q, job *j)
{
    j->next = NULL;
    *q->last = j;
    q->last = &j->next;
}

void job_queue_add_first(job_queue *q, job *j)
{
    j->next = q->first;
    q->first = j;
    if (!j->next)
        q->last = &j->next;
}

job *job_queue_take(job_queue *q, job **at)
{
    job *j = *at;
    *at = j->next;
    if (!j->next)
        q->last = at;
    return j;
}

int32_t job_queue_count(const job_queue *q)
{
    int32_t n = 0;
    for (const job *j = q->first; j; j = j->next)
        for (const job *k = j; k; k = k->joined)
            n++;
    return n;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By scope, then by the tokens to feed: a string comes before those that it begins. */
static int by_tokens(const void *left, const void *right)
{
    const job *a = *(job *const *)left, *b = *(job *const *)right;
    int32_t na = job_feed_end(a), nb = job_feed_end(b), n = na < nb ? na : nb;
    if (a->r.scope != b->r.scope)
        return compare(a->r.scope, b->r.scope);
    for (int32_t i = 0; i < n; i++)
        if (a->ids.ids[i] != b->ids.ids[i])
            return a->ids.ids[i] < b->ids.ids[i] ? -1 : 1;
    return na != nb ? (na < nb ? -1 : 1) : compare(a->ticket, b->ticket);
}

static bool same_rows(const job *a, const job *b)
{
    int32_t n = job_feed_end(a);
    return job_is_score(a) && job_is_score(b) && !a->r.row && !b->r.row &&
           a->r.scope == b->r.scope && n == job_feed_end(b) &&
           memcmp(a->ids.ids, b->ids.ids, (size_t)n * sizeof *a->ids.ids) == 0;
}

pesc_status job_queue_sort(job_queue *q)
{
    size_t n = 0, i = 0;
    for (const job *j = q->first; j; j = j->next)
        n++;
    if (n == 0)
        return PESC_OK;
    job **all = mem_alloc(n, sizeof(job *));
    if (!all)
        return fail_nomem("the order of requests", n * sizeof(job *));
    for (job *j = q->first; j; j = j->next)
        all[i++] = j;
    qsort(all, n, sizeof(job *), by_tokens);
    job_queue_init(q);
    for (job *leader = NULL, *end = NULL; i > 0; i--) {
        job *j = all[n - i];
        if (leader && same_rows(leader, j)) {
            end->joined = j;
        } else {
            job_queue_add(q, j);
            leader = j;
        }
        for (end = j; end->joined;)
            end = end->joined;
    }
    mem_free(all);
    return PESC_OK;
}
