#include "infer/scheduler_state.h"

#include "arch/rope_freq.h"
#include "backend/memory.h"
#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { CACHED_PER_SLOT = 512 }; /* tokens, see scheduler_options */

/* ---- opening ---- */

static pesc_status open_device(scheduler *s, int64_t cache_tokens)
{
    pesc_model *m = s->m;
    int32_t seqs = s->n_slots + (s->same_rows > 0), longest = max_i32(s->context, s->same_rows);
    int64_t filling = (int64_t)kvcache_pages_for(s->same_rows) * KV_PAGE_TOKENS;
    TRY(kvcache_open(&s->kv, m->dev, &m->shape.cfg, m->shape.act_dt, seqs, longest,
                     cache_tokens + filling));
    if (s->same_rows)
        TRY(batchinvariant_reserve(s));
    TRY(prefix_open(&s->prefixes, s->kv));
    results *both[] = { &s->now, &s->pending };
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        TRY(rowscores_open(&both[i]->scores, m->dev, s->max_out));
        TRY(rowscores_open(&both[i]->details, m->dev, s->max_out));
    }
    return pass_open(&s->pass, m, (pass_limits){ s->max_tokens, seqs, s->max_out }, s->kv);
}

/* Tokens in the KV cache, see scheduler_options. A GPU's memory is there to be used; a host's is
 * other programs', too. */
static int64_t cache_size(const pesc_model *m, const scheduler_options *o)
{
    int64_t all = (int64_t)o->slots * o->context;
    int64_t some = (int64_t)o->slots * CACHED_PER_SLOT + o->context, held = 0;
    if (!m->dev->op->host_memory(m->dev))
        held = (int64_t)(memory_available(m->dev) / 4 * 3 /
                         kvcache_token_bytes(&m->shape.cfg, m->shape.act_dt));
    some = some > held ? some : held;
    int64_t n = o->cache_tokens ? o->cache_tokens : all < some ? all : some;
    return n > o->context ? n : o->context;
}

static pesc_status open_drafters(scheduler *s)
{
    size_t n = (size_t)s->n_slots;
    if (!s->guess || !s->m->draft)
        return PESC_OK;
    if (!(s->drafters = mem_zalloc(n, sizeof *s->drafters)))
        return fail_nomem("draft models", n * sizeof *s->drafters);
    for (size_t i = 0; i < n; i++)
        s->drafters[i] = drafter_of(s->m, s->m->draft, s->context);
    return PESC_OK;
}

pesc_status scheduler_open(scheduler **out, pesc_model *m, const scheduler_options *opt)
{
    ASSERT(opt->slots > 0 && opt->context > 0);
    *out = NULL;
    scheduler *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a scheduler", sizeof *s);
    int32_t rows = m->dev->head_rows;
    s->m = m;
    s->n_slots = opt->slots;
    s->prompt_limit = -1;
    s->context = opt->context;
    s->overlap = opt->overlap;
    s->guess = guess_possible(m) && !opt->batch_invariant && !opt->overlap ? opt->guesses : 0;
    s->same_rows = opt->batch_invariant ? batchinvariant_rows(opt->slots) : 0;
    s->max_tokens = max_i32(opt->max_tokens ? opt->max_tokens : 2 * rows, opt->slots);
    s->max_out = max_i32(min_i32(rows, s->max_tokens), opt->slots);
    if (s->same_rows)
        s->max_tokens = s->max_out = s->same_rows;
    job_queue_init(&s->queue);
    size_t n = (size_t)s->n_slots;
    s->slots = mem_zalloc(n, sizeof(job *));
    s->order = mem_alloc(n, sizeof *s->order);
    s->share = mem_alloc(n, sizeof *s->share);
    s->seqs = mem_alloc(n + 1, sizeof *s->seqs);
    s->filling = mem_zalloc((size_t)s->same_rows + 1, sizeof *s->filling);
    s->now.placed = mem_alloc(n, sizeof *s->now.placed);
    s->pending.placed = mem_alloc(n, sizeof *s->pending.placed);
    s->draws = mem_alloc((size_t)s->max_out, sizeof *s->draws);
    s->rows = mem_alloc((size_t)s->max_out, sizeof *s->rows);
    s->pages = mem_alloc((size_t)kvcache_pages_for(s->context), sizeof *s->pages);
    bool all = s->slots && s->order && s->share && s->seqs && s->filling && s->now.placed &&
               s->pending.placed && s->draws && s->rows && s->pages;
    pesc_status st =
        all ? open_device(s, cache_size(m, opt)) : fail_nomem("a scheduler", n * sizeof *s->seqs);
    if (st == PESC_OK)
        st = open_drafters(s);
    if (st == PESC_OK)
        *out = s;
    else
        scheduler_close(s);
    return st;
}

