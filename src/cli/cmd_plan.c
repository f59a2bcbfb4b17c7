/* cmd_plan: the memory and disk a run would take. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- a model of several processes ---- */

/* What a step of all processes exchanges and takes, if communication is not hidden by computation.
 */
typedef struct step_model {
    int64_t processes, tokens; /* of a step, at most */
    double bytes;              /* that each process sends in a step: gradients out, weights back */
    double base;               /* the same of a sharded base */
    double exchange, compute;  /* seconds; compute 0: not known */
} step_model;

static step_model model_step(const options *o, const pesc_train_options *p,
                             const pesc_plan_report *r)
{
    double n = (double)p->processes;
    step_model m = { .processes = p->processes, .tokens = p->batch * p->seq_len };
    m.bytes = (double)r->exchanged * (n - 1) / n;
    double passes = ceil((double)m.tokens / (n * (double)r->micro_tokens));
    m.base = 2 * passes * (double)r->sharded * (n - 1) / n; /* forward and backward */
    m.exchange = (m.bytes + m.base) / (o->bandwidth * 1e9);
    if (o->gpu_tokens > 0)
        m.compute = (double)m.tokens / (n * o->gpu_tokens);
    return m;
}

static void print_model_json(const step_model *m)
{
    out_object("model_of_a_step",
               "processes=%ld tokens=%ld bytes_sent=%ld exchange_seconds=%.6g compute_seconds=%.6g",
               m->processes, m->tokens, (int64_t)(m->bytes + m->base), m->exchange, m->compute);
}

static void print_model(const step_model *m, double bandwidth)
{
    out_number bytes;
    printf("%-32s %lld processes, each with the memory above\n", "model of a step (not measured)",
           (long long)m->processes);
    printf("%-32s %s sent by each, %.3g s at %.4g GB/s\n", "  exchange",
           out_bytes(bytes, (uint64_t)(m->bytes + m->base)), m->exchange, bandwidth);
    if (m->base > 0)
        printf("%-32s %s of it are layers of the sharded base\n", "",
               out_bytes(bytes, (uint64_t)m->base));
    if (m->compute > 0)
        printf("%-32s %.3g s for %lld tokens, %.0f %% of the step if nothing overlaps\n",
               "  compute", m->compute, (long long)m->tokens,
               100 * m->compute / (m->compute + m->exchange));
}

/* ---- memory ---- */

static void print_json(const pesc_plan_report *r, const step_model *m)
{
    out_begin(NULL, '{');
    out_fields("params_total=%ld params_trained=%ld", r->params_total, r->params_trained);
    if (r->routers[0])
        out_text("routers", r->routers);
    out_begin("bytes", '{');
    out_fields("model=%ld trained=%ld optimizer=%ld activations=%ld total=%ld available=%ld "
               "checkpoint=%ld",
               r->model, r->trained, r->optimizer, r->activations, r->total, r->available,
               r->checkpoint_bytes);
    if (r->streamed)
        out_int("streamed", (int64_t)r->streamed);
    if (r->run_bytes)
        out_int("run", (int64_t)r->run_bytes);
    else
        out_real("run", NAN);
    out_end();
    out_bool("fits", r->fits);
    out_bool("paged", r->paged);
    out_fields("micro_tokens=%ld largest_micro_tokens=%ld kept_layers=%ld layers=%ld",
               r->micro_tokens, r->largest_micro_tokens, r->kept_layers, r->layers);
    if (m->processes > 1 || m->compute > 0)
        print_model_json(m);
    out_end();
}

static void print_text(const pesc_plan_report *r)
{
    const struct {
        const char *what;
        uint64_t bytes;
    } rows[] = {
        { "model", r->model },
        { "weights that train, gradients", r->trained },
        { r->paged ? "optimiser, in host memory" : "optimiser", r->optimizer },
        { "activations", r->activations },
        { "total", r->total },
        { "available", r->available },
        { "checkpoint on disk", r->checkpoint_bytes },
    };
    out_number a, b;
    printf("%-32s %s of %s parameters\n", "trains", out_count(a, r->params_trained),
           out_count(b, r->params_total));
    if (r->routers[0])
        printf("%-32s %s\n", "routers", r->routers);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-32s %s\n", rows[i].what, out_bytes(a, rows[i].bytes));
    if (r->streamed)
        printf("%-32s %s\n", "layers, in host memory", out_bytes(a, r->streamed));
    if (r->run_bytes)
        printf("%-32s %s\n", "run on disk", out_bytes(a, r->run_bytes));
    else
        printf("%-32s every checkpoint is kept; with --steps the sum is known\n", "run on disk");
    printf("%-32s %lld tokens; %lld of %lld layers keep activations; at most %lld tokens fit\n",
           "forward", (long long)r->micro_tokens, (long long)r->kept_layers, (long long)r->layers,
           (long long)r->largest_micro_tokens);
    printf("%-32s %s\n", "fits", r->fits ? "yes" : "no");
}

/* ---- a GPU that is not in this machine ---- */

