#include "ops/harness.h"

#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64 };

int n_cases(const op_test *test)
{
    int n = 0;
    while (n < MAX_CASES && test->cases[n].t > 0)
        n++;
    return n;
}

i64 trial_count(const trial *t, int k)
{
    i64 n = 1;
    for (int i = 0; i < 4 && (i == 0 || t->slots[k].ne[i]); i++)
        n *= t->slots[k].ne[i];
    return n;
}

static size_t width(dtype dt)
{
    return dt == DT_F32 || dt == DT_I32 ? 4 : dt == DT_BF16 ? 2 : 1;
}

/* Stores x in the slot's type. */
static void put(unsigned char *at, dtype dt, double x)
{
    float f = (float)round_to(dt, dt == DT_I32 || dt == DT_U8 ? 0 : x);
    int32_t n = (int32_t)(dt == DT_I32 ? x : 0);
    switch (dt) {
    case DT_I32:
        memcpy(at, &n, 4);
        break;
    case DT_U8:
        *at = (unsigned char)x;
        break;
    case DT_BF16:
        memcpy(at, (char *)&f + 2, 2);
        break;
    default:
        memcpy(at, &f, 4);
    }
}

double trial_result(const trial *t, int k, i64 i)
{
    const unsigned char *at = t->result[k] + (size_t)i * width(t->slots[k].dt);
    float f;
    int32_t n;
    uint32_t u = 0;
    switch (t->slots[k].dt) {
    case DT_I32:
        memcpy(&n, at, 4);
        return n;
    case DT_U8:
        return *at;
    case DT_BF16:
        memcpy((char *)&u + 2, at, 2);
        memcpy(&f, &u, 4);
        return f;
    default:
        memcpy(&f, at, 4);
        return f;
    }
}

static double random_value(const slot *s, rng_key key, i64 i)
{
    switch (s->fill) {
    case FILL_INDEX:
        return (double)rng_below(key, (uint64_t)i, (uint64_t)s->limit);
    case FILL_COARSE:
        return (double)rng_below(key, (uint64_t)i, 5) * 0.5;
    default:
        return rng_normal(key, (uint64_t)i);
    }
}

void trial_init(trial *t, const op_test *test, int number)
{
    *t = (trial){ .test = test, .p = &test->cases[number] };
    t->n = test->slots(t->p, t->slots);
    for (int k = 0; k < t->n; k++) {
        const slot *s = &t->slots[k];
        i64 n = trial_count(t, k);
        rng_key key = { (uint64_t)test->name[0] + (uint64_t)number, (uint64_t)k };
        t->bytes[k] = (size_t)n * width(s->dt);
        t->value[k] = calloc((size_t)n + 1, sizeof(double));
        t->input[k] = calloc(t->bytes[k] + 1, 1);
        t->result[k] = calloc(t->bytes[k] + GUARD, 1);
        for (i64 i = 0; i < n; i++)
            t->value[k][i] = s->role != SLOT_OUT ? random_value(s, key, i)
                             : s->dt == DT_I32   ? -1
                             : s->dt == DT_U8    ? 255
                                                 : NAN;
    }
    if (test->arrange)
        test->arrange(t->p, t->value);
    for (int k = 0; k < t->n; k++)
        for (i64 i = 0; i < trial_count(t, k); i++) {
            t->value[k][i] = round_to(t->slots[k].dt, t->value[k][i]);
            put(t->input[k] + (size_t)i * width(t->slots[k].dt), t->slots[k].dt, t->value[k][i]);
        }
}

void trial_free(trial *t)
{
    for (int k = 0; k < t->n; k++) {
        free(t->value[k]);
        free(t->input[k]);
        free(t->result[k]);
    }
}

void trial_run(trial *t, device *d)
{
    static const unsigned char guard[GUARD] = "no op may write after the end of a tensor!";
    tensor tensors[MAX_SLOTS] = { 0 };
    for (int k = 0; k < t->n; k++) {
        const slot *s = &t->slots[k];
        if (!t->bytes[k])
            continue;
        tensors[k].dt = s->dt;
        while (tensors[k].nd < 4 && s->ne[tensors[k].nd]) {
            tensors[k].ne[tensors[k].nd] = s->ne[tensors[k].nd];
            tensors[k].nd++;
        }
        assert_int_equal(d->op->alloc(d, t->bytes[k] + GUARD, &tensors[k].data), PESC_OK);
        d->op->upload(d, tensors[k].data, t->input[k], t->bytes[k]);
        d->op->upload(d, (char *)tensors[k].data + t->bytes[k], guard, GUARD);
    }
    mem_fail_at(1); /* of the host; a GPU's own allocations are not seen here */
    t->test->call(d, t->p, tensors);
    assert_int_equal(d->op->sync(d), PESC_OK);
    if (mem_fail_fired())
        fail_msg("%s allocates memory", t->test->name);
    mem_fail_at(0);
    for (int k = 0; k < t->n; k++) {
        if (!t->bytes[k])
            continue;
        assert_int_equal(d->op->download(d, t->result[k], tensors[k].data, t->bytes[k] + GUARD),
                         PESC_OK);
        if (memcmp(t->result[k] + t->bytes[k], guard, GUARD) != 0)
            fail_msg("%s writes after the end of %s", t->test->name, t->slots[k].name);
        if (t->slots[k].role == SLOT_IN && memcmp(t->result[k], t->input[k], t->bytes[k]) != 0)
            fail_msg("%s changes its input %s", t->test->name, t->slots[k].name);
        d->op->free(d, tensors[k].data);
    }
}
