/* A model in several GGUF files. */
#include "format/gguf.h"
#include "support/check.h"
#include "support/files.h"
#include "support/ggufwire.h"
#include "support/torture.h"

#include <stdio.h>

enum { PARTS = 3, PER_PART = 4, TENSORS = 11 };

static const struct {
    const char *name;
    uint32_t nd;
    uint64_t ne[2];
} tensors[TENSORS] = {
    { "token_embd.weight", 2, { 5, 4 } },   { "blk.0.attn_norm.weight", 1, { 4 } },
    { "blk.0.attn_q.weight", 2, { 4, 4 } }, { "blk.0.attn_k.weight", 2, { 4, 4 } },
    { "blk.0.attn_v.weight", 2, { 4, 4 } }, { "blk.0.attn_output.weight", 2, { 4, 4 } },
    { "blk.0.ffn_norm.weight", 1, { 4 } },  { "blk.0.ffn_gate.weight", 2, { 6, 4 } },
    { "blk.0.ffn_up.weight", 2, { 6, 4 } }, { "blk.0.ffn_down.weight", 2, { 4, 6 } },
    { "output_norm.weight", 1, { 4 } },
};

static const struct {
    const char *key;
    uint32_t value;
} sizes[] = {
    { "llama.context_length", 64 },      { "llama.embedding_length", 4 },
    { "llama.block_count", 1 },          { "llama.feed_forward_length", 6 },
    { "llama.attention.head_count", 1 },
};

/* The split keys of a part; `no` and `count` as a test wants them. */
typedef struct keys {
    uint32_t no, count, total;
} keys;

static void wire_number(str *s, const char *key, uint32_t value)
{
    wire_key(s, key, WIRE_U32);
    wire_u32(s, value);
}

/* Tensors [first, end); element k of tensor i is 100 i + k. */
static const char *put_part(const char *name, keys k, size_t first, size_t end)
{
    str s = { 0 }, data = { 0 };
    float eps = 1e-5f;
    bool whole = first == 0;
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, end - first);
    wire_u64(&s, 3 + (whole ? 2 + sizeof sizes / sizeof *sizes : 0));
    wire_number(&s, "split.no", k.no);
    wire_number(&s, "split.count", k.count);
    wire_number(&s, "split.tensors.count", k.total);
    for (size_t i = 0; whole && i < sizeof sizes / sizeof *sizes; i++)
        wire_number(&s, sizes[i].key, sizes[i].value);
    if (whole) {
        wire_key(&s, "general.architecture", WIRE_STRING);
        wire_text(&s, "llama");
        wire_key(&s, "llama.attention.layer_norm_rms_epsilon", WIRE_F32);
        wire_raw(&s, &eps, sizeof eps);
    }
    for (size_t i = first; i < end; i++) {
        uint64_t n = tensors[i].ne[0] * (tensors[i].nd == 2 ? tensors[i].ne[1] : 1);
        wire_pad(&data, 32);
        wire_tensor(&s, tensors[i].name, tensors[i].nd, tensors[i].ne, 0, data.n);
        for (uint64_t j = 0; j < n; j++) {
            float x = (float)(100 * i + j);
            wire_raw(&data, &x, sizeof x);
        }
    }
    wire_pad(&s, 32);
    str_add(&s, data.p, data.n);
    assert_true(str_ok(&s));
    const char *path = files_put(name, s.p, s.n);
    str_free(&s);
    str_free(&data);
    return path;
}

static void put_all(void)
{
    for (size_t i = 0; i < PARTS; i++) {
        char name[64];
        size_t first = i * PER_PART, end = first + PER_PART;
        snprintf(name, sizeof name, "m-%05zu-of-%05d.gguf", i + 1, PARTS);
        put_part(name, (keys){ (uint32_t)i, PARTS, TENSORS }, first, end < TENSORS ? end : TENSORS);
    }
}

static pesc_status read_all(const char *path, weights **ws)
{
    gguf *g = NULL;
    json_t *config = NULL;
    *ws = NULL;
    pesc_status s = gguf_open(&g, path);
    if (s == PESC_OK)
        s = gguf_config(&config, g);
    if (s == PESC_OK)
        s = gguf_weights(ws, g);
    json_decref(config);
    gguf_close(g);
    return s;
}

static void must_refuse(const char *path, pesc_status status, const char *part)
{
    weights *ws;
    must_fail(read_all(path, &ws), status, part);
    weights_close(ws);
}

#define FIRST "m-00001-of-00003.gguf"

static void joins_the_parts(void **state)
{
    (void)state;
    weights *ws;
    float x;
    put_all();
    must(read_all(files_path(FIRST), &ws));
    assert_int_equal(weights_count(ws), TENSORS);
    assert_int_equal(weights_files(ws), PARTS);
    const weight *down = weights_find(ws, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(down);
    must(weights_read_f32(down, 23, 1, &x));
    assert_true(x == 923.0f);
    assert_non_null(strstr(down->file, "m-00003-of-00003.gguf"));
    must(weights_check(ws));
    weights_close(ws);
}

static void refuses_what_does_not_belong_together(void **state)
{
    (void)state;
    put_all();
    must_refuse(files_path("m-00002-of-00003.gguf"), PESC_UNSUPPORTED,
                "is part 2 of 3 of a split model; give the first part, whose name ends in "
                "-00001-of-00003.gguf");
    must_refuse(put_part("other.gguf", (keys){ 0, PARTS, TENSORS }, 0, 4), PESC_UNSUPPORTED,
                "its name does not end in -00001-of-00003.gguf");
    must_refuse(put_part(FIRST, (keys){ 0, PARTS, TENSORS + 1 }, 0, 4), PESC_FORMAT,
                "split.tensors.count: found 12, but the parts hold 11");
    put_all();
    put_part("m-00003-of-00003.gguf", (keys){ 1, PARTS, TENSORS }, 8, TENSORS);
    must_refuse(files_path(FIRST), PESC_FORMAT,
                "says that it is part 2 of 3 of a split model, expected part 3 of 3");
    put_part("m-00003-of-00003.gguf", (keys){ 2, 4, TENSORS }, 8, TENSORS);
    must_refuse(files_path(FIRST), PESC_FORMAT, "says that it is part 3 of 4");
    put_part("m-00003-of-00003.gguf", (keys){ 2, PARTS, TENSORS }, 7, 10);
    must_refuse(files_path(FIRST), PESC_FORMAT, "is given twice");
    remove(files_path("m-00003-of-00003.gguf"));
    must_refuse(files_path(FIRST), PESC_IO, "m-00003-of-00003.gguf: is missing; ");
    files_text("m-00003-of-00003.gguf", "GGUF");
    must_refuse(files_path(FIRST), PESC_FORMAT, "truncated");
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    put_all();
    torture_gguf_memory(files_path(FIRST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_the_parts),
        cmocka_unit_test(refuses_what_does_not_belong_together),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("gguf_split", tests, NULL, NULL);
}
