/* kernel_few: few rows for engines of one element a word, included after kernel_body.h. Lanes are
 * multiplied as they are made, in the order of `tile`. */
INLINE void few_k_last(int n_rows, dtype dt, const mm_tile *t, const mm_side *x, mm_box box)
{
    /* NF4 is bound by arithmetic and wants more sums under way; the rest by memory. */
    const int groups = dt == DT_NF4 && n_rows <= 4 ? GROUPS : 1;
    int64_t row_bytes = bytes_of(dt, x->ld), end = box.i + box.n;
    for (int64_t lane = 0; lane < box.n; lane += groups * VECTOR) {
        source from = source_of(groups, dt, x, box.i + lane, end);
        if (lane + groups * VECTOR < box.n)
            from.next = from.at[0].at[0] + row_bytes * groups * VECTOR;
        const mm_word *rows = t->rows;
        for (int64_t w = 0; w < box.nw; w += t->block, rows += n_rows * MM_K) {
            sink to = { .rows = rows };
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
                to.sum[i][0] = to.sum[i][1] = no_sum();
            mm_box part = { .w = box.w + w, .nw = least(t->block, box.nw - w) };
            make_lanes(n_rows, groups, dt, MM_F32, &from, part, &to);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int g = 0; g < groups; g++)
                    put_sums(t->sums + i * t->ld + lane + g * VECTOR, to.sum[i][g], w > 0);
        }
    }
}

static bool takes(const mm_side *x, mm_words words)
{
    bool rounds = words == MM_BF16_AS_F32 && x->dt != DT_BF16;
    return x->k_last && in_blocks(x) && !rounds;
}

TARGET static void few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box)
{
    (void)words;
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (x->dt == DT_F32)                                                                       \
            few_k_last(n, DT_F32, t, x, box);                                                      \
        else if (x->dt == DT_BF16)                                                                 \
            few_k_last(n, DT_BF16, t, x, box);                                                     \
        else                                                                                       \
            few_k_last(n, DT_NF4, t, x, box);                                                      \
        break;
    switch (t->n_rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
    }
#undef CASE
}

TARGET static void rows(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    rows_any(false, dst, x, words, box);
}

#define ORDERED(kind) .words = kind, .few_words = kind, .nf4_words = kind
#define KERNEL                                                                                     \
    .rows = ROWS, .pack_rows = rows, .pack_lanes = lanes, .tile = tile, .takes = takes,            \
    .pack_few = rows, .few = few, .store = store
