/* weights.c and weights_read.c. Expected numbers are worked out here, from the formats'
 * definitions. */
#include "base/mem.h"
#include "format/weights.h"
#include "support/check.h"
#include "tensor/nf4.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static weight named(const char *name)
{
    return (weight){ .name = name, .file = "a.safetensors", .dt = DT_F32, .nd = 1, .ne = { 1 } };
}

static pesc_status add(weights *ws, const char *name)
{
    weight w = named(name);
    return weights_add(ws, &w);
}

static void test_finds_by_name(void **state)
{
    weights *ws = NULL;
    (void)state;
    must(weights_new(&ws));
    for (int i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.weight", i);
        weight w = named(name);
        w.bytes = 2;
        w.ne[0] = i;
        must(weights_add(ws, &w));
    }
    assert_int_equal(weights_count(ws), 1000);
    assert_int_equal(weights_bytes(ws), 2000);
    assert_int_equal(weights_find(ws, "layers.777.weight")->ne[0], 777);
    assert_string_equal(weights_at(ws, 5)->name, "layers.5.weight");
    assert_null(weights_find(ws, "layers.1000.weight"));
    must_fail(add(ws, "layers.3.weight"), PESC_FORMAT,
              "a.safetensors: tensor layers.3.weight: is given twice, first in a.safetensors");
    weights_close(ws);
}

static void test_writes_names_one_way(void **state)
{
    static const char *const rows[][2] = {
        { "base_model.model.model.layers.0.mlp.moe_adapter.router.weight",
          "model.layers.0.mlp.moe_adapter.router.weight" },
        { "model.layers.1.mlp.moe_adapter.experts.12.adapter_up.weight",
          "model.layers.1.mlp.moe_adapter.experts.expert_12.adapter_up.weight" },
        { "model.layers.1.mlp.moe_adapter.experts.expert_3.adapter_up.weight",
          "model.layers.1.mlp.moe_adapter.experts.expert_3.adapter_up.weight" },
        { "base_model.model.model.layers.2.mlp.moe_adapter.experts.4.adapter_down.weight",
          "model.layers.2.mlp.moe_adapter.experts.expert_4.adapter_down.weight" },
        { "model.layers.0.mlp.experts.3.up_proj.weight",
          "model.layers.0.mlp.experts.3.up_proj.weight" },
        { "", "" },
    };
    weights *ws = NULL;
    (void)state;
    must(weights_new(&ws));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        must(add(ws, rows[i][0]));
        assert_string_equal(weights_at(ws, i)->name, rows[i][1]);
        assert_ptr_equal(weights_find_raw(ws, rows[i][0]), weights_at(ws, i));
    }
    must_fail(add(ws, "model.layers.1.mlp.moe_adapter.experts.expert_12.adapter_up.weight"),
              PESC_FORMAT, "is given twice");
    char longest[WEIGHTS_MAX_NAME + 2];
    memset(longest, 'x', sizeof longest);
    longest[WEIGHTS_MAX_NAME + 1] = '\0';
    must_fail(add(ws, longest), PESC_FORMAT, "its name has 513 bytes, expected at most 512");
    longest[WEIGHTS_MAX_NAME] = '\0';
    must(add(ws, longest));
    weights_close(ws);
}

static void test_drops(void **state)
{
    weights *ws = NULL;
    (void)state;
    must(weights_new(&ws));
    must(add(ws, "a"));
    must(add(ws, "b"));
    must(add(ws, "c"));
    weights_drop(ws, (const unsigned char[]){ 0, 1, 0 });
    assert_int_equal(weights_count(ws), 2);
    assert_string_equal(weights_at(ws, 1)->name, "c");
    assert_ptr_equal(weights_find(ws, "c"), weights_at(ws, 1));
    assert_null(weights_find(ws, "b"));
    weights_close(ws);
}

static void test_limits_the_number(void **state)
{
    weights *ws = NULL;
    char name[32];
    (void)state;
    must(weights_new(&ws));
    for (int i = 0; i < WEIGHTS_MAX; i++) {
        snprintf(name, sizeof name, "%d", i);
        must(add(ws, name));
    }
    must_fail(add(ws, "x"), PESC_FORMAT, "more than 262144 tensors");
    weights_close(ws);
}

