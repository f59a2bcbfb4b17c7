/* Every family against Hugging Face transformers: float32 logits of 48 positions, greedy decoding
 * token for token, decoding equal to prefill, packed sequences equal to single ones. */
#include "base/mem.h"
#include "model/forward.h"
#include "support/check.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct fixture {
    const char *name; /* tests/golden/<name> */
    const char *model, *lora;
    float tolerance;
} fixture;

static const fixture fixtures[] = {
    { "llama", NULL, NULL, 1e-4f },
    { "llama-square", NULL, NULL, 1e-4f },
    { "llama3", NULL, NULL, 1e-4f },
    { "yi", NULL, NULL, 1e-4f },
    { "mistral", NULL, NULL, 1e-4f },
    { "qwen2", NULL, NULL, 1e-4f },
    { "qwen2-window", NULL, NULL, 1e-4f },
    { "qwen3", NULL, NULL, 1e-4f },
    { "camelidae", NULL, NULL, 1e-4f },
    { "camelidae-bin", NULL, NULL, 1e-4f },
    { "sparsetral", NULL, NULL, 1e-4f },
    { "qwen2idae", NULL, NULL, 1e-4f },
    { "camelidae-choices", NULL, NULL, 1e-4f },
    { "mixtral", NULL, NULL, 1e-4f },
    { "qwen2_moe", NULL, NULL, 1e-4f },
    { "qwen3_moe", NULL, NULL, 1e-4f },
    { "olmoe", NULL, NULL, 1e-4f },
    { "deepseek_v2", NULL, NULL, 1e-4f },
    { "deepseek_v2-yarn", NULL, NULL, 1e-4f },
    { "deepseek_v3", NULL, NULL, 1e-4f },
    { "deepseek_v3-yarn", NULL, NULL, 1e-4f },
    { "glm4_moe_lite", NULL, NULL, 1e-4f },
    { "dots1", NULL, NULL, 1e-4f },
    { "seed_oss", NULL, NULL, 1e-4f },
    { "ernie4_5", NULL, NULL, 1e-4f },
    { "ernie4_5_moe", NULL, NULL, 1e-4f },
    { "solar_open", NULL, NULL, 1e-4f },
    { "deepseek", NULL, NULL, 1e-4f },
    { "smollm3", NULL, NULL, 1e-4f },
    { "granite", NULL, NULL, 1e-4f },
    { "ministral3", NULL, NULL, 1e-4f },
    { "hunyuan_v1_dense", NULL, NULL, 1e-4f },
    { "gpt_oss", NULL, NULL, 1e-4f },
    { "gpt_oss-mxfp4", NULL, NULL, 1e-4f },
    { "olmo2", NULL, NULL, 1e-4f },
    { "olmo3", NULL, NULL, 1e-4f },
    { "gemma2", NULL, NULL, 1e-4f },
    { "gemma3", NULL, NULL, 1e-4f },
    { "gemma4", NULL, NULL, 1e-4f },
    { "gemma4-shared", NULL, NULL, 1e-4f },
    { "gemma4-inputs", NULL, NULL, 1e-4f },
    { "gemma4-moe", NULL, NULL, 1e-4f },
    { "gemma4-multimodal", NULL, NULL, 1e-4f },
    { "phi3", NULL, NULL, 1e-4f },
    { "phi3-long", NULL, NULL, 1e-4f },
    { "glm4", NULL, NULL, 1e-4f },
    { "granitemoe", NULL, NULL, 1e-4f },
    { "granitemoehybrid", NULL, NULL, 1e-4f },
    { "granitemoehybrid-dense", NULL, NULL, 1e-4f },
    { "hunyuan_v1_moe", NULL, NULL, 1e-4f },
    { "glm4_moe", NULL, NULL, 1e-4f },
    { "minimax_m2", NULL, NULL, 1e-4f },
    { "mellum", NULL, NULL, 1e-4f },
    { "exaone4", NULL, NULL, 1e-4f },
    { "flex_olmo", NULL, NULL, 1e-4f },
    { "qwen2_moe-adapters", NULL, NULL, 1e-4f },
    { "deepseek_v3-adapters", NULL, NULL, 1e-4f },
    { "flex_olmo-adapters", NULL, NULL, 1e-4f },
    { "afmoe", NULL, NULL, 1e-4f },
    { "bailing_moe_v2", NULL, NULL, 1e-4f },
    { "qwen", NULL, NULL, 1e-4f },
    { "mistral3", NULL, NULL, 1e-4f },
    { "gemma3-multimodal", NULL, NULL, 1e-4f },
    { "qwen3_5-multimodal", NULL, NULL, 1e-4f },
    { "qwen3_5_moe-multimodal", NULL, NULL, 1e-4f },
    { "deepseek_v3-fp8", NULL, NULL, 1e-4f },
    { "ministral3-fp8", NULL, NULL, 1e-4f },
    { "lfm2", NULL, NULL, 1e-4f },
    { "lfm2_moe", NULL, NULL, 1e-4f },
    { "qwen3_5", NULL, NULL, 1e-4f },
    { "qwen3_5_moe", NULL, NULL, 1e-4f },
    { "qwen3_next", NULL, NULL, 1e-4f },
    { "peft", "base", "adapter", 1e-4f },
    { "bnb", NULL, NULL, 1e-4f },
};

