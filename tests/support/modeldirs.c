#include "support/modeldirs.h"

#include "support/check.h"
#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

const char *modeldirs_golden(char out[512], const char *name)
{
    snprintf(out, 512, "%s", golden_path(name));
    return out;
}

pesc_device *modeldirs_device(void)
{
    static pesc_device *dev;
    if (!dev)
        must(pesc_device_open(&dev, "cpu:2"));
    return dev;
}

hfdir *modeldirs_open(const char *path)
{
    hfdir *h = NULL;
    must(runmodel_open(&h, NULL, (runmodel_where){ .path = path }, 0));
    return h;
}

const weight *modeldirs_tensor(const hfdir *h, const char *name)
{
    const weight *w = weights_find(h->ws, name);
    if (!w)
        fail_msg("%s: has no %s", h->path, name);
    return w;
}

void modeldirs_same(const hfdir *a, const char *in_a, const hfdir *b, const char *in_b)
{
    const weight *x = modeldirs_tensor(a, in_a), *y = modeldirs_tensor(b, in_b);
    assert_int_equal(x->dt, y->dt);
    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->data, y->data, x->bytes);
}

float *modeldirs_numbers(const weight *w)
{
    float *x = malloc((size_t)weights_elements(w) * sizeof *x);
    must(weights_read_f32(w, 0, weights_elements(w), x));
    return x;
}

const char *modeldirs_text(const hfdir *h, const char *key)
{
    const char *s = json_string_value(json_object_get(h->config, key));
    return s ? s : "";
}

json_int_t modeldirs_int(const hfdir *h, const char *key)
{
    return json_integer_value(json_object_get(h->config, key));
}

void modeldirs_same_all(const hfdir *dense, const hfdir *sparse)
{
    for (size_t i = 0; i < weights_count(dense->ws); i++) {
        const char *name = weights_at(dense->ws, i)->name;
        modeldirs_same(dense, name, sparse, name);
    }
}