/* ---- numbers ---- */

static weight over(dtype dt, const void *data, size_t bytes, int64_t n)
{
    return (weight){
        .name = "w", .file = "f", .dt = dt, .nd = 1, .ne = { n }, .data = data, .bytes = bytes
    };
}

/* Each stored at an odd address, as in a file with an odd header. */
#define EXPECT(dt, type, stored, ...)                                                              \
    do {                                                                                           \
        const type in[] = stored;                                                                  \
        const float want[] = __VA_ARGS__;                                                          \
        enum { N = sizeof in / sizeof *in };                                                       \
        unsigned char odd[sizeof in + 1];                                                          \
        float got[N];                                                                              \
        memcpy(odd + 1, in, sizeof in);                                                            \
        weight w = over(dt, odd + 1, sizeof in, N);                                                \
        must(weights_read_f32(&w, 0, N, got));                                                     \
        assert_memory_equal(got, want, sizeof want);                                               \
        must(weights_read_f32(&w, N - 1, 1, got));                                                 \
        assert_memory_equal(got, &want[N - 1], sizeof *want);                                      \
    } while (0)
#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void test_reads_every_plain_dtype(void **state)
{
    (void)state;
    EXPECT(DT_F32, float, LIST(1.5f, -0.0f, 1e-40f), { 1.5f, -0.0f, 1e-40f });
    EXPECT(DT_F64, double, LIST(0.1, -2.0), { 0.1f, -2.0f });
    EXPECT(DT_BF16, uint16_t, LIST(0x3F80, 0xC040, 0x0001), { 1.0f, -3.0f, 0x1p-133f });
    EXPECT(DT_F16, uint16_t, LIST(0x3C00, 0xC100, 0x0001, 0x7BFF),
           { 1.0f, -2.5f, 0x1p-24f, 65504.0f });
    EXPECT(DT_I8, int8_t, LIST(-128, 127), { -128.0f, 127.0f });
    EXPECT(DT_U8, uint8_t, LIST(0, 255), { 0.0f, 255.0f });
    EXPECT(DT_BOOL, uint8_t, LIST(0, 1), { 0.0f, 1.0f });
    EXPECT(DT_I16, int16_t, LIST(-32768, 5), { -32768.0f, 5.0f });
    EXPECT(DT_I32, int32_t, LIST(-7, 1 << 30), { -7.0f, 1073741824.0f });
    EXPECT(DT_I64, int64_t, LIST(-7, 1LL << 40), { -7.0f, 1099511627776.0f });
    weight none = over(DT_F32, NULL, 0, 0);
    must(weights_read_f32(&none, 0, 0, NULL));
}

/* Q8_0: an f16 scale, then 32 signed bytes. */
static void test_reads_blocks_from_anywhere(void **state)
{
    enum { BLOCKS = 3, N = BLOCKS * 32 };
    unsigned char data[BLOCKS * 34];
    float want[N], got[N];
    static const uint16_t scale[BLOCKS] = { 0x3C00, 0x3800, 0x4000 }; /* 1, 0.5, 2 */
    static const float value[BLOCKS] = { 1, 0.5f, 2 };
    (void)state;
    for (int b = 0; b < BLOCKS; b++) {
        memcpy(data + b * 34, &scale[b], 2);
        for (int i = 0; i < 32; i++) {
            data[b * 34 + 2 + i] = (unsigned char)(i * 7 - 100);
            want[b * 32 + i] = value[b] * (float)(int8_t)(i * 7 - 100);
        }
    }
    weight w = over(DT_Q8_0, data, sizeof data, N);
    for (int64_t first = 0; first < N; first++)
        for (int64_t n = 1; n <= N - first; n++) {
            must(weights_read_f32(&w, first, n, got));
            assert_memory_equal(got, want + first, (size_t)n * sizeof *got);
        }
    data[1] = 0x7C; /* infinity */
    data[0] = 0;
    must_fail(weights_read_f32(&w, 0, 1, got), PESC_FORMAT,
              "f: tensor w: a q8_0 block has a scale that is not finite");
}

