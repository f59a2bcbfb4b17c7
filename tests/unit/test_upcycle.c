/* Fine-grained upcycling against the numbers in the files: which rows and columns of the FFN an
 * expert has, with which factor, what the router's rows are, and that the function is the dense
 * one's; units that are drawn anew; what is refused. Whole copies are in test_craft.c. */
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static pesc_craft_options small(const char *kind)
{
    pesc_craft_options o = pesc_craft_defaults();
    o.kind = kind;
    o.experts = 4;
    o.adapter_dim = 6;
    o.seed = 7;
    return o;
}

/* Element (i, j) of an expert's matrix is that of its shard of the copy, down times `factor`. */
static void is_shard(const hfdir *dense, const hfdir *sparse, const char *matrix,
                     const char *expert, int64_t shard, double factor)
{
    char name[160], of[160];
    const bool down = strcmp(matrix, "down_proj") == 0;
    snprintf(of, sizeof of, "model.layers.1.mlp.%s.weight", matrix);
    snprintf(name, sizeof name, "model.layers.1.%s.weight", expert);
    const weight *a = modeldirs_tensor(dense, of), *b = modeldirs_tensor(sparse, name);
    float *x = modeldirs_numbers(a), *y = modeldirs_numbers(b);
    const int64_t rows = b->ne[0], cols = b->ne[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = down ? i * a->ne[1] + shard * cols + j : (shard * rows + i) * cols + j;
            double want = (down ? factor : 1) * (double)x[at];
            assert_true(fabs((double)y[i * cols + j] - want) <= 1e-6 * fabs(want));
        }
    free(x);
    free(y);
}

typedef struct grain {
    const char *parent, *type, *experts_key, *experts, *router, *shared;
    int granularity, shared_copies;
} grain;

static void check_grain(const grain *g)
{
    static const char *const matrices[] = { "gate_proj", "up_proj", "down_proj" };
    static const char *const short_names[] = { "w1", "w3", "w2" };
    char from[512], name[128];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("upcycle");
    const int n = 4 * g->granularity;
    o.granularity = g->granularity;
    o.shared = g->shared_copies;
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, g->parent), files_path("out"), &o,
                    &check));
    assert_true(check.logits > 0 && check.max_diff <= 1e-4 * check.max_logit);
    hfdir *dense = modeldirs_open(from), *sparse = modeldirs_open(files_path("out"));
    assert_string_equal(modeldirs_text(sparse, "model_type"), g->type);
    assert_int_equal(modeldirs_int(sparse, g->experts_key), n);
    assert_int_equal(modeldirs_int(sparse, "num_experts_per_tok"), 2 * g->granularity);
    double down = g->granularity / (g->shared_copies ? 2.0 : 1.0);
    for (int e = 0; e < n; e++)
        for (int k = 0; k < 3; k++) {
            bool mixtral = strcmp(g->type, "mixtral") == 0;
            snprintf(name, sizeof name, g->experts, e, mixtral ? short_names[k] : matrices[k]);
            is_shard(dense, sparse, matrices[k], name, e % g->granularity, down);
        }
    const weight *router = modeldirs_tensor(sparse, g->router);
    float *z = modeldirs_numbers(router);
    for (int64_t e = 0; e < n; e++) {
        bool first = e % g->granularity == 0;
        const size_t row = (size_t)router->ne[1] * sizeof *z;
        if (!first)
            assert_memory_equal(z + e * router->ne[1], z + (e - 1) * router->ne[1], row);
        else if (e > 0)
            assert_memory_not_equal(z + e * router->ne[1], z + (e - 1) * router->ne[1], row);
    }
    free(z);
    if (g->shared)
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "model.layers.1.mlp.%s.%s.weight", g->shared, matrices[k]);
            char of[128];
            snprintf(of, sizeof of, "model.layers.1.mlp.%s.weight", matrices[k]);
            modeldirs_same(dense, of, sparse, name);
        }
    hfdir_close(dense);
    hfdir_close(sparse);
}

#define MIXTRAL_E                                                                                  \
    "num_local_experts", "block_sparse_moe.experts.%d.%s",                                         \
        "model.layers.1.block_sparse_moe.gate.weight", NULL
#define MLP_E(key, shared) key, "mlp.experts.%d.%s", "model.layers.1.mlp.gate.weight", shared

