#include "arch/layers.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* "7" or "10-20", n bytes. */
static bool read_range(const char *text, size_t n, int64_t n_layers, layer_ranges *out)
{
    char first[16], last[16];
    long long a, b;
    const char *dash = memchr(text, '-', n);
    size_t length = dash ? (size_t)(dash - text) : n;
    if (out->n == LAYER_RANGES || length >= sizeof first || n - length > sizeof last)
        return false;
    snprintf(first, sizeof first, "%.*s", (int)length, text);
    snprintf(last, sizeof last, "%.*s", dash ? (int)(n - length - 1) : (int)length,
             dash ? dash + 1 : text);
    if (!str_to_i64(first, 0, n_layers - 1, &a) || !str_to_i64(last, a, n_layers - 1, &b))
        return false;
    out->at[out->n].first = (int32_t)a;
    out->at[out->n++].last = (int32_t)b;
    return true;
}

pesc_status layers_read(layer_ranges *out, const char *key, const char *text, int32_t n_layers)
{
    out->n = 0;
    if (strcmp(text, "all") == 0)
        return PESC_OK;
    for (const char *p = text + strspn(text, " "); *p;) {
        size_t n = strcspn(p, ", ");
        if (!read_range(p, n, n_layers, out))
            return fail(PESC_USAGE,
                        "%s: found \"%.*s\", expected all, or at most %d numbers and ranges from 0 "
                        "to %d, such as 0,10-20",
                        key, (int)n, p, LAYER_RANGES, n_layers - 1);
        p += n + strspn(p + n, ", ");
    }
    return PESC_OK;
}

bool layers_has(const layer_ranges *r, int32_t layer)
{
    bool found = r->n == 0;
    for (int32_t i = 0; i < r->n; i++)
        found = found || (layer >= r->at[i].first && layer <= r->at[i].last);
    return found;
}
