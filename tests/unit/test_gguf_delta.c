/* The order of the rows of a gated delta net in GGUF files, against the steps that llama.cpp's
 * converter takes, written out. */
#include "format/gguf_delta.h"
#include "support/check.h"

enum { MOST = 512 };

static const gguf_delta nets[] = {
    { 2, 6, 3, 5 }, { 3, 6, 4, 2 }, { 4, 12, 1, 1 },
    { 1, 5, 2, 3 }, { 5, 5, 3, 3 }, { 2, 4, 8, 12 },
};
enum { NETS = sizeof nets / sizeof *nets };

/* The order of 2 key heads with 3 values each is no inverse of its own: so one that goes the wrong
 * way is seen. */
static void two_keys_of_three_values(void **state)
{
    (void)state;
    static const int64_t want[] = { 0, 3, 1, 4, 2, 5 };
    const gguf_delta d = { 2, 6, 1, 1 };
    assert_int_equal(gguf_delta_count(&d, DELTA_ROWS_HEADS), 6);
    for (int64_t i = 0; i < 6; i++)
        assert_int_equal(gguf_delta_tiled(&d, DELTA_ROWS_HEADS, i), want[i]);
}

/* reshape(keys, values of a key, each), then the first two exchanged. */
static int64_t exchanged(const gguf_delta *d, int64_t first, int64_t each, int64_t *out)
{
    int64_t n = 0;
    for (int64_t value = 0; value < d->v_heads / d->k_heads; value++)
        for (int64_t key = 0; key < d->k_heads; key++)
            for (int64_t row = 0; row < each; row++)
                out[n++] = first + (key * (d->v_heads / d->k_heads) + value) * each + row;
    return n;
}

static void check_tiled(const gguf_delta *d, delta_rows rows, int64_t before, int64_t each)
{
    int64_t want[MOST];
    for (int64_t i = 0; i < before; i++)
        want[i] = i;
    const int64_t n = before + exchanged(d, before, each, want + before);
    assert_int_equal(gguf_delta_count(d, rows), n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(gguf_delta_tiled(d, rows, i), want[i]);
}

static void values_are_as_many_heads_apart_as_there_are_keys(void **state)
{
    (void)state;
    for (int i = 0; i < NETS; i++) {
        const gguf_delta *d = &nets[i];
        check_tiled(d, DELTA_ROWS_HEADS, 0, 1);
        check_tiled(d, DELTA_ROWS_VALUES, 0, d->v_dim);
        check_tiled(d, DELTA_ROWS_QKV, 2 * d->k_heads * d->k_dim, d->v_dim);
    }
}

/* view(keys, q + k + v + z of a key), split in four, each flat again; then q, k and v joined. */
static void parts_of_each_key_are_put_together(void **state)
{
    (void)state;
    for (int i = 0; i < NETS; i++) {
        const gguf_delta *d = &nets[i];
        const int64_t values = d->v_heads / d->k_heads * d->v_dim;
        const int64_t widths[] = { d->k_dim, d->k_dim, values, values };
        int64_t n = 0;
        for (int64_t part = 0, before = 0; part < 4; before += widths[part++])
            for (int64_t key = 0; key < d->k_heads; key++)
                for (int64_t row = 0; row < widths[part]; row++, n++)
                    assert_int_equal(gguf_delta_grouped(d, n),
                                     key * 2 * (d->k_dim + values) + before + row);
        assert_int_equal(n, gguf_delta_count(d, DELTA_ROWS_QKV) +
                                gguf_delta_count(d, DELTA_ROWS_VALUES));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_keys_of_three_values),
        cmocka_unit_test(values_are_as_many_heads_apart_as_there_are_keys),
        cmocka_unit_test(parts_of_each_key_are_put_together),
    };
    return cmocka_run_group_tests_name("gguf_delta", tests, NULL, NULL);
}
