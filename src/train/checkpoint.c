#include "train/checkpoint.h"

#include "arch/bind.h"
#include "arch/family.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/patch.h"
#include "format/peft.h"
#include "run/rundir.h"
#include "train/parts.h"
#include "train/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE "trainer_state.json"

enum { MAX_STATE = 1 << 20 };
#define MAX_OFFSET ((int64_t)1 << 60)

/* ---- writing ---- */

static pesc_status write_text(const char *dir, const char *name, const char *text)
{
    char *path = io_join(dir, name);
    size_t n = text ? strlen(text) : 0;
    pesc_status s = path && text ? io_write_file(path, text, n) : fail_nomem(name, n);
    mem_free(path);
    return s;
}

static pesc_status write_json(const char *dir, const char *name, json_t *v)
{
    str text = { 0 };
    json_put(&text, v, JSON_INDENT(1));
    str_putc(&text, '\n');
    pesc_status s = write_text(dir, name, str_ok(&text) ? text.p : NULL);
    str_free(&text);
    json_decref(v);
    return s;
}

/* ---- adapter_config.json ---- */

typedef struct lora_facts {
    int64_t rank; /* 0: the slot has no LoRA */
    float scale;
    bool some; /* other experts of the layer have none */
} lora_facts;

static lora_facts lora_facts_of(pesc_model *m, const slot *s)
{
    const lora_stack *stack = bind_lora_stack(&m->shape.w, s);
    const linear *of = bind_linear(&m->shape.w, s);
    const lora *l = of ? of->lora : NULL;
    if (stack && stack->a.data && expert_list_at(&stack->own, s->expert) >= 0)
        return (lora_facts){ stack->a.ne[1], stack->scale, stack->own.ids != NULL };
    return l ? (lora_facts){ l->a.ne[0], l->scale, false } : (lora_facts){ 0 };
}

/* The module's place in the configuration: its rank and alpha where they differ from the first.
 * False when out of memory. */
static bool describe_lora(json_t *c, const slot *s, const lora_facts *l)
{
    char module[sizeof s->name];
    size_t n = strlen(s->name) - strlen(".weight"), i;
    memcpy(module, s->name, n);
    module[n] = '\0';
    int64_t r = l->rank;
    double alpha = (double)l->scale * (double)r;
    int bad = 0;
    if (!json_object_get(c, "r"))
        bad |= json_object_set_new(c, "r", json_integer(r)) |
               json_object_set_new(c, "lora_alpha", json_real(alpha));
    if (json_integer_value(json_object_get(c, "r")) != r)
        bad |= json_object_set_new(json_object_get(c, "rank_pattern"), module, json_integer(r));
    if (json_real_value(json_object_get(c, "lora_alpha")) != alpha)
        bad |= json_object_set_new(json_object_get(c, "alpha_pattern"), module, json_real(alpha));
    json_t *targets = json_object_get(c, "target_modules"), *t;
    const char *last = strrchr(module, '.') && !l->some ? strrchr(module, '.') + 1 : module;
    json_array_foreach(targets, i, t) if (strcmp(json_string_value(t), last) == 0) return bad == 0;
    return (bad | json_array_append_new(targets, json_string(last))) == 0;
}

/* Layers come in ascending order. False when out of memory. */
static bool add_layer(json_t *layers, int32_t layer)
{
    size_t n = json_array_size(layers);
    if (n && json_integer_value(json_array_get(layers, n - 1)) == layer)
        return true;
    return json_array_append_new(layers, json_integer(layer)) == 0;
}

