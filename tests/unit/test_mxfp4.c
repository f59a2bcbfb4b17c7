/* mxfp4.c; whole models in this format are compared with transformers in golden/test_families. */
#include "format/mxfp4.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/tensors.h"

static pesc_status open_grouped(weights **ws, const test_tensor *t)
{
    must(weights_new(ws));
    must(safetensors_read(*ws, tensors_put("m.safetensors", t, 2)));
    return mxfp4_group(*ws);
}

static pesc_status open_and_read(weights **ws, const test_tensor *t)
{
    float x[64];
    TRY(open_grouped(ws, t));
    return weights_read_f32(weights_at(*ws, 0), 0, 64, x);
}

/* Two blocks: the low half of a byte comes first, and a scale is a power of two. */
static void test_reads_blocks(void **state)
{
    static const unsigned char blocks[32] = { 0x21, 0xf7, [16] = 0x9a, [31] = 0x50 };
    static const unsigned char scales[2] = { 128, 126 };
    const test_tensor t[2] = { { "x_blocks", "U8", 2, 16, blocks, 32 },
                               { "x_scales", "U8", 0, 2, scales, 2 } };
    weights *ws;
    float x[64];
    (void)state;
    must(open_grouped(&ws, t));
    const weight *w = weights_find(ws, "x_blocks");
    assert_int_equal(weights_count(ws), 1);
    assert_true(w->dt == DT_BF16 && w->nd == 1 && w->ne[0] == 64);
    must(weights_read_f32(w, 0, 64, x));
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 12 && x[3] == -12 && x[4] == 0);
    assert_true(x[32] == -0.5F && x[33] == -0.25F && x[62] == 0 && x[63] == 1.5F);
    must(weights_read_f32(w, 33, 1, x));
    assert_true(x[0] == -0.25F);
    weights_close(ws);
}

static void test_refuses(void **state)
{
    static const unsigned char bad_scale[2] = { 127, 255 };
    static const struct {
        test_tensor scales;
        const char *says;
    } rows[] = {
        { { NULL, "U8", 0, 2, NULL, 2 }, "tensor x_blocks: has no x_scales" },
        { { "x_scales", "U8", 0, 3, NULL, 3 }, "expected blocks of 16 bytes with one scale each" },
        { { "x_scales", "I8", 0, 2, NULL, 2 }, "expected blocks of 16 bytes with one scale each" },
        { { "x_scales", "U8", 0, 2, bad_scale, 2 }, "the scale of block 1 is not a number" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const test_tensor t[2] = { { "x_blocks", "U8", 2, 16, NULL, 32 }, rows[i].scales };
        weights *ws;
        must_fail(open_and_read(&ws, t), PESC_FORMAT, rows[i].says);
        weights_close(ws);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_blocks),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
