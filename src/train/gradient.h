/* gradient: the gradient of a step as a sum that does not depend on the number of processes.
 *
 * The micro-batches of a step are groups, whose gradients are added by a binary tree over their
 * numbers; within a group gradients are accumulated one after another. A group without a
 * micro-batch is left out of the tree. Where several processes share the work each has a part of
 * the tree, adds that up on its own, and what they then add of each other's sums (`reducer`) are
 * the same additions; so 1, 2, 4 ... `groups` processes give the same bits.
 *
 * Either group g has the micro-batches from g * micros / groups on, and a process groups that
 * follow each other. Or, by rounds, every micro-batch is a group of its own, and in round r process
 * p computes micro-batch r * size + p: then no process needs a whole gradient (dist/reduce.h).
 *
 *     gradient_begin(g, micros, true);
 *     for each micro-batch i of gradient_own(g):
 *         gradient_start(g, i, ...), model_train(), gradient_layer_done(g, -1)
 *     gradient_finish(g, ...); */
#ifndef PESC_TRAIN_GRADIENT_H
#define PESC_TRAIN_GRADIENT_H

#include "train/params.h"

enum { GRADIENT_LEVELS = 10 }; /* log2 of the largest number of groups */

typedef struct gradient_shape {
    int64_t groups; /* a power of two, at least the number of processes */
    int64_t micros; /* micro-batches of a step at most; a step that has more may fail */
    int64_t processes;
    bool rounds;    /* by rounds; then there are at least as many groups as micro-batches */
    int64_t wanted; /* groups, had there been fewer processes */
} gradient_shape;

/* How long exchanges took, from when all processes had something to exchange, and the part of it
 * during which backward did not wait for it. */
typedef struct gradient_time {
    double seconds, hidden;
} gradient_time;

/* What each micro-batch of a step adds to the numbers of the step, beside its gradient: a record of
 * `bytes` for each, of which a process fills in those of its own. */
typedef struct micro_records {
    char *list; /* [micros * bytes] */
    size_t bytes;
} micro_records;

/* How several processes add their gradients. */
typedef struct reducer reducer;
struct reducer {
    /* As gradient_layer_done(). */
    void (*layer_done)(reducer *r, int32_t layer);
    /* As gradient_finish(). */
    pesc_status (*finish)(reducer *r, const micro_records *m, gradient_time *time);
    /* Every process has updated what it owns, and `work` with it where master is divided; then
     * forward sees the weights of all processes. */
    pesc_status (*publish)(reducer *r);
    void (*close)(reducer *r);
};

typedef struct gradient {
    params *p; /* borrowed */
    gradient_shape shape;
    reducer *reducer;             /* NULL: one process */
    int32_t levels;               /* sums: one for each level of the tree */
    tensor sums[GRADIENT_LEVELS]; /* f32: [n], or with a window of what this process owns */
    void *memory;
    size_t bytes;

    /* of the current step */
    bool train;      /* false: losses alone are computed */
    int32_t micros;  /* of all processes */
    int32_t micro;   /* the current one */
    int64_t group;   /* and its group; -1: none was computed yet */
    int32_t waiting; /* partial sums in use */
} gradient;

/* Micro-batches of a step, at most. */
int64_t gradient_micros(const pesc_train_options *o);

/* grad_groups, or where it is auto the most groups, up to 8, whose partial sums of `trained`
 * elements take at most an eighth of a device in one process (a model that is too large for one
 * process has 8): the choice does not depend on the number of processes. */
int64_t gradient_groups(const pesc_train_options *o, const device *dev, const train_spec *spec,
                        int64_t trained);

/* How the gradient of a step is added: by rounds where the weights of the model train and each
 * micro-batch can be a group of its own, whatever the number of processes. There is at least one
 * group for each process. */
gradient_shape gradient_shape_of(const pesc_train_options *o, const device *dev,
                                 const train_spec *spec, int64_t trained);

/* Whether a method trains the weights of the model, not just what was added to it: gradients are
 * then so large that exchanging each micro-batch's costs less than keeping them whole. */
bool gradient_of_model(const train_spec *s);

/* Bytes of partial sums that one process needs for n numbers. */
uint64_t gradient_bytes(const gradient_shape *s, int64_t n);

/* Where the device of p has joined other processes and they add by rounds, p has a window. */
pesc_status gradient_open(gradient **out, params *p, const gradient_shape *shape);
void gradient_close(gradient *g); /* NULL is allowed */

/* The micro-batches of a process: first, first + step ... below end. */
typedef struct micro_range {
    int32_t first, end, step;
} micro_range;
micro_range gradient_range(const gradient_shape *s, int32_t micros, int32_t rank);
static inline int32_t micro_count(micro_range r)
{
    return r.first < r.end ? (r.end - r.first + r.step - 1) / r.step : 0;
}

/* A step of so many micro-batches begins, of which this process computes *own: with their
 * gradients (train), or their losses alone. PESC_NOMEM, as of gradient_start(): the step has more
 * micro-batches than was planned for. */
pesc_status gradient_begin(gradient *g, int32_t micros, bool train, micro_range *own);

/* Micro-batch i begins, in the order of *own. *first: it is the first of a group, and p->grad is as
 * params_start_grad() leaves it. */
pesc_status gradient_start(gradient *g, int32_t micro, bool *first);

/* The device has all the work of the current micro-batch down to backward of this layer, from
 * n_layers, the head, on; -1: all of it. */
static inline void gradient_layer_done(gradient *g, int32_t layer)
{
    if (g->reducer)
        g->reducer->layer_done(g->reducer, layer);
}

/* All micro-batches of this process are computed. After it what this process owns of p->grad, or
 * where there is a window p->own_grad, holds the sum over all micro-batches, the rest is not
 * defined, and the records of all are there. Waits for backward. */
pesc_status gradient_finish(gradient *g, const micro_records *m, gradient_time *time);

/* Adds the partial sums that wait to a part of p->grad, whose last micro-batch is computed. */
void gradient_add_waiting(gradient *g, flat_range part);

#endif
