/* products: matrices in every dtype together with the doubles they stand for, and the naive product
 * of those doubles. Shares no code with what it checks: rounding and NF4 are written here again.
 * GGUF's block formats are decoded by quants.h, whose values test_quants compares with the gguf
 * package's. */
#ifndef TESTS_SUPPORT_PRODUCTS_H
#define TESTS_SUPPORT_PRODUCTS_H

#include "backend/cpu/cpu.h"
#include "support/check.h"

/* A tensor at an odd address, and what each element is worth. */
typedef struct matrix {
    tensor t;
    double *value; /* of element i */
    void *span;    /* what to free */
} matrix;

matrix matrix_new(dtype dt, int64_t rows, int64_t cols, uint64_t seed);
/* n matrices [rows, cols], one after the other (NF4: each with a span of its own). */
matrix matrix_stack(dtype dt, int64_t n, int64_t rows, int64_t cols, uint64_t seed);
void matrix_double(matrix *m,
                   int times); /* every element of an f32 or bf16 matrix, times 2^times */
void matrix_free(matrix *m);
double matrix_get(const tensor *t, int64_t i); /* f32 or bf16 */

/* One product of rows [first, first + n) (all of them when n < 0) of a; b at element b_at. */
typedef struct oracle {
    mm_layout layout;
    const matrix *a, *b;
    int64_t first, n;
    int64_t b_rows, b_cols, b_at;
} oracle;
int64_t oracle_rows(const oracle *o);
int64_t oracle_cols(const oracle *o);

/* sum[i] of each element of the result, and the sum of magnitudes that bounds its rounding. */
void oracle_run(const oracle *o, double *sum, double *magnitude);
/* How far a product of k terms summed in f32 may be from it. */
double oracle_error(int64_t k, double magnitude, double result, dtype out);

#endif