static void close_results(results *r)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->placed[i].complete)
            job_free(r->placed[i].j);
    rowscores_close(&r->scores);
    rowscores_close(&r->details);
    mem_free(r->placed);
}

void scheduler_close(scheduler *s)
{
    if (!s)
        return;
    while (s->queue.first)
        job_free(job_queue_take(&s->queue, &s->queue.first));
    for (int32_t i = 0; s->slots && i < s->n_slots; i++)
        job_free(s->slots[i]);
    close_results(&s->now);
    close_results(&s->pending);
    pass_close(s->pass);
    routes_close(s->routes);
    prefix_close(s->prefixes);
    kvcache_close(s->kv);
    sampling_close(s->sampling);
    for (int32_t i = 0; s->drafters && i < s->n_slots; i++)
        drafter_close(&s->drafters[i]);
    mem_free(s->drafters);
    void *host[] = { s->logits, s->slots,   s->order, s->share, s->pages,
                     s->seqs,   s->filling, s->draws, s->rows,  s->top };
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        mem_free(host[i]);
    mem_free(s);
}

/* ---- requests ---- */

static pesc_status check_request(const scheduler *s, const sched_request *r)
{
    ASSERT(r->first >= 0 && r->done && (r->first || r->max_tokens > 0));
    bool score = r->max_tokens == 0;
    if (r->n < 1 || (score && r->first >= r->n))
        return fail(PESC_USAGE, "a request needs at least one token of context%s",
                    score ? " and one to score" : "");
    int32_t longest = s->context + (score ? 1 : -1); /* a score does not feed its last token */
    if (r->n > longest)
        return fail(PESC_USAGE, "a request has %d tokens, but the context holds %d", r->n, longest);
    for (int32_t i = 0; i < r->n; i++)
        if (r->ids[i] < 0 || r->ids[i] >= s->m->shape.cfg.vocab)
            return fail(PESC_USAGE, "token %d of a request: found id %d, expected 0 to %d", i,
                        r->ids[i], s->m->shape.cfg.vocab - 1);
    return PESC_OK;
}

/* What only some requests need: a row of logits on the host, samplers, room for details. Beside a
 * CPU's forwards one thread samples fast enough. */
static pesc_status open_for(scheduler *s, const sched_request *r)
{
    size_t vocab = (size_t)s->m->shape.cfg.vocab, top = (size_t)r->n_top;
    if (!s->logits && !(s->logits = mem_alloc(vocab, sizeof *s->logits)))
        return fail_nomem("a row of logits", vocab * sizeof *s->logits);
    if (top > s->cap_top) {
        sched_choice *more = mem_grow(s->top, top, sizeof *more);
        if (!more)
            return fail_nomem("log-probabilities", top * sizeof *more);
        s->top = more;
        s->cap_top = top;
    }
    if (s->sampling || !r->sample)
        return PESC_OK;
    device *dev = s->m->dev;
    return sampling_open(&s->sampling, dev, s->m->shape.cfg.vocab,
                         dev->op->host_memory(dev) ? 1 : 0);
}

pesc_status scheduler_add(scheduler *s, const sched_request *r, uint64_t *ticket)
{
    job *j;
    TRY(check_request(s, r));
    if (r->sample || r->n_top || r->rank)
        TRY(open_for(s, r));
    for (int32_t i = 0; r->routed && !s->routes && i < s->m->shape.cfg.n_layers; i++)
        if (s->m->shape.w.blocks[i].sparse)
            TRY(routes_open(&s->routes, s->m, s->max_tokens));
    TRY(job_open(&j, r, ++s->tickets));
    job_queue_add(&s->queue, j);
    if (ticket)
        *ticket = j->ticket;
    return PESC_OK;
}

pesc_status scheduler_sort(scheduler *s)
{
    return job_queue_sort(&s->queue);
}

void scheduler_route_every(scheduler *s, int32_t forwards)
{
    s->routes_every = forwards;
}

void scheduler_limit_prompts(scheduler *s, int32_t tokens)
{
    s->prompt_limit = tokens;
}

static void cancel_joined(job *j, uint64_t first, uint64_t last)
{
    for (; j; j = j->joined)
        if (j->ticket >= first && j->ticket <= last && j->state != JOB_OVER)
            j->state = JOB_CANCELLED;
}

