/* vec_types: the vectors of vec.h, of VEC_BYTES; included by the file of an architecture. */
#ifndef PESC_BACKEND_CPU_OPS_VEC_TYPES_H
#define PESC_BACKEND_CPU_OPS_VEC_TYPES_H

#include <stdint.h>

enum { VEC_LANES = VEC_BYTES / 4 };

typedef float vf __attribute__((vector_size(VEC_BYTES)));
typedef int32_t vi __attribute__((vector_size(VEC_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VEC_BYTES)));
typedef uint64_t vl __attribute__((vector_size(VEC_BYTES)));
typedef uint16_t vh __attribute__((vector_size(VEC_BYTES / 2)));

#endif