static pesc_status write_adapter_config(const checkpoint *c, const char *dir)
{
    pesc_model *m = c->p->m;
    /* 0.1, not the nearest f32. peft refuses dropout on experts, even where it only infers. */
    double dropout = m->shape.expert_rank ? 0 : round(1e6 * (double)c->p->spec.lora_dropout) / 1e6;
    json_t *v =
        json_pack("{s:s, s:s, s:s, s:s, s:f, s:b, s:b, s:[], s:{}, s:{}}", "peft_type", "LORA",
                  "task_type", "CAUSAL_LM", "base_model_name_or_path", c->about.base, "bias",
                  "none", "lora_dropout", dropout, "fan_in_fan_out", 0, "inference_mode", 1,
                  "target_modules", "rank_pattern", "alpha_pattern");
    bool fine = v != NULL;
    json_t *layers = json_array();
    for (slot s = slot_first(); fine && slot_next(&m->shape.cfg, &s);) {
        lora_facts l = lora_facts_of(m, &s);
        if (l.rank)
            fine = describe_lora(v, &s, &l) && add_layer(layers, s.layer);
    }
    if (fine && json_array_size(layers) < (size_t)m->shape.cfg.n_layers)
        fine = json_object_set(v, "layers_to_transform", layers) == 0;
    json_decref(layers);
    if (fine)
        return write_json(dir, RUNSTATE_ADAPTER_CONFIG, v);
    json_decref(v);
    return fail_nomem(RUNSTATE_ADAPTER_CONFIG, 1024);
}

/* A mixture of LoRA, and a bias that experts are chosen with, are not in the base model's
 * configuration. */
static pesc_status write_config_keys(const checkpoint *c, const char *dir)
{
    const moe_rule *r = &c->p->m->shape.cfg.moe;
    bool mixture = c->p->spec.molora_experts > 0;
    if (!mixture && !r->added_bias)
        return PESC_OK;
    if (!mixture)
        return write_json(dir, RUNSTATE_CONFIG_KEYS, json_pack("{s:b}", CONFIG_ADDED_BIAS, 1));
    json_t *v = json_pack("{s:i, s:i, s:i, s:f}", "molora_experts", (int)r->topk.n_experts,
                          "molora_top_k", (int)r->topk.k, "molora_rank", (int)r->expert_dim,
                          "molora_scale", (double)r->adapter_scale);
    if (v && r->added_bias)
        json_object_set_new(v, CONFIG_ADDED_BIAS, json_true());
    return v ? write_json(dir, RUNSTATE_CONFIG_KEYS, v) : fail_nomem(RUNSTATE_CONFIG_KEYS, 256);
}

/* With method esft the checkpoint is an expert patch as well. */
static pesc_status write_patch(const checkpoint *c, const char *dir)
{
    const expertcfg *own = c->p->spec.own;
    str text = { 0 };
    if (!own)
        return PESC_OK;
    expertcfg_put(&text, own);
    pesc_status s = write_text(dir, EXPERTCFG_FILE, str_ok(&text) ? text.p : NULL);
    str_free(&text);
    return s == PESC_OK ? patch_describe(dir, c->patch_base) : s;
}

/* Opening, merging and exporting the run then use the template that it was trained with. */
static pesc_status write_template(const checkpoint *c, const char *dir)
{
    return c->jinja ? write_text(dir, "chat_template.jinja", c->jinja) : PESC_OK;
}

/* ---- trainer_state.json: Hugging Face's keys, and ours ---- */

static pesc_status write_state(const checkpoint *c, const checkpoint_state *s, const char *dir)
{
    char best[64] = "";
    if (s->best_step)
        snprintf(best, sizeof best, "checkpoint-%lld", (long long)s->best_step);
    json_t *v = json_pack(
        "{s:I, s:f, s:I, s:I, s:[], s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "global_step", (json_int_t)s->step, "epoch", s->epoch, "max_steps", (json_int_t)c->steps,
        "num_input_tokens_seen", (json_int_t)s->tokens, "log_history", "best_metric",
        s->best_step ? s->best_loss : 0.0, "best_model_checkpoint", best, "best_step",
        (json_int_t)s->best_step, "validations_since_best", (json_int_t)s->worse_evals,
        "applied_steps", (json_int_t)s->applied, "skipped_steps", (json_int_t)s->skipped,
        "skipped_in_a_row", (json_int_t)s->bad_in_row, "metrics_bytes",
        (json_int_t)s->metrics_bytes, "routing_bytes", (json_int_t)s->routing_bytes, "eval_bytes",
        (json_int_t)s->eval_bytes, "eval_due", (json_int_t)s->eval_due, "data_offset",
        (json_int_t)s->data_offset);
    if (v && s->reference_start[0])
        json_object_set_new(v, "reference_start", json_string(s->reference_start));
    return v ? write_json(dir, STATE, v) : fail_nomem(STATE, 1024);
}

