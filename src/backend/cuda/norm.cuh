/* norm: where a norm's rows come from: a tensor, or a sum that is computed and stored on the way.
 */
#ifndef PESC_BACKEND_CUDA_NORM_CUH
#define PESC_BACKEND_CUDA_NORM_CUH

#include "backend/cuda/vec.cuh"

/* load() loads a span of row r, keep() stores it where a later kernel needs it, again() loads it a
 * second time. */
template <class X> struct norm_plain {
    typedef X type;
    const X *x;

    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.load(v, x, r * n);
    }

    template <class S, int W> __device__ void keep(const float (&)[W], S, int64_t, int64_t) const {}

    template <class S, int W> __device__ void again(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.load(v, x, r * n);
    }
};

/* x + add + rows, which is stored in `sum` (it may be x). K: rows of experts for a token, or
 * NORM_ANY. A: the type of what is added; where it is vec_any, that may be absent. */
constexpr int NORM_ANY = -1;

template <class A, int K> struct norm_sum {
    typedef float type;
    const float *x;
    float *sum;
    A add, rows;
    const int32_t *inverse;
    int32_t any;

    template <class S, int W> __device__ void load(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        int k = K == NORM_ANY ? any : K;
        float more[W] = { 0 }, all[W] = { 0 };
        at.load(v, x, r * n);
        if (K != NORM_ANY || present(add))
            at.load(more, add, r * n);
#pragma unroll
        for (int slot = 0; slot < k; slot++) {
            float row[W];
            at.load(row, rows, inverse[r * k + slot] * n);
            for (int j = 0; j < W; j++)
                all[j] += row[j];
        }
        for (int j = 0; j < W; j++)
            v[j] = v[j] + more[j] + all[j];
    }

    template <class S, int W>
    __device__ void keep(const float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.store(sum, v, r * n);
    }

    template <class S, int W> __device__ void again(float (&v)[W], S at, int64_t r, int64_t n) const
    {
        at.load(v, sum, r * n);
    }

  private:
    __device__ static bool present(vec_any a)
    {
        return a.p;
    }
    template <class T> __device__ static bool present(const T *)
    {
        return true;
    }
};

/* f(source): the two cases of a transformer block in bf16 are templates of their own. */
template <class F> void norm_summed(const norm_fwd *a, F f)
{
    const float *x = (const float *)a->x.data;
    float *sum = (float *)a->sum.data;
    const int32_t *inverse = (const int32_t *)a->inverse.data;
    int32_t k = a->rows.data ? (int32_t)(tensor_count(&a->inverse) / tensor_rows(&a->x)) : 0;
    const bf16 *add = (const bf16 *)a->add.data, *rows = (const bf16 *)a->rows.data;
    bool narrow = a->add.data && a->add.dt == DT_BF16 && (k == 0 || a->rows.dt == DT_BF16);
    if (narrow && k == 0)
        f(norm_sum<const bf16 *, 0>{ x, sum, add, rows, inverse, 0 });
    else if (narrow && k == 2)
        f(norm_sum<const bf16 *, 2>{ x, sum, add, rows, inverse, 2 });
    else
        f(norm_sum<vec_any, NORM_ANY>{ x, sum, vec_any_of(a->add), vec_any_of(a->rows), inverse,
                                       k });
}

#endif
