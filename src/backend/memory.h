/* memory: one span on a device for one lifetime, refused before it is taken when it cannot fit. */
#ifndef PESC_BACKEND_MEMORY_H
#define PESC_BACKEND_MEMORY_H

#include "backend/backend.h"

typedef struct memory_need {
    const char *what, *advice; /* "the model", "base_dtype nf4 needs less": for the sentence */
} memory_need;

/* Takes what a measuring run has counted in `a` and rewinds `a` onto it, ready for the placing run.
 * PESC_NOMEM when this machine has less than that, with both figures. Free with op->free. */
pesc_status memory_take(arena *a, device *dev, const memory_need *need, void **span);

/* This process is one of n that begin on this host at the same time: of what is available now, it
 * takes at most its part. */
void memory_divide(int32_t n);

/* Bytes a process may still take on a device: on this host free or reclaimable memory, within the
 * control group's limit where there is one, and within its part of it. */
uint64_t memory_available(device *dev);
uint64_t memory_host_available(void);     /* on this host */
uint64_t memory_total(const device *dev); /* bytes there are, taken or not */
/* Bytes in use: on this host the resident memory of this process, on a GPU all that is taken. */
uint64_t memory_used(device *dev);

#endif
