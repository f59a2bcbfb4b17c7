/* tensors: writes small safetensors files for tests of the readers above that format. It shares no
 * code with pesc's own writer. */
#ifndef TESTS_SUPPORT_TENSORS_H
#define TESTS_SUPPORT_TENSORS_H

#include <stddef.h>
#include <stdint.h>

typedef struct test_tensor {
    const char *name;
    const char *dtype;  /* "F32" */
    int64_t rows, cols; /* rows 0: one dimension */
    const void *bytes;  /* NULL: zeros */
    size_t n;
} test_tensor;

/* Returns the path (see files.h). A tensor without a name is left out. */
const char *tensors_put(const char *file, const test_tensor *tensors, size_t n);

#endif
