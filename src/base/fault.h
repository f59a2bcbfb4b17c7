/* fault: makes the N-th file operation of a kind fail, for tests. See io.h for PESC_FAULT. */
#ifndef PESC_BASE_FAULT_H
#define PESC_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>

typedef enum fault_op {
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_FSYNC,
    FAULT_RENAME,
    FAULT_MKDIR,
    FAULT_UNLINK,
    FAULT_MMAP,
    FAULT_CLOSE,
    FAULT_TRUNCATE,
    FAULT_LINK,
    FAULT_RESERVE,
    FAULT_EXCHANGE,
    FAULT_ANY, /* in a spec only: each of the above */
    FAULT_OPS
} fault_op;

/* Called before each operation. 0: go on; else the errno to report. For `short` it halves *n
 * (when n is given) and returns 0; for `kill` it does not return. */
int fault_check(fault_op op, size_t *n);

/* Arms from a spec "op:N:what", or up to four with commas between them; NULL disarms. False when
 * the spec is malformed. */
bool fault_arm(const char *spec);
bool fault_fired(void);

#endif
