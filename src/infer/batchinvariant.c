#include "infer/scheduler_state.h"

enum {
    ROWS = 64,  /* rows of a forward are a multiple of it, as the tiles of products are */
    PIECE = 3,  /* tokens of a prompt for which there is always room: two, or three at its end */
    FILLING = 2 /* at least: one alone could make the forward one of single rows only */
};

int32_t batchinvariant_rows(int32_t slots)
{
    return (slots + PIECE + FILLING + ROWS - 1) / ROWS * ROWS;
}

int32_t batchinvariant_tokens(const scheduler *s)
{
    return s->same_rows - FILLING;
}

/* Tokens that are fed in pieces. */
static int32_t prompt_end(const job *j)
{
    return job_is_score(j) ? job_feed_end(j) : j->r.n - 1;
}

int32_t batchinvariant_piece(const job *j, int32_t room)
{
    int32_t left = prompt_end(j) - j->fed;
    if (left <= 1) /* one: a prompt of two tokens */
        return min_i32(1, room);
    int32_t n = min_i32(left, room);
    n -= left - n == 1;
    return n < 2 ? 0 : n;
}

int32_t batchinvariant_found(const job *j, int32_t n)
{
    int32_t pages = min_i32(n, prompt_end(j)) / KV_PAGE_TOKENS;
    if (pages && prompt_end(j) - pages * KV_PAGE_TOKENS == 1)
        pages--; /* a single token would be left of the prompt */
    return pages * KV_PAGE_TOKENS;
}

int32_t batchinvariant_cacheable(const job *j, int32_t n)
{
    return min_i32(n, prompt_end(j)) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

pesc_status batchinvariant_reserve(scheduler *s)
{
    kvcache_truncate(s->kv, s->n_slots, 0);
    return kvcache_reserve(s->kv, s->n_slots, s->same_rows);
}

void batchinvariant_fill(scheduler *s)
{
    s->seqs[s->now.n] =
        (token_seq){ .ids = s->filling, .n = s->same_rows - s->n_tokens, .kv_seq = s->n_slots };
    for (int32_t i = 0; i < s->same_rows; i++)
        s->rows[i] = i;
}
