#include "model/pass.h"

#include "arch/rope_freq.h"
#include "backend/memory.h"
#include "base/mem.h"
#include "model/work.h"

#include <stdatomic.h>
#include <string.h>

static atomic_uint_fast64_t n_opened; /* passes of this process, for their ids */

/* What a layout depends on. */
typedef struct pass_sizes {
    int64_t n, n_seqs, n_out, n_spans;
} pass_sizes;

/* With dynamic rope each token may have frequencies of its own. */
static pass_sizes sizes_at_limits(const pass *p)
{
    pass_limits lim = p->lim;
    int64_t spans = config_ropes_by_length(&p->m->cfg) ? lim.max_tokens : 1;
    return (pass_sizes){ lim.max_tokens, lim.max_seqs, lim.max_out, spans };
}

/* The inputs of a forward. They have the same layout on the host and at the beginning of the
 * device's span, so that one copy uploads them. */
typedef struct pass_inputs {
    tensor ids, pos, adapter_of_row, starts, rows, table, timelines, inv_freq, ones, q_scale;
} pass_inputs;

static int32_t widest_head(const config *c)
{
    return c->full_head_dim > c->head_dim ? c->full_head_dim : c->head_dim;
}

static pass_inputs inputs_layout(const pass *p, arena *a, pass_sizes z)
{
    const config *c = &p->m->cfg;
    pass_inputs in = { 0 };
    in.ids = tensor_take1(a, DT_I32, z.n);
    in.pos = tensor_take1(a, DT_I32, z.n);
    if (p->m->extra_experts)
        in.adapter_of_row = tensor_take1(a, DT_I32, z.n);
    in.starts = tensor_take1(a, DT_I32, z.n_seqs + 1);
    in.rows = tensor_take1(a, DT_I32, z.n_out);
    if (p->kv)
        in.table = tensor_take2(a, DT_I32, z.n_seqs, kvcache_max_pages(p->kv));
    if (p->kv && config_has_state(c))
        in.timelines = tensor_take1(a, DT_I32, z.n_seqs);
    in.inv_freq = tensor_take2(a, DT_F32, c->n_ropes * z.n_spans, config_widest_rope(c) / 2);
    if (c->v_norm)
        in.ones = tensor_take1(a, DT_F32, widest_head(c));
    if (c->q_scale_beta != 0)
        in.q_scale = tensor_take1(a, DT_F32, z.n);
    return in;
}

static void device_layout(pass *p, arena *a, pass_sizes z)
{
    const model_shape *m = p->m;
    const config *c = &m->cfg;
    pass_inputs in = inputs_layout(p, a, z);
    p->ids = in.ids;
    p->pos = in.pos;
    p->adapter_of_row = in.adapter_of_row;
    p->starts = in.starts;
    p->rows = in.rows;
    p->table = in.table;
    p->timelines = in.timelines;
    p->inv_freq = in.inv_freq;
    p->ones = in.ones;
    p->q_scale = in.q_scale;
    for (int32_t i = 0; i < c->n_ropes; i++) {
        p->cos[i] = tensor_take2(a, DT_F32, z.n, config_rope_dim(c, i) / 2);
        p->sin[i] = tensor_take2(a, DT_F32, z.n, config_rope_dim(c, i) / 2);
    }
    p->x = tensor_take2(a, DT_F32, z.n, c->dim);
    if (m->lora_rank)
        p->mid = tensor_take2(a, m->act_dt, z.n, LINEARS * m->lora_rank);
    if (m->bank_columns)
        p->bank_mid = tensor_take2(a, m->act_dt, z.n, LINEARS * m->bank_columns);
    acts_plan all = { .c = c, .dt = m->act_dt, .n = z.n, .train = p->train != NULL };
    memset(p->shared, 0, sizeof p->shared);
    attention_shared_layout(p->shared, a, &all);
    layer_input_rows_layout(&p->inputs, a, &all);
    if (p->train) {
        train_state_layout(p, a, z.n, z.n_out);
        return;
    }
    acts_plan plan = {
        .c = c, .dt = m->act_dt, .n = z.n, .expert_rank = m->expert_rank, .extra = m->extra_experts
    };
    block_layout(&p->acts, a, &plan);
    p->last = tensor_take2(a, DT_F32, z.n_out, c->dim);
    p->last_h = tensor_take2(a, m->act_dt, z.n_out, c->dim);
    p->logits = tensor_take2(a, DT_F32, z.n_out, c->vocab);
}

