#include "infer/stops.h"

#include <string.h>

/* Where the earliest stop string that counts begins at or after `from`; text.n when there is none.
 * *which: the string. */
static size_t find_stop(const stop_text *t, size_t from, const char **which)
{
    size_t best = t->text.n;
    for (size_t i = 0; i < t->n_stop; i++) {
        size_t len = strlen(t->stop[i]);
        size_t first = t->ignored >= len ? t->ignored - len + 1 : 0;
        if (len == 0 || t->text.n < len)
            continue;
        first = first > from ? first : from;
        char *hit = memmem(t->text.p + first, t->text.n - first, t->stop[i], len);
        if (hit && (size_t)(hit - t->text.p) < best) {
            best = (size_t)(hit - t->text.p);
            *which = t->stop[i];
        }
    }
    return best;
}

/* How many bytes at the end could be the beginning of a stop string. */
static size_t held_back(const stop_text *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->n_stop; i++) {
        size_t len = strlen(t->stop[i]);
        for (size_t k = len ? len - 1 : 0; k > most; k--)
            if (k <= t->text.n && memcmp(t->text.p + t->text.n - k, t->stop[i], k) == 0)
                most = k;
    }
    return most;
}

pesc_status stop_text_put(stop_text *t, const char *text, size_t n, bool last)
{
    size_t longest = 0;
    const char *by = NULL;
    if (t->stopped)
        return PESC_OK;
    for (size_t i = 0; i < t->n_stop; i++)
        if (strlen(t->stop[i]) > longest)
            longest = strlen(t->stop[i]);
    size_t from = t->text.n > longest ? t->text.n - longest : 0;
    str_add(&t->text, text, n);
    if (!str_ok(&t->text))
        return fail_nomem("the generated text", t->text.n + n);
    if (t->ignore)
        t->ignored = t->text.n;
    size_t stop = find_stop(t, from, &by);
    if (stop < t->text.n) {
        t->stopped = true;
        t->by = by;
        t->text.n = stop + (t->keep ? strlen(by) : 0);
        t->text.p[t->text.n] = '\0';
    }
    size_t certain = t->text.n - (last || t->stopped ? 0 : held_back(t));
    if (certain > t->certain)
        t->certain = certain;
    return PESC_OK;
}
