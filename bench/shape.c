/* bench/shape: training steps, prefill and decode of a model of which only the shape matters: its
 * weights are generated on the device, so that 34 billion of them take seconds to start and no
 * disk. Or of a model that is opened as pesc opens it, its GGUF file for example. shape
 * CONFIG.json|MODEL [device=cuda:0] [base=nf4|bf16|f32] [compute=bf16|f32] [seqs=4] [tokens=2048]
 * [micro=8192] [keep=-1] [memory=0] [steps=4] [lora=64] [dropout=0] [moments=8|32] [grads=bf16|fp8]
 * [paged=0] [decode=0] [prefill=0] [piece=0] [past=0] [batch=1] [context=0] [host=0] [profile=0]
 * keep: layers that keep their activations, -1 as many as fit; memory: GiB that may be used, 0 all
 * of the device; dropout: percent, of LoRA and adapters; paged: moments in host memory; decode:
 * decode this many tokens instead of training; prefill: forwards of prompts of this many tokens
 * instead; piece: forwards of this many tokens of a prompt after `past` others, and a token of each
 * of `batch` sequences; context: tokens that the page table of a sequence has room for, as a
 * server's has, at least those that are used; host: the layers are in the host's memory, training
 * alone; profile: also print where the time of a step goes, with a synchronisation after each op.
 * */
#include "arch/bind.h"
#include "arch/shape.h"
#include "attach/layer_stream.h"
#include "backend/memory.h"
#include "backend/opmap.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "model/loss.h"
#include "train/params.h"
#include "train/optimizer.h"
#include "train/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

static clockid_t clock_id = CLOCK_MONOTONIC; /* one thread: its CPU time */

static double now(void)
{
    return clock_read(clock_id);
}

/* ---- options: name=value ---- */

static char **options;

static const char *text_of(const char *name, const char *standard)
{
    size_t n = strlen(name);
    for (char **p = options; *p; p++)
        if (strncmp(*p, name, n) == 0 && (*p)[n] == '=')
            return *p + n + 1;
    return standard;
}

static int number_of(const char *name, int standard)
{
    int n = standard;
    sscanf(text_of(name, ""), "%d", &n);
    return n;
}

/* ---- where the time goes ---- */

static void profile(device *d, bool on)
{
    must(pesc_device_profile(d, on));
}

static void print_profile(const device *d)
{
    pesc_profile_row rows[64];
    size_t n = pesc_device_profile_rows(d, rows, 64);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += rows[i].seconds;
    printf("  a step, synchronised after each op: %.1f ms\n", sum * 1e3);
    for (size_t i = 0; i < n; i++)
        printf("    %-20s %5llu calls %8.2f ms  %4.1f %%\n", rows[i].name,
               (unsigned long long)rows[i].calls, rows[i].seconds * 1e3,
               100 * rows[i].seconds / sum);
}

#include "weight_maker.h" /* uses must() */

/* ---- a model without files ---- */

/* A table of all tensor names without their data. */
static weights *names_of(const config *c)
{
    static const unsigned char nothing[64];
    weights *ws;
    must(weights_new(&ws));
    for (slot s = slot_first(); slot_next(c, &s);) {
        weight w = { .name = s.name, .dt = DT_BF16, .nd = s.nd, .data = nothing, .file = "shape" };
        memcpy(w.ne, s.ne, sizeof s.ne);
        w.bytes = (size_t)slot_count(&s) * 2;
        w.unpermute_heads = -1; /* `nothing` must not be read */
        must(weights_add(ws, &w));
    }
    return ws;
}

static dtype dtype_named(const char *name)
{
    static const dtype known[] = { DT_F32, DT_BF16, DT_NF4 };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, dtype_name(known[i])) == 0)
            return known[i];
    fprintf(stderr, "base: found %s, expected f32, bf16 or nf4\n", name);
    exit(2);
}

