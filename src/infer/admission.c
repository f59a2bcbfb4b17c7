/* Which waiting requests get a slot, and how many tokens each slot may feed. */
#include "arch/rope_freq.h"
#include "infer/scheduler_state.h"

enum {
    LOOKAHEAD = 4,  /* waiting requests that a step looks at, for each slot */
    MIN_GAIN = 4,   /* tokens of a prefix for which a request waits */
    MAX_WAITS = 16, /* how often it does at most */
};

/* ---- division of the tokens of a forward ---- */

static int32_t left_of(const scheduler *s, int32_t i)
{
    const job *j = s->slots[s->order[i]];
    return job_feed_end(j) - j->fed;
}

bool scheduler_generates(const scheduler *s, int32_t i)
{
    return !job_is_score(s->slots[s->order[i]]) && left_of(s, i) == 1;
}

int32_t scheduler_generating(const scheduler *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        n += scheduler_generates(s, i);
    return n;
}

/* Divides the limit of tokens: one for each slot that generates, then half of what is left for each
 * prompt in turn. Returns what is left then. */
static int32_t first_shares(scheduler *s)
{
    int32_t room = s->same_rows ? batchinvariant_tokens(s) : s->max_tokens, decodes = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        decodes += s->share[i] = scheduler_generates(s, i);
    room -= decodes;
    if (decodes && s->prompt_limit >= 0 && !s->same_rows)
        room = min_i32(room, s->prompt_limit);
    for (int32_t i = 0; i < s->n_running; i++)
        if (!s->share[i])
            room -= s->share[i] = s->same_rows ? batchinvariant_piece(s->slots[s->order[i]], room)
                                               : min_i32(left_of(s, i), (room + 1) / 2);
    return room;
}

/* The rest goes to the prompts that have more tokens, in turn. */
void scheduler_share(scheduler *s)
{
    int32_t room = first_shares(s);
    for (int32_t i = 0; i < s->n_running && !s->same_rows; i++) {
        int32_t more = min_i32(left_of(s, i) - s->share[i], room);
        s->share[i] += more;
        room -= more;
    }
}

/* ---- admission ---- */

int32_t scheduler_shareable(const scheduler *s, const job *j)
{
    const config *c = &s->m->shape.cfg;
    return config_has_state(c) ? 0 : rope_shareable(c, j->whole); /* states are not kept */
}

/* Whether the slot that the request waits for is still at work on the prefix. */
static bool still_waits(const scheduler *s, const job *j)
{
    if (!j->wait_ticket)
        return false;
    const job *on = s->slots[j->wait_slot];
    return on && on->ticket == j->wait_ticket && on->fed < j->wait_until;
}

/* How many tokens the beginning of j shares with what a running request will have cached when its
 * prompt is done; 0 unless it is `least` or more. */
static int32_t shared_with(const scheduler *s, const job *j, const job *running, int32_t least)
{
    int32_t end = job_feed_end(running);
    if (running->r.scope != j->r.scope || running->fed >= end)
        return 0;
    int32_t most = min_i32(scheduler_shareable(s, running), scheduler_shareable(s, j));
    if (!job_is_score(running) || most < end)
        end = min_i32(end, most) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    int32_t n = 0;
    most = min_i32(end, job_first_row(j));
    if (most < least || running->ids.ids[least - 1] != j->ids.ids[least - 1])
        return 0;
    while (n < most && running->ids.ids[n] == j->ids.ids[n])
        n++;
    if (s->same_rows)
        n = batchinvariant_found(j, batchinvariant_cacheable(running, n));
    return n < least ? 0 : n;
}

/* Looks for a running request that computes more of the prefix than the n tokens that are cached.
 */
static bool begins_to_wait(const scheduler *s, job *j, int32_t n)
{
    int32_t best = n + MIN_GAIN - 1;
    j->wait_ticket = 0;
    if (j->waits >= MAX_WAITS)
        return false;
    for (int32_t i = 0; i < s->n_running; i++) {
        const job *on = s->slots[s->order[i]];
        int32_t shared = shared_with(s, j, on, best + 1);
        if (!shared)
            continue;
        best = shared;
        j->wait_ticket = on->ticket;
        j->wait_slot = s->order[i];
        j->wait_until = min_i32(kvcache_pages_for(shared) * KV_PAGE_TOKENS, job_feed_end(on));
    }
    j->waits += j->wait_ticket != 0;
    return j->wait_ticket != 0;
}

/* Whether the pool has the pages of j's prompt, of which n tokens are cached, beside those that
 * running prompts still need and the next one of each running request. */
static bool fits(const scheduler *s, const job *j, int32_t n)
{
    int32_t need = kvcache_pages_for(job_feed_end(j) + 1);
    int32_t room = kvcache_unused(s->kv) + kvcache_idle_pages(s->kv);
    for (int32_t i = 0; i < n / KV_PAGE_TOKENS; i++)
        need -= !kvcache_idle(s->kv, s->pages[i]);
    for (int32_t i = 0; i < s->n_running; i++) {
        const job *on = s->slots[s->order[i]];
        room -= kvcache_pages_for(job_feed_end(on) + 1) - kvcache_pages_for(on->fed) + 1;
    }
    return s->n_running == 0 || need <= room;
}

static pesc_status enter_slot(scheduler *s, job *j, int32_t n)
{
    int32_t slot = 0;
    while (s->slots[slot])
        slot++;
    s->slots[slot] = j;
    s->order[s->n_running++] = slot;
    j->fed = n;
    j->cached = n / KV_PAGE_TOKENS;
    if (j->state == JOB_WAITS && j->r.started)
        j->r.started(j->r.ud, n);
    j->state = JOB_STARTED;
    return kvcache_fork(s->kv, slot, s->pages, n);
}

/* No more requests than the next forward has tokens for: a slot that only waits keeps others from
 * a prefix that is cached now and may be evicted later. */
pesc_status scheduler_admit(scheduler *s)
{
    job **at = &s->queue.first;
    int32_t room = first_shares(s);
    for (int32_t i = 0; *at && i < LOOKAHEAD * s->n_slots; i++) {
        job *j = *at;
        if (room <= 0 || s->n_running == s->n_slots)
            break;
        if (still_waits(s, j)) {
            at = &j->next;
            continue;
        }
        if (kvcache_unused(s->kv) == 0) /* for the copy of a page, before pages are found */
            prefix_evict(s->prefixes);
        int32_t most = min_i32(job_first_row(j), scheduler_shareable(s, j));
        int32_t n =
            prefix_find(s->prefixes, (prefix_key){ j->r.scope, j->ids.ids, most }, s->pages);
        if (s->same_rows)
            n = batchinvariant_found(j, n);
        if (begins_to_wait(s, j, n)) {
            at = &j->next;
            continue;
        }
        if (!fits(s, j, n))
            break;
        TRY(enter_slot(s, job_queue_take(&s->queue, at), n));
        room -= min_i32(job_feed_end(j) - n, (room + 1) / 2);
    }
    return PESC_OK;
}
