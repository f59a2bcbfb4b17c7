/* Names to fields: every misfit is told at once and by name, and each tensor gets the dtype and the
 * place the options ask for. The tables of weights are made here, without files. */
#include "arch/bind.h"
#include "base/json.h"
#include "base/mem.h"

#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>

static const char tiny[] = "{\"model_type\":\"%s\",\"hidden_size\":8,\"num_hidden_layers\":2,"
                           "\"num_attention_heads\":2,\"intermediate_size\":12,\"vocab_size\":10,"
                           "\"num_local_experts\":3,\"num_experts_per_tok\":2%s}";
static float numbers[4096]; /* what every weight points to */

static void parse(config *c, const char *type, const char *more)
{
    char text[1024];
    json_t *o = NULL;
    snprintf(text, sizeof text, tiny, type, more);
    must(json_parse(&o, text, strlen(text), "test"));
    must(config_read(c, &(config_source){ .json = o, .file = "test" }));
    json_decref(o);
}

/* A full table for the configuration in one dtype, less the tensor called `without`. */
static weights *table(const config *c, dtype dt, const char *without)
{
    weights *ws = NULL;
    must(weights_new(&ws));
    for (slot s = slot_first(); slot_next(c, &s);) {
        weight w = { .name = s.name, .dt = dt, .nd = s.nd, .file = "f" };
        memcpy(w.ne, s.ne, (size_t)s.nd * sizeof *s.ne);
        w.data = (const unsigned char *)numbers;
        w.bytes = (size_t)slot_count(&s) * dtype_block_bytes(dt);
        if (!without || strcmp(without, s.name) != 0)
            must(weights_add(ws, &w));
    }
    return ws;
}

static void add(weights *ws, const char *name, dtype dt, int64_t rows, int64_t cols)
{
    weight w = { .name = name, .dt = dt, .nd = 2, .ne = { rows, cols }, .file = "f" };
    w.data = (const unsigned char *)numbers;
    must(weights_add(ws, &w));
}

static void a_whole_table_fits(void **state)
{
    (void)state;
    static const char *const types[] = { "llama", "mixtral", "qwen2", "qwen3" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        config c;
        parse(&c, types[i], "");
        weights *ws = table(&c, DT_BF16, NULL);
        must(bind_check(&c, ws, "dir"));
        weights_close(ws);
        config_free(&c);
    }
}

static void all_misfits_at_once(void **state)
{
    (void)state;
    config c;
    parse(&c, "llama", "");
    weights *ws = table(&c, DT_F32, "model.norm.weight");
    for (size_t i = 0; i < weights_count(ws); i++) {
        weight *w = weights_edit(ws, i);
        if (strcmp(w->name, "model.layers.0.mlp.up_proj.weight") == 0) {
            w->ne[0] = 8;
            w->ne[1] = 12;
        }
        if (strcmp(w->name, "model.layers.1.self_attn.q_proj.weight") == 0)
            w->dt = DT_I64;
    }
    add(ws, "model.layers.0.self_attn.q_proj.bias", DT_F32, 1, 8);
    add(ws, "model.layers.0.self_attn.rotary_emb.inv_freq", DT_F32, 1, 2); /* harmless */
    must_fail(bind_check(&c, ws, "dir"), PESC_SHAPE,
              "dir: the tensors do not fit the configuration: 1 missing: model.norm.weight; 1 left "
              "over: model.layers.0.self_attn.q_proj.bias; 1 of a wrong shape: "
              "model.layers.0.mlp.up_proj.weight is [8,12], expected [12,8]; 1 not floating point: "
              "model.layers.1.self_attn.q_proj.weight is i64");
    weights_close(ws);
    config_free(&c);
}

static void only_very_long_lists_are_cut(void **state)
{
    (void)state;
    config c;
    parse(&c, "llama", "");
    weights *ws = NULL;
    must(weights_new(&ws));
    must_fail(bind_check(&c, ws, "dir"), PESC_SHAPE, "21 missing: model.embed_tokens.weight,");
    assert_non_null(strstr(pesc_last_error(), "model.layers.1.mlp.down_proj.weight"));
    assert_null(strstr(pesc_last_error(), " more"));
    config_free(&c);
    parse(&c, "mixtral", ",\"num_experts\":null");
    c.n_layers = c.moe.topk.n_experts = 4096; /* 50 million tensors */
    must_fail(bind_check(&c, ws, "dir"), PESC_SHAPE, "10000 or more missing: model.embed");
    assert_non_null(strstr(pesc_last_error(), "more"));
    weights_close(ws);
    config_free(&c);
}

static void tied_embeddings_by_either_name(void **state)
{
    (void)state;
    config c;
    parse(&c, "llama", ",\"tie_word_embeddings\":true");
    weights *ws = table(&c, DT_F32, NULL);
    add(ws, "lm_head.weight", DT_F32, 10, 8); /* both: allowed */
    must(bind_check(&c, ws, "dir"));
    weights_close(ws);
    ws = table(&c, DT_F32, "model.embed_tokens.weight");
    add(ws, "lm_head.weight", DT_F32, 10, 8); /* only the head: it is the embedding */
    must(bind_check(&c, ws, "dir"));
    weights_close(ws);
    config_free(&c);
}