static void host_layout(pass *p, arena *a)
{
    size_t seqs = (size_t)p->lim.max_seqs;
    inputs_layout(p, a, sizes_at_limits(p));
    p->host.kv_seq = arena_take(a, seqs * sizeof *p->host.kv_seq);
    p->host.adapter_of_seq = arena_take(a, seqs * sizeof *p->host.adapter_of_seq);
    if (config_ropes_by_length(&p->m->cfg))
        p->host.spans = arena_take(a, ((size_t)p->lim.max_tokens + 1) * sizeof *p->host.spans);
    if (p->train)
        train_state_host_layout(p, a);
}

/* The scratch its ops need, which is the device's and serves every pass. */
static size_t scratch_bytes(const pass *p)
{
    int64_t cached = p->kv ? (int64_t)kvcache_max_pages(p->kv) * KV_PAGE_TOKENS : 0;
    work_limits w = work_of_pass(p->m, p->lim, cached, p->train ? &p->train->plan : NULL);
    return p->dev->op->scratch_bytes(p->dev, &w);
}

static const memory_need pass_need = { "a pass of the model", "fewer tokens at a time need less" };

static pesc_status open_memory(pass *p)
{
    arena host = { 0 }, dev = { 0 };
    host_layout(p, &host);
    p->host_memory = mem_aligned(host.used);
    if (!p->host_memory)
        return fail_nomem("a pass", host.used);
    host = (arena){ .base = p->host_memory, .size = host.used };
    host_layout(p, &host);
    device_layout(p, &dev, sizes_at_limits(p));
    p->bytes = dev.used;
    TRY(p->dev->op->reserve(p->dev, scratch_bytes(p)));
    return memory_take(&dev, p->dev, &pass_need, &p->memory);
}

/* Copies `like`, and `train` where it is not NULL, and gives the copy its memory. */
static pesc_status open_pass(pass **out, const pass *like, const train_state *train)
{
    pass_limits lim = like->lim;
    const topk_rule *r = &like->m->cfg.moe.topk, *full = &config_experts(&like->m->cfg)->topk;
    const int32_t k = r->k > full->k ? r->k : full->k;
    ASSERT(lim.max_tokens > 0 && lim.max_seqs > 0 && lim.max_out > 0);
    *out = NULL;
    if (k && lim.max_tokens > INT32_MAX / k)
        return fail(PESC_NOMEM, "a pass of %d tokens with %d experts each is too large",
                    lim.max_tokens, k);
    pass *p = mem_zalloc(1, sizeof *p);
    train_state *t = train ? mem_zalloc(1, sizeof *t) : NULL;
    if (!p || (train && !t)) {
        mem_free(p);
        mem_free(t);
        return fail_nomem("a pass", sizeof *p);
    }
    *p = *like;
    p->id = atomic_fetch_add(&n_opened, 1);
    p->train = t;
    if (t)
        *t = *train;
    pesc_status s = open_memory(p);
    if (s == PESC_OK)
        *out = p;
    else
        pass_close(p);
    return s;
}

pesc_status pass_open(pass **out, pesc_model *m, pass_limits lim, kvcache *kv)
{
    *out = NULL;
    if (m->hook)
        return fail(PESC_USAGE, "the model's base is not whole on the device, so it can only be "
                                "trained; open it again without shard_base and host_base");
    return open_pass(out, &(pass){ .m = &m->shape, .dev = m->dev, .kv = kv, .lim = lim }, NULL);
}

