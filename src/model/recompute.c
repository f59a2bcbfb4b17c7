#include "model/recompute.h"

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

recompute_plan recompute_plan_of(int32_t n_layers, int32_t first, keep_counts keep)
{
    int32_t below_top = n_layers > first ? n_layers - first - 1 : 0;
    int32_t all = smaller(keep.all, below_top);
    return (recompute_plan){ .n_layers = n_layers,
                             .first = first,
                             .keep = { all, smaller(keep.partial, below_top - all) } };
}

int32_t recompute_slots(const recompute_plan *p)
{
    return p->keep.all + p->keep.partial + 1;
}

layer_plan recompute_layer(const recompute_plan *p, int32_t layer)
{
    int32_t shared = recompute_slots(p) - 1, at = layer - p->first;
    if (at < 0)
        return (layer_plan){ KEEP_NOTHING, shared };
    if (layer == p->n_layers - 1)
        return (layer_plan){ KEEP_LIVE, shared };
    if (at < p->keep.all)
        return (layer_plan){ KEEP_ALL, at };
    if (at < shared)
        return (layer_plan){ KEEP_PARTIAL, at };
    return (layer_plan){ KEEP_CHECKPOINT, shared };
}
