#include "tensor/tensor.h"

#include "base/status.h"

int64_t tensor_count(const tensor *t)
{
    int64_t n = t->nd > 0;
    for (int32_t i = 0; i < t->nd; i++)
        n *= t->ne[i];
    return n;
}

/* The matrices of an NF4 stack are quantised one by one: each has storage of its own. */
static int64_t separate_parts(const tensor *t)
{
    return t->dt == DT_NF4 && t->nd == 3 ? t->ne[0] : 1;
}

size_t tensor_bytes(const tensor *t)
{
    int64_t n = separate_parts(t), count = tensor_count(t);
    size_t bytes = 0;
    ASSERT(n == 0 || dtype_bytes(t->dt, (uint64_t)(count / n), &bytes));
    return bytes * (size_t)n;
}

int64_t tensor_cols(const tensor *t)
{
    return t->nd ? t->ne[t->nd - 1] : 0;
}

int64_t tensor_rows(const tensor *t)
{
    int64_t n = t->nd > 0;
    for (int32_t i = 0; i + 1 < t->nd; i++)
        n *= t->ne[i];
    return n;
}

tensor tensor_take(arena *a, dtype dt, int32_t nd, const int64_t *ne)
{
    tensor t = { .dt = dt, .nd = nd };
    for (int32_t i = 0; i < nd; i++)
        t.ne[i] = ne[i];
    t.data = arena_take(a, tensor_bytes(&t));
    return t;
}

tensor tensor_take1(arena *a, dtype dt, int64_t n)
{
    return tensor_take(a, dt, 1, (int64_t[]){ n });
}

tensor tensor_take2(arena *a, dtype dt, int64_t rows, int64_t cols)
{
    return tensor_take(a, dt, 2, (int64_t[]){ rows, cols });
}

tensor tensor_take3(arena *a, dtype dt, int64_t n0, int64_t n1, int64_t n2)
{
    return tensor_take(a, dt, 3, (int64_t[]){ n0, n1, n2 });
}

tensor tensor_slice(const tensor *t, int64_t first, int64_t n)
{
    ASSERT(first >= 0 && n >= 0 && first + n <= t->ne[0]);
    ASSERT(t->dt != DT_NF4 || t->nd == 3);
    tensor s = *t;
    s.ne[0] = n;
    if (t->data && t->ne[0])
        s.data = (char *)t->data + tensor_bytes(t) / (size_t)t->ne[0] * (size_t)first;
    return s;
}

tensor tensor_view2(const tensor *t, int64_t rows, int64_t cols)
{
    ASSERT(rows * cols == tensor_count(t));
    tensor v = { .data = t->data, .dt = t->dt, .nd = 2, .ne = { rows, cols } };
    return v;
}
