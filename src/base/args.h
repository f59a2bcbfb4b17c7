/* args: the arguments of public functions.
 *
 * A caller may pass NULL by mistake, and may have been compiled with another version of pesc.h.
 * Public functions therefore begin with NEED for each argument that must be there, and structs that
 * begin with `size_t size` cross the interface through args_read() and args_write() only, which
 * touch no more bytes than both sides know. */
#ifndef PESC_BASE_ARGS_H
#define PESC_BASE_ARGS_H

#include "base/status.h"

/* Returns PESC_USAGE from the enclosing function when `arg` is NULL. NEED_OF is for a function that
 * does this on behalf of the public function named `function`. */
#define NEED_OF(function, arg)                                                                     \
    do {                                                                                           \
        if (!(arg))                                                                                \
            return args_missing(function, #arg);                                                   \
    } while (0)
#define NEED(arg) NEED_OF(__func__, arg)

/* The same for an array of n elements, which may be NULL when n is 0. */
#define NEED_ARRAY(arg, n)                                                                         \
    do {                                                                                           \
        if ((n) > 0)                                                                               \
            NEED(arg);                                                                             \
    } while (0)

/* The same for a struct that begins with `size`, whose size must have been set. */
#define NEED_SIZED(arg)                                                                            \
    do {                                                                                           \
        NEED(arg);                                                                                 \
        TRY(args_check_size((arg)->size, __func__, #arg));                                         \
    } while (0)

/* The same for one that may be absent. */
#define NEED_SIZED_OR_NULL(arg)                                                                    \
    do {                                                                                           \
        if (arg)                                                                                   \
            NEED_SIZED(arg);                                                                       \
    } while (0)

/* Reads the caller's struct `from` into `to`, which holds the defaults; from NULL leaves them. */
#define ARGS_READ(to, from)                                                                        \
    TRY((from) ? args_read((to), sizeof *(to), (from), __func__, #from) : PESC_OK)

/* Writes the struct `from` to the caller's, of any version. */
#define ARGS_WRITE(to, from) args_write((to), (from), sizeof *(from))

/* Zeroes a struct that begins with `size`, but not its size. */
#define ARGS_CLEAR(p) args_clear((p), (p)->size)

pesc_status args_missing(const char *function, const char *arg);
pesc_status args_check_size(size_t size, const char *function, const char *arg);
pesc_status args_read(void *to, size_t to_bytes, const void *from, const char *function,
                      const char *arg);
void args_write(void *to, const void *from, size_t from_bytes);
void args_clear(void *p, size_t size);

#endif