static pesc_status read_state(checkpoint_state *s, const char *dir)
{
    json_t *v = NULL;
    char *path = io_join(dir, STATE);
    if (!path)
        return fail_nomem(STATE, strlen(dir));
    pesc_status st = json_read(&v, path, MAX_STATE);
    const struct {
        const char *key;
        int64_t *to;
    } rows[] = {
        { "global_step", &s->step },
        { "applied_steps", &s->applied },
        { "num_input_tokens_seen", &s->tokens },
        { "skipped_steps", &s->skipped },
        { "skipped_in_a_row", &s->bad_in_row },
        { "best_step", &s->best_step },
        { "eval_due", &s->eval_due },
        { "metrics_bytes", (int64_t *)&s->metrics_bytes },
        { "routing_bytes", (int64_t *)&s->routing_bytes },
        { "eval_bytes", (int64_t *)&s->eval_bytes },
    };
    json_where w = { v, path };
    for (size_t i = 0; st == PESC_OK && i < sizeof rows / sizeof *rows; i++)
        st = json_get_i64(w, rows[i].key, true, 0, RUNSTATE_COUNT_MAX, rows[i].to);
    if (st == PESC_OK) /* absent in checkpoints of 0.1 */
        st = json_get_i64(w, "validations_since_best", false, 0, RUNSTATE_COUNT_MAX,
                          &s->worse_evals);
    if (st == PESC_OK)
        st = json_get_i64(w, "data_offset", false, -MAX_OFFSET, MAX_OFFSET, &s->data_offset);
    if (st == PESC_OK)
        st = json_get_f64(w, "best_metric", true, &s->best_loss);
    if (st == PESC_OK)
        st = json_get_f64(w, "epoch", true, &s->epoch);
    const char *start = json_string_value(json_object_get(v, "reference_start"));
    snprintf(s->reference_start, sizeof s->reference_start, "%s", start ? start : "");
    json_decref(v);
    mem_free(path);
    return st;
}

/* ---- saving ---- */

static pesc_status preflight(const checkpoint *c, const parts *a)
{
    uint64_t have = 0, need = parts_bytes(a) + (1 << 20);
    TRY(io_free_bytes(c->run, &have));
    if (have < need)
        return fail(PESC_DISK,
                    "%s: a checkpoint takes %llu bytes, but the disk has %llu left; free some, or "
                    "give an output elsewhere",
                    c->run, (unsigned long long)need, (unsigned long long)have);
    return PESC_OK;
}

pesc_status checkpoint_fits(const checkpoint *c)
{
    parts a = { 0 };
    pesc_status s = parts_collect(&a, c->p, c->opt);
    if (s == PESC_OK)
        s = preflight(c, &a);
    parts_free(&a);
    return s;
}

/* The files that all processes fill, in a new directory. */
static pesc_status lay_out(const checkpoint *c, const parts *a, const char *dir)
{
    TRY(preflight(c, a));
    TRY(io_remove(dir));
    TRY(io_make_dir(dir));
    return parts_lay_out(a, dir);
}

/* The manifest comes last. */
static pesc_status write_rest(const checkpoint *c, const checkpoint_state *s, const parts *a,
                              const char *dir)
{
    if (a->of[PART_ADAPTER].n)
        TRY(write_adapter_config(c, dir));
    TRY(write_config_keys(c, dir));
    TRY(write_patch(c, dir));
    TRY(write_text(dir, "run.yaml", c->yaml));
    TRY(write_template(c, dir));
    TRY(write_state(c, s, dir));
    runstate_manifest about = c->about;
    about.step = s->step;
    return runstate_seal(dir, &about, a->sums);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = runstate_step_of(*(char *const *)a), y = runstate_step_of(*(char *const *)b);
    return (x < y) - (x > y);
}

pesc_status checkpoint_know_whole(checkpoint *c, int64_t step)
{
    int64_t *more = mem_grow(c->whole, c->n_whole + 1, sizeof *more);
    if (!more)
        return fail_nomem(c->run, (c->n_whole + 1) * sizeof *more);
    c->whole = more;
    c->whole[c->n_whole++] = step;
    return PESC_OK;
}