static pesc_model *make_model(device *dev, const char *file, dtype base)
{
    static pesc_model made, *m = &made;
    static const memory_need need = { "the model", "base nf4 needs less" };
    static hfdir dir;
    json_t *json;
    must(json_read(&json, file, 1 << 20));
    m->dev = dev;
    m->shape.act_dt = dtype_named(text_of("compute", base == DT_F32 ? "f32" : "bf16"));
    must(config_read(&m->shape.cfg, &(config_source){ json, NULL, file, NULL }));
    dir.ws = names_of(&m->shape.cfg);
    m->dir = &dir;
    must(shape_open(&m->shape));
    bind_source src = { .how = { .dev = dev, .base = base }, .ws = dir.ws, .path = file };
    bind_memory to = { 0 };
    if (number_of("host", 0))
        must(layer_stream_open(&m->hook, m));
    to.layers = m->hook ? m->hook->bytes : NULL;
    bind_layout(&m->shape, &src, &to);
    if (m->hook)
        m->hook->layout(m->hook, &to.base);
    must(memory_take(&to.base, dev, &need, &m->memory));
    if (to.mixture.used)
        must(memory_take(&to.mixture, dev, &need, &m->mixture));
    m->memory_bytes = to.base.size;
    m->mixture_bytes = to.mixture.size;
    if (m->hook)
        m->hook->layout(m->hook, &to.base);
    to.in = m->hook;
    to.layer = (arena){ 0 };
    bind_layout(&m->shape, &src, &to);
    weight_maker k;
    open_maker(&k, dev);
    fill(&k, m);
    dev->op->free(dev, k.normal);
    dev->op->free(dev, k.one);
    return m;
}

static const char *base_name; /* how weights are held */

/* A config.json alone is a shape; every other path is a model. */
static pesc_model *open_model(device *dev, const char *path)
{
    const char *end = strrchr(path, '.');
    bool shape = end && strcmp(end, ".json") == 0;
    pesc_load_options o = pesc_load_defaults();
    pesc_model *m;
    base_name = text_of("base", shape ? "nf4" : "stored");
    if (shape)
        return make_model(dev, path, dtype_named(base_name));
    o.compute_dtype = text_of("compute", "bf16");
    o.base_dtype = text_of("base", o.base_dtype);
    must(pesc_model_open(&m, dev, path, &o));
    return m;
}

static double gib(double bytes)
{
    return bytes / (1 << 30);
}

static double used_gib(device *dev)
{
    return dev->memory ? gib((double)(dev->memory - dev->op->room(dev))) : 0;
}

/* Bytes left of the memory that may be used. */
static uint64_t available(device *dev)
{
    uint64_t most = (uint64_t)number_of("memory", 0) << 30, left = memory_available(dev);
    uint64_t used = dev->memory - left;
    if (!most)
        return left;
    return used < most ? most - used : 0;
}

/* ---- training ---- */

typedef struct micro {
    int32_t *ids, *rows, *targets;
    float *weights;
    token_seq *seqs;
    train_input in;
} micro;

static micro make_micro(int n_seqs, int tokens, int32_t vocab, int micros)
{
    int n = n_seqs * tokens;
    micro b = { mem_alloc((size_t)n, 4),
                mem_alloc((size_t)n, 4),
                mem_alloc((size_t)n, 4),
                mem_alloc((size_t)n, 4),
                mem_alloc((size_t)n_seqs, sizeof(token_seq)),
                { 0 } };
    for (int i = 0; i < n; i++) {
        b.ids[i] = (int32_t)rng_below((rng_key){ 2, 1 }, (uint64_t)i, (uint64_t)vocab);
        b.targets[i] = (int32_t)rng_below((rng_key){ 2, 2 }, (uint64_t)i, (uint64_t)vocab);
        b.rows[i] = i;
        b.weights[i] = 1.0f / (float)(n * micros);
    }
    for (int s = 0; s < n_seqs; s++)
        b.seqs[s] = (token_seq){ .ids = b.ids + s * tokens, .n = tokens };
    b.in = (train_input){ .seqs = b.seqs,
                          .n_seqs = n_seqs,
                          .rows = b.rows,
                          .targets = b.targets,
                          .weights = b.weights,
                          .n_targets = n,
                          .aux_weight = 0.01f / (float)micros };
    return b;
}

typedef struct training {
    pesc_model *m;
    int seqs, tokens;     /* of a step */
    int together, micros; /* sequences of a micro-batch, micro-batches of a step */
    train_spec spec;
    optimizer_options options;
    plan_pass plan;
    keep_counts keep;
    params *ps;
    optimizer *opt;
    pass *p;
    micro batch; /* every micro-batch has the same tokens */
} training;

