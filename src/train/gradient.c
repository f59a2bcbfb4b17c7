#include "train/gradient.h"

#include "backend/memory.h"
#include "base/mem.h"
#include "train/domains.h"
#include "train/objective.h"

#include <string.h>

enum { GROUPS = 8, SHARE = 8 };

/* ---- how the sum is divided ---- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Each domain has micro-batches of its own, the last of which need not be full. */
int64_t gradient_micros(const pesc_train_options *o)
{
    int64_t domains = domains_count(o->domain_experts);
    if (strcmp(o->over_length, "split") == 0) /* a record may be any number of sequences */
        return INT64_MAX;
    int64_t longest = objective_answers(o) * o->seq_len;
    if (!o->packing || o->micro_tokens < longest)
        return o->batch;
    int64_t least = o->micro_tokens / longest; /* records of each but the last */
    int64_t most = ceil_div(o->batch, least) + (domains > 1 ? domains - 1 : 0);
    return most < o->batch ? most : o->batch;
}

bool gradient_of_model(const train_spec *s)
{
    return s->base || s->experts || s->own;
}

int64_t gradient_groups(const pesc_train_options *o, const device *dev, const train_spec *spec,
                        int64_t trained)
{
    uint64_t total = memory_total(dev), each = (uint64_t)trained * sizeof(float);
    gradient_shape s = { .groups = GROUPS, .micros = gradient_micros(o), .processes = 1 };
    if (o->grad_groups != PESC_AUTO)
        return o->grad_groups;
    if (gradient_of_model(spec) && 2 * each > total) /* one process cannot train it in any case */
        return GROUPS;
    while (s.groups > 1 && gradient_bytes(&s, trained) > total / SHARE)
        s.groups /= 2;
    return s.groups;
}

gradient_shape gradient_shape_of(const pesc_train_options *o, const device *dev,
                                 const train_spec *spec, int64_t trained)
{
    gradient_shape s = { .groups = gradient_groups(o, dev, spec, trained),
                         .micros = gradient_micros(o),
                         .processes = o->processes };
    s.wanted = s.groups;
    s.rounds = gradient_of_model(spec) && s.micros <= s.groups;
    while (s.groups < s.processes)
        s.groups *= 2;
    return s;
}

static bool is_divided(const gradient_shape *s)
{
    return s->rounds && s->processes > 1;
}

/* Partial sums of a process. The tree has a level more than there are sums to wait for; by rounds
 * the sum of the highest level becomes the gradient, and so there is at least one. */
static int32_t levels_of(const gradient_shape *s)
{
    int64_t own = ceil_div(s->groups, s->processes);
    int32_t levels = 0;
    if (s->micros < s->groups) /* some groups are empty */
        own = is_divided(s) ? ceil_div(s->micros, s->processes)
                            : ceil_div(own * s->micros, s->groups);
    while (((int64_t)1 << levels) < own)
        levels++;
    return is_divided(s) && !levels ? 1 : levels;
}

/* Elements of a partial sum. */
static int64_t sum_elements(const gradient_shape *s, int64_t n)
{
    return is_divided(s) ? flat_most(n, s->processes) : n;
}

uint64_t gradient_bytes(const gradient_shape *s, int64_t n)
{
    return (uint64_t)levels_of(s) * (uint64_t)sum_elements(s, n) * sizeof(float);
}

/* By rounds the micro-batches fill the groups from the first on, else they are spread evenly. */
static micro_range micros_of(const gradient_shape *s, int32_t micros, int64_t first, int64_t end)
{
    int64_t n = micros;
    if (s->rounds)
        return (micro_range){ (int32_t)(first < n ? first : n), (int32_t)(end < n ? end : n), 1 };
    return (micro_range){ (int32_t)(first * n / s->groups), (int32_t)(end * n / s->groups), 1 };
}

/* The groups of a process are a half of the tree, a half of a half ... */
static flat_range groups_of(const gradient_shape *s, int64_t rank)
{
    return (flat_range){ rank * s->groups / s->processes, (rank + 1) * s->groups / s->processes };
}

micro_range gradient_range(const gradient_shape *s, int32_t micros, int32_t rank)
{
    if (is_divided(s))
        return (micro_range){ rank, micros, (int32_t)s->processes };
    flat_range groups = groups_of(s, rank);
    return micros_of(s, micros, groups.first, groups.end);
}

/* ---- opening ---- */

