#include "support/patches.h"

#include "arch/bind.h"
#include "arch/param_group.h"
#include "support/check.h"
#include "support/files.h"
#include "support/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

typedef struct made {
    test_tensor list[MOST];
    char names[MOST][128];
    float *numbers[MOST];
    size_t n;
} made;

static void add_slot(made *p, const slot *s, uint64_t seed)
{
    int64_t n = slot_count(s);
    float *x = p->numbers[p->n] = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.2F * rng_normal((rng_key){ seed, p->n }, (uint64_t)i);
    snprintf(p->names[p->n], sizeof p->names[p->n], "%s", s->name);
    p->list[p->n] = (test_tensor){ p->names[p->n],   "F32", s->nd > 1 ? s->ne[0] : 0,
                                   s->ne[s->nd > 1], x,     (size_t)n * sizeof *x };
    p->n++;
    assert_true(p->n < MOST);
}

void patches_put(pesc_model *m, const char *cfg, const char *dir, uint64_t seed)
{
    made p = { 0 };
    expertcfg own;
    char file[128];
    must(expertcfg_parse(&own, cfg, strlen(cfg), "cfg"));
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        if (param_chosen(&own, &s))
            add_slot(&p, &s, seed);
    snprintf(file, sizeof file, "%s/x.safetensors", dir);
    tensors_put(file, p.list, p.n);
    snprintf(file, sizeof file, "%s/expert_cfg.json", dir);
    files_text(file, cfg);
    for (size_t i = 0; i < p.n; i++)
        free(p.numbers[i]);
    expertcfg_free(&own);
}
