/* bench/matmul: the speed of the CPU's products, beside the limits of the machine.
 *
 *   build/bench/matmul [threads] [isa] [few]
 *
 * Everything is timed in one run, interleaved, best of several: on a shared machine only ratios
 * are meaningful. With one thread the clock is the thread's CPU time. Prints GFLOP/s of products
 * beside the peak rate of multiply-adds and oneDNN's sgemm (if its library is installed), and GB/s
 * of weights for few rows beside a plain loop that reads them; few: these alone. */
#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/mem.h"
#include "tensor/nf4.h"
#include "tensor/quants.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 4 };

static clockid_t clock_id = CLOCK_MONOTONIC;

static double seconds(void)
{
    return clock_read(clock_id);
}

/* Random bytes, of which none makes a half that is not finite. */
static void fill_blocks(char *data, size_t bytes)
{
    uint64_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (char)(state >> 56 & 0xBF);
    }
}

/* Random, never zeros: some CPUs multiply zeros faster. */
static tensor random_matrix(dtype dt, int64_t rows, int64_t cols)
{
    tensor t = { .dt = dt, .nd = 2, .ne = { rows, cols } };
    size_t bytes = tensor_bytes(&t);
    t.data = mem_aligned(bytes + 64);
    if (!t.data)
        abort();
    uint64_t state = 1;
    if (quants_is(dt)) {
        fill_blocks(t.data, bytes);
        return t;
    }
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint16_t bits = (uint16_t)(state >> 48); /* of a number near 1, or of four codes */
        if (dt != DT_NF4)
            bits = (uint16_t)((bits & 0x80FF) | 0x3F00);
        memcpy((char *)t.data + i, &bits, 2);
    }
    for (int64_t i = 0; dt == DT_NF4 && i < (rows * cols + 63) / 64; i++)
        nf4_scales(t.data, rows * cols)[i] = 0.5f + (float)(i % 7) / 8;
    return t;
}

/* ---- the limits of the machine */

/* A loop of one instruction, and the operations of each. */
typedef struct peak_loop {
    const char *what, *level;
    cpu_range_fn run;
    double flops;
} peak_loop;

#if defined(__aarch64__)
#include "peak_aarch64.h"
#else
#include "peak_x86_64.h"
#endif

/* GFLOP/s of all threads in a loop of this instruction alone. */
static double peak(cpu_device *d, cpu_range_fn fn, double flops)
{
    double best = 1e9;
    for (int r = 0; r < 2 * ROUNDS; r++) {
        double t = seconds();
        cpu_for(d, d->n_threads, 1, fn, NULL);
        t = seconds() - t;
        best = t < best ? t : best;
    }
    return flops * 12 * 1e6 * d->n_threads / best * 1e-9;
}

static bool present(const char *level)
{
    for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++)
        if (strcmp(cpu_isa_name(isa), level) == 0)
            return true;
    return false;
}

/* Of each instruction, its widest form that this machine has. */
static void print_peaks(cpu_device *d)
{
    const char *last = "";
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        if (!present(loops[i].level) || strcmp(last, loops[i].what) == 0)
            continue;
        last = loops[i].what;
        printf("peak of %s: %.0f GFLOP/s\n", last, peak(d, loops[i].run, loops[i].flops));
    }
}

static void read_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const uint64_t *x = (const uint64_t *)ctx;
    uint64_t sum[8] = { 0 };
    for (int64_t i = begin / 8; i + 8 <= end / 8; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] ^= x[i + j];
    memcpy(scratch, sum, sizeof sum);
}

/* ---- oneDNN, if it is installed */

typedef int (*sgemm_fn)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                        const float *, int64_t, float, float *, int64_t);
static sgemm_fn sgemm;

static void find_sgemm(int n_threads)
{
    void *lib = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        return;
    *(void **)&sgemm = dlsym(lib, "dnnl_sgemm");
    void (*set_threads)(int) = NULL;
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads)
        set_threads(n_threads);
}

/* ---- products */

