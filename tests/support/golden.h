/* golden: what tests read beside the code under test: .npy arrays and JSON lists of ids. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

typedef struct golden_array {
    float *data; /* for free() */
    size_t rows, cols;
} golden_array;

/* A float32 C-order .npy of two dimensions; aborts the test when the file is anything else. */
golden_array golden_npy(const char *path);

/* A JSON list of integers, at `key` of an object or (key NULL) the whole file; for free(). */
int32_t *golden_ids(const char *path, const char *key, size_t *n);

/* tests/golden/<name>, wherever the tests run from. Static storage, good until the next call. */
const char *golden_path(const char *name);

/* The device that golden models run on: $PESC_TEST_DEVICE, or two threads of the CPU. */
const char *golden_device(void);

#endif
