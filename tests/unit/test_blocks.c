/* A GGUF whose weights stay in the file's blocks: the model computes what it computes with the same
 * weights unpacked to f32, and damaged blocks are refused when it is opened. */
#include "arch/bind.h"
#include "base/mem.h"
#include "model/forward.h"
#include "train/params.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "tensor/quants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 9, VOCAB = 67 };
static const int32_t ids[N] = { 1, 5, 9, 22, 3, 7, 8, 30, 2 };

#define COMMON                                                                                     \
    "\"hidden_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                       \
    "\"num_key_value_heads\":2,\"intermediate_size\":512,\"vocab_size\":67,"                       \
    "\"max_position_embeddings\":64"
#define LLAMA "{\"model_type\":\"llama\"," COMMON "}"
#define TIED "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," COMMON "}"
#define MIXTRAL                                                                                    \
    "{\"model_type\":\"mixtral\",\"num_local_experts\":3,\"num_experts_per_tok\":2," COMMON "}"

static pesc_device *dev;

/* A GGUF of random weights. */
static const char *make(const char *name, const char *json, const char *type)
{
    static char file[512];
    char folder[64], shape[64], path[512];
    snprintf(folder, sizeof folder, "%s-hf", name);
    snprintf(shape, sizeof shape, "%s.json", name);
    snprintf(path, sizeof path, "%s", files_path(folder));
    must(pesc_new(files_text(shape, json), path, NULL, "f32", 3, NULL));
    pesc_export_options e = pesc_export_defaults();
    e.dtype = type;
    e.check = false;
    snprintf(file, sizeof file, "%s.gguf", files_path(name));
    must(pesc_export(dev, path, "gguf", file, &e, NULL));
    return file;
}

static pesc_model *open_as(const char *path, const char *base_dtype)
{
    pesc_model *m = NULL;
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = base_dtype;
    must(pesc_model_open(&m, dev, path, &opt));
    return m;
}

static bool same_logits(pesc_model *a, pesc_model *b)
{
    float x[N][VOCAB], y[N][VOCAB];
    bool same = true;
    must(pesc_logits(a, ids, N, x[0]));
    must(pesc_logits(b, ids, N, y[0]));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < VOCAB; j++)
            same = same && fabsf(x[i][j] - y[i][j]) <= 2e-5f * (1 + fabsf(y[i][j]));
    return same;
}

static void a_model_computes_what_its_unpacked_weights_do(void **state)
{
    (void)state;
    static const struct {
        const char *name, *json, *type;
        dtype linear, head;
    } rows[] = { { "llama", LLAMA, "q8_0", DT_Q8_0, DT_Q8_0 },
                 { "llama-k", LLAMA, "q4_k", DT_Q4_K, DT_Q6_K },
                 { "tied", TIED, "q4_0", DT_Q4_0, DT_Q6_K },
                 { "mixtral", MIXTRAL, "q4_k", DT_Q4_K, DT_Q6_K } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = make(rows[i].name, rows[i].json, rows[i].type);
        pesc_model *m = open_as(path, NULL), *plain = open_as(path, "stored");
        assert_int_equal(m->shape.w.blocks[1].q.w.dt, rows[i].linear);
        assert_int_equal(m->shape.w.head.dt, rows[i].head);
        assert_int_equal(plain->shape.w.blocks[1].q.w.dt, DT_F32);
        if (m->shape.w.blocks[0].sparse)
            assert_int_equal(m->shape.w.blocks[0].moe.up.dt, rows[i].linear);
        assert_true(m->memory_bytes * 4 < plain->memory_bytes);
        assert_true(same_logits(m, plain));
        pesc_model_close(m);
        pesc_model_close(plain);
    }
}

/* The scale of one block, whose bytes are searched for in the file, becomes infinite: of a matrix
 * that is used in the file, and of one that is copied because its rows have another order. */
static void a_scale_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "model.layers.1.mlp.down_proj.weight",
                                         "model.layers.1.self_attn.q_proj.weight" };
    enum { BLOCK = 34 };
    const char *path = make("whole", LLAMA, "q8_0");
    for (int i = 0; i < 2; i++) {
        size_t n;
        char *bytes = files_get(path, &n), message[256];
        pesc_model *m = open_as(path, NULL), *broken = NULL;
        const weight *w = weights_find(m->dir->ws, names[i]);
        char *at = memmem(bytes, n, w->data + 3 * BLOCK, BLOCK);
        assert_non_null(at);
        memcpy(at, "\x00\x7c", 2);
        pesc_model_close(m);
        snprintf(message, sizeof message, "%s: a q8_0 block has a scale that is not finite",
                 names[i]);
        must_fail(pesc_model_open(&broken, dev, files_put("broken.gguf", bytes, n), NULL),
                  PESC_FORMAT, message);
        free(bytes);
    }
}

static void weights_that_train_are_unpacked(void **state)
{
    (void)state;
    pesc_model *m = open_as(make("full", LLAMA, "q4_k"), NULL);
    params *p = NULL;
    must(params_open(&p, m, &(train_spec){ .base = true }));
    assert_int_equal(m->shape.w.blocks[0].q.w.dt, DT_F32);
    params_close(p);
    pesc_model_close(m);
}

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, "cpu:2"));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_device_close(dev);
    files_clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_computes_what_its_unpacked_weights_do),
        cmocka_unit_test(a_scale_that_is_not_finite_is_refused),
        cmocka_unit_test(weights_that_train_are_unpacked),
    };
    return cmocka_run_group_tests_name("blocks", tests, open_all, close_all);
}
