/* host: the interface between pesc-cuda.so and the program that loads it.
 *
 * The CUDA part is a shared object of its own, so that the same program runs on machines without a
 * GPU, a driver or CUDA's libraries. It exports one function. The program passes in where errors
 * are reported, so that a failure on the GPU is read with pesc_last_error() like any other. */
#ifndef PESC_BACKEND_CUDA_HOST_H
#define PESC_BACKEND_CUDA_HOST_H

#include "backend/backend.h"

#define CUDA_ENTRY "pesc_cuda_open"

typedef struct cuda_host {
    const char *version; /* PESC_VERSION of the program, and the size of its table of ops: both must
                            be those of the part */
    size_t ops_bytes;
    pesc_status (*fail)(pesc_status s, const char *fmt, ...);
} cuda_host;

/* The exported function: opens the GPU with this index. It fails where the program and the part are
 * of different versions. */
typedef pesc_status (*cuda_entry)(device **out, int index, const cuda_host *host);

#endif
