#include "base/mem.h"
#include "format/gguf.h"
#include "support/check.h"
#include "support/files.h"
#include "support/ggufwire.h"
#include "support/torture.h"

#include <math.h>
#include <stdlib.h>

/* ---- a model small enough to be cut at every byte ---- */

typedef struct entry {
    const char *key;
    uint32_t type;
    double number;
    const char *text; /* of a WIRE_STRING; NULL with WIRE_STRING: leave the key out */
} entry;

typedef struct piece {
    const char *name;
    uint32_t nd;
    uint64_t ne[4];
} piece;

/* What a test changes: entries replace those of the same key or come in addition. */
typedef struct change {
    entry entries[3];
    uint32_t type;       /* of every matrix; 0: F32 */
    size_t without;      /* 1 + the number of a tensor to leave out */
    const piece *pieces; /* instead of the model's own */
    size_t n_pieces;
} change;

static const entry llama_entries[] = {
    { "general.architecture", WIRE_STRING, 0, "llama" },
    { "llama.context_length", WIRE_U32, 64, NULL },
    { "llama.embedding_length", WIRE_U32, 4, NULL },
    { "llama.block_count", WIRE_U32, 1, NULL },
    { "llama.feed_forward_length", WIRE_U32, 6, NULL },
    { "llama.attention.head_count", WIRE_U32, 1, NULL },
    { "llama.attention.layer_norm_rms_epsilon", WIRE_F32, 1e-5, NULL },
};
static const piece llama_pieces[] = {
    { "token_embd.weight", 2, { 5, 4 } },   { "blk.0.attn_norm.weight", 1, { 4 } },
    { "blk.0.attn_q.weight", 2, { 4, 4 } }, { "blk.0.attn_k.weight", 2, { 4, 4 } },
    { "blk.0.attn_v.weight", 2, { 4, 4 } }, { "blk.0.attn_output.weight", 2, { 4, 4 } },
    { "blk.0.ffn_norm.weight", 1, { 4 } },  { "blk.0.ffn_gate.weight", 2, { 6, 4 } },
    { "blk.0.ffn_up.weight", 2, { 6, 4 } }, { "blk.0.ffn_down.weight", 2, { 4, 6 } },
    { "output_norm.weight", 1, { 4 } },
};
enum {
    LLAMA_ENTRIES = sizeof llama_entries / sizeof *llama_entries,
    LLAMA_PIECES = sizeof llama_pieces / sizeof *llama_pieces,
};

static void wire_entry(str *s, const entry *e)
{
    uint32_t u = (uint32_t)(int64_t)e->number;
    float f = (float)e->number;
    wire_key(s, e->key, e->type);
    if (e->type == WIRE_STRING)
        wire_text(s, e->text);
    else if (e->type == WIRE_F32)
        wire_raw(s, &f, sizeof f);
    else
        wire_raw(s, &u, e->type == WIRE_BOOL ? 1 : sizeof u);
}

static uint64_t wire_entries(str *s, const change *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i < LLAMA_ENTRIES; i++) {
        bool replaced = false;
        for (size_t k = 0; k < 3; k++)
            replaced |= c->entries[k].key && strcmp(c->entries[k].key, llama_entries[i].key) == 0;
        if (!replaced) {
            wire_entry(s, &llama_entries[i]);
            n++;
        }
    }
    for (size_t k = 0; k < 3; k++)
        if (c->entries[k].key && (c->entries[k].type != WIRE_STRING || c->entries[k].text)) {
            wire_entry(s, &c->entries[k]);
            n++;
        }
    return n;
}

