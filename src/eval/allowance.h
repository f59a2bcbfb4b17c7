/* allowance: how much work the templates and regular expressions of an evaluation may cause.
 *
 * A task file, its rows and a model's answers may come from anywhere, and a template can repeat a
 * field a million times or a pattern backtrack without end. So all of them take their work off one
 * counter, whose unit is a step of a template or of a match, or 8 bytes of a text that a template
 * writes or of a prompt. Each row and each answer adds to it in proportion to its size: what a task
 * in use needs is far below. Threads may share it. */
#ifndef PESC_EVAL_ALLOWANCE_H
#define PESC_EVAL_ALLOWANCE_H

#include "base/status.h"

#include <stdatomic.h>

typedef struct allowance {
    _Atomic uint64_t left;
} allowance;

enum {
    ALLOWANCE_START = 32 << 20, /* of an evaluation, however small */
    ALLOWANCE_ROW = 256,        /* for each use of a row in a prompt */
    ALLOWANCE_ROW_BYTE = 4,     /* and for each byte of it */
    ALLOWANCE_ANSWER_BYTE = 32  /* for each byte of an answer and of what it is compared with */
};

static inline void allowance_open(allowance *a)
{
    atomic_init(&a->left, ALLOWANCE_START);
}

static inline void allowance_add(allowance *a, uint64_t n)
{
    atomic_fetch_add(&a->left, n);
}

static inline uint64_t allowance_left(allowance *a)
{
    return atomic_load(&a->left);
}

static inline void allowance_take(allowance *a, uint64_t n)
{
    uint64_t left = atomic_load(&a->left);
    while (!atomic_compare_exchange_weak(&a->left, &left, left > n ? left - n : 0)) {
    }
}

/* `where` is the template or pattern that found nothing left. */
static inline pesc_status allowance_spent(const char *where)
{
    return fail(
        PESC_FORMAT,
        "%s: the templates and regular expressions of these tasks do more work than data of "
        "this size may cause; write the field or the pattern so that it repeats less",
        where);
}

#endif
