/* dtype: the number formats that pesc computes with or reads, one row each.
 *
 * F32 to U8 are the formats that ops take. The others occur in files only and are converted on
 * load. Quantised formats store blocks of `block` elements in `bytes` bytes; NF4 stores the scales
 * of all blocks after all codes (nf4.h). */
#ifndef PESC_TENSOR_DTYPE_H
#define PESC_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTYPE_MAP(X)                                                                               \
    /*  name   block bytes  text  */                                                               \
    X(F32, 1, 4, "f32")                                                                            \
    X(BF16, 1, 2, "bf16")                                                                          \
    X(NF4, 64, 36, "nf4") /* 32 bytes of codes + one f32 scale */                                  \
    X(I32, 1, 4, "i32")                                                                            \
    X(U8, 1, 1, "u8")                                                                              \
    X(F16, 1, 2, "f16")                                                                            \
    X(F64, 1, 8, "f64")                                                                            \
    X(I8, 1, 1, "i8")                                                                              \
    X(I16, 1, 2, "i16")                                                                            \
    X(I64, 1, 8, "i64")                                                                            \
    X(BOOL, 1, 1, "bool")                                                                          \
    X(Q4_0, 32, 18, "q4_0")                                                                        \
    X(Q4_1, 32, 20, "q4_1")                                                                        \
    X(Q5_0, 32, 22, "q5_0")                                                                        \
    X(Q5_1, 32, 24, "q5_1")                                                                        \
    X(Q8_0, 32, 34, "q8_0")                                                                        \
    X(Q2_K, 256, 84, "q2_k")                                                                       \
    X(Q3_K, 256, 110, "q3_k")                                                                      \
    X(Q4_K, 256, 144, "q4_k")                                                                      \
    X(Q5_K, 256, 176, "q5_k")                                                                      \
    X(Q6_K, 256, 210, "q6_k")                                                                      \
    X(IQ4_NL, 32, 18, "iq4_nl")                                                                    \
    X(IQ4_XS, 256, 136, "iq4_xs")                                                                  \
    X(MXFP4, 32, 17, "mxfp4")

typedef enum dtype {
#define DTYPE_ENUM(name, block, bytes, text) DT_##name,
    DTYPE_MAP(DTYPE_ENUM)
#undef DTYPE_ENUM
        DT_COUNT
} dtype;

const char *dtype_name(dtype dt);
size_t dtype_block(dtype dt);
size_t dtype_block_bytes(dtype dt);

/* Bytes of n elements; false on overflow or if n is not a multiple of the block. NF4 takes any n:
 * packed codes padded to 4 bytes, then one f32 scale for each block, the last perhaps partial. */
bool dtype_bytes(dtype dt, uint64_t n, size_t *bytes);

#endif