pesc_status pass_open_train(pass **out, pesc_model *m, pass_limits lim, const grad_mirror *g,
                            keep_counts keep)
{
    train_state t = { .mirror = g, .plan = train_plan_of(&m->shape.cfg, &g->facts, keep) };
    return open_pass(out, &(pass){ .m = &m->shape, .dev = m->dev, .hook = m->hook, .lim = lim },
                     &t);
}

static size_t shape_bytes(pass p)
{
    arena a = { 0 };
    device_layout(&p, &a, sizes_at_limits(&p));
    size_t scratch = scratch_bytes(&p), reserved = p.dev->reserved;
    return a.used + (scratch > reserved ? scratch - reserved : 0);
}

size_t pass_train_bytes(device *dev, const model_shape *m, const train_plan *plan, pass_limits lim)
{
    train_state t = { .plan = *plan };
    return shape_bytes((pass){ .m = m, .dev = dev, .lim = lim, .train = &t });
}

size_t pass_infer_bytes(device *dev, const model_shape *m, pass_limits lim)
{
    return shape_bytes((pass){ .m = m, .dev = dev, .lim = lim });
}

void pass_close(pass *p)
{
    if (!p)
        return;
    if (p->memory)
        p->dev->op->free(p->dev, p->memory);
    mem_free(p->host_memory);
    mem_free(p->train);
    mem_free(p);
}

static pesc_status check_ids(const pass *p, const token_seq *q)
{
    int32_t vocab = p->m->cfg.vocab;
    for (int32_t i = 0; i < q->n; i++)
        if (q->ids[i] < 0 || q->ids[i] >= vocab)
            return fail(PESC_FORMAT, "token %d of a sequence: found id %d, expected 0 to %d", i,
                        q->ids[i], vocab - 1);
    return PESC_OK;
}

/* Beyond its context the model would be computed otherwise than here. */
static pesc_status check_length(const pass *p, const token_seq *q)
{
    const config *c = &p->m->cfg;
    if ((!c->long_ntk && !c->long_logn) || q->past + q->n <= c->context)
        return PESC_OK;
    return fail(PESC_UNSUPPORTED,
                "%d tokens: beyond its %d tokens this model computes attention by %s, which pesc "
                "does not; give it shorter sequences",
                q->past + q->n, c->context, c->long_ntk ? "use_dynamic_ntk" : "use_logn_attn");
}

static pesc_status set_seq(pass *p, int32_t s, const token_seq *q)
{
    int32_t at = p->host.starts[s];
    TRY(check_ids(p, q));
    TRY(check_length(p, q));
    memcpy(p->host.ids + at, q->ids, (size_t)q->n * sizeof *q->ids);
    for (int32_t i = 0; i < q->n; i++)
        p->host.pos[at + i] = q->past + i;
    for (int32_t i = 0; p->host.adapter_of_row && i < q->n; i++)
        p->host.adapter_of_row[at + i] = q->adapter;
    p->host.starts[s + 1] = at + q->n;
    p->host.kv_seq[s] = q->kv_seq;
    if (p->host.timelines)
        p->host.timelines[s] = q->kv_seq;
    p->host.adapter_of_seq[s] = q->adapter;
    p->host.any_adapter |= q->adapter != 0;
    if (p->kv) {
        size_t pages = (size_t)kvcache_max_pages(p->kv);
        ASSERT(kvcache_length(p->kv, q->kv_seq) == q->past);
        TRY(kvcache_reserve(p->kv, q->kv_seq, q->n));
        memcpy(p->host.table + (size_t)s * pages, kvcache_table(p->kv, q->kv_seq),
               pages * sizeof *p->host.table);
    }
    return PESC_OK;
}