typedef struct row {
    const char *name;
    mm_layout layout;
    int64_t t, o, i;
} row;

static const row products[] = {
    { "135M q,o", MM_NT, 512, 576, 576 },         { "135M gate,up", MM_NT, 512, 1536, 576 },
    { "135M down", MM_NT, 512, 576, 1536 },       { "135M head", MM_NT, 64, 49152, 576 },
    { "135M gate,up dX", MM_NN, 512, 1536, 576 }, { "135M gate,up dW", MM_TN, 512, 1536, 576 },
    { "7B q,o", MM_NT, 512, 4096, 4096 },         { "7B gate,up", MM_NT, 512, 11008, 4096 },
    { "7B down", MM_NT, 512, 4096, 11008 },       { "7B q,o dX", MM_NN, 512, 4096, 4096 },
    { "7B q,o dW", MM_TN, 512, 4096, 4096 },      { "7B q,o", MM_NT, 64, 4096, 4096 },
    { "7B q,o", MM_NT, 16, 4096, 4096 },          { "1.5B gate,up", MM_NT, 32, 8960, 1536 },
    { "LoRA q,k,v A", MM_NT, 1024, 48, 576 },     { "LoRA o A", MM_NT, 1024, 16, 576 },
    { "LoRA down A", MM_NT, 1024, 16, 1536 },     { "LoRA q B^T dy", MM_NN, 1024, 576, 16 },
    { "LoRA up B^T dy", MM_NN, 1024, 1536, 16 },  { "LoRA q dB", MM_TN, 1024, 576, 16 },
    { "LoRA up dB", MM_TN, 1024, 1536, 16 },      { "LoRA q,k,v dA", MM_TN, 1024, 48, 576 },
    { "LoRA down dA", MM_TN, 1024, 16, 1536 },
};
/* The first KINDS of them also for many rows. */
static const struct {
    dtype act, weight;
} kinds[] = { { DT_F32, DT_F32 },   { DT_F32, DT_NF4 },   { DT_F32, DT_Q8_0 },
              { DT_F32, DT_Q4_K },  { DT_BF16, DT_BF16 }, { DT_BF16, DT_NF4 },
              { DT_F32, DT_Q5_K },  { DT_F32, DT_Q6_K },  { DT_F32, DT_Q4_0 },
              { DT_BF16, DT_Q4_K }, { DT_BF16, DT_Q5_K }, { DT_BF16, DT_Q6_K },
              { DT_BF16, DT_Q8_0 }, { DT_BF16, DT_Q4_0 }, { DT_BF16, DT_Q4_1 },
              { DT_BF16, DT_Q5_0 }, { DT_BF16, DT_Q5_1 }, { DT_BF16, DT_IQ4_NL },
              { DT_BF16, DT_Q2_K }, { DT_BF16, DT_Q3_K } };
enum { KINDS = 6, FEW_KINDS = sizeof kinds / sizeof *kinds };

static mm call_of(const row *r, dtype act, dtype weight)
{
    bool dw = r->layout == MM_TN;
    int64_t rows = dw ? r->o : r->t, cols = r->layout == MM_NT ? r->o : r->i;
    return (mm){ .layout = r->layout,
                 .a = random_matrix(act, r->t, r->layout == MM_NT ? r->i : r->o),
                 .b = random_matrix(weight, dw ? r->t : r->o, r->i),
                 .out = random_matrix(dw ? DT_F32 : act, rows, cols),
                 .scale = 1 };
}

static void drop(mm *c)
{
    mem_free(c->a.data);
    mem_free(c->b.data);
    mem_free(c->out.data);
}

static double time_product(device *d, const mm *c, double best)
{
    double t = seconds();
    d->op->matmul(d, c);
    t = seconds() - t;
    return t < best ? t : best;
}

static double time_sgemm(const row *r, const mm *c, double best)
{
    double t = seconds();
    sgemm('N', 'T', r->t, r->o, r->i, 1, c->a.data, r->i, c->b.data, r->i, 0, c->out.data, r->o);
    t = seconds() - t;
    return t < best ? t : best;
}