static void cuts_copies(void **state)
{
    (void)state;
    static const grain grains[] = {
        { "llama", "mixtral", MIXTRAL_E, 4, 0 },
        { "llama3", "mixtral", MIXTRAL_E, 2, 0 },
        { "mistral", "mixtral", MIXTRAL_E, 2, 0 },
        { "qwen2", "qwen2_moe", MLP_E("num_experts", NULL), 2, 0 },
        { "qwen2-window", "qwen2_moe", MLP_E("num_experts", NULL), 2, 0 },
        { "qwen3", "qwen3_moe", MLP_E("num_experts", NULL), 4, 0 },
        { "llama", "qwen2_moe", MLP_E("num_experts", "shared_expert"), 1, 1 },
        { "llama", "qwen2_moe", MLP_E("num_experts", "shared_expert"), 2, 1 },
        { "mistral", "qwen2_moe", MLP_E("num_experts", "shared_expert"), 2, 1 },
        { "qwen2", "qwen2_moe", MLP_E("num_experts", "shared_expert"), 4, 1 },
        { "qwen3", "dots1", MLP_E("n_routed_experts", "shared_experts"), 2, 1 },
    };
    for (size_t i = 0; i < sizeof grains / sizeof *grains; i++)
        check_grain(&grains[i]);
}

/* Half of the hidden units of each expert are new in all three matrices, the others are the copy's.
 */
static void draws_units_anew(void **state)
{
    (void)state;
    char from[512], name[128];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("upcycle");
    o.reinit = 0.5;
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, "qwen3"), files_path("out"), &o,
                    &check));
    assert_int_equal(check.logits, 0); /* another function */
    hfdir *dense = modeldirs_open(from), *sparse = modeldirs_open(files_path("out"));
    const weight *all = modeldirs_tensor(dense, "model.layers.0.mlp.gate_proj.weight");
    const int64_t width = all->ne[0], dim = all->ne[1];
    bool units[2][512] = { { false } };
    assert_true(width <= 512);
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < 3; k++) {
            static const char *const matrices[] = { "gate_proj", "up_proj", "down_proj" };
            char of[128];
            snprintf(of, sizeof of, "model.layers.0.mlp.%s.weight", matrices[k]);
            snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.%s.weight", e, matrices[k]);
            float *x = modeldirs_numbers(modeldirs_tensor(dense, of));
            float *y = modeldirs_numbers(modeldirs_tensor(sparse, name));
            double old = 0, new = 0;
            int64_t drawn = 0;
            for (int64_t u = 0; u < width; u++) {
                int64_t differ = 0;
                for (int64_t c = 0; c < dim; c++) {
                    int64_t at = k == 2 ? c * width + u : u * dim + c;
                    differ += x[at] != y[at];
                    old += (double)x[at] * (double)x[at];
                    new += (double)y[at] * (double)y[at];
                }
                assert_true(differ == 0 || differ == dim);
                if (k == 0)
                    units[e][u] = differ > 0;
                assert_true(units[e][u] == (differ > 0));
                drawn += differ > 0;
            }
            assert_int_equal(drawn, (width + 1) / 2);
            assert_true(new > 0.7 * old &&new < 1.4 * old);
            free(x);
            free(y);
        }
    assert_memory_not_equal(units[0], units[1], sizeof *units);
    hfdir_close(dense);
    hfdir_close(sparse);
}

static void refuses_grains(void **state)
{
    (void)state;
    char from[512];
    files_clear();
    const char *out = files_path("out");
    pesc_craft_options o = small("upcycle");
    modeldirs_golden(from, "qwen3");
    o.granularity = 7;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "granularity: found 7, expected a divisor of");
    o.granularity = 4;
    o.experts = 2048;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "granularity: 2048 copies cut into 4 are 8192 experts, expected at most 4096");
    o = small("pesc");
    o.granularity = 2;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "granularity: is given with kind pesc");
    o = small("upcycle");
    o.shared = 1;
    o.layers = "1";
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_UNSUPPORTED,
              "has a shared expert and experts in some layers alone");
    assert_false(files_there("out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_copies),
        cmocka_unit_test(draws_units_anew),
        cmocka_unit_test(refuses_grains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
