/* What comes of a forward: the next tokens, and how requests get it. */
#include "infer/scheduler_state.h"

/* ---- after a forward ---- */

/* Whether the forward has computed the next token of the request. */
static bool generates(const placed *p)
{
    return p->j && p->n && !job_is_score(p->j) && p->j->fed == job_feed_end(p->j);
}

/* What is drawn from the rows of a job that generates: one row for the next token and one for each
 * after a guess. */
static size_t add_draws(scheduler *s, const placed *p, const row_score *a, size_t n)
{
    const job *j = p->j;
    for (int32_t i = 0; i <= p->guessed; i++)
        s->draws[n++] = (sampling_row){ .row = a[i].row,
                                        .opt = &j->sample,
                                        .terms = j->r.terms,
                                        .seen = j->ids.ids,
                                        .n_seen = j->ids.n + (size_t)i,
                                        .step = (uint64_t)(job_generated(j) + i),
                                        .after_guess = i > 0 };
    return n;
}

/* Of the tokens chosen from the rows, those that follow right guesses count, and the one after
 * them. What was fed after them is taken back, and their rows are not delivered. */
static void keep_right(scheduler *s, placed *p)
{
    job *j = p->j;
    const int32_t *guess = j->ids.ids + j->ids.n;
    int32_t n = 0;
    while (n < p->guessed && p->chosen[n] == guess[n])
        n++;
    guess_learn(&j->guesses, p->chosen[0]);
    if (s->drafters)
        guess_came(&s->drafters[p->slot].rate, p->chosen[0]);
    j->guesses.accepted += n;
    j->fed += n;
    if (p->guessed)
        kvcache_truncate(s->kv, p->slot, j->fed);
    p->ended = p->chosen[n] < 0;
    p->n_chosen = n + !p->ended;
    p->n -= (size_t)(1 + p->guessed - p->n_chosen);
}

/* The next tokens of the jobs that generate; the scores of these rows come last. */
static pesc_status choose_tokens(scheduler *s)
{
    size_t n = 0, at = 0;
    results *now = &s->now;
    for (int32_t i = 0; i < now->n; i++) {
        placed *p = &now->placed[i];
        p->j->fed += s->seqs[i].n - p->guessed;
        if (p->j->state == JOB_OVER)
            p->j = NULL;
        p->n_chosen = 0;
        p->ended = false;
        if (!generates(p))
            continue;
        const row_score *a = now->scores.all + p->first + p->n - 1 - p->guessed;
        for (int32_t k = 0; k <= p->guessed; k++)
            p->chosen[k] = a[k].best;
        p->n_chosen = 1;
        if (!p->j->on_device)
            n = add_draws(s, p, a, n);
    }
    if (n)
        TRY(sampling_draw(s->sampling, s->head, s->draws, n));
    for (int32_t i = 0; i < now->n; i++) {
        placed *p = &now->placed[i];
        if (p->n_chosen == 0)
            continue;
        for (int32_t k = 0; !p->j->on_device && k <= p->guessed; k++)
            p->chosen[k] = s->draws[at++].id;
        keep_right(s, p);
    }
    return PESC_OK;
}

/* After the choice, since experts of guesses that were wrong are not told. */
static void tell_routes(scheduler *s)
{
    for (int32_t i = 0, first = 0; s->routed && i < s->now.n; i++) {
        const token_seq *q = &s->seqs[i];
        const placed *p = &s->now.placed[i];
        int32_t wrong = p->n_chosen + p->ended > 0 ? 1 + p->guessed - p->n_chosen - p->ended : 0;
        sched_routes at = { .at = q->past, .n = q->n - wrong, .first = first, .all = s->routes };
        if (p->j && p->j->r.routed)
            p->j->r.routed(p->j->r.ud, &at);
        first += q->n;
    }
}

