/* logits: those of every position of one sequence, a piece of it at a time through the KV cache, so
 * that memory for logits on the device is bounded whatever the length. */
#include "base/args.h"
#include "base/mem.h"
#include "model/forward.h"

#include <math.h>

typedef struct reader {
    pesc_model *m;
    kvcache *kv;
    pass *pass;
    int32_t *rows; /* [most]: 0, 1, 2, ... */
    int32_t most;  /* tokens of a forward */
} reader;

static pesc_status open_reader(reader *r, int32_t n)
{
    pesc_model *m = r->m;
    r->most = n < m->dev->head_rows ? n : m->dev->head_rows;
    r->rows = mem_alloc((size_t)r->most, sizeof *r->rows);
    if (!r->rows)
        return fail_nomem("logits", (size_t)r->most * sizeof *r->rows);
    for (int32_t i = 0; i < r->most; i++)
        r->rows[i] = i;
    TRY(kvcache_open(&r->kv, m->dev, &m->shape.cfg, m->shape.act_dt, 1, n, (int64_t)n + r->most));
    return pass_open(&r->pass, m, (pass_limits){ r->most, 1, r->most }, r->kv);
}

static pesc_status read_all(reader *r, const int32_t *ids, int32_t n, float *out)
{
    const size_t row = (size_t)r->m->shape.cfg.vocab;
    device *dev = r->m->dev;
    for (int32_t at = 0; at < n; at += r->most) {
        int32_t left = n - at;
        token_seq seq = {
            .ids = ids + at, .n = left < r->most ? left : r->most, .past = at, .whole = n
        };
        tensor logits;
        TRY(pass_set(r->pass, &seq, 1, r->rows, seq.n));
        TRY(model_fwd(r->m, r->pass, &logits));
        float *here = out + (size_t)at * row;
        TRY(dev->op->download(dev, here, logits.data, (size_t)seq.n * row * sizeof *out));
        for (size_t i = 0; i < (size_t)seq.n * row; i++)
            if (!isfinite(here[i]))
                return fail(PESC_NUMERIC, "the logits at position %zu are not finite",
                            (size_t)at + i / row);
    }
    return PESC_OK;
}

pesc_status pesc_logits(pesc_model *m, const int32_t *ids, size_t n, float *out)
{
    status_clear();
    NEED(m);
    NEED(ids);
    NEED(out);
    if (n == 0 || n > INT32_MAX)
        return fail(PESC_USAGE, "%zu tokens were given; give 1 to %d", n, INT32_MAX);
    DEVICE_CALL(m->dev);
    reader r = { .m = m };
    pesc_status s = open_reader(&r, (int32_t)n);
    if (s == PESC_OK)
        s = read_all(&r, ids, (int32_t)n, out);
    pass_close(r.pass);
    kvcache_close(r.kv);
    mem_free(r.rows);
    return s;
}