/* As transformers rotates them: the tokens of a prompt by the length of the prompt, one that was
 * generated by the length it made the sequence, and what is cached stays as it is. A sequence that
 * is fed in pieces, or again after it was preempted, gets the same. Returns the number of spans;
 * each sequence begins one. */
static int32_t find_spans(pass *p, const token_seq *seqs, int32_t n_seqs)
{
    rope_span *spans = p->host.spans;
    int32_t n = 0, at = 0;
    if (!spans)
        return 1;
    for (int32_t s = 0; s < n_seqs; s++) {
        const token_seq *q = &seqs[s];
        int64_t whole = q->whole ? q->whole : (int64_t)q->past + q->n;
        for (int32_t i = 0; i < q->n; i++, at++) {
            int64_t here = (int64_t)q->past + i + 1;
            int64_t length = rope_length(&p->m->cfg, here > whole ? here : whole);
            if (i == 0 || length != spans[n - 1].length)
                spans[n++] = (rope_span){ at, length };
        }
    }
    spans[n] = (rope_span){ at, 0 };
    return n;
}

/* Lays out the host arrays for the current tokens. */
static void place_inputs(pass *p, pass_sizes z)
{
    arena a = { .base = p->host_memory, .size = SIZE_MAX };
    pass_inputs in = inputs_layout(p, &a, z);
    p->host.ids = in.ids.data;
    p->host.pos = in.pos.data;
    p->host.adapter_of_row = in.adapter_of_row.data;
    p->host.starts = in.starts.data;
    p->host.rows = in.rows.data;
    p->host.table = in.table.data;
    p->host.timelines = in.timelines.data;
    p->host.inv_freq = in.inv_freq.data;
    p->host.ones = in.ones.data;
    p->host.q_scale = in.q_scale.data;
    p->host.bytes = a.used;
}

static void upload_inputs(pass *p)
{
    const config *c = &p->m->cfg;
    int64_t half = config_widest_rope(c) / 2;
    for (int32_t r = 0; r < c->n_ropes; r++)
        for (int32_t i = 0; i < p->n_spans; i++)
            rope_frequencies(c, r, p->host.spans ? p->host.spans[i].length : 0,
                             p->host.inv_freq + (r * p->n_spans + i) * half);
    for (int32_t i = 0; p->host.ones && i < widest_head(c); i++)
        p->host.ones[i] = 1;
    for (int32_t i = 0; p->host.q_scale && i < p->n; i++)
        p->host.q_scale[i] = rope_query_scale(c, p->host.pos[i]);
    p->dev->op->upload(p->dev, p->memory, p->host_memory, p->host.bytes);
}

pesc_status pass_set(pass *p, const token_seq *seqs, int32_t n_seqs, const int32_t *out_rows,
                     int32_t n_out)
{
    ASSERT(n_seqs > 0 && n_seqs <= p->lim.max_seqs && n_out >= 0 && n_out <= p->lim.max_out);
    int32_t n = 0;
    p->n = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        ASSERT(seqs[s].n > 0 && seqs[s].past >= 0 && seqs[s].n <= p->lim.max_tokens - n);
        n += seqs[s].n;
    }
    p->n_spans = find_spans(p, seqs, n_seqs);
    pass_sizes z = { n, n_seqs, n_out, p->n_spans };
    place_inputs(p, z);
    p->host.starts[0] = 0;
    p->host.any_adapter = false;
    for (int32_t s = 0; s < n_seqs; s++)
        TRY(set_seq(p, s, &seqs[s]));
    for (int32_t i = 0; i < n_out; i++)
        ASSERT(out_rows[i] >= (i ? out_rows[i - 1] + 1 : 0) && out_rows[i] < n);
    if (n_out)
        memcpy(p->host.rows, out_rows, (size_t)n_out * sizeof *out_rows);
    arena a = { .base = p->memory, .size = p->bytes };
    device_layout(p, &a, z);
    p->n = n;
    p->n_seqs = n_seqs;
    p->n_out = n_out;
    upload_inputs(p);
    return PESC_OK;
}