static void size_training(training *t, pesc_model *m)
{
    int most = number_of("micro", 8192);
    bool adapters = m->shape.cfg.moe.kind == EXPERT_ADAPTER;
    float dropout = (float)number_of("dropout", 0) / 100;
    *t = (training){ .m = m, .seqs = number_of("seqs", 4), .tokens = number_of("tokens", 2048) };
    t->together = most / t->tokens < 1 ? 1 : most / t->tokens;
    t->together = t->together < t->seqs ? t->together : t->seqs;
    t->micros = (t->seqs + t->together - 1) / t->together;
    t->spec = (train_spec){ .adapters = adapters,
                            .routers = adapters,
                            .lora_r = number_of("lora", 64),
                            .lora_alpha = 16,
                            .lora_targets = TARGET_ALL,
                            .lora_dropout = dropout,
                            .adapter_dropout = dropout,
                            .fp8_grads = strcmp(text_of("grads", "bf16"), "fp8") == 0,
                            .seed = 1 };
    t->options = (optimizer_options){ .eight_bit = number_of("moments", 32) == 8,
                                      .paged = number_of("paged", 0) != 0,
                                      .clip = 0.3,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8 };
}

static void open_training(training *t)
{
    pesc_model *m = t->m;
    int n = t->together * t->tokens;
    pass_limits lim = { n, t->together, n };
    pesc_train_options limits = pesc_train_defaults();
    limits.batch = t->seqs;
    limits.seq_len = t->tokens;
    limits.micro_tokens = n;
    limits.packing = true;
    limits.keep = number_of("keep", -1);
    limits.optimizer = t->options.eight_bit ? "adamw8" : "adamw";
    t->plan = (plan_pass){ m->dev, &m->shape, &t->spec, 0, lim };
    t->spec.no_adapter_copies =
        plan_save(&t->plan, &limits, available(m->dev) + m->mixture_bytes).no_adapter_copies;
    t->plan.lim = lim;
    must(params_open(&t->ps, m, &t->spec));
    must(optimizer_open(&t->opt, t->ps, &t->options));
    t->keep = plan_keep(&t->plan, number_of("keep", -1), plan_room(available(m->dev)));
    must(pass_open_train(&t->p, m, lim, &t->ps->mirror, t->keep));
    t->batch = make_micro(t->together, t->tokens, m->shape.cfg.vocab, t->micros);
}

typedef struct step_result {
    double seconds, ce, norm;
} step_result;

static step_result train_step(training *t, int number)
{
    double began = now();
    step_result r = { 0 };
    train_output out = { 0 };
    params_start_grad(t->ps);
    for (int k = 0; k < t->micros; k++) {
        t->batch.in.step = (uint64_t)number;
        t->batch.in.micro = (uint64_t)k;
        t->batch.in.first_micro_batch = k == 0;
        must(model_train(t->m, t->p, &t->batch.in, &out));
    }
    must(optimizer_norm(t->opt, &r.norm));
    optimizer_step(t->opt, 2e-4, number + 1);
    must(t->m->dev->op->sync(t->m->dev));
    r.seconds = now() - began;
    r.ce = out.ce * t->micros;
    return r;
}

/* The first step is timed on its own; with a profile one more step runs, which is not timed. */
static void train(pesc_model *m, const char *name)
{
    training t;
    size_training(&t, m);
    open_training(&t);
    int steps = number_of("steps", 4), n = t.seqs * t.tokens;
    double best = 1e9, sum = 0, first = 0;
    step_result last = { 0 };
    for (int i = 0; i < steps; i++) {
        last = train_step(&t, i);
        first = i ? first : last.seconds;
        sum += i ? last.seconds : 0;
        best = i && last.seconds < best ? last.seconds : best;
    }
    bool profiled = number_of("profile", 0) != 0;
    if (profiled) {
        profile(m->dev, true);
        train_step(&t, steps);
    }
    double each = sum / (steps - 1);
    printf("%s: %d x %d tokens a step, base %s, moments %d bit, %d of %d layers kept, %d partly: "
           "%.0f tokens/s (best step %.0f), %.1f ms a step (first %.0f), %.2f GiB, loss %.3f, "
           "gradient %.3g\n",
           name, t.seqs, t.tokens, base_name, t.options.eight_bit ? 8 : 32, t.keep.all + 1,
           m->shape.cfg.n_layers, t.keep.partial, n / each, n / best, each * 1e3, first * 1e3,
           used_gib(m->dev), last.ce, last.norm);
    printf(
        "  trained %.1f M, model %.2f GiB, weights and moments %.2f GiB, activations %.2f GiB\n",
        (double)t.ps->n / 1e6, gib((double)m->memory_bytes),
        gib((double)(tensor_bytes(&t.ps->master) * 2 + tensor_bytes(&t.ps->work) + t.opt->bytes)),
        gib((double)plan_pass_bytes(&t.plan, t.keep)));
    if (profiled)
        print_profile(m->dev);
}