/* Whether a checkpoint can be resumed from. One that this process wrote or loaded is known to be;
 * any other is read once and compared with its manifest. */
static bool is_whole(checkpoint *c, const char *name)
{
    runstate_manifest m;
    for (size_t i = 0; i < c->n_whole; i++)
        if (c->whole[i] == runstate_step_of(name))
            return true;
    char *path = io_join(c->run, name);
    bool whole = path && runstate_check(path, true, &m) == PESC_OK;
    if (whole) {
        runstate_manifest_free(&m);
        whole = checkpoint_know_whole(c, runstate_step_of(name)) == PESC_OK;
    }
    mem_free(path);
    return whole;
}

/* Removes what is older than the `keep` newest whole checkpoints. A damaged one does not count:
 * it must never push out one that can be resumed from. */
static pesc_status retire_old(checkpoint *c, const checkpoint_state *s)
{
    char **names = NULL;
    size_t n = 0;
    int64_t kept = 0, keep = c->keep < 2 ? 2 : c->keep;
    if (c->keep == 0)
        return PESC_OK;
    TRY(io_list(c->run, &names, &n));
    pesc_status st = PESC_OK;
    if (n)
        qsort(names, n, sizeof *names, newest_first);
    for (size_t i = 0; st == PESC_OK && i < n; i++) {
        int64_t step = runstate_step_of(names[i]);
        if (step < 0)
            continue;
        if (kept < keep)
            kept += is_whole(c, names[i]);
        else if (step != s->best_step)
            st = rundir_retire(c->run, names[i]);
    }
    io_list_free(names, n);
    return st;
}

/* `best` leads to the checkpoint with the lowest validation loss, where it is still there. */
static pesc_status link_best(const checkpoint *c, const checkpoint_state *s)
{
    char name[64], there[64] = "";
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)s->best_step);
    char *path = io_join(c->run, "best"), *to = io_join(c->run, name);
    pesc_status st = path && to ? PESC_OK : fail_nomem(c->run, sizeof name);
    bool best = st == PESC_OK && s->best_step > 0 && io_kind_of(to) == IO_DIR;
    ssize_t n = st == PESC_OK ? readlink(path, there, sizeof there - 1) : 0;
    there[n > 0 ? n : 0] = '\0';
    if (best && strcmp(there, name) != 0)
        st = io_link(name, path);
    else if (st == PESC_OK && !best && n > 0)
        st = io_remove(path);
    mem_free(path);
    mem_free(to);
    return st;
}

pesc_status checkpoint_settle(checkpoint *c, const checkpoint_state *s)
{
    TRY(link_best(c, s));
    return retire_old(c, s);
}

/* Makes a complete temporary directory the newest checkpoint of the run. */
static pesc_status publish(const checkpoint *c, const checkpoint_state *s, const char *temp)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)s->step);
    char *path = io_join(c->run, name), *latest = io_join(c->run, "latest");
    pesc_status st = path && latest ? PESC_OK : fail_nomem(c->run, 64);
    bool again = st == PESC_OK && io_kind_of(path) != IO_NONE; /* this step was saved before */
    if (st == PESC_OK)
        st = (again ? io_swap : io_rename)(temp, path);
    if (st == PESC_OK)
        st = io_sync_dir(c->run);
    if (st == PESC_OK)
        st = io_link(name, latest);
    if (st == PESC_OK && again)
        st = io_remove(temp);
    mem_free(path);
    mem_free(latest);
    return st;
}

/* Rank 0 lays the files out, all fill them, rank 0 seals the directory. Between two of these steps
 * all agree on how it went, so that none waits for another that has given up. */
static pesc_status save(checkpoint *c, const checkpoint_state *s, const parts *a, const char *temp)
{
    static const char what[] = "writing a checkpoint";
    peers *all = c->p->m->dev->peers;
    bool leads = peers_lead(all);
    TRY(peers_agree(all, what, leads ? lay_out(c, a, temp) : PESC_OK));
    TRY(peers_agree(all, what, parts_fill(a, temp)));
    pesc_status st = leads ? write_rest(c, s, a, temp) : PESC_OK;
    if (st == PESC_OK && leads)
        st = publish(c, s, temp);
    return peers_agree(all, what, st);
}