/* llama.cpp's converter: w.reshape(heads, 2, half, cols).swapaxes(1, 2). */
static void test_unpermutes_rows(void **state)
{
    enum { HEADS = 3, HALF = 4, COLS = 5, ROWS = HEADS * 2 * HALF };
    float hf[ROWS][COLS], gguf[HEADS][HALF][2][COLS], got[ROWS * COLS];
    (void)state;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            hf[r][c] = (float)(r * 100 + c);
    for (int h = 0; h < HEADS; h++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < HALF; i++)
                memcpy(gguf[h][i][j], hf[(h * 2 + j) * HALF + i], sizeof hf[0]);
    weight w = { .name = "q",
                 .file = "f",
                 .dt = DT_F32,
                 .nd = 2,
                 .ne = { ROWS, COLS },
                 .data = (const unsigned char *)gguf,
                 .bytes = sizeof gguf,
                 .unpermute_heads = HEADS };
    must(weights_read_f32(&w, 0, ROWS * COLS, got));
    assert_memory_equal(got, hf, sizeof hf);
    must(weights_read_f32(&w, 7, 20, got)); /* from the middle of a row */
    assert_memory_equal(got, &hf[0][0] + 7, 20 * sizeof *got);
}

static void test_reads_nf4(void **state)
{
    enum { N = 150, BLOCKS = 3 };
    unsigned char codes[N / 2], span[4096];
    float absmax[BLOCKS] = { 2, 0.25f, 8 }, got[N], again[N];
    (void)state;
    for (int i = 0; i < N / 2; i++)
        codes[i] = (unsigned char)(i * 37);
    bnb_scales scales = { .block = 64, .absmax = (const unsigned char *)absmax };
    weight w = over(DT_NF4, codes, sizeof codes, N);
    w.scales = &scales;
    must(weights_read_f32(&w, 0, N, got));
    for (int i = 0; i < N; i++) {
        int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
        assert_true(got[i] == nf4_code[code] * absmax[i / 64]);
    }
    must(weights_read_f32(&w, 61, 10, again));
    assert_memory_equal(again, got + 61, 10 * sizeof *got);
    memset(span, 0xAA, sizeof span);
    must(weights_read_nf4(&w, span));
    nf4_dequantize(again, span, N, 0, N);
    assert_memory_equal(again, got, sizeof got);
    absmax[1] = NAN;
    must_fail(weights_read_nf4(&w, span), PESC_FORMAT, "the absmax of block 1 is nan");
    must_fail(weights_read_f32(&w, 100, 1, got), PESC_FORMAT, "tensor w: the absmax of block 1");
    must(weights_read_f32(&w, 0, 64, got));
}

/* One scale for 128 elements, itself an 8-bit code. */
static void test_reads_nested_scales(void **state)
{
    enum { N = 512 };
    unsigned char codes[N / 2], absmax[N / 128] = { 0, 1, 2, 255 };
    float nested[2] = { 10, 100 }, got[N];
    (void)state;
    memset(codes, 0xFF, sizeof codes); /* code 15 is 1 */
    bnb_scales scales = { .block = 128,
                          .nested_block = 2,
                          .absmax = absmax,
                          .nested_absmax = (const unsigned char *)nested,
                          .nested_map = { [0] = -1, [1] = 0.5f, [2] = 0.25f, [255] = 1 },
                          .offset = 3 };
    weight w = over(DT_NF4, codes, sizeof codes, N);
    w.scales = &scales;
    must(weights_read_f32(&w, 0, N, got));
    assert_true(got[0] == -7 && got[127] == -7 && got[128] == 8 && got[256] == 28 &&
                got[511] == 103);
    float span[N / 8 + N / 64];
    must(weights_read_nf4(&w, span));
    float *s = nf4_scales(span, N);
    assert_true(s[0] == -7 && s[1] == -7 && s[2] == 8 && s[7] == 103);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_by_name),
        cmocka_unit_test(test_writes_names_one_way),
        cmocka_unit_test(test_drops),
        cmocka_unit_test(test_limits_the_number),
        cmocka_unit_test(test_reads_every_plain_dtype),
        cmocka_unit_test(test_reads_blocks_from_anywhere),
        cmocka_unit_test(test_unpermutes_rows),
        cmocka_unit_test(test_reads_nf4),
        cmocka_unit_test(test_reads_nested_scales),
    };
    return cmocka_run_group_tests_name("weights", tests, NULL, NULL);
}
