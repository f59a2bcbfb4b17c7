/* tensor: a view of numbers in memory. It owns nothing; an arena or a mapped file does.
 *
 * Dimensions are in PyTorch's order and row-major: w [O,I] has ne = {O, I}; the last is contiguous.
 * data may be a device address, which only ops may access. A zero tensor (data NULL, nd 0) means
 * absent. */
#ifndef PESC_TENSOR_TENSOR_H
#define PESC_TENSOR_TENSOR_H

#include "base/arena.h"
#include "tensor/dtype.h"

typedef struct tensor {
    void *data;
    dtype dt;
    int32_t nd;
    int64_t ne[4];
} tensor;

int64_t tensor_count(const tensor *t); /* elements; 0 for an absent tensor */
size_t tensor_bytes(const tensor *t);  /* of its storage */
int64_t tensor_rows(const tensor *t);  /* all dimensions but the last */
int64_t tensor_cols(const tensor *t);  /* the last dimension */

/* Allocates a tensor from an arena (while the arena only measures: data is NULL). */
tensor tensor_take(arena *a, dtype dt, int32_t nd, const int64_t *ne);
tensor tensor_take1(arena *a, dtype dt, int64_t n);
tensor tensor_take2(arena *a, dtype dt, int64_t rows, int64_t cols);
tensor tensor_take3(arena *a, dtype dt, int64_t n0, int64_t n1, int64_t n2);

/* [first, first + n) of the first dimension. In NF4 only stacks [E,O,I] can be sliced: each of
 * their matrices has storage of its own (codes, then scales). */
tensor tensor_slice(const tensor *t, int64_t first, int64_t n);
tensor tensor_view2(const tensor *t, int64_t rows, int64_t cols); /* same storage, other shape */

#endif
