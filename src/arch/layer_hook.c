#include "arch/layer_hook.h"

#include "arch/family.h"

enum { ALIGN = 64 }; /* bytes */

bool layer_hook_has(const slot *s)
{
    return s->layer >= 0 && s->rule->flags & RULE_QUANT && !(s->rule->flags & RULE_TRAIN);
}

size_t layer_hook_part(size_t span, int64_t processes)
{
    size_t n = (size_t)processes, each = (span + n - 1) / n;
    return (each + ALIGN - 1) / ALIGN * ALIGN;
}

size_t layer_hook_kept(const size_t *bytes, int32_t layer, int64_t processes)
{
    size_t at = 0;
    for (int32_t i = 0; i < layer; i++)
        at += layer_hook_part(bytes[i], processes);
    return at;
}

size_t layer_hook_largest(const size_t *bytes, int32_t n)
{
    size_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

uint64_t layer_hook_bytes(const size_t *bytes, int32_t n, int64_t processes)
{
    return layer_hook_kept(bytes, n, processes) + 2 * (uint64_t)layer_hook_largest(bytes, n);
}