/* ---- inference ---- */

/* Sequences of one length in a KV cache, which all take the same steps. */
typedef struct inference {
    pesc_model *m;
    const char *name;
    int batch;
    int32_t *ids, *rows;
    token_seq *seqs;
    kvcache *kv;
    pass *p;
} inference;

/* Sequences of up to `most` tokens, of which `prompt` are in a forward at a time; `total` together.
 */
static void open_inference(inference *f, int prompt, int most, int64_t total)
{
    pesc_model *m = f->m;
    int n = f->batch * prompt;
    f->ids = mem_zalloc((size_t)n, sizeof *f->ids);
    f->rows = mem_alloc((size_t)f->batch, sizeof *f->rows);
    f->seqs = mem_zalloc((size_t)f->batch, sizeof *f->seqs);
    for (int i = 0; i < n; i++)
        f->ids[i] = i % m->shape.cfg.vocab;
    int context = number_of("context", 0);
    must(kvcache_open(&f->kv, m->dev, &m->shape.cfg, m->shape.act_dt, f->batch,
                      context > most ? context : most, total + (int64_t)f->batch * KV_PAGE_TOKENS));
    must(pass_open(&f->p, m, (pass_limits){ n, f->batch, f->batch }, f->kv));
}

/* Seconds of a forward of f->seqs. */
static double run(inference *f)
{
    tensor logits;
    double began = now();
    must(pass_set(f->p, f->seqs, f->batch, f->rows, f->batch));
    must(model_fwd(f->m, f->p, &logits));
    must(f->m->dev->op->sync(f->m->dev));
    return now() - began;
}

/* Seconds of a forward of `each` tokens a sequence, of which `prompt` are there, after `past`. */
static double forward(inference *f, int prompt, int each, int past)
{
    for (int s = 0; s < f->batch; s++) {
        f->seqs[s] =
            (token_seq){ .ids = f->ids + s * prompt, .n = each, .past = past, .kv_seq = s };
        f->rows[s] = (s + 1) * each - 1;
    }
    return run(f);
}

/* Bytes of weights that a step of `batch` tokens reads: the embedding's rows are few, and of the
 * experts it reads those that a token has chosen, if all are as likely to be. */
static double bytes_read(pesc_model *m, int batch)
{
    const topk_rule *rule = &m->shape.cfg.moe.topk;
    double all = 0, experts = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        tensor t = bind_tensor(&m->shape.w, &s);
        double bytes = (double)tensor_bytes(&t);
        if (s.expert >= 0)
            experts += bytes;
        else if (t.data != m->shape.w.embed.data || m->shape.w.embed.data == m->shape.w.head.data)
            all += bytes;
    }
    double missed = experts > 0 ? pow(1 - (double)rule->k / rule->n_experts, batch) : 0;
    return all + experts * (1 - missed);
}

static void decode(inference *f, int steps)
{
    int prompt = number_of("tokens", 128), batch = f->batch;
    double first = 0, sum = 0;
    open_inference(f, prompt, prompt + steps, (int64_t)batch * (prompt + steps));
    for (int step = 0; step < steps; step++) {
        double took = forward(f, prompt, step ? 1 : prompt, step ? prompt + step - 1 : 0);
        if (step > 3)
            sum += took;
        if (number_of("profile", 0) && step == steps - 2)
            profile(f->m->dev, true);
        first = step ? first : took;
    }
    if (number_of("profile", 0))
        print_profile(f->m->dev);
    double took = sum / (steps - 4), bytes = bytes_read(f->m, batch);
    printf(
        "%s: decode of %d, base %s: %.2f ms a token, %.1f tokens/s; prompt of %d x %d in %.1f ms; "
        "weights %.2f GiB a step, read at %.2f TB/s\n",
        f->name, batch, base_name, took * 1e3, batch / took, batch, prompt, first * 1e3, gib(bytes),
        bytes / took / 1e12);
}