/* The header's length in *header; elements are 0, 1, 2... in each tensor, as F32. */
static str build(const change *c, size_t *header)
{
    const piece *pieces = c->pieces ? c->pieces : llama_pieces;
    size_t n_pieces = c->pieces ? c->n_pieces : LLAMA_PIECES;
    str entries = { 0 }, infos = { 0 }, data = { 0 }, s = { 0 };
    uint64_t n_entries = wire_entries(&entries, c), n_tensors = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        uint64_t count = 1;
        if (i + 1 == c->without)
            continue;
        for (uint32_t k = 0; k < pieces[i].nd; k++)
            count *= pieces[i].ne[k];
        wire_pad(&data, 32);
        wire_tensor(&infos, pieces[i].name, pieces[i].nd, pieces[i].ne, c->type, data.n);
        for (uint64_t k = 0; k < count; k++) {
            float x = (float)k;
            wire_raw(&data, &x, sizeof x);
        }
        n_tensors++;
    }
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, n_tensors);
    wire_u64(&s, n_entries);
    str_add(&s, entries.p, entries.n);
    if (infos.n)
        str_add(&s, infos.p, infos.n);
    *header = s.n;
    wire_pad(&s, 32);
    if (data.n)
        str_add(&s, data.p, data.n);
    str_free(&entries);
    str_free(&infos);
    str_free(&data);
    assert_true(str_ok(&s));
    return s;
}

/* Opens, translates and reads a file; what the first failing step says. */
static pesc_status read_all(const char *path)
{
    gguf *g = NULL;
    json_t *config = NULL;
    weights *ws = NULL;
    tokenizer *t = NULL;
    pesc_status s = gguf_open(&g, path);
    if (s == PESC_OK)
        s = gguf_config(&config, g);
    if (s == PESC_OK)
        s = gguf_tokenizer(&t, g);
    if (s == PESC_OK)
        s = gguf_weights(&ws, g);
    for (size_t i = 0; s == PESC_OK && i < weights_count(ws); i++) {
        const weight *w = weights_at(ws, i);
        int64_t n = weights_elements(w);
        float *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        s = weights_read_f32(w, 0, n, x);
        free(x);
    }
    json_decref(config);
    tokenizer_close(t);
    gguf_close(g);
    weights_close(ws);
    return s;
}

static pesc_status read_change(const change *c)
{
    size_t header;
    str s = build(c, &header);
    pesc_status status = read_all(files_put("change.gguf", s.p, s.n));
    str_free(&s);
    return status;
}

/* ---- what a file says ---- */

static const char *text_of(const json_t *config, const char *key)
{
    return json_string_value(json_object_get(config, key));
}

static int64_t int_of(const json_t *config, const char *key)
{
    return json_integer_value(json_object_get(config, key));
}

static void open_change(const change *c, json_t **config, weights **ws)
{
    gguf *g;
    size_t header;
    str s = build(c, &header);
    must(gguf_open(&g, files_put("change.gguf", s.p, s.n)));
    must(gguf_config(config, g));
    must(gguf_weights(ws, g));
    gguf_close(g);
    str_free(&s);
}