static const char *part(const fixture *f, const char *file)
{
    static char name[256];
    snprintf(name, sizeof name, "%s/%s", f->name, file ? file : "");
    return golden_path(name);
}

static pesc_device *dev;

static pesc_load_options load_options(const fixture *f, const char *compute)
{
    static char adapter[512];
    pesc_load_options opt = pesc_load_defaults();
    snprintf(adapter, sizeof adapter, "%s", f->lora ? part(f, f->lora) : "");
    opt.lora = adapter;
    opt.compute_dtype = compute;
    return opt;
}

static pesc_model *open_fixture(const fixture *f, const char *compute)
{
    pesc_load_options opt = load_options(f, compute);
    pesc_model *m = NULL;
    must(pesc_model_open(&m, dev, part(f, f->model), &opt));
    return m;
}

static void logits_equal_transformers(void **state)
{
    const fixture *f = *state;
    pesc_model *m = open_fixture(f, "f32");
    golden_array want = golden_npy(part(f, "logits.npy"));
    size_t n;
    int32_t *ids = golden_ids(part(f, "ids.json"), NULL, &n);
    assert_int_equal(n, want.rows);
    assert_int_equal(m->shape.cfg.vocab, want.cols);
    float *got = malloc(want.rows * want.cols * sizeof *got);
    must(pesc_logits(m, ids, n, got));
    float worst = 0;
    for (size_t i = 0; i < want.rows * want.cols; i++) {
        float d = fabsf(got[i] - want.data[i]);
        worst = d > worst || !(d == d) ? d : worst;
    }
    float allowed = f->tolerance * (dev->op->host_memory(dev) ? 1 : 3); /* it sums elsewise */
    if (!(worst < allowed))
        fail_msg("%s: largest difference %g, allowed %g", f->name, (double)worst, (double)allowed);
    free(got);
    free(ids);
    free(want.data);
    pesc_model_close(m);
}

static void greedy_equals_transformers(void **state)
{
    const fixture *f = *state;
    pesc_model *m = open_fixture(f, "f32");
    size_t n_prompt, n_want;
    int32_t *prompt = golden_ids(part(f, "greedy.json"), "prompt", &n_prompt);
    int32_t *want = golden_ids(part(f, "greedy.json"), "ids", &n_want);
    pesc_session *s;
    must(pesc_session_open(&s, m, 0));
    pesc_sample_options opt = pesc_sample_defaults();
    opt.max_tokens = (int32_t)n_want;
    opt.ignore_eos = true;
    pesc_generation g = PESC_INIT(pesc_generation);
    must(pesc_session_complete(s, prompt, n_prompt, &opt, NULL, NULL, &g));
    assert_int_equal(g.n_ids, n_want);
    assert_memory_equal(g.ids, want, n_want * sizeof *want);
    pesc_generation_free(&g);
    pesc_session_close(s);
    free(prompt);
    free(want);
    pesc_model_close(m);
}

/* Logits of every token of `n` ids fed in steps of `step`, over a cache. */
static float *stepwise(pesc_model *m, const int32_t *ids, int32_t n, int32_t step)
{
    size_t row = (size_t)m->shape.cfg.vocab;
    float *out = malloc((size_t)n * row * sizeof *out);
    kvcache *kv;
    pass *p;
    must(kvcache_open(&kv, dev, &m->shape.cfg, m->shape.act_dt, 1, n, n));
    must(pass_open(&p, m, (pass_limits){ step, 1, step }, kv));
    int32_t rows[64];
    for (int32_t i = 0; i < 64; i++)
        rows[i] = i;
    for (int32_t at = 0; at < n; at += step) {
        int32_t now = n - at < step ? n - at : step;
        token_seq seq = { .ids = ids + at, .n = now, .past = at, .whole = n };
        tensor logits;
        must(pass_set(p, &seq, 1, rows, now));
        must(model_fwd(m, p, &logits));
        must(dev->op->download(dev, out + (size_t)at * row, logits.data,
                               (size_t)now * row * sizeof *out));
    }
    pass_close(p);
    kvcache_close(kv);
    return out;
}

static void decode_equals_prefill(void **state)
{
    const fixture *f = *state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pesc_model *m = open_fixture(f, bf16 ? "bf16" : "f32");
        size_t n;
        int32_t *ids = golden_ids(part(f, "ids.json"), NULL, &n);
        float *whole = stepwise(m, ids, (int32_t)n, (int32_t)n);
        float *single = stepwise(m, ids, (int32_t)n, 1);
        float *pieces = stepwise(m, ids, (int32_t)n, 7);
        size_t bytes = n * (size_t)m->shape.cfg.vocab * sizeof *whole;
        assert_memory_equal(whole, single, bytes);
        assert_memory_equal(whole, pieces, bytes);
        free(whole);
        free(single);
        free(pieces);
        free(ids);
        pesc_model_close(m);
    }
}

