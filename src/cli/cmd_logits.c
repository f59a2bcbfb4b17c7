/* cmd_logits: float32 logits of every position, for comparing with other programs. */
#include "cli/command.h"
#include "cli/opt/ids.h"
#include "cli/opt/input.h"
#include "cli/show/npy.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

#include <stdio.h>
#include <stdlib.h>

static pesc_status read_ids(const options *o, ids_table *t)
{
    TRY(ids_read_json(o->ids, t));
    if (t->n_seqs * t->n_each > 0)
        return PESC_OK;
    free(t->ids);
    return out_fail(PESC_FORMAT, "%s: found no ids, expected at least one", input_name(o->ids));
}

/* One sequence after another, through one buffer [n_each, vocab]. */
static pesc_status write_logits(const open_model *m, const ids_table *t, npy *file)
{
    size_t n;
    float *logits = NULL;
    if (!__builtin_mul_overflow(t->n_each, (size_t)m->info.vocab, &n))
        logits = calloc(n, sizeof *logits);
    pesc_status st = logits ? PESC_OK : out_nomem("the logits");
    for (size_t i = 0; i < t->n_seqs && st == PESC_OK; i++) {
        progress_show("sequences", i, t->n_seqs);
        st = pesc_logits(m->model, t->ids + i * t->n_each, t->n_each, logits);
        if (st == PESC_OK)
            st = npy_write(file, logits, n);
    }
    free(logits);
    return st;
}

/* Positions beyond the context length have logits too, but the model was not trained on them. */
static void tell_length(const options *o, const ids_table *t, const pesc_model_info *info)
{
    if (o->quiet || info->context <= 0 || t->n_each <= (size_t)info->context)
        return;
    progress_clear();
    fprintf(stderr,
            "pesc: note: %s: a sequence has %zu ids, the model's context is %lld: it was not "
            "trained on later positions\n",
            input_name(o->ids), t->n_each, (long long)info->context);
}

/* Logits are compared with other programs, so nothing is rounded that need not be. */
static pesc_status open_exact(const options *o, open_model *m)
{
    options exact = *o;
    pesc_run_info r = PESC_INIT(pesc_run_info);
    TRY(pesc_run_describe(o->model, NULL, &r));
    if (!exact.load.base_dtype && !r.checkpoint[0])
        exact.load.base_dtype = "stored";
    if (!exact.load.compute_dtype && !r.checkpoint[0])
        exact.load.compute_dtype = "f32";
    return open_from(m, &exact);
}

static pesc_status run_logits(const options *o, const ids_table *t, open_model *m)
{
    TRY(open_exact(o, m));
    tell_length(o, t, &m->info);
    const int64_t shape[] = { (int64_t)t->n_seqs, (int64_t)t->n_each, m->info.vocab };
    npy *file = NULL;
    pesc_status st = npy_open(&file, o->output, shape + !t->nested, t->nested ? 3 : 2);
    if (st == PESC_OK)
        st = write_logits(m, t, file);
    if (st != PESC_OK) {
        npy_abort(file);
        return st;
    }
    TRY(npy_publish(file));
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
        out_begin("shape", '[');
        for (int i = !t->nested; i < 3; i++)
            out_int(NULL, shape[i]);
        out_end();
        out_end();
    }
    return PESC_OK;
}

pesc_status cmd_logits(const options *o)
{
    if (!o->ids || !o->output)
        return out_fail(PESC_USAGE, "logits: %s is missing; usage: pesc logits %s",
                        o->ids ? "-o OUT.npy" : "--ids FILE.json", o->cmd->synopsis);
    ids_table t;
    open_model m = { 0 };
    TRY(read_ids(o, &t));
    pesc_status st = run_logits(o, &t, &m);
    open_free(&m);
    free(t.ids);
    return st;
}