static void reads_a_llama(void **state)
{
    (void)state;
    json_t *config;
    weights *ws;
    open_change(&(change){ 0 }, &config, &ws);
    assert_string_equal(text_of(config, "model_type"), "llama");
    assert_int_equal(int_of(config, "hidden_size"), 4);
    assert_int_equal(int_of(config, "head_dim"), 4);
    assert_int_equal(int_of(config, "num_key_value_heads"), 1);
    assert_int_equal(int_of(config, "vocab_size"), 5);
    assert_true(json_is_true(json_object_get(config, "tie_word_embeddings")));
    assert_null(json_object_get(config, "eos_token_id"));
    assert_int_equal(weights_count(ws), LLAMA_PIECES);

    /* stored rows 0 1 2 3 are Hugging Face's rows 0 2 1 3 of a head of four */
    float x[16];
    const weight *q = weights_find(ws, "model.layers.0.self_attn.q_proj.weight");
    assert_non_null(q);
    must(weights_read_f32(q, 0, 16, x));
    static const float rows[4] = { 0, 8, 4, 12 };
    for (int i = 0; i < 4; i++)
        assert_true(x[4 * i] == rows[i] && x[4 * i + 3] == rows[i] + 3);
    const weight *down = weights_find(ws, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(down);
    assert_int_equal(down->ne[1], 6);
    assert_int_equal(down->unpermute_heads, 0);
    json_decref(config);
    weights_close(ws);
}

static void unstacks_experts(void **state)
{
    (void)state;
    static const piece pieces[] = {
        { "token_embd.weight", 2, { 5, 4 } },
        { "blk.0.ffn_gate_inp.weight", 2, { 3, 4 } },
        { "blk.0.ffn_gate_exps.weight", 3, { 3, 6, 4 } },
        { "blk.0.ffn_down.1.weight", 2, { 4, 6 } },
        { "blk.0.what_is_this.weight", 1, { 4 } },
        { "rope_freqs.weight", 1, { 2 } },
    };
    change c = { .pieces = pieces,
                 .n_pieces = 5,
                 .entries = { { "llama.expert_count", WIRE_U32, 3, NULL },
                              { "llama.expert_used_count", WIRE_U32, 2, NULL } } };
    json_t *config;
    weights *ws;
    open_change(&c, &config, &ws);
    assert_string_equal(text_of(config, "model_type"), "mixtral");
    assert_int_equal(int_of(config, "num_local_experts"), 3);
    assert_int_equal(weights_count(ws), 7);
    const weight *w = weights_find(ws, "model.layers.0.block_sparse_moe.experts.2.w1.weight");
    float x;
    assert_non_null(w);
    assert_int_equal(w->nd, 2);
    assert_int_equal(w->ne[0], 6);
    must(weights_read_f32(w, 23, 1, &x));
    assert_true(x == 71.0f);
    assert_non_null(weights_find(ws, "model.layers.0.block_sparse_moe.experts.1.w2.weight"));
    assert_non_null(weights_find(ws, "blk.0.what_is_this.weight"));
    json_decref(config);
    weights_close(ws);
}

/* A file may count layers that predict further tokens; they and their tensors are left out. */
static void leaves_out_predicting_layers(void **state)
{
    (void)state;
    piece pieces[LLAMA_PIECES + 2] = { 0 };
    json_t *config;
    weights *ws;
    memcpy(pieces, llama_pieces, sizeof llama_pieces);
    pieces[LLAMA_PIECES] = (piece){ "blk.1.nextn.eh_proj.weight", 2, { 4, 8 } };
    pieces[LLAMA_PIECES + 1] = (piece){ "blk.1.attn_norm.weight", 1, { 4 } };
    open_change(&(change){ .pieces = pieces,
                           .n_pieces = LLAMA_PIECES + 2,
                           .entries = { { "llama.block_count", WIRE_U32, 2, NULL },
                                        { "llama.nextn_predict_layers", WIRE_U32, 1, NULL } } },
                &config, &ws);
    assert_int_equal(int_of(config, "num_hidden_layers"), 1);
    assert_int_equal(weights_count(ws), LLAMA_PIECES);
    json_decref(config);
    weights_close(ws);
}

/* The result of Llama 3's rule for a head of 32: the rule is found again. */
static void finds_the_rule_behind_rope_factors(void **state)
{
    (void)state;
    static const struct {
        double factor, high, old;
    } rules[] = { { 8, 4, 8192 }, { 32, 4, 8192 }, { 4, 6, 700 }, { 16, 8, 1000 } };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        static const piece pieces[] = {
            { "rope_freqs.weight", 1, { 16 } },
            { "token_embd.weight", 2, { 5, 32 } },
        };
        change c = { .pieces = pieces,
                     .n_pieces = 2,
                     .entries = { { "llama.embedding_length", WIRE_U32, 32, NULL },
                                  { "llama.rope.freq_base", WIRE_F32, 500000, NULL } } };
        size_t header;
        str s = build(&c, &header);
        for (int i = 0; i < 16; i++) {
            double wavelength = 2 * 3.141592653589793 * pow(500000, i / 16.0), f = 1;
            if (wavelength > rules[r].old)
                f = rules[r].factor;
            else if (wavelength > rules[r].old / rules[r].high) {
                double smooth = (rules[r].old / wavelength - 1) / (rules[r].high - 1);
                f = 1 / ((1 - smooth) / rules[r].factor + smooth);
            }
            float stored = (float)f;
            memcpy(s.p + (header + 31) / 32 * 32 + 4 * (size_t)i, &stored, 4);
        }
        gguf *g;
        json_t *config;
        must(gguf_open(&g, files_put("rope.gguf", s.p, s.n)));
        must(gguf_config(&config, g));
        const json_t *scaling = json_object_get(config, "rope_scaling");
        assert_string_equal(text_of(scaling, "rope_type"), "llama3");
        assert_int_equal(int_of(scaling, "original_max_position_embeddings"), rules[r].old);
        assert_true(json_real_value(json_object_get(scaling, "factor")) == rules[r].factor);
        assert_true(json_real_value(json_object_get(scaling, "high_freq_factor")) == rules[r].high);
        json_decref(config);
        gguf_close(g);

        float strange = 5; /* no rule gives this one */
        memcpy(s.p + (header + 31) / 32 * 32, &strange, 4);
        must_fail(read_all(files_put("rope.gguf", s.p, s.n)), PESC_UNSUPPORTED, "Llama 3's rule");
        str_free(&s);
    }
}