static void dtypes(void **state)
{
    (void)state;
    static const tensor_rule quant = { .flags = RULE_QUANT }, norm = { .flags = RULE_F32 },
                             embed = { 0 };
    device *dev;
    must(backend_open(&dev, "cpu:1"));
    const struct {
        const char *base;
        dtype stored, linear, other;
    } rows[] = {
        { "", DT_F32, DT_F32, DT_F32 },       { "", DT_BF16, DT_BF16, DT_BF16 },
        { "", DT_F16, DT_F32, DT_F32 },       { "", DT_Q4_K, DT_F32, DT_F32 },
        { "", DT_NF4, DT_NF4, DT_F32 },       { "f32", DT_BF16, DT_F32, DT_F32 },
        { "bf16", DT_F32, DT_BF16, DT_BF16 }, { "nf4", DT_BF16, DT_NF4, DT_BF16 },
        { "nf4", DT_F16, DT_NF4, DT_F32 },    { "bf16", DT_NF4, DT_BF16, DT_BF16 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char base = rows[i].base[0];
        holding how = { .dev = dev,
                        .base = !base         ? DT_COUNT
                                : base == 'n' ? DT_NF4
                                : base == 'b' ? DT_BF16
                                              : DT_F32 };
        weight w = { .dt = rows[i].stored };
        assert_int_equal(holding_of(&how, &(slot){ .rule = &quant }, &w).dt, rows[i].linear);
        assert_int_equal(holding_of(&how, &(slot){ .rule = &embed }, &w).dt, rows[i].other);
        assert_int_equal(holding_of(&how, &(slot){ .rule = &norm }, &w).dt, DT_F32);
    }
    pesc_device_close(dev);
}

static bool in_file(const holding *how, const slot *s, const weight *w)
{
    return holding_of(how, s, w).in_file;
}

static void in_place_where_bytes_allow(void **state)
{
    (void)state;
    holding how = { .base = DT_COUNT }, f32 = { .base = DT_F32 };
    must(backend_open(&how.dev, "cpu:1"));
    f32.dev = how.dev;
    static const tensor_rule plain = { 0 }, expert = { .flags = RULE_EXPERT };
    slot s = { .rule = &plain };
    weight w = { .dt = DT_F32, .data = (const unsigned char *)numbers };
    assert_true(in_file(&how, &s, &w));
    w.unpermute_heads = 4;
    assert_false(in_file(&how, &s, &w));
    w.unpermute_heads = 0;
    w.data += 2;
    assert_false(in_file(&how, &s, &w));
    w.dt = DT_BF16;
    assert_true(in_file(&how, &s, &w));
    assert_false(in_file(&f32, &s, &w)); /* another dtype is wanted */
    s.rule = &expert;
    assert_false(in_file(&how, &s, &w));
    s.rule = &plain;
    how.copy = true;
    assert_false(in_file(&how, &s, &w));
    pesc_device_close(how.dev);
}

static void loras_must_stand_on_linears(void **state)
{
    (void)state;
    model_shape m = { 0 };
    parse(&m.cfg, "llama", "");
    m.w.blocks = calloc((size_t)m.cfg.n_layers, sizeof *m.w.blocks);
    weight a = { .dt = DT_F32, .nd = 2, .ne = { 3, 8 } };
    weight b = { .dt = DT_F32, .nd = 2, .ne = { 12, 3 } };
    peft_lora rows[] = {
        { "model.layers.1.mlp.up_proj", &a, &b, 0, 2.0F },
        { "model.layers.1.mlp.down_proj", &a, &b, 0, 1.0F },
        { "model.layers.7.mlp.up_proj", &a, &b, 0, 1.0F },
    };
    peft p = { .dir = (char[]){ "lora" }, .loras = rows, .n = 1 };
    bind_source src = { .lora = &p };
    must(bind_loras(&m, &src));
    assert_int_equal(m.lora_rank, 3);
    assert_non_null(m.w.blocks[1].ffn.up.lora);
    assert_true(m.w.blocks[1].ffn.up.lora->scale == 2);
    assert_null(m.w.blocks[0].ffn.up.lora);
    mem_free(m.loras);
    p.n = 3;
    must_fail(bind_loras(&m, &src), PESC_SHAPE,
              "1 on no linear of this model: model.layers.7.mlp.up_proj; 1 of a shape that does "
              "not fit its linear: model.layers.1.mlp.down_proj");
    mem_free(m.loras);
    free(m.w.blocks);
    config_free(&m.cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_table_fits),
        cmocka_unit_test(all_misfits_at_once),
        cmocka_unit_test(only_very_long_lists_are_cut),
        cmocka_unit_test(tied_embeddings_by_either_name),
        cmocka_unit_test(dtypes),
        cmocka_unit_test(in_place_where_bytes_allow),
        cmocka_unit_test(loras_must_stand_on_linears),
    };
    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
