#include "support/tensors.h"

#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tensors_put(const char *file, const test_tensor *tensors, size_t n)
{
    enum { HEADER = 1 << 16, DATA = 1 << 18 };
    char *bytes = calloc(1, 8 + HEADER + DATA), *header = bytes + 8, *data = calloc(1, DATA);
    size_t used = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        const test_tensor *t = &tensors[i];
        if (!t->name)
            continue;
        char shape[64];
        if (t->rows)
            snprintf(shape, sizeof shape, "%lld,%lld", (long long)t->rows, (long long)t->cols);
        else
            snprintf(shape, sizeof shape, "%lld", (long long)t->cols);
        used += (size_t)snprintf(
            header + used, HEADER - used,
            "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            used ? ',' : '{', t->name, t->dtype, shape, at, at + t->n);
        if (t->bytes)
            memcpy(data + at, t->bytes, t->n);
        at += t->n;
    }
    used += (size_t)snprintf(header + used, HEADER - used, "%s", used ? "}" : "{}");
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(used >> (8 * i));
    memcpy(header + used, data, at);
    const char *path = files_put(file, bytes, 8 + used + at);
    free(bytes);
    free(data);
    return path;
}
