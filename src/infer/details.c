/* Log-probabilities of tokens for requests that want to know them. The device computes all of them
 * by the same operation, so that a token has the same value among the most likely ones as alone. */
#include "infer/scheduler_state.h"

/* The n largest logits into s->top; ties: the lowest id first. */
static void find_top(scheduler *s, int32_t n)
{
    int32_t have = 0;
    for (int32_t id = 0; id < s->m->shape.cfg.vocab; id++) {
        float x = s->logits[id];
        if (have == n && x <= s->top[n - 1].logprob)
            continue;
        int32_t at = have < n ? have++ : n - 1;
        for (; at > 0 && x > s->top[at - 1].logprob; at--)
            s->top[at] = s->top[at - 1];
        s->top[at] = (sched_choice){ id, x };
    }
}

pesc_status scheduler_ask_details(scheduler *s, const job *j, int32_t row, int32_t token)
{
    row_scores *to = &s->now.details;
    TRY(rowscores_add(to, row, token, NULL));
    if (j->r.n_top == 0 && !j->r.rank)
        return PESC_OK;
    TRY(scheduler_download_row(s, row));
    for (int32_t id = 0; j->r.rank && id < s->m->shape.cfg.vocab; id++)
        to->all[to->n - 1].rank += s->logits[id] >= s->logits[token];
    if (j->r.n_top > 0)
        find_top(s, j->r.n_top);
    for (int32_t i = 0; i < j->r.n_top; i++)
        TRY(rowscores_add(to, row, s->top[i].id, NULL));
    return PESC_OK;
}

pesc_status scheduler_deliver_details(scheduler *s, job *j, size_t at, size_t *n)
{
    const row_score *a = s->pending.details.all + at;
    for (int32_t i = 0; i < j->r.n_top; i++)
        s->top[i] = (sched_choice){ a[i + 1].token, a[i + 1].logprob };
    bool prompt = j->prompt_delivered < j->r.n && j->r.first;
    sched_row r = { .at = prompt ? j->prompt_delivered++ : j->r.n + j->delivered,
                    .token = { a->token, a->logprob },
                    .top = s->top,
                    .n_top = j->r.n_top,
                    .rank = a->rank };
    *n = 1 + (size_t)j->r.n_top;
    return j->r.row(j->r.ud, &r);
}