void scheduler_cancel(scheduler *s, uint64_t first, uint64_t last)
{
    for (job *j = s->queue.first; j; j = j->next)
        cancel_joined(j, first, last);
    for (int32_t i = 0; i < s->n_running; i++)
        cancel_joined(s->slots[s->order[i]], first, last);
    s->some_end = true;
}

/* ---- slots ---- */

/* The tokens that a slot holds, as far as they fill pages or, with `all`, to the last. */
static void cache_prefix(scheduler *s, int32_t slot, bool all)
{
    job *j = s->slots[slot];
    int32_t most = s->same_rows ? batchinvariant_cacheable(j, j->fed) : j->fed;
    most = min_i32(most, scheduler_shareable(s, j));
    int32_t full = most / KV_PAGE_TOKENS;
    if (!all && full == j->cached)
        return;
    j->cached = full;
    prefix_add(s->prefixes,
               (prefix_key){ j->r.scope, j->ids.ids, all ? most : full * KV_PAGE_TOKENS },
               kvcache_table(s->kv, slot));
}

void scheduler_cache_prefix(scheduler *s, int32_t slot)
{
    cache_prefix(s, slot, false);
}

job *scheduler_leave_slot(scheduler *s, int32_t slot)
{
    job *j = s->slots[slot];
    int32_t i = 0;
    cache_prefix(s, slot, true);
    kvcache_truncate(s->kv, slot, 0);
    s->slots[slot] = NULL;
    while (s->order[i] != slot)
        i++;
    s->n_running--;
    memmove(s->order + i, s->order + i + 1, (size_t)(s->n_running - i) * sizeof *s->order);
    return j;
}

/* Whether it ends, and all that are joined to it. */
static bool ends(const job *j)
{
    while (j && j->state >= JOB_CANCELLED)
        j = j->joined;
    return !j;
}

/* Ends a request that is in no list any more. Of results that are pending it gets none. */
static pesc_status drop(scheduler *s, job *j)
{
    for (int32_t i = 0; i < s->pending.n; i++)
        if (s->pending.placed[i].j == j)
            s->pending.placed[i].j = NULL;
    pesc_status st = j->state == JOB_OVER ? PESC_OK : scheduler_deliver_end(s, j, FINISH_CANCELLED);
    job_free(j);
    return st;
}

/* Takes the requests that end out of slots and queue. */
static pesc_status drop_ended(scheduler *s)
{
    if (!s->some_end)
        return PESC_OK;
    s->some_end = false;
    for (int32_t slot = 0; slot < s->n_slots; slot++)
        if (s->slots[slot] && ends(s->slots[slot]))
            TRY(drop(s, scheduler_leave_slot(s, slot)));
    for (job **at = &s->queue.first; *at;) {
        if (ends(*at))
            TRY(drop(s, job_queue_take(&s->queue, at)));
        else
            at = &(*at)->next;
    }
    return PESC_OK;
}

/* ---- the tokens of a forward ---- */

/* The number of the next forward, from 1. */
static uint64_t next_forward(const scheduler *s)
{
    return s->count.forwards + 1;
}

static bool is_placed(const scheduler *s, int32_t slot)
{
    return s->slots[slot]->placed_in == next_forward(s);
}

/* Pages for n more tokens of the slot: from the pool, from the cache, or from the youngest slot
 * that is younger and not in this forward. */
static bool make_room(scheduler *s, int32_t slot, int32_t n)
{
    int32_t fed = s->slots[slot]->fed;
    int32_t need = kvcache_pages_for(fed + n) - kvcache_pages_for(fed);
    while (kvcache_unused(s->kv) < need) {
        if (prefix_evict(s->prefixes))
            continue;
        int32_t i = s->n_running - 1;
        while (i >= 0 && s->order[i] != slot && is_placed(s, s->order[i]))
            i--;
        if (i < 0 || s->order[i] == slot)
            return false;
        job *youngest = scheduler_leave_slot(s, s->order[i]);
        job_reset(youngest);
        job_queue_add_first(&s->queue, youngest);
        s->count.preempted++;
    }
    return true;
}

