/* oracle: what each op means, written as plainly as it can be, in double precision.
 *
 * It shares no code with src/: textbook sums over whole rows, no blocks, no online softmax. Integer
 * tensors are doubles too, so that a runner can treat all tensors alike. */
#ifndef PESC_TESTS_OPS_ORACLE_H
#define PESC_TESTS_OPS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t i64;

double oracle_act(int act, double x); /* act_kind */
void oracle_rmsnorm(double *out, double *rstd, const double *x, const double *w, i64 rows, i64 n,
                    double eps);
void oracle_rope(double *x, const double *cos, const double *sin, i64 rows, i64 heads, i64 head_dim,
                 i64 offset, i64 rot, bool interleaved, bool inverse);

/* Query row t of n_seq packed sequences. Key positions are 0.. of each sequence, in keys
 * [n_seq][max_keys][kv*qk] and values [n_seq][max_keys][kv*v]; first[s]: the first that exists. */
typedef struct oracle_attention {
    const double *q, *keys, *values;
    const double *starts, *pos;
    double *out, *lse;
    i64 n_seq, max_keys, heads, kv, qk, v, window;
    const i64 *first;
    double scale;
} oracle_attention;
void oracle_attend(const oracle_attention *a);

typedef struct oracle_topk {
    const double *logits, *bias; /* bias NULL: none */
    double *ids, *gates;
    i64 rows, n, k, groups, k_groups;
    bool sigmoid, after, renormalise;
    double scale;
} oracle_topk;
void oracle_route(const oracle_topk *a);

double oracle_xent(const double *logits, i64 n, double target);
void oracle_nf4(double *span, const double *x, i64 n); /* bytes of a span, as doubles */

/* out [m,n] = sum over i < k; op(a)[m][i] * op(b)[i][n], where a_t, b_t: stored transposed. */
void oracle_product(double *out, const double *a, const double *b, i64 m, i64 n, i64 k, bool a_t,
                    bool b_t);

#endif
