/* The stack machine of pickle.h: what it holds, and the run. For pickle.c alone. */
#ifndef PESC_FORMAT_PICKLE_VM_H
#define PESC_FORMAT_PICKLE_VM_H

#include "base/status.h"
#include "tensor/dtype.h"

typedef enum kind {
    K_NONE,
    K_BOOL,
    K_INT,
    K_FLOAT,
    K_STRING,
    K_TUPLE,
    K_LIST,
    K_DICT,
    K_GLOBAL,
    K_STORAGE,
    K_TENSOR
} kind;

extern const char *const pickle_kind_names[]; /* "a list", by kind */

/* A value. What a and b mean depends on the kind:
 *   bool, int   b
 *   string      a bytes at b of the pickle
 *   tuple       a values from items[b]
 *   dict        its first and last pair, linked (number + 1; 0: none)
 *   global      row a of pickle_globals
 *   storage     a: the tuple that describes it
 *   tensor      a: the tuple it was called with */
typedef struct value {
    uint32_t kind, a;
    uint64_t b;
} value;

typedef struct pair {
    uint32_t key, value, next;
} pair;

/* An array that grows to a fixed limit. */
typedef struct array {
    void *p;
    size_t n, cap, limit, size;
} array;

typedef struct machine {
    const char *file;
    const unsigned char *code;
    size_t n, at, op_at;
    array values; /* value */
    array stack;  /* uint32_t: numbers of values */
    array marks;  /* uint32_t: heights of the stack */
    array memo;   /* uint32_t: number + 1; 0: free */
    array items;  /* uint32_t: members of tuples */
    array pairs;  /* pair: members of dictionaries */
    bool stopped;
} machine;

typedef enum role { R_DICT, R_TENSOR, R_PARAMETER, R_STORAGE } role;

/* All that a file may name. */
typedef struct pickle_global {
    const char *module, *name;
    role role;
    dtype dt; /* of a storage */
} pickle_global;
extern const pickle_global pickle_globals[];

/* Readies a machine for the program; pickle_end() frees it, also after a failure. */
void pickle_begin(machine *m, const char *file, const unsigned char *code, size_t n);
void pickle_end(machine *m);

/* Runs the program to its end; the number of the value it leaves. */
pesc_status pickle_run(machine *m, uint32_t *result);

pesc_status pickle_bad(const machine *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static inline value *pickle_value(const machine *m, uint32_t number)
{
    return (value *)m->values.p + number;
}

/* The i-th of a tuple's values. */
static inline const value *pickle_member(const machine *m, const value *tuple, size_t i)
{
    return pickle_value(m, ((const uint32_t *)m->items.p)[tuple->b + i]);
}

#endif