/* ---- what is refused ---- */

static const struct refusal {
    change c;
    pesc_status status;
    const char *part;
} refusals[] = {
    { { .entries = { { "general.architecture", WIRE_STRING, 0, "rwkv" } } },
      PESC_UNSUPPORTED,
      "general.architecture: is 'rwkv'; pesc reads llama" },
    { { .entries = { { "general.architecture", WIRE_STRING, 0, NULL } } },
      PESC_FORMAT,
      "general.architecture is missing" },
    { { .entries = { { "general.type", WIRE_STRING, 0, "adapter" } } },
      PESC_UNSUPPORTED,
      "general.type: is 'adapter'" },
    { { .entries = { { "general.alignment", WIRE_U32, 0, NULL } } },
      PESC_FORMAT,
      "general.alignment: found 0, expected a power of two" },
    { { .entries = { { "general.alignment", WIRE_U32, 48, NULL } } },
      PESC_FORMAT,
      "general.alignment: found 48, expected a power of two" },
    { { .entries = { { "general.alignment", WIRE_I32, 32, NULL } } },
      PESC_FORMAT,
      "general.alignment: found type i32, expected u32" },
    { { .entries = { { "general.alignment", WIRE_U32, 64, NULL } } },
      PESC_FORMAT,
      "aligned to 64" },
    { { .entries = { { "split.count", WIRE_U32, 0, NULL } } },
      PESC_FORMAT,
      "split.count: found 0" },
    { { .entries = { { "split.count", WIRE_U32, 3, NULL }, { "split.no", WIRE_U32, 1, NULL } } },
      PESC_UNSUPPORTED,
      "is part 2 of 3 of a split model" },
    { { .entries = { { "split.count", WIRE_U32, 3, NULL }, { "split.no", WIRE_U32, 3, NULL } } },
      PESC_FORMAT,
      "split.no: found 3, expected 0 to 2" },
    { { .entries = { { "llama.block_count", WIRE_U32, 0, NULL } } },
      PESC_FORMAT,
      "llama.block_count: found 0, expected 1 to" },
    { { .entries = { { "llama.block_count", WIRE_U32, 4294967295.0, NULL } } },
      PESC_FORMAT,
      "llama.block_count: found 4294967295" },
    { { .entries = { { "llama.block_count", WIRE_U32, 12, NULL } } },
      PESC_FORMAT,
      "found 12 layers, but the file has only 11 tensors" },
    { { .entries = { { "llama.block_count", WIRE_F32, 1, NULL } } },
      PESC_FORMAT,
      "llama.block_count: found type f32, expected an integer" },
    { { .entries = { { "llama.attention.head_count", WIRE_I32, -1, NULL } } },
      PESC_FORMAT,
      "head_count: found -1, expected 1 to" },
    { { .entries = { { "llama.attention.head_count", WIRE_U32, 3, NULL } } },
      PESC_SHAPE,
      "does not divide by 3 heads" },
    { { .entries = { { "llama.attention.head_count", WIRE_U32, 4, NULL } } },
      PESC_UNSUPPORTED,
      "rope.dimension_count: found 1" },
    { { .entries = { { "llama.attention.head_count_kv", WIRE_U32, 3, NULL } } },
      PESC_SHAPE,
      "attn_k.weight has 4 rows, expected a multiple of 2 x 3 heads" },
    { { .entries = { { "llama.rope.dimension_count", WIRE_U32, 2, NULL } } },
      PESC_UNSUPPORTED,
      "rope.dimension_count: found 2, expected 4" },
    { { .entries = { { "llama.rope.freq_base", WIRE_F32, 0, NULL } } },
      PESC_FORMAT,
      "rope.freq_base: found 0, expected more than 0" },
    { { .entries = { { "llama.rope.scaling.type", WIRE_STRING, 0, "longrope" } } },
      PESC_UNSUPPORTED,
      "rope.scaling.type: found 'longrope'" },
    { { .entries = { { "llama.attention.layer_norm_rms_epsilon", WIRE_F32, 1e39, NULL } } },
      PESC_FORMAT,
      "rms_epsilon: is not a finite number" },
    { { .entries = { { "llama.expert_count", WIRE_U32, 2, NULL },
                     { "llama.expert_used_count", WIRE_U32, 3, NULL } } },
      PESC_FORMAT,
      "expert_used_count: found 3, expected 1 to 2" },
    { { .entries = { { "tokenizer.ggml.eos_token_id", WIRE_U32, 5, NULL } } },
      PESC_FORMAT,
      "eos_token_id: found 5, expected 0 to 4" },
    { { .entries = { { "tokenizer.ggml.model", WIRE_STRING, 0, "llama" } } },
      PESC_FORMAT,
      "tokenizer.ggml.tokens: found 0 tokens" },
    { { .entries = { { "x", WIRE_BOOL, 2, NULL } } },
      PESC_FORMAT,
      "x is the bool 2, expected 0 or 1" },
    { { .without = 1 }, PESC_SHAPE, "token_embd.weight is missing" },
    { { .type = 16 }, PESC_UNSUPPORTED, "token_embd.weight is IQ2_XXS; pesc reads F32" },
    { { .type = 4 }, PESC_FORMAT, "token_embd.weight has the unknown type 4" },
    { { .type = 8 }, PESC_FORMAT, "rows of 4 elements, expected a multiple of 32 for q8_0" },
    { { .type = 1 }, PESC_FORMAT, "blk.0.attn_norm.weight is at offset 96, expected 64" },
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        must_fail(read_change(&refusals[i].c), refusals[i].status, refusals[i].part);
}

