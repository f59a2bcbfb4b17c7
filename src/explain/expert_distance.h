/* experts: how far the experts of a PESC model are from full experts (equation 6 of the PESC
 * paper): all of them compute the outputs of the same inputs. */
#ifndef PESC_EXPLAIN_EXPERT_DISTANCE_H
#define PESC_EXPLAIN_EXPERT_DISTANCE_H

#include "base/thread.h"
#include "explain/side.h"

typedef struct experts {
    side *full, *adapters; /* borrowed; NULL: the two models have no such experts */
    thread_pool *pool;     /* borrowed: computes the distances */
    int32_t n;             /* of each */
    void *memory;
    tensor in, gate, up, mid, f, out; /* [max,C] [max,M] [max,M] [max,M] [max,C] [max,C] */
    tensor wide;                      /* f32 [max,C] */
    tensor ax;                        /* [max,R]; absent: full experts without LoRA */
    float *outputs;                   /* [n, tokens, C]: of the adapters, on the host */
    float *one;                       /* [tokens, C]: of a full expert */
    double *parts;                    /* [tokens, n + 1]: its distances and its norm, squared */
} experts;

/* Squares of distances and norms, summed over tokens. Zeroed before the first call. */
typedef struct experts_sums {
    double *distance; /* [n, n]: of full expert i and adapter j */
    double *norm;     /* [n]: of full expert i */
} experts_sums;

/* Closed by experts_close() even when it failed. */
pesc_status experts_open(experts *e, side *a, side *b, thread_pool *pool);
void experts_close(experts *e);

/* Whether the layer has experts to compare. */
bool experts_in(const experts *e, int32_t layer);

/* Adds the tokens of the pass of `from`, after its side_attention() of the layer. */
pesc_status experts_add(experts *e, const side *from, int32_t layer, experts_sums *sums);

/* Mean over the full experts of the relative distance to the adapter of the same number, and to the
 * nearest one. */
void experts_mean(const experts *e, const experts_sums *sums, double *same, double *nearest);

#endif