/* The rows of tokens [from, from + n) that meet the head, and their scores. */
static pesc_status place_rows(scheduler *s, job *j, int32_t from, int32_t n)
{
    for (int32_t at = max_i32(from, job_first_row(j)); at < from + n; at++) {
        int32_t token = s->n_tokens + at - from, row = s->same_rows ? token : s->n_rows;
        if (!job_is_score(j) && !job_wants_row(j, at))
            continue;
        s->rows[row] = token;
        s->n_rows++;
        for (job *k = j; k; k = k->joined) {
            if (!job_wants_row(k, at))
                continue;
            bool next = at + 1 < (int32_t)k->ids.n; /* else it is to be generated */
            TRY(rowscores_add(&s->now.scores, row, next ? k->ids.ids[at + 1] : 0, k));
        }
    }
    return PESC_OK;
}

/* How many tokens after those of a job that generates may be guessed. Prompts use what a forward
 * has left better, and no request is preempted for a guess. */
static int32_t guess_room(const scheduler *s, const job *j)
{
    const config *c = &s->m->shape.cfg;
    int32_t next = (int32_t)j->ids.n, waiting = 0, pages = 0; /* the others' next tokens */
    bool fits = s->guess && s->n_running < GUESS_ROWS && job_first_row(j) == next - 1;
    for (int32_t i = 0; fits && i < s->n_running; i++) {
        const job *other = s->slots[s->order[i]];
        fits = scheduler_generates(s, i);
        if (is_placed(s, s->order[i]))
            continue;
        waiting++;
        if (other != j)
            pages += kvcache_pages_for(other->fed + 1) - kvcache_pages_for(other->fed);
    }
    int32_t room = min_i32(j->r.max_tokens - job_generated(j), s->context - next) - 1;
    room = min_i32(room, min_i32(s->max_out, s->max_tokens) - s->n_tokens - waiting);
    room = min_i32(room, GUESS_ROWS - s->n_tokens - waiting);
    room = min_i32(room, GUESS_MOST);
    pages += kvcache_pages_for(next + room) - kvcache_pages_for(j->fed);
    fits = fits && room > 0 && kvcache_unused(s->kv) >= pages &&
           rope_shareable(c, next + room) > 0 && !rope_outgrown(c, j->whole, next + room);
    return fits ? room : 0;
}

/* Writes guessed tokens after those of the job, and says how many. */
static pesc_status guess_ahead(scheduler *s, int32_t slot, int32_t *n)
{
    job *j = s->slots[slot];
    int32_t out[GUESS_MOST], room = guess_room(s, j), rows = s->n_tokens;
    *n = 0;
    if (room <= 0)
        return PESC_OK;
    for (int32_t i = 0; i < s->n_running; i++)
        rows += !is_placed(s, s->order[i]);
    guess_text t = { j->ids.ids,
                     j->ids.n,
                     rows,
                     room,
                     j->r.terms ? j->r.terms->matcher : NULL,
                     (size_t)job_generated(j) };
    *n = guess_next(&j->guesses, &s->pace, &t, s->guess, out);
    if (*n == 0 && s->drafters) {
        drafter_enter(&s->drafters[slot], j->r.scope);
        TRY(drafter_guess(&s->drafters[slot], &s->pace, &t, s->guess, out, n));
        j->guesses.checked += *n;
    }
    for (int32_t i = 0; i < *n; i++)
        TRY(id_list_add(&j->ids, out[i]));
    j->ids.n -= (size_t)*n;
    return PESC_OK;
}

/* Puts up to n tokens of the slot into the forward, fewer if the head has no room for their rows,
 * and after the last one of a generation those that are guessed. */
static pesc_status place(scheduler *s, int32_t slot, int32_t n)
{
    job *j = s->slots[slot];
    int32_t first = max_i32(j->fed, job_first_row(j)), room = s->max_out - s->n_rows, guessed;
    n = min_i32(n, first + room - j->fed);
    if (n <= 0)
        return PESC_OK;
    TRY(guess_ahead(s, slot, &guessed));
    if (!make_room(s, slot, n + guessed))
        return PESC_OK;
    TRY(kvcache_reserve(s->kv, slot, n + guessed));
    results *to = &s->now;
    size_t scores = to->scores.n;
    TRY(place_rows(s, j, j->fed, n));
    for (int32_t i = 0; i < guessed; i++) {
        s->rows[s->n_rows] = s->n_tokens + n + i;
        TRY(rowscores_add(&to->scores, s->n_rows++, 0, j));
    }
    n += guessed;
    s->seqs[to->n] = (token_seq){ .ids = j->ids.ids + j->fed,
                                  .n = n,
                                  .past = j->fed,
                                  .kv_seq = slot,
                                  .whole = j->whole,
                                  .adapter = j->r.adapter };
    to->placed[to->n++] = (placed){
        .j = j, .slot = slot, .first = scores, .n = to->scores.n - scores, .guessed = guessed
    };
    j->placed_in = next_forward(s);
    s->n_tokens += n;
    return PESC_OK;
}

