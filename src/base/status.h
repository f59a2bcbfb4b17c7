/* status: how a failure travels.
 *
 * A function that can meet the world (a file, memory, a device) returns a pesc_status and, when it
 * is not PESC_OK, has left one sentence in this thread's message: what, where, found, expected,
 * what to do. Callers pass the status up with TRY and add nothing. Programmer errors ASSERT. */
#ifndef PESC_BASE_STATUS_H
#define PESC_BASE_STATUS_H

#include "pesc/pesc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Records the sentence for this thread and returns `s`. Control characters and invalid UTF-8 in
 * the arguments are made visible, so a hostile file name or tensor name cannot write to a terminal.
 */
pesc_status fail(pesc_status s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same, with strerror(err) appended after ": ". */
pesc_status fail_errno(pesc_status s, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Out of memory while doing `what` ("reading a.json"). Allocates nothing. */
pesc_status fail_nomem(const char *what, size_t bytes);

/* Forgets the last message; public entry points call it first. */
void status_clear(void);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        pesc_status try_status_ = (expr);                                                          \
        if (try_status_ != PESC_OK)                                                                \
            return try_status_;                                                                    \
    } while (0)

/* A broken promise between our own functions: never reached by any input. Kept in release builds.
 */
#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond))                                                                               \
            status_assert(#cond, __FILE__, __LINE__);                                              \
    } while (0)
void status_assert(const char *cond, const char *file, int line) __attribute__((noreturn));

#endif