/* The same prompts again and again. The first is cold: kernels are loaded, cuBLASLt chooses. */
static void prefill(inference *f, int prompt)
{
    enum { TIMES = 12 };
    double first = 0, sum = 0, best = 1e9;
    open_inference(f, prompt, prompt, (int64_t)f->batch * prompt);
    for (int i = 0; i < TIMES; i++) {
        for (int s = 0; s < f->batch; s++)
            kvcache_truncate(f->kv, s, 0);
        bool profiled = number_of("profile", 0) && i == TIMES - 1;
        if (profiled)
            profile(f->m->dev, true);
        double took = forward(f, prompt, prompt, 0);
        first = i ? first : took;
        sum += i && !profiled ? took : 0;
        best = i && took < best ? took : best;
    }
    if (number_of("profile", 0))
        print_profile(f->m->dev);
    double took = sum / (number_of("profile", 0) ? TIMES - 2 : TIMES - 1);
    printf("%s: prefill of %d x %d, base %s: %.2f ms (best %.2f, first %.1f), %.0f tokens/s\n",
           f->name, f->batch, prompt, base_name, took * 1e3, best * 1e3, first * 1e3,
           f->batch * prompt / took);
}

/* A server's forward while a long prompt is read: one token of each of `batch` sequences after
 * `tokens`, and a piece of a prompt of which `past` tokens are there. Their keys and values are
 * what the memory holds. */
static void mixed(inference *f, int piece, int past)
{
    enum { TIMES = 12 };
    int before = number_of("tokens", 128), n = f->batch + 1;
    int most = past + piece > before + 1 ? past + piece : before + 1;
    double sum = 0, best = 1e9;
    f->batch = n;
    open_inference(f, piece, most, (int64_t)(n - 1) * (before + 1) + past + piece);
    for (int i = 0; i < TIMES; i++) {
        for (int s = 0; s < n; s++) {
            int32_t own = s < n - 1 ? 1 : piece, at = s < n - 1 ? before : past;
            kvcache_truncate(f->kv, s, 0);
            must(kvcache_reserve(f->kv, s, at + own));
            kvcache_advance(f->kv, s, at);
            f->seqs[s] = (token_seq){ .ids = f->ids, .n = own, .past = at, .kv_seq = s };
            f->rows[s] = s < n - 1 ? s : s + piece - 1;
        }
        bool profiled = number_of("profile", 0) && i == TIMES - 1;
        if (profiled)
            profile(f->m->dev, true);
        double took = run(f);
        sum += i > 1 && !profiled ? took : 0;
        best = i && took < best ? took : best;
    }
    if (number_of("profile", 0))
        print_profile(f->m->dev);
    printf("%s: %d sequences of %d and a piece of %d after %d, base %s: %.2f ms (best %.2f)\n",
           f->name, n - 1, before, piece, past, base_name,
           sum / (number_of("profile", 0) ? TIMES - 3 : TIMES - 2) * 1e3, best * 1e3);
}

int main(int argc, char **argv)
{
    device *dev;
    if (argc < 2) {
        fprintf(stderr, "shape: give a config.json or a model\n");
        return 2;
    }
    options = argv + 2;
    if (strcmp(text_of("device", ""), "cpu:1") == 0)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    must(backend_open(&dev, text_of("device", "cuda:0")));
    must(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &(work_limits){ .quantised = 1 })));
    double began = now();
    pesc_model *m = open_model(dev, argv[1]);
    const char *slash = strrchr(argv[1], '/'), *name = slash ? slash + 1 : argv[1];
    printf("%s on %s, made in %.1f s\n", name, dev->name, now() - began);
    inference f = { .m = m, .name = name, .batch = number_of("batch", 1) };
    if (number_of("decode", 0))
        decode(&f, number_of("decode", 0));
    else if (number_of("piece", 0))
        mixed(&f, number_of("piece", 0), number_of("past", 0));
    else if (number_of("prefill", 0))
        prefill(&f, number_of("prefill", 0));
    else
        train(m, name);
    dev->op->close(dev);
    return 0;
}
