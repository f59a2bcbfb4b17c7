/* What comes of a forward: the next tokens, and how requests get it. */
#include "infer/scheduler_state.h"

/* ---- after a forward ---- */

/* Whether the forward has computed the next token of the request. */
static bool generates(const placed *p)
{
    return p->j && p->n && !job_is_score(p->j) && p->j->fed == job_feed_end(p->j);
}

/* The next tokens of the jobs that generate; the scores of these rows come last. */
static pesc_status choose_tokens(scheduler *s)
{
    size_t n = 0, at = 0;
    results *now = &s->now;
    for (int32_t i = 0; i < now->n; i++) {
        placed *p = &now->placed[i];
        p->j->fed += s->seqs[i].n;
        if (p->j->state == JOB_OVER)
            p->j = NULL;
        p->chosen = -1;
        p->ended = false;
        if (!generates(p))
            continue;
        const job *j = p->j;
        const row_score *a = now->scores.all + p->first + p->n - 1;
        p->chosen = a->best;
        if (!j->on_device)
            s->draws[n++] = (sampling_row){ .row = a->row,
                                            .opt = &j->sample,
                                            .terms = j->r.terms,
                                            .seen = j->ids.ids,
                                            .n_seen = j->ids.n,
                                            .step = (uint64_t)job_generated(j) };
    }
    if (n)
        TRY(sampling_draw(s->sampling, s->head, s->draws, n));
    for (int32_t i = 0; i < now->n; i++)
        if (now->placed[i].chosen >= 0 && !now->placed[i].j->on_device) {
            placed *p = &now->placed[i];
            p->chosen = s->draws[at++].id;
            p->ended = p->chosen < 0;
            p->n -= p->ended; /* its last row is not delivered */
        }
    return PESC_OK;
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
    } else if (p->chosen >= 0) {
        TRY(id_list_add(&j->ids, p->chosen));
        p->complete = job_generated(j) >= j->r.max_tokens || j->ids.n >= (size_t)s->context;
    } else {
        p->complete = p->ended;
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
    now->details.n = 0;
    for (int32_t i = 0; i < now->n; i++) { /* of rows whose requests want them */
        placed *p = &now->placed[i];
        const row_score *a = now->scores.all + p->first;
        p->details = now->details.n;
        size_t scored = p->chosen < 0 ? p->n : p->n - 1;
        for (size_t k = 0; p->j && p->j->r.row && k < p->n; k++)
            TRY(scheduler_ask_details(s, p->j, a[k].row, k < scored ? a[k].token : p->chosen));
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
                           .n = j->delivered };
        s->count.requested += j->ids.n - 1;
        TRY(j->r.done(j->r.ud, &r));
    }
    return PESC_OK;
}

/* Rows, then the token, then the end. */
static pesc_status deliver_one(scheduler *s, placed *p)
{
    bool more = !p->ended; /* false: its callback ends the request, or no token may follow */
    job *j = p->j;
    pesc_status st = PESC_OK;
    size_t at = p->details, n = 0;
    for (size_t k = 0; st == PESC_OK && j->r.row && k < p->n; k++, at += n)
        st = scheduler_deliver_details(s, j, at, &n);
    if (st == PESC_OK && p->chosen >= 0) {
        j->delivered++;
        st = j->r.token ? j->r.token(j->r.ud, p->chosen, &more) : PESC_OK;
    }
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