static void refuses_names_given_twice(void **state)
{
    (void)state;
    static const piece twice[] = {
        { "token_embd.weight", 2, { 5, 4 } },
        { "blk.0.attn_norm.weight", 1, { 4 } },
        { "blk.0.attn_norm.weight", 1, { 4 } },
    };
    must_fail(read_change(&(change){ .pieces = twice, .n_pieces = 3 }), PESC_FORMAT,
              "input_layernorm.weight: is given twice");
    change c = { .entries = { { "x", WIRE_U32, 1, NULL }, { "x", WIRE_U32, 1, NULL } } };
    must_fail(read_change(&c), PESC_FORMAT, "metadata key x is given twice");
}

/* Every shorter file lacks something, and says so. */
static void refuses_every_truncation(void **state)
{
    (void)state;
    size_t header;
    str s = build(&(change){ 0 }, &header);
    must(read_all(files_put("whole.gguf", s.p, s.n)));
    torture_cuts("cut.gguf", s.p, s.n, read_all);
    str_free(&s);
}

/* A flipped bit may still give a model; it must never give a crash, nor a failure without words. */
static void survives_every_flipped_bit(void **state)
{
    (void)state;
    size_t header;
    str s = build(&(change){ 0 }, &header);
    assert_true(torture_flips("flip.gguf", s.p, s.n, 0, header, read_all) > 4 * header);
    str_free(&s);
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    change c = { .entries = {
                     { "llama.rope.scaling.type", WIRE_STRING, 0, "yarn" },
                     { "llama.rope.scaling.original_context_length", WIRE_U32, 8, NULL } } };
    size_t header;
    str s = build(&c, &header);
    const char *path = files_put("memory.gguf", s.p, s.n);
    str_free(&s);
    torture_gguf_memory(path);
    /* jansson is given a second try at the memory: a configuration fails, or is right all the same
     */
    bool fired = true;
    for (uint64_t n = 1; fired; n++) {
        mem_fail_at(n);
        pesc_status got = read_all(path);
        fired = mem_fail_fired();
        mem_fail_at(0);
        assert_true(got == PESC_OK || (fired && got == PESC_NOMEM));
    }
}

