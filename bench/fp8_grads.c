/* bench/fp8_grads: how far gradients that pass through the frozen weights in fp8 (base_grad_dtype)
 * are from those in bf16. fp8_grads MODEL TEXT [DEVICE] [BASE_DTYPE] trains LoRA of rank 64 on one
 * micro-batch of TEXT's tokens twice, without dropout, and prints for each layer the cosine between
 * the two gradients of what trains there and the ratio of their norms. */
#include "base/io.h"
#include "base/mem.h"
#include "model/loss.h"
#include "train/params.h"
#include "model/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 512, SEQUENCES = 8, TOKENS = LENGTH * SEQUENCES };

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

typedef struct batch {
    int32_t ids[TOKENS + 1];
    int32_t rows[TOKENS];
    float weights[TOKENS];
    token_seq seqs[SEQUENCES];
} batch;

static void read_batch(batch *b, const pesc_model *m, const char *path)
{
    char *text;
    size_t bytes, n;
    must(io_read_file(path, 1 << 24, &text, &bytes));
    must(pesc_tokenize(pesc_model_tokenizer(m), text, bytes, 0, b->ids, TOKENS + 1, &n));
    mem_free(text);
    if (n <= TOKENS) {
        fprintf(stderr, "%s: found %zu tokens, expected more than %d\n", path, n, TOKENS);
        exit(1);
    }
    for (int i = 0; i < TOKENS; i++) {
        b->rows[i] = i;
        b->weights[i] = 1.0f / TOKENS;
    }
    for (int s = 0; s < SEQUENCES; s++)
        b->seqs[s] = (token_seq){ .ids = b->ids + s * LENGTH, .n = LENGTH };
}

/* The gradient of all that trains; freed by the caller. */
static float *gradient(pesc_model *m, params *ps, const batch *b)
{
    pass *p;
    train_output out;
    pass_limits lim = { TOKENS, SEQUENCES, TOKENS };
    train_input in = { .seqs = b->seqs,
                       .n_seqs = SEQUENCES,
                       .rows = b->rows,
                       .targets = b->ids + 1,
                       .weights = b->weights,
                       .n_targets = TOKENS,
                       .first_micro_batch = true };
    float *g = mem_alloc((size_t)ps->n, sizeof *g);
    must(pass_open_train(&p, m, lim, &ps->mirror, (keep_counts){ m->shape.cfg.n_layers - 1, 0 }));
    params_start_grad(ps);
    must(model_train(m, p, &in, &out));
    must(m->dev->op->download(m->dev, g, ps->grad.data, tensor_bytes(&ps->grad)));
    pass_close(p);
    return g;
}

/* Adds the products of two gradients of one parameter to those of its layer. */
static void add_products(double (*sums)[3], const param *q, const float *x, const float *y)
{
    int layer;
    const char *at = strstr(q->name, "layers.");
    int64_t n = 1;
    if (!at || sscanf(at, "layers.%d", &layer) != 1)
        return;
    for (int i = 0; i < q->nd; i++)
        n *= q->ne[i];
    for (int64_t i = q->at; i < q->at + n; i++) {
        sums[layer][0] += (double)x[i] * y[i];
        sums[layer][1] += (double)x[i] * x[i];
        sums[layer][2] += (double)y[i] * y[i];
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "fp8_grads MODEL TEXT [DEVICE] [BASE_DTYPE]\n");
        return 2;
    }
    pesc_device *dev;
    pesc_model *m;
    params *ps;
    static batch b;
    pesc_load_options load = PESC_INIT(pesc_load_options);
    load.compute_dtype = "bf16";
    load.base_dtype = argc > 4 ? argv[4] : "bf16";
    must(pesc_device_open(&dev, argc > 3 ? argv[3] : "cuda:0"));
    must(pesc_model_open(&m, dev, argv[1], &load));
    read_batch(&b, m, argv[2]);
    bool sparse = m->shape.cfg.moe.kind == EXPERT_ADAPTER;
    train_spec spec = { .adapters = sparse,
                        .routers = sparse,
                        .lora_r = 64,
                        .lora_alpha = 16,
                        .lora_targets = TARGET_ALL,
                        .seed = 1 };
    must(params_open(&ps, m, &spec));
    float *bf16 = gradient(m, ps, &b);
    ps->mirror.facts.fp8 = true;
    float *fp8 = gradient(m, ps, &b);
    double(*sums)[3] = mem_zalloc((size_t)m->shape.cfg.n_layers, sizeof *sums);
    for (size_t i = 0; i < ps->n_list; i++)
        add_products(sums, &ps->list[i], bf16, fp8);
    for (int i = 0; i < m->shape.cfg.n_layers; i++)
        printf("layer %3d  cosine %.6f  norm %.4f\n", i, sums[i][0] / sqrt(sums[i][1] * sums[i][2]),
               sqrt(sums[i][2] / sums[i][1]));
    return 0;
}