static void packed_equals_single(void **state)
{
    const fixture *f = *state;
    pesc_model *m = open_fixture(f, "f32");
    size_t n, row = (size_t)m->shape.cfg.vocab;
    int32_t *ids = golden_ids(part(f, "ids.json"), NULL, &n);
    const int32_t cuts[] = { 0, 5, 6, 23, (int32_t)n };
    int32_t rows[64];
    token_seq seqs[4];
    for (int i = 0; i < 4; i++)
        seqs[i] = (token_seq){ .ids = ids + cuts[i], .n = cuts[i + 1] - cuts[i] };
    for (int32_t i = 0; i < 64; i++)
        rows[i] = i;
    pass *p;
    tensor logits;
    must(pass_open(&p, m, (pass_limits){ (int32_t)n, 4, (int32_t)n }, NULL));
    must(pass_set(p, seqs, 4, rows, (int32_t)n));
    must(model_fwd(m, p, &logits));
    float *packed = malloc(n * row * sizeof *packed);
    must(dev->op->download(dev, packed, logits.data, n * row * sizeof *packed));
    pass_close(p);
    for (int i = 0; i < 4; i++) {
        float *alone = stepwise(m, seqs[i].ids, seqs[i].n, seqs[i].n);
        assert_memory_equal(packed + (size_t)cuts[i] * row, alone,
                            (size_t)seqs[i].n * row * sizeof *alone);
        free(alone);
    }
    free(packed);
    free(ids);
    pesc_model_close(m);
}

/* NF4 and bf16 are coarser, but must stay near: a wrong block or a swapped nibble does not. Nor
 * does a LoRA that is merged into the weights twice, or not at all. */
static void coarser_weights_stay_near(void **state)
{
    const fixture *f = *state;
    if (strcmp(f->name, "bnb") == 0)
        return;
    static const struct {
        const char *base, *compute;
        double limit;
        bool merge;
    } kinds[] = { { "bf16", "f32", 0.02, true },
                  { "bf16", "bf16", 0.04, false },
                  { "bf16", "bf16", 0.04, true },
                  { "nf4", "f32", 0.8, false },
                  { "nf4", "bf16", 0.8, true } };
    golden_array want = golden_npy(part(f, "logits.npy"));
    size_t n;
    int32_t *ids = golden_ids(part(f, "ids.json"), NULL, &n);
    float *got = malloc(want.rows * want.cols * sizeof *got);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        pesc_load_options opt = load_options(f, kinds[k].compute);
        opt.base_dtype = kinds[k].base;
        opt.merge_lora = kinds[k].merge;
        pesc_model *m;
        must(pesc_model_open(&m, dev, part(f, f->model), &opt));
        bool merged = kinds[k].merge && !strcmp(kinds[k].compute, kinds[k].base);
        assert_true(!f->lora || merged == !m->shape.w.blocks[0].ffn.down.lora);
        must(pesc_logits(m, ids, n, got));
        /* the median over rows: one token routed elsewhere by rounding is no fault */
        size_t near = 0;
        for (size_t t = 0; t < want.rows; t++) {
            double d2 = 0, w2 = 0;
            for (size_t i = 0; i < want.cols; i++) {
                double w = (double)want.data[t * want.cols + i];
                double d = (double)got[t * want.cols + i] - w;
                d2 += d * d;
                w2 += w * w;
            }
            near += sqrt(d2 / w2) < kinds[k].limit;
        }
        if (near * 2 < want.rows)
            fail_msg("%s as %s/%s: only %zu of %zu rows within %g", f->name, kinds[k].base,
                     kinds[k].compute, near, want.rows, kinds[k].limit);
        pesc_model_close(m);
    }
    free(got);
    free(ids);
    free(want.data);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fn)(void **);
        bool bits; /* the CPU's promise alone: bits do not depend on what else is in the batch */
    } properties[] = {
        { "logits equal transformers", logits_equal_transformers, false },
        { "greedy equals transformers", greedy_equals_transformers, false },
        { "decode equals prefill", decode_equals_prefill, true },
        { "packed equals single", packed_equals_single, true },
        { "coarser weights stay near", coarser_weights_stay_near, false },
    };
    enum { N = sizeof fixtures / sizeof *fixtures, P = sizeof properties / sizeof *properties };
    static struct CMUnitTest tests[N * P];
    static char names[N * P][96];
    if (pesc_device_open(&dev, golden_device()) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return 1;
    }
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        for (size_t p = 0; p < P; p++) {
            size_t at = n;
            if (properties[p].bits && !dev->op->host_memory(dev))
                continue;
            n++;
            snprintf(names[at], sizeof names[at], "%s: %s", fixtures[i].name, properties[p].name);
            tests[at] = (struct CMUnitTest){ .name = names[at],
                                             .test_func = properties[p].fn,
                                             .initial_state = (void *)&fixtures[i] };
        }
    int failed = _cmocka_run_group_tests("families", tests, n, NULL, NULL);
    pesc_device_close(dev);
    return failed;
}