static void print_products(device *d)
{
    printf("%-16s %-2s %5s %6s %6s | %8s", "GFLOP/s", "", "T", "O", "I", "sgemm");
    for (int k = 0; k < KINDS; k++)
        printf("  %4s*%-4s", dtype_name(kinds[k].act), dtype_name(kinds[k].weight));
    printf("\n");
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const row *r = &products[i];
        mm calls[KINDS] = { 0 };
        double best[KINDS + 1];
        for (int k = 0; k < KINDS; k++)
            if ((r->layout != MM_TN || dtype_block(kinds[k].weight) == 1) &&
                r->i % (int64_t)dtype_block(kinds[k].weight) == 0)
                calls[k] = call_of(r, kinds[k].act, kinds[k].weight);
        for (int k = 0; k <= KINDS; k++)
            best[k] = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            for (int k = 0; k < KINDS; k++)
                if (calls[k].a.data)
                    best[k] = time_product(d, &calls[k], best[k]);
            if (sgemm && r->layout == MM_NT)
                best[KINDS] = time_sgemm(r, &calls[0], best[KINDS]);
        }
        double work = 2e-9 * (double)(r->t * r->o * r->i);
        printf("%-16s %s %5lld %6lld %6lld | %8.0f", r->name,
               (const char *[]){ "NT", "NN", "TN" }[r->layout], (long long)r->t, (long long)r->o,
               (long long)r->i, work / best[KINDS]);
        for (int k = 0; k < KINDS; k++) {
            printf("  %9.0f", work / best[k]);
            drop(&calls[k]);
        }
        printf("\n");
        fflush(stdout);
    }
}

static void print_few(device *d, int64_t o, int64_t i)
{
    static const int64_t counts[] = { 1, 2, 4, 8 };
    enum { COUNTS = 4 };
    for (int k = 0; k < FEW_KINDS; k++) {
        if (i % (int64_t)dtype_block(kinds[k].weight))
            continue;
        mm c = call_of(&(row){ .t = counts[COUNTS - 1], .o = o, .i = i }, kinds[k].act,
                       kinds[k].weight);
        int64_t bytes = (int64_t)tensor_bytes(&c.b);
        double best[COUNTS + 1] = { 1e9, 1e9, 1e9, 1e9, 1e9 };
        for (int round = 0; round < ROUNDS; round++) {
            for (int j = 0; j < COUNTS; j++) {
                c.a.ne[0] = c.out.ne[0] = counts[j];
                best[j] = time_product(d, &c, best[j]);
            }
            double t = seconds();
            cpu_for(cpu_of(d), bytes, 1 << 18, read_range, c.b.data);
            t = seconds() - t;
            best[COUNTS] = t < best[COUNTS] ? t : best[COUNTS];
        }
        printf("%4s*%-4s O %6lld I %6lld | read %6.1f |", dtype_name(kinds[k].act),
               dtype_name(kinds[k].weight), (long long)o, (long long)i,
               1e-9 * (double)bytes / best[COUNTS]);
        for (int j = 0; j < COUNTS; j++)
            printf("  T=%lld %6.1f", (long long)counts[j], 1e-9 * (double)bytes / best[j]);
        printf("\n");
        fflush(stdout);
        drop(&c);
    }
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? argv[1][0] - '0' : 1;
    if (n_threads == 1)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    cpu_isa isa = cpu_isa_best();
    for (cpu_isa i = CPU_BASE; argc > 2 && i < isa; i++)
        if (strcmp(argv[2], cpu_isa_name(i)) == 0)
            isa = i;
    device *d;
    if (cpu_open_isa(&d, n_threads, isa) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return 1;
    }
    find_sgemm(n_threads);
    printf("%s\n", d->name);
    print_peaks(cpu_of(d));
    if (argc <= 3)
        print_products(d);
    printf("GB/s of weights, few rows\n");
    print_few(d, 49152, 576);
    print_few(d, 4096, 4096);
    print_few(d, 8960, 1536);
    d->op->close(d);
    return 0;
}