/* Memory as nvidia-smi reports it, and the rate of bf16 products with f32 sums, without sparsity,
 * by NVIDIA's data sheets (B200, H200, H100 and A100: their SXM modules) and the papers on the
 * architectures of GeForce cards. */
static const struct gpu {
    const char *name;
    int64_t mib;
    double flops;
} gpus[] = {
    { "b200", 183359, 2250e12 }, { "h200", 143771, 989e12 },    { "h100", 81559, 989e12 },
    { "a100", 81920, 312e12 },   { "a100-40g", 40960, 312e12 }, { "a6000", 49140, 155e12 },
    { "l40s", 46068, 362e12 },   { "l4", 23034, 121e12 },       { "a10", 23028, 125e12 },
    { "5090", 32607, 209.5e12 }, { "4090", 24564, 165e12 },     { "3090", 24576, 71e12 },
};
enum { GPUS = sizeof gpus / sizeof *gpus };

void plan_gpus(void)
{
    for (size_t i = 0; i < GPUS; i++)
        printf("%s ", gpus[i].name);
}

/* The share of this rate that training reaches; docs/performance.md has what was measured. */
static const double reached = 0.4;

static pesc_status find_gpu(const char *name, const struct gpu **out)
{
    char known[256] = "";
    *out = NULL;
    for (size_t i = 0; name && i < GPUS; i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", gpus[i].name);
        if (strcasecmp(gpus[i].name, name) == 0)
            *out = &gpus[i];
    }
    return *out || !name ? PESC_OK
                         : out_fail(PESC_USAGE,
                                    "plan: --gpu: found \"%s\", expected one of %s; --gpu-memory "
                                    "plans for any other",
                                    name, known);
}

/* "24G", "24GiB" and "24GB" are what such a card is sold with: binary units. */
static pesc_status read_memory(const char *text, int64_t *mib)
{
    static const struct {
        const char *unit;
        double mib;
    } units[] = { { "M", 1 }, { "G", 1024 }, { "T", 1024 * 1024 } };
    char *end;
    double n = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (n > 0 && strncasecmp(end, units[i].unit, 1) == 0 &&
            (!end[1] || strcasecmp(end + 1, "B") == 0 || strcasecmp(end + 1, "iB") == 0) &&
            n * units[i].mib >= 1 && n * units[i].mib < 1e9) {
            *mib = (int64_t)(n * units[i].mib);
            return PESC_OK;
        }
    return out_fail(PESC_USAGE, "plan: --gpu-memory: found \"%s\", expected a size such as 24G",
                    text);
}

static pesc_status open_planned(const options *o, const struct gpu *gpu, pesc_device **out)
{
    char name[32];
    int64_t mib = gpu ? gpu->mib : 0;
    if (strcmp(o->device, "cpu") == 0)
        return out_fail(PESC_USAGE,
                        "plan: --gpu and --gpu-memory are of a GPU, found --device cpu");
    if (o->gpu_memory)
        TRY(read_memory(o->gpu_memory, &mib));
    snprintf(name, sizeof name, "planned:%lld", (long long)mib);
    return pesc_device_open(out, name);
}

/* ---- the command ---- */

pesc_status cmd_plan(const options *o)
{
    pesc_train_options p;
    pesc_plan_report r = PESC_INIT(pesc_plan_report);
    pesc_device *dev = NULL;
    TRY(tune_options(o, &p));
    p.output = p.output ? p.output : "."; /* a plan neither writes nor reads them */
    static const char *const no_data = "-";
    p.data = p.n_data ? p.data : &no_data;
    p.n_data = p.n_data ? p.n_data : 1;
    p.local_processes = o->gpus > 1 ? o->gpus : 1;
    p.processes = p.local_processes * o->nodes;
    const struct gpu *gpu;
    TRY(find_gpu(o->gpu, &gpu));
    TRY(gpu || o->gpu_memory ? open_planned(o, gpu, &dev) : open_device(&dev, o));
    pesc_status st = pesc_plan(dev, o->model, &p, &r);
    if (st == PESC_OK && !o->json && (gpu || o->gpu_memory))
        printf("%-32s %s%s%s, not measured: planned without one\n", "device", pesc_device_name(dev),
               gpu ? " as " : "", gpu ? gpu->name : "");
    pesc_device_close(dev);
    TRY(st);
    step_model m = model_step(o, &p, &r);
    if (gpu && r.flop > 0 && o->gpu_tokens == 0)
        m.compute = (double)m.tokens * r.flop / (reached * gpu->flops * (double)m.processes);
    if (o->json)
        print_json(&r, &m);
    else
        print_text(&r);
    if (!o->json && m.processes > 1)
        print_model(&m, o->bandwidth);
    else if (!o->json && m.compute > 0)
        printf("%-32s %.3g s for %lld tokens, an estimate: %.0f %% of the %.0f TFLOP/s of its data "
               "sheet\n",
               "step", m.compute, (long long)m.tokens, 100 * reached, gpu->flops / 1e12);
    return r.fits ? PESC_OK
                  : out_fail(PESC_NOMEM, "the run does not fit into memory; base_dtype nf4, a "
                                         "smaller micro_tokens or seq_len, or adamw8 need less");
}
