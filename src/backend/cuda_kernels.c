#include "backend/cuda_kernels.h"

#include <stdio.h>

/* ---- the tables ---- */

#define PRODUCT_TRAITS(name, fits, sums, together, ...) { #name, __VA_ARGS__ },
#define GROUPED_TRAITS(name, fits, ...) { #name, __VA_ARGS__ },

static const kernel_traits products[] = { CUDA_PRODUCTS(PRODUCT_TRAITS) };
static const kernel_traits grouped[] = { CUDA_GROUPED(GROUPED_TRAITS) };

const kernel_traits *kernel_products(size_t *n)
{
    *n = sizeof products / sizeof *products;
    return products;
}

const kernel_traits *kernel_grouped(size_t *n)
{
    *n = sizeof grouped / sizeof *grouped;
    return grouped;
}

static bool within(int64_t x, int64_t from, int64_t to)
{
    return x >= from && (!to || x <= to);
}

bool kernel_serves(const kernel_traits *t, const kernel_use *u)
{
    return within(u->rows, t->rows_from, t->rows_to) && within(u->cc, t->cc_from, t->cc_to) &&
           t->layouts >> u->layout & 1 && t->a >> u->a & 1 && t->b >> u->b & 1 &&
           t->out >> u->out & 1;
}

/* ---- as text ---- */

/* "1-8", "256-", "any" */
static void print_rows(char *text, size_t size, const kernel_traits *t)
{
    if (t->rows_to)
        snprintf(text, size, "%d-%d", t->rows_from, t->rows_to);
    else if (t->rows_from > 1)
        snprintf(text, size, "%d-", t->rows_from);
    else
        snprintf(text, size, "any");
}

/* The names of a set with a separator: "f32|bf16", "NT NN". */
static void print_set(char *text, size_t size, unsigned set, const char *separator,
                      const char *(*name_of)(int))
{
    size_t n = 0;
    *text = '\0';
    for (int i = 0; set >> i; i++)
        if (set >> i & 1 && n < size) {
            int length = snprintf(text + n, size - n, "%s%s", n ? separator : "", name_of(i));
            n += length > 0 ? (size_t)length : 0;
        }
}

static const char *type_name(int dt)
{
    return dtype_name((dtype)dt);
}

static const char *layout_name(int layout)
{
    static const char *const names[] = { [MM_NT] = "NT", [MM_NN] = "NN", [MM_TN] = "TN" };
    return names[layout];
}

static void describe(pesc_kernel_row *row, const char *op, const kernel_traits *t)
{
    char a[24], b[24], out[24];
    *row = (pesc_kernel_row){ .device = "cuda" };
    snprintf(row->op, sizeof row->op, "%s", op);
    snprintf(row->name, sizeof row->name, "%s", t->name);
    snprintf(row->detail, sizeof row->detail, "%s%s%s", t->method, *t->needs ? "; needs " : "",
             t->needs);
    print_rows(row->rows, sizeof row->rows, t);
    snprintf(row->hardware, sizeof row->hardware, "sm_%d%s", t->cc_from, t->cc_to ? "" : "+");
    print_set(row->layouts, sizeof row->layouts, t->layouts, " ", layout_name);
    print_set(a, sizeof a, t->a, "|", type_name);
    print_set(b, sizeof b, t->b, "|", type_name);
    print_set(out, sizeof out, t->out, "|", type_name);
    snprintf(row->types, sizeof row->types, "%s x %s -> %s", a, b, out);
}

size_t cuda_kernels(pesc_kernel_row *rows, size_t cap)
{
    size_t n_products, n_grouped;
    const kernel_traits *p = kernel_products(&n_products), *g = kernel_grouped(&n_grouped);
    for (size_t i = 0; i < n_products + n_grouped && i < cap; i++) {
        bool is_grouped = i >= n_products;
        describe(&rows[i], is_grouped ? "grouped_matmul" : "matmul",
                 is_grouped ? &g[i - n_products] : &p[i]);
    }
    return n_products + n_grouped;
}