pesc_status checkpoint_save(checkpoint *c, const checkpoint_state *s)
{
    parts a = { 0 };
    str temp = { 0 };
    peers *all = c->p->m->dev->peers;
    bool leads = peers_lead(all);
    int64_t id = getpid(); /* of rank 0: all write into one directory */
    TRY(peers_follow(all, "writing a checkpoint", &id, sizeof id));
    str_printf(&temp, "%s/checkpoint-%lld.tmp.%lld", c->run, (long long)s->step, (long long)id);
    pesc_status st = str_ok(&temp) ? parts_collect(&a, c->p, c->opt) : fail_nomem(c->run, 256);
    a.on_host = c->on_host;
    if (st == PESC_OK && !all)
        st = runsums_open(&a.sums);
    if (st == PESC_OK)
        st = save(c, s, &a, temp.p);
    runsums_close(a.sums);
    if (st == PESC_OK && leads)
        st = checkpoint_know_whole(c, s->step);
    if (st == PESC_OK && leads)
        st = link_best(c, s);
    if (st == PESC_OK && leads &&
        retire_old(c, s) != PESC_OK) /* the new one is saved all the same */
        log_notice("%s", pesc_last_error());
    if (st != PESC_OK && leads && str_ok(&temp)) {
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        (void)io_remove(temp.p); /* its failure must not hide the first */
        st = fail(st, "%s", why);
    }
    parts_free(&a);
    str_free(&temp);
    return st;
}

/* ---- loading ---- */

static pesc_status load_parts(params *p, const optimizer *o, const char *dir)
{
    parts a = { 0 };
    pesc_status s = parts_collect(&a, p, o);
    if (s == PESC_OK)
        s = parts_read(&a, dir);
    parts_free(&a);
    return s;
}

