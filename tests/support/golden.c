#include "support/golden.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *what, const char *path)
{
    fprintf(stderr, "golden: %s: %s\n", path, what);
    abort();
}

const char *golden_path(const char *name)
{
    static char path[512];
    const char *root = getenv("PESC_GOLDEN");
    snprintf(path, sizeof path, "%s/%s", root ? root : "tests/golden", name);
    return path;
}

const char *golden_device(void)
{
    const char *spec = getenv("PESC_TEST_DEVICE");
    return spec ? spec : "cpu:2";
}

golden_array golden_npy(const char *path)
{
    golden_array a = { 0 };
    FILE *f = fopen(path, "rb");
    if (!f)
        stop("cannot be opened", path);
    unsigned char head[10];
    if (fread(head, 1, 10, f) != 10 || memcmp(head, "\x93NUMPY\x01\x00", 8) != 0)
        stop("is not .npy version 1", path);
    size_t n = head[8] | (size_t)head[9] << 8;
    char text[1024] = "";
    if (n >= sizeof text || fread(text, 1, n, f) != n)
        stop("has a bad header", path);
    const char *shape = strstr(text, "'shape': (");
    if (!strstr(text, "'<f4'") || !strstr(text, "False") || !shape ||
        sscanf(shape, "'shape': (%zu, %zu)", &a.rows, &a.cols) != 2)
        stop("is not a float32 matrix", path);
    a.data = malloc(a.rows * a.cols * sizeof *a.data);
    if (!a.data || fread(a.data, sizeof *a.data, a.rows * a.cols, f) != a.rows * a.cols)
        stop("is too short", path);
    fclose(f);
    return a;
}

int32_t *golden_ids(const char *path, const char *key, size_t *n)
{
    json_error_t e;
    json_t *v = json_load_file(path, 0, &e);
    json_t *list = key && v ? json_object_get(v, key) : v;
    if (!json_is_array(list))
        stop("holds no list of ids", path);
    *n = json_array_size(list);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    json_decref(v);
    return ids;
}
