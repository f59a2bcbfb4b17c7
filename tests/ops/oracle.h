/* oracle: the definition of each op, written as plainly as possible, in double precision.
 *
 * It shares no code with src/: textbook sums over whole rows, no blocks, no online softmax. Integer
 * tensors are doubles too, so that a runner can treat all tensors alike. */
#ifndef PESC_TESTS_OPS_ORACLE_H
#define PESC_TESTS_OPS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

typedef int64_t i64;

double oracle_act(int act, double x);
double oracle_glu_up(int act, double up); /* the other factor of a GLU */ /* act_kind */
void oracle_rmsnorm(double *out, double *rstd, const double *x, const double *w, i64 rows, i64 n,
                    double eps);

/* Columns [offset, offset + rot) of each head of x [rows, heads*head_dim]; cos, sin [rows, rot/2].
 */
typedef struct oracle_rotation {
    double *x;
    const double *cos, *sin;
    i64 rows, heads, head_dim, offset, rot;
    bool interleaved, inverse;
} oracle_rotation;
void oracle_rope(const oracle_rotation *a);

/* The query rows of n_seq packed sequences. Keys [n_seq][max_keys][kv*qk] and values
 * [n_seq][max_keys][kv*v] are indexed by position; first[s] is the first position that exists. */
typedef struct oracle_attention {
    const double *q, *keys, *values;
    const double *starts, *pos;
    double *out, *lse;
    i64 n_seq, max_keys, heads, kv, qk, v, window;
    const i64 *first;
    double scale, softcap;
} oracle_attention;
void oracle_attend(const oracle_attention *a);

typedef struct oracle_topk {
    const double *logits, *bias; /* bias NULL: none */
    double *ids, *gates;
    i64 rows, n, k, groups, k_groups;
    bool sigmoid, after, renormalise;
    double scale, floor, more;
} oracle_topk;
void oracle_route(const oracle_topk *a);

double oracle_xent(const double *logits, i64 n, double target);
void oracle_nf4(double *storage, const double *x, i64 n); /* the bytes of NF4, as doubles */

/* out [m,n] = a [m,k] b [k,n]; a matrix that is transposed is stored as [k,m] or [n,k]. */
typedef struct oracle_matrices {
    double *out;
    const double *a, *b;
    i64 m, n, k;
    bool a_transposed, b_transposed;
} oracle_matrices;
void oracle_product(const oracle_matrices *p);

#endif
