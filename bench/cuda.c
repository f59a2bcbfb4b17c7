/* bench/cuda: products on a GPU at the sizes of a 7B model: TFLOP/s where tensor cores are the
 * limit, GB/s of weights where memory is. Weights rotate among several, so that no cache flatters;
 * numbers are random, since zeros run faster. cuda [device] */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATTERN = 1 << 20, MOST_WEIGHTS = 64 };

static device *dev;
static float *pattern;

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

static void *space(size_t bytes)
{
    void *p;
    must(dev->op->alloc(dev, bytes, &p));
    return p;
}

static tensor numbers(dtype dt, int64_t rows, int64_t cols)
{
    tensor f = { space((size_t)(rows * cols) * 4), DT_F32, 2, { rows, cols } }, t = f;
    for (int64_t at = 0, n, total = rows * cols; at < total; at += n) {
        n = total - at < PATTERN ? total - at : PATTERN;
        dev->op->upload(dev, (float *)f.data + at, pattern, (size_t)n * 4);
    }
    if (dt == DT_F32)
        return f;
    t.dt = dt;
    t.data = space(tensor_bytes(&t));
    if (dt == DT_NF4)
        dev->op->quantize_nf4(dev, t, f, true);
    else
        dev->op->convert(dev, t, f);
    dev->op->free(dev, f.data);
    return t;
}

/* One product: T x I by O x I, in a layout. */
typedef struct row {
    mm_layout layout;
    int64_t t, i, o;
    dtype w, out;
    bool accumulate;
} row;

/* Seconds a product takes, the median of some series. */
static double time_row(const row *r)
{
    int64_t a_cols = r->layout == MM_NT ? r->i : r->o;
    int64_t out_rows = r->layout == MM_TN ? r->o : r->t;
    int64_t out_cols = r->layout == MM_NT ? r->o : r->i;
    double bytes = (double)(r->o * r->i) * (r->w == DT_NF4 ? 0.5625 : r->w == DT_BF16 ? 2 : 4);
    int count = r->t <= 64 ? (int)(4e8 / bytes) + 2 : 2, times = r->t <= 64 ? 4 * count : 20;
    count = count > MOST_WEIGHTS ? MOST_WEIGHTS : count;
    tensor w[MOST_WEIGHTS], a = numbers(DT_BF16, r->t, a_cols);
    dtype act = r->w == DT_F32 ? DT_F32 : DT_BF16;
    if (act == DT_F32)
        a = numbers(DT_F32, r->t, a_cols);
    tensor out = numbers(r->out, out_rows, out_cols);
    for (int i = 0; i < count; i++)
        w[i] = r->layout == MM_TN ? numbers(act, r->t, r->i) : numbers(r->w, r->o, r->i);
    double took[5];
    for (int series = 0; series < 5; series++) {
        must(dev->op->sync(dev));
        double began = clock_seconds();
        for (int i = 0; i < times; i++)
            dev->op->matmul(dev, &(mm){ .layout = r->layout,
                                        .out = out,
                                        .a = a,
                                        .b = w[i % count],
                                        .scale = 1,
                                        .accumulate = r->accumulate });
        must(dev->op->sync(dev));
        took[series] = (clock_seconds() - began) / times;
        for (int k = series; k > 0 && took[k] < took[k - 1]; k--) {
            double swap = took[k];
            took[k] = took[k - 1];
            took[k - 1] = swap;
        }
    }
    for (int i = 0; i < count; i++)
        dev->op->free(dev, w[i].data);
    dev->op->free(dev, a.data);
    dev->op->free(dev, out.data);
    return took[2];
}

static const char *const layouts[] = { [MM_NT] = "NT", [MM_NN] = "NN", [MM_TN] = "TN" };

/* ---- many rows: TFLOP/s ---- */

