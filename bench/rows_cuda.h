/* bench/rows_cuda: what the timings (rows_cuda.cu) and the checks (rows_check.cu) share. */
#ifndef PESC_BENCH_ROWS_CUDA_H
#define PESC_BENCH_ROWS_CUDA_H

#include "backend/cuda/cuda.h"

extern cuda_device rows_gpu;
extern int rows_wrong;
extern const char *rows_only; /* how names begin that are wanted; "": all */

static inline size_t rows_width(dtype dt)
{
    return dt == DT_BF16 ? 2 : dt == DT_U8 ? 1 : 4;
}

/* Every op against the CPU, on tensors of at most so many numbers. */
void rows_check(int64_t most);

#endif