static bool same_number(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* One LoRA of the checkpoint and of the model: A and B mean the same with the same scale alone. */
static pesc_status check_lora(const peft_lora *from, const lora_facts *to, const char *dir)
{
    int64_t r = from->a->ne[0];
    if (r == to->rank && same_number((double)from->scale, (double)to->scale))
        return PESC_OK;
    return fail(PESC_USAGE,
                "%s: %s: its LoRA has rank %lld and scale %g, and that of this run %lld and %g; "
                "give lora_r %lld and lora_alpha %g",
                dir, from->module, (long long)r, (double)from->scale, (long long)to->rank,
                (double)to->scale, (long long)r, (double)from->scale * (double)r);
}

/* What the tensors of LoRA do not say: how much of them is added. */
static pesc_status check_loras(params *p, const char *dir)
{
    char *path = io_join(dir, RUNSTATE_ADAPTER_CONFIG);
    bool none = path && io_kind_of(path) == IO_NONE;
    peft *from = NULL;
    pesc_status s = none ? PESC_OK : path ? peft_open(&from, dir) : fail_nomem(dir, 64);
    mem_free(path);
    for (slot t = slot_first(); s == PESC_OK && from && slot_next(&p->m->shape.cfg, &t);) {
        lora_facts to = lora_facts_of(p->m, &t);
        size_t n = strlen(t.name) - strlen(".weight");
        for (size_t i = 0; s == PESC_OK && to.rank && i < from->n; i++)
            if (strncmp(from->loras[i].module, t.name, n) == 0 && !from->loras[i].module[n])
                s = check_lora(&from->loras[i], &to, dir);
    }
    peft_close(from);
    return s;
}

/* The same of a mixture of LoRA. */
static pesc_status check_mixture(const params *p, const char *dir)
{
    char *path = io_join(dir, RUNSTATE_CONFIG_KEYS);
    json_t *v = NULL;
    int64_t k = 0;
    double scale = 0;
    const moe_rule *r = &p->m->shape.cfg.moe;
    bool there = path && io_kind_of(path) == IO_FILE && p->spec.molora_experts;
    pesc_status s = there ? json_read(&v, path, MAX_STATE) : path ? PESC_OK : fail_nomem(dir, 64);
    json_where w = { v, path };
    if (s == PESC_OK && there)
        s = json_get_i64(w, "molora_top_k", true, 1, INT32_MAX, &k);
    if (s == PESC_OK && there)
        s = json_get_f64(w, "molora_scale", true, &scale);
    if (s == PESC_OK && there && (k != r->topk.k || !same_number(scale, (double)r->adapter_scale)))
        s = fail(PESC_USAGE,
                 "%s: its mixture of LoRA has top_k %lld and scale %g, and that of this run %d and "
                 "%g; give top_k %lld and lora_alpha %g",
                 dir, (long long)k, scale, r->topk.k, (double)r->adapter_scale, (long long)k,
                 scale * (double)p->spec.lora_r);
    json_decref(v);
    mem_free(path);
    return s;
}

pesc_status checkpoint_load_weights(params *p, const char *dir)
{
    TRY(check_loras(p, dir));
    TRY(check_mixture(p, dir));
    return load_parts(p, NULL, dir);
}

/* Names the options that changed, from the checkpoint's run.yaml; adds nothing where it cannot. */
static void what_changed(const checkpoint *c, const char *dir, str *out)
{
    char *path = io_join(dir, "run.yaml"), *text = NULL;
    size_t n;
    if (path && io_read_file(path, 1 << 20, &text, &n) == PESC_OK)
        settings_changed(text, c->yaml, out);
    mem_free(text);
    mem_free(path);
}

static const char other_data[] = "--data-changed restart-epoch starts the epoch again with the new "
                                 "data, --data-changed continue "
                                 "goes on at the same position in it; ";

static pesc_status refuse(const char *dir, const char *what, const char *advice, const str *how)
{
    return fail(PESC_USAGE,
                "%s: cannot be resumed: %s changed since it was saved (%s); %sa new run can begin "
                "from it with --init-from",
                dir, what, str_ok(how) ? how->p : "", advice);
}

/* The options are the same, but the version that wrote the checkpoint counted others or trained
 * differently. */
static pesc_status refuse_version(const char *dir, const char *writer)
{
    return fail(PESC_USAGE,
                "%s: cannot be resumed: it was saved by pesc %s, and %s trains differently; finish "
                "it with that version, or begin a new run from it with --init-from",
                dir, writer, PESC_VERSION);
}

/* A run is resumed only with the base, tokenizer, data and options it was made from. */
static pesc_status check_origin(const checkpoint *c, const runstate_manifest *m, const char *dir)
{
    const struct {
        const char *saved, *now, *what;
    } rows[] = {
        { m->base_hash, c->about.base_hash, "the base model has" },
        { m->tokenizer_hash, c->about.tokenizer_hash, "the tokenizer has" },
        { m->data_hash, c->about.data_hash, "the data files have" },
        { m->config_hash, c->about.config_hash, "options that decide the numbers have" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str how = { 0 };
        if (!rows[i].saved[0] || strcmp(rows[i].saved, rows[i].now) == 0)
            continue;
        bool data = rows[i].saved == m->data_hash;
        if (data && c->allow_other_data)
            continue;
        if (rows[i].saved == m->config_hash)
            what_changed(c, dir, &how);
        if (data && c->data_diff)
            str_puts(&how, c->data_diff);
        if (!how.n && rows[i].saved == m->config_hash && strcmp(m->writer, PESC_VERSION) != 0)
            return refuse_version(dir, m->writer);
        if (!how.n)
            str_printf(&how, "hash %s, now %s", rows[i].saved, rows[i].now);
        pesc_status s = refuse(dir, rows[i].what, data ? other_data : "", &how);
        str_free(&how);
        return s;
    }
    return PESC_OK;
}

pesc_status checkpoint_load(checkpoint *c, const char *dir, checkpoint_state *out)
{
    runstate_manifest m = { 0 };
    TRY(runstate_check(dir, false, &m));
    pesc_status s = check_origin(c, &m, dir);
    bool other = m.data_hash[0] && strcmp(m.data_hash, c->about.data_hash) != 0;
    runstate_manifest_free(&m);
    if (s == PESC_OK)
        s = load_parts(c->p, c->opt, dir);
    if (s == PESC_OK)
        s = read_state(out, dir);
    out->data_changed = other;
    return s == PESC_OK ? checkpoint_know_whole(c, out->step) : s;
}
