#include "explain/surplus.h"

#include "base/mem.h"

pesc_status surplus_open(surplus *s, size_t experts, size_t vocab)
{
    *s = (surplus){ .experts = experts, .vocab = vocab };
    s->chosen = mem_zalloc(experts * vocab, sizeof *s->chosen);
    s->seen = mem_zalloc(vocab, sizeof *s->seen);
    return s->chosen && s->seen
               ? PESC_OK
               : fail_nomem("the tokens of experts", experts * vocab * sizeof *s->chosen);
}

void surplus_close(surplus *s)
{
    mem_free(s->chosen);
    mem_free(s->seen);
    *s = (surplus){ 0 };
}

void surplus_add(surplus *s, int32_t id, const int32_t *experts, size_t k)
{
    s->seen[id]++;
    for (size_t i = 0; i < k; i++)
        s->chosen[(size_t)experts[i] * s->vocab + (size_t)id]++;
}

/* Choices above those that the expert's part of all tokens gives. */
static double above(const pesc_routes_token *t, double part)
{
    return (double)t->chosen - part * (double)t->seen;
}

/* Puts t into the list where it belongs; the last falls out. */
static void insert(pesc_routes_token *list, size_t n, pesc_routes_token t, double part)
{
    if (!(above(&t, part) > 0))
        return;
    for (size_t i = 0; i < n; i++)
        if (list[i].id < 0 || above(&t, part) > above(&list[i], part)) {
            pesc_routes_token out = list[i];
            list[i] = t;
            t = out;
            if (t.id < 0)
                return;
        }
}

static void best_of(const surplus *s, size_t expert, pesc_routes_token *out, size_t n)
{
    const uint32_t *chosen = s->chosen + expert * s->vocab;
    double all = 0, ours = 0;
    for (size_t i = 0; i < s->vocab; i++) {
        all += s->seen[i];
        ours += chosen[i];
    }
    double part = all > 0 ? ours / all : 0;
    for (size_t i = 0; i < n; i++)
        out[i] = (pesc_routes_token){ .id = -1 };
    for (size_t i = 0; i < s->vocab; i++)
        if (chosen[i])
            insert(out, n,
                   (pesc_routes_token){ .id = (int32_t)i,
                                        .seen = s->seen[i],
                                        .chosen = chosen[i],
                                        .lift = chosen[i] / (part * s->seen[i]) },
                   part);
}

void surplus_best(const surplus *s, pesc_routes_token *out, size_t n)
{
    for (size_t e = 0; e < s->experts; e++)
        best_of(s, e, out + e * n, n);
}
