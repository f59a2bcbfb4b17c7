#include "infer/guess.h"

enum { LONGEST = 8, SHORTEST = 2 };

static const double MEMORY = 1.0 / 16; /* of a moving average: what a new value counts */
static const double UNKNOWN = 0.25; /* of a forward of one row: what one more is thought to take */
static const double MARGIN = 1.02;  /* gains below this are not worth it */

bool guess_possible(const pesc_model *m)
{
    return m->dev->op->host_memory(m->dev) && !config_has_state(&m->shape.cfg);
}

int32_t guess_lookup(const int32_t *ids, size_t n, int32_t *out, int32_t most)
{
    size_t best = SHORTEST - 1, from = 0;
    for (size_t end = n - 1; n > SHORTEST && end >= SHORTEST && best < LONGEST; end--) {
        size_t same = 0;
        while (same < LONGEST && same < end && ids[end - 1 - same] == ids[n - 1 - same])
            same++;
        if (same > best) {
            best = same;
            from = end;
        }
    }
    int32_t found = 0;
    while (from && found < most && from + (size_t)found < n) {
        out[found] = ids[from + (size_t)found];
        found++;
    }
    return found;
}

void guess_timed(guess_pace *p, int32_t rows, double seconds)
{
    if (rows < 1 || rows > GUESS_ROWS)
        return;
    double *t = &p->seconds[rows];
    *t = *t > 0 ? *t + MEMORY * (seconds - *t) : seconds;
}

/* From the nearest smaller forward that was timed; 0: none was. */
static double predicted(const guess_pace *p, int32_t rows)
{
    int32_t known = rows;
    while (known > 0 && p->seconds[known] <= 0)
        known--;
    return known ? p->seconds[known] * (1 + UNKNOWN * (rows - known) / known) : 0;
}

int32_t guess_worth(double right, const guess_pace *p, const guess_text *t, double each)
{
    double alone = predicted(p, t->rows), best = alone > 0 ? MARGIN * t->rows / alone : 0;
    double expected = t->rows, all_right = 1;
    int32_t n = 0;
    for (int32_t k = 1; alone > 0 && k <= t->most && t->rows + k <= GUESS_ROWS; k++) {
        all_right *= right;
        expected += all_right;
        double rate = expected / (predicted(p, t->rows + k) + k * each);
        if (rate > best) {
            best = rate;
            n = k;
        }
    }
    return n;
}

int32_t guess_next(guess_record *r, const guess_pace *p, const guess_text *t, int64_t wanted,
                   int32_t *out)
{
    bool automatic = wanted == PESC_AUTO;
    int32_t most = automatic || wanted > GUESS_MOST ? GUESS_MOST : (int32_t)wanted;
    most = most < t->most ? most : t->most;
    if (most <= 0)
        return 0;
    guess_rate *rate = &r->foreseen;
    const int32_t *generated = t->ids + (t->n - t->generated);
    int32_t found =
        t->matcher ? matcher_foresee(t->matcher, generated, t->generated, out, most) : 0;
    if (found == 0) {
        rate = &r->lookups;
        found = guess_permitted(t, out, guess_lookup(t->ids, t->n, out, most));
    }
    guess_made(rate, out, found);
    if (automatic)
        found = guess_worth(rate->right, p, &(guess_text){ .rows = t->rows, .most = found }, 0);
    r->checked += found;
    return found;
}

int32_t guess_permitted(const guess_text *t, const int32_t *guess, int32_t n)
{
    if (!t->matcher || n == 0)
        return n;
    return matcher_permits(t->matcher, t->ids + (t->n - t->generated), t->generated, guess, n);
}

void guess_made(guess_rate *r, const int32_t *out, int32_t n)
{
    r->waits = n > 0;
    r->next = n > 0 ? out[0] : 0;
}

void guess_came(guess_rate *r, int32_t id)
{
    if (r->waits)
        r->right += MEMORY * ((id == r->next) - r->right);
    r->waits = false;
}

void guess_learn(guess_record *r, int32_t id)
{
    guess_came(&r->lookups, id);
    guess_came(&r->foreseen, id);
}
