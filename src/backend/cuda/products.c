#include "backend/cuda/products.h"

/* ---- the table ---- */

#define ROW(name, fits, sums, together, ...)                                                       \
    { { #name, __VA_ARGS__ }, sums, together, fits, name##_launch },

static const product_kernel kernels[] = { CUDA_PRODUCTS(ROW) };

enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- choosing ---- */

bool product_whole(const mm *a)
{
    return (!a->a_ld || a->a_ld == tensor_cols(&a->a)) &&
           (!a->b_ld || a->b_ld == tensor_cols(&a->b)) &&
           (!a->out_ld || a->out_ld == tensor_cols(&a->out));
}

static bool serves(const product_kernel *k, const cuda_device *d, const mm *a)
{
    kernel_use u = { tensor_rows(&a->a), d->cc, a->layout, a->a.dt, a->b.dt, a->out.dt };
    return kernel_serves(&k->traits, &u) && (k->sums || !a->n_more) && (!k->fits || k->fits(d, a));
}

/* The first row that serves it; NULL only for a sum that no row serves whole. With `term`, a is one
 * term of such a sum, and the kernels of sums are left out. */
static const product_kernel *choose(const cuda_device *d, const mm *a, bool term)
{
    for (int i = 0; i < KERNELS; i++)
        if (!(term && kernels[i].sums) && serves(&kernels[i], d, a))
            return &kernels[i];
    return NULL;
}

/* How many of the n products k computes in one launch: those of the same activations. */
static int count_together(const product_kernel *k, const cuda_device *d, const mm *a, int n)
{
    int count = 1;
    while (count < n && count < k->together && a[count].a.data == a->a.data &&
           tensor_cols(&a[count].b) == tensor_cols(&a->b) && serves(k, d, a + count))
        count++;
    return count;
}

/* ---- the ops ---- */

static void multiply_term(cuda_device *d, const mm *a)
{
    const product_kernel *k = choose(d, a, true);
    ASSERT(k); /* the last row serves every product without further terms */
    k->launch(d, a, 1);
}

/* A sum that no row serves whole: its terms one by one, each added to `out`; the bias with the
 * last. */
static void multiply_terms(cuda_device *d, const mm *a)
{
    mm term = *a;
    term.bias = (tensor){ 0 };
    term.n_more = 0;
    for (int i = 0; i < a->n_more; i++) {
        term.a = a->more[i].a;
        term.b = a->more[i].b;
        term.a_ld = a->more[i].a_ld;
        term.b_ld = a->more[i].b_ld;
        multiply_term(d, &term);
        term.accumulate = true;
    }
    mm last = *a;
    last.accumulate = term.accumulate;
    last.n_more = 0;
    multiply_term(d, &last);
}

void cuda_matmul(device *dev, const mm *a)
{
    cuda_device *d = cuda_of(dev);
    if (tensor_count(&a->out) == 0)
        return;
    const product_kernel *k = choose(d, a, false);
    if (k)
        k->launch(d, a, 1);
    else
        multiply_terms(d, a);
}

/* Sums of few rows, none of which a kernel computes whole. */
static bool lora_apart(const cuda_device *d, const mm *a, int n)
{
    bool apart = n > 0 && lora_few_fits(d, a, n);
    for (int i = 0; apart && i < n; i++)
        apart = !choose(d, &a[i], false);
    return apart;
}

/* Products of the same activations go together where a kernel takes several; such kernels come
 * first, whatever their place in the table. Low-rank terms of few rows are added afterwards, all in
 * one launch. */
void cuda_matmuls(device *dev, const mm *a, int n)
{
    cuda_device *d = cuda_of(dev);
    if (lora_apart(d, a, n)) {
        mm base[LORA_FEW_PRODUCTS];
        for (int i = 0; i < n; i++) {
            base[i] = a[i];
            base[i].n_more = 0;
        }
        cuda_matmuls(dev, base, n);
        lora_few_launch(d, a, n);
        return;
    }
    for (int i = 0, count; i < n; i += count) {
        count = 0;
        for (int k = 0; k < KERNELS && !count; k++)
            if (kernels[k].together > 1 && serves(&kernels[k], d, a + i)) {
                count = count_together(&kernels[k], d, a + i, n - i);
                kernels[k].launch(d, a + i, count);
            }
        if (!count) {
            cuda_matmul(dev, a + i);
            count = 1;
        }
    }
}