/* Lengths and counts that wrap, or promise more than the file has. */
static void refuses_wild_numbers(void **state)
{
    (void)state;
    static const uint64_t wild[] = { 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 3,
                                     1000000000 };
    size_t header;
    str s = build(&(change){ 0 }, &header);
    for (size_t k = 0; k < sizeof wild / sizeof *wild; k++)
        for (size_t at = 8; at + 8 <= header; at++) {
            char kept[8];
            memcpy(kept, s.p + at, 8);
            memcpy(s.p + at, &wild[k], 8);
            pesc_status got = read_all(files_put("wild.gguf", s.p, s.n));
            if (got == PESC_NOMEM || (at <= 16 && at % 8 == 0 && got != PESC_FORMAT))
                fail_msg("0x%llx at byte %zu: %s", (unsigned long long)wild[k], at,
                         pesc_last_error());
            memcpy(s.p + at, kept, 8);
        }
    str_free(&s);
}

static void refuses_wild_counts_before_reading_on(void **state)
{
    (void)state;
    str s = { 0 };
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, 0);
    wire_u64(&s, 1000);
    wire_array(&s, "x", WIRE_U32, 1ull << 40);
    must_fail(
        read_all(files_put("count.gguf", s.p, s.n)), PESC_FORMAT,
        "byte 16: the number of metadata entries is 1000, but the 25 bytes left hold at most 1");
    s.p[16] = 1;
    s.p[17] = 0;
    must_fail(read_all(files_put("count.gguf", s.p, s.n)), PESC_FORMAT,
              "x declares 1099511627776 elements of type u32");
    str_free(&s);
}

static void refuses_wild_shapes(void **state)
{
    (void)state;
    static const struct {
        uint64_t ne[4];
        const char *part;
    } rows[] = {
        { { 1ull << 32, 1ull << 32, 4, 4 }, "has more than 2^63-1 elements" },
        { { 1, 1, 4, 1ull << 61 }, "has more than 2^63-1 elements" },
        { { 1, 1, 1, 1ull << 62 }, "has more bytes than memory has addresses" },
        { { 1, 1, 1, (1ull << 62) - 1 }, "ends beyond what memory can address" },
        { { 1, 1, 0, 1ull << 40 }, "dimension 1 of tensor t is 0" },
        { { 1, UINT64_MAX, 1, 1 }, "dimension 2 of tensor t is 18446744073709551615" },
        { { 1, 1, 1, 1ull << 50 }, "tensor t needs 4503599627370496 bytes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str s = { 0 };
        str_puts(&s, "GGUF");
        wire_u32(&s, 3);
        wire_u64(&s, 1);
        wire_u64(&s, 0);
        wire_tensor(&s, "t", 4, rows[i].ne, 0, 0);
        wire_pad(&s, 64);
        must_fail(read_all(files_put("shape.gguf", s.p, s.n)), PESC_FORMAT, rows[i].part);
        str_free(&s);
    }
}

static void refuses_deep_arrays_at_once(void **state)
{
    (void)state;
    str s = { 0 };
    str_puts(&s, "GGUF");
    wire_u32(&s, 3);
    wire_u64(&s, 0);
    wire_u64(&s, 1);
    wire_array(&s, "deep", WIRE_ARRAY, 1);
    for (int i = 0; i < 1000000; i++) {
        wire_u32(&s, WIRE_ARRAY);
        wire_u64(&s, 1);
    }
    must_fail(read_all(files_put("deep.gguf", s.p, s.n)), PESC_UNSUPPORTED,
              "deep is an array of arrays");
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_llama),
        cmocka_unit_test(unstacks_experts),
        cmocka_unit_test(leaves_out_predicting_layers),
        cmocka_unit_test(finds_the_rule_behind_rope_factors),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_names_given_twice),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(survives_every_flipped_bit),
        cmocka_unit_test(survives_every_failed_allocation),
        cmocka_unit_test(refuses_wild_numbers),
        cmocka_unit_test(refuses_wild_counts_before_reading_on),
        cmocka_unit_test(refuses_wild_shapes),
        cmocka_unit_test(refuses_deep_arrays_at_once),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
