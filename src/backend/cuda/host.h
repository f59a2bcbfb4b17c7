/* host: what pesc-cuda.so and the program that loads it know of each other.
 *
 * The CUDA part is an object of its own, so that a machine without a GPU, a driver or CUDA's
 * libraries runs the same program. It has one entry. The program hands it where sentences go, so
 * that a failure on the GPU is read with pesc_last_error() like any other. */
#ifndef PESC_BACKEND_CUDA_HOST_H
#define PESC_BACKEND_CUDA_HOST_H

#include "backend/backend.h"

#define CUDA_ENTRY "pesc_cuda_open"

typedef struct cuda_host {
    const char *version; /* PESC_VERSION of the program, and its table's size: both must agree */
    size_t ops_bytes;
    pesc_status (*fail)(pesc_status s, const char *fmt, ...);
} cuda_host;

typedef pesc_status (*cuda_entry)(device **out, int index, const cuda_host *host);

#endif