static void layout(gradient *g, arena *a)
{
    for (int32_t i = 0; i < g->levels; i++)
        g->sums[i] = tensor_take1(a, DT_F32, sum_elements(&g->shape, g->p->n));
}

static pesc_status open_all(gradient *g)
{
    static const memory_need need = { "partial sums of gradients", "grad_groups 1 needs none" };
    device *dev = g->p->m->dev;
    arena a = { 0 };
    layout(g, &a);
    if (a.used)
        TRY(memory_take(&a, dev, &need, &g->memory));
    g->bytes = a.size;
    layout(g, &a);
    return dev->peers ? dev->peers->reduce(dev->peers, g, &g->reducer) : PESC_OK;
}

pesc_status gradient_open(gradient **out, params *p, const gradient_shape *shape)
{
    *out = NULL;
    gradient *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("gradients", sizeof *g);
    g->p = p;
    g->shape = *shape;
    g->levels = levels_of(shape);
    pesc_status s = open_all(g);
    if (s == PESC_OK)
        *out = g;
    else
        gradient_close(g);
    return s;
}

void gradient_close(gradient *g)
{
    if (!g)
        return;
    if (g->reducer)
        g->reducer->close(g->reducer);
    if (g->memory)
        g->p->m->dev->op->free(g->p->m->dev, g->memory);
    mem_free(g);
}

/* ---- a step: the tree over the groups of this process ---- */

static pesc_status too_many(const gradient *g)
{
    return fail(PESC_NOMEM,
                "a step has %d micro-batches, more than was planned for; raise micro_tokens, "
                "or set grad_groups to 1",
                g->micros);
}

pesc_status gradient_begin(gradient *g, int32_t micros, bool train, micro_range *own)
{
    g->train = train;
    g->micros = micros;
    g->waiting = 0;
    g->group = -1;
    *own = gradient_range(&g->shape, micros, peers_rank(g->p->m->dev->peers));
    int64_t rounds = is_divided(&g->shape) ? ceil_div(micros, g->shape.processes) : 1;
    return train && (rounds - 1) >> g->levels ? too_many(g) : PESC_OK;
}

/* How many partial sums wait while a group is computed: one for each node of the tree in whose
 * second half it is, where the first half has a micro-batch. */
static int32_t sums_before(const gradient *g, int64_t group)
{
    const gradient_shape *s = &g->shape;
    flat_range node = groups_of(s, peers_rank(g->p->m->dev->peers));
    int32_t n = 0;
    while (node.end - node.first > 1) {
        int64_t middle = node.first + (node.end - node.first + 1) / 2;
        bool second = group >= middle;
        n += second && micro_count(micros_of(s, g->micros, node.first, middle)) > 0;
        *(second ? &node.first : &node.end) = middle;
    }
    return n;
}

/* What was added so far becomes the partial sum of a first half, after those that it is the second
 * half of have been added to it. */
static pesc_status keep_sum(gradient *g, int32_t wait)
{
    device *dev = g->p->m->dev;
    while (g->waiting >= wait)
        dev->op->add(dev, g->p->grad, g->sums[--g->waiting], 1);
    if (g->waiting >= g->levels)
        return too_many(g);
    tensor to = g->sums[g->waiting++];
    dev->op->copy(dev, to.data, g->p->grad.data, tensor_bytes(&to));
    return PESC_OK;
}

pesc_status gradient_start(gradient *g, int32_t micro, bool *first)
{
    int64_t before = g->group;
    g->micro = micro;
    *first = true;
    if (is_divided(&g->shape)) /* the window is ready */
        return PESC_OK;
    while (g->group < 0 || micros_of(&g->shape, g->micros, 0, g->group + 1).end <= micro)
        g->group++;
    *first = g->group != before;
    if (*first && before >= 0)
        TRY(keep_sum(g, sums_before(g, g->group)));
    if (*first)
        params_start_grad(g->p);
    return PESC_OK;
}

void gradient_add_waiting(gradient *g, flat_range part)
{
    device *dev = g->p->m->dev;
    for (int32_t level = g->waiting - 1; level >= 0; level--)
        dev->op->add(dev, flat_part(g->p->grad, part, 1), flat_part(g->sums[level], part, 1), 1);
}

pesc_status gradient_finish(gradient *g, const micro_records *m, gradient_time *time)
{
    *time = (gradient_time){ 0 };
    if (g->reducer)
        return g->reducer->finish(g->reducer, m, time);
    if (g->train)
        gradient_add_waiting(g, (flat_range){ 0, g->p->n });
    return PESC_OK;
}