/* Notes the results in the job. One that is complete leaves its slot at once. */
static pesc_status note_results(scheduler *s, placed *p)
{
    job *j = p->j;
    if (!j)
        return PESC_OK;
    if (job_is_score(j)) {
        for (const row_score *a = s->now.scores.all + p->first, *end = a + p->n; a < end; a++) {
            job *of = a->owner;
            of->logprob += (double)a->logprob;
            of->greedy &= a->best == a->token;
        }
        p->complete = j->fed >= job_feed_end(j);
    } else {
        for (int32_t i = 0; i < p->n_chosen; i++)
            TRY(id_list_add(&j->ids, p->chosen[i]));
        bool full = job_generated(j) >= j->r.max_tokens || j->ids.n >= (size_t)s->context;
        p->complete = p->ended || (p->n_chosen > 0 && full);
    }
    if (p->complete)
        (void)scheduler_leave_slot(s, p->slot);
    else
        scheduler_cache_prefix(s, p->slot);
    return PESC_OK;
}

pesc_status scheduler_take_results(scheduler *s)
{
    results *now = &s->now;
    TRY(choose_tokens(s));
    tell_routes(s);
    now->details.n = 0;
    for (int32_t i = 0; i < now->n; i++) { /* of rows whose requests want them */
        placed *p = &now->placed[i];
        const row_score *a = now->scores.all + p->first;
        p->details = now->details.n;
        size_t scored = p->n - (size_t)p->n_chosen;
        for (size_t k = 0; p->j && p->j->r.row && k < p->n; k++)
            TRY(scheduler_ask_details(s, p->j, a[k].row,
                                      k < scored ? a[k].token : p->chosen[k - scored]));
    }
    TRY(rowscores_compute(&now->details, s->head));
    for (int32_t i = 0; i < now->n; i++)
        TRY(note_results(s, &now->placed[i]));
    results empty = s->pending;
    s->pending = s->now;
    s->now = empty;
    s->now.n = 0;
    return PESC_OK;
}

/* ---- callbacks ---- */

pesc_status scheduler_deliver_end(scheduler *s, const job *j, sched_finish finish)
{
    for (; j; j = j->joined) {
        sched_result r = { .finish = j->state == JOB_CANCELLED ? FINISH_CANCELLED : finish,
                           .logprob = j->logprob,
                           .greedy = j->greedy,
                           .ids = j->ids.ids + j->r.n,
                           .n = j->delivered,
                           .guessed = j->guesses.checked,
                           .guesses_kept = j->guesses.accepted };
        s->count.requested += j->ids.n - 1;
        TRY(j->r.done(j->r.ud, &r));
    }
    return PESC_OK;
}

/* Rows of the prompt, each token after its row, then the end. */
static pesc_status deliver_one(scheduler *s, placed *p)
{
    bool more = true; /* false: its callback ends the request, or no token may follow */
    job *j = p->j;
    pesc_status st = PESC_OK;
    size_t at = p->details, n = 0, scored = p->n - (size_t)p->n_chosen, k = 0;
    for (; st == PESC_OK && more && k < p->n; k++, at += n) {
        if (j->r.row)
            st = scheduler_deliver_details(s, j, at, &n);
        if (st != PESC_OK || k < scored)
            continue;
        j->delivered++;
        st = j->r.token ? j->r.token(j->r.ud, p->chosen[k - scored], &more) : PESC_OK;
    }
    j->guesses.accepted -= (int64_t)(p->n - k); /* what a callback ended came too late */
    more = more && !p->ended;
    sched_finish finish = !more ? FINISH_STOPPED : job_is_score(j) ? FINISH_SCORED : FINISH_LENGTH;
    if (st == PESC_OK && (p->complete || !more))
        st = scheduler_deliver_end(s, j, finish);
    if (p->complete) {
        job_free(j);
    } else if (!more) {
        j->state = JOB_OVER;
        s->some_end = true;
    }
    p->j = NULL;
    return st;
}

pesc_status scheduler_deliver(scheduler *s)
{
    for (int32_t i = 0; i < s->pending.n; i++)
        if (s->pending.placed[i].j)
            TRY(deliver_one(s, &s->pending.placed[i]));
    s->pending.n = 0;
    return PESC_OK;
}