static const row many[] = {
    { MM_NT, 8192, 4096, 4096, DT_BF16, DT_BF16, false },
    { MM_NT, 8192, 4096, 11008, DT_BF16, DT_BF16, false },
    { MM_NT, 8192, 11008, 4096, DT_BF16, DT_BF16, false },
    { MM_NN, 8192, 4096, 4096, DT_BF16, DT_BF16, false },
    { MM_NN, 8192, 4096, 11008, DT_BF16, DT_BF16, false },
    { MM_NN, 8192, 11008, 4096, DT_BF16, DT_BF16, false },
    { MM_NN, 8192, 4096, 11008, DT_BF16, DT_F32, true },
    { MM_NT, 8192, 4096, 4096, DT_NF4, DT_BF16, false },
    { MM_NT, 8192, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NN, 8192, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NT, 8192, 4096, 64, DT_BF16, DT_BF16, false },
    { MM_NT, 8192, 64, 4096, DT_BF16, DT_BF16, true },
    { MM_NT, 8192, 64, 11008, DT_BF16, DT_BF16, true },
    { MM_NN, 8192, 64, 4096, DT_BF16, DT_BF16, false },
    { MM_NN, 8192, 4096, 64, DT_BF16, DT_BF16, true },
    { MM_NN, 8192, 4096, 64, DT_BF16, DT_F32, true },
    { MM_TN, 8192, 64, 4096, DT_BF16, DT_F32, true },
    { MM_TN, 8192, 4096, 64, DT_BF16, DT_F32, true },
    { MM_NT, 2048, 4096, 32000, DT_BF16, DT_F32, false },
    { MM_NT, 8192, 4096, 8, DT_F32, DT_F32, false },
    { MM_NN, 8192, 4096, 8, DT_F32, DT_F32, true },
    { MM_TN, 8192, 4096, 8, DT_F32, DT_F32, true },
};

static void time_many(void)
{
    for (size_t k = 0; k < sizeof many / sizeof *many; k++) {
        const row *r = &many[k];
        double s = time_row(r), flops = 2.0 * (double)r->t * (double)r->i * (double)r->o;
        printf("%s T %5lld I %5lld O %5lld  w %-4s out %-4s%s  %8.1f us  %6.1f TFLOP/s\n",
               layouts[r->layout], (long long)r->t, (long long)r->i, (long long)r->o,
               dtype_name(r->w), dtype_name(r->out), r->accumulate ? " +=" : "   ", s * 1e6,
               flops / s / 1e12);
    }
}

/* ---- few rows: GB/s of the weights ---- */

static const row few[] = {
    { MM_NT, 1, 4096, 4096, DT_NF4, DT_BF16, false },
    { MM_NT, 1, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NT, 1, 11008, 4096, DT_NF4, DT_BF16, false },
    { MM_NT, 8, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NT, 16, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NT, 64, 4096, 11008, DT_NF4, DT_BF16, false },
    { MM_NT, 1, 4096, 4096, DT_BF16, DT_BF16, false },
    { MM_NT, 1, 4096, 11008, DT_BF16, DT_BF16, false },
    { MM_NT, 1, 11008, 4096, DT_BF16, DT_BF16, false },
    { MM_NT, 1, 4096, 32000, DT_BF16, DT_F32, false },
    { MM_NT, 8, 4096, 11008, DT_BF16, DT_BF16, false },
    { MM_NT, 64, 4096, 11008, DT_BF16, DT_BF16, false },
};

static void time_few(void)
{
    for (size_t k = 0; k < sizeof few / sizeof *few; k++) {
        const row *r = &few[k];
        double bytes = (double)(r->o * r->i) * (r->w == DT_NF4 ? 0.5625 : 2);
        double s = time_row(r);
        printf("few rows: T %2lld I %5lld O %5lld  w %-4s  %8.2f us  %7.0f GB/s\n", (long long)r->t,
               (long long)r->i, (long long)r->o, dtype_name(r->w), s * 1e6, bytes / s / 1e9);
    }
}

static const work_limits work = {
    .act = DT_BF16, .tokens = 8192, .widest = 32000, .converted = 11008 * 4096, .quantised = 1
};

int main(int argc, char **argv)
{
    must(backend_open(&dev, argc > 1 ? argv[1] : "cuda:0"));
    must(dev->op->reserve(dev, dev->op->scratch_bytes(dev, &work)));
    pattern = mem_alloc(PATTERN, sizeof *pattern);
    for (int i = 0; i < PATTERN; i++)
        pattern[i] = rng_normal((rng_key){ 1, 1 }, (uint64_t)i);
    printf("%s\n", dev->name);
    time_many();
    time_few();
    dev->op->close(dev);
    return 0;
}