/* Slots that generate come first. Preemption only removes slots at the end of the order. */
static pesc_status fill(scheduler *s)
{
    s->now.n = s->n_tokens = s->n_rows = 0;
    s->now.scores.n = 0;
    scheduler_share(s);
    for (int first = 1; first >= 0; first--) {
        for (int32_t i = 0; i < s->n_running; i++)
            if (scheduler_generates(s, i) == (first == 1) && !is_placed(s, s->order[i]))
                TRY(place(s, s->order[i], s->share[i]));
        if (first)
            s->count.decodes = s->n_tokens;
    }
    s->count.prompt_tokens = s->n_tokens - s->count.decodes;
    return PESC_OK;
}

/* ---- forwards ---- */

static bool wants_routes(const scheduler *s)
{
    bool due = s->routes_every && s->count.forwards % (uint64_t)s->routes_every == 0;
    for (int32_t i = 0; s->routes && i < s->now.n; i++) {
        const sched_request *r = &s->now.placed[i].j->r;
        if (r->routed && (due || r->all_routed))
            return true;
    }
    return false;
}

pesc_status scheduler_download_row(scheduler *s, int32_t row)
{
    device *dev = s->m->dev;
    size_t bytes = (size_t)s->m->shape.cfg.vocab * sizeof *s->logits;
    return dev->op->download(dev, s->logits, (const char *)s->head.data + (size_t)row * bytes,
                             bytes);
}

/* The pending results are delivered while the forward runs, or after it; the forward is waited for
 * in any case. */
static pesc_status run_forward(scheduler *s)
{
    bool same = s->same_rows > 0;
    s->routed = wants_routes(s);
    if (same)
        batchinvariant_fill(s);
    TRY(pass_set(s->pass, s->seqs, s->now.n + same, s->rows, same ? s->same_rows : s->n_rows));
    routes_record(s->routed ? s->routes : NULL, s->pass);
    double began = clock_seconds();
    model_start(s->m, s->pass, &s->head);
    rowscores_start(&s->now.scores, s->head);
    s->count.forwards++;
    s->count.computed += (uint64_t)s->n_tokens;
    pesc_status delivered = s->overlap ? scheduler_deliver(s) : PESC_OK;
    TRY(model_finish(s->m, s->pass));
    if (s->guess && s->count.prompt_tokens == 0)
        guess_timed(&s->pace, s->n_tokens, clock_seconds() - began);
    if (same)
        TRY(batchinvariant_reserve(s));
    TRY(rowscores_finish(&s->now.scores, s->head));
    TRY(scheduler_take_results(s));
    return delivered != PESC_OK || s->overlap ? delivered : scheduler_deliver(s);
}

/* Requests that grew so long that all their tokens rotate anew are fed again. */
static void restart_outgrown(scheduler *s)
{
    for (int32_t slot = 0; slot < s->n_slots; slot++) {
        job *j = s->slots[slot];
        if (!j || !rope_outgrown(&s->m->shape.cfg, j->whole, (int64_t)j->ids.n))
            continue;
        scheduler_leave_slot(s, slot);
        job_reset(j);
        j->whole = (int32_t)j->ids.n;
        job_queue_add_first(&s->queue, j);
    }
}

pesc_status scheduler_step(scheduler *s, bool *more)
{
    TRY(drop_ended(s));
    restart_outgrown(s);
    TRY(scheduler_admit(s));
    TRY(fill(s));
    TRY(s->now.n ? run_forward(s) : scheduler_deliver(s));
    TRY(drop_ended(s));
    *more = s->queue.first || s->n_running || s->pending.n;
    return PESC_OK;
}

pesc_status scheduler_run(scheduler *s)
{
    for (bool more = true; more;)
        TRY(scheduler_step(s, &more));
    return PESC_OK;
}

scheduler_counters scheduler_count(const scheduler *s)
{
    scheduler_counters c = s->count;
    c.waiting = job_queue_count(&s->queue);
    for (int32_t i = 0; i < s->n_running; i++)
        for (const job *j = s->slots[s->order[i]]; j; j = j->joined)
            c.running++;
    c.pages = kvcache_pages(s->kv) - kvcache_pages_for(s->same_rows);
    c.pages_used = c.pages - kvcache_unused(s->kv) - kvcache_idle_pages(s->kv);
    return c;
}
