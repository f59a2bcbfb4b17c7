#include "train/together.h"

#include "backend/memory.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS = 8, SHARE = 8 };

/* ---- what is chosen from memory ---- */

int64_t together_micros(const pesc_train_options *o)
{
    if (strcmp(o->over_length, "split") == 0) /* a record may be any number of sequences */
        return INT64_MAX;
    if (!o->packing || o->micro_tokens < o->seq_len)
        return o->batch;
    int64_t least = o->micro_tokens / o->seq_len; /* records of each but the last */
    return (o->batch + least - 1) / least;
}

/* Whether a method trains the weights of the model, not just what was added to it: gradients are
 * then so large that exchanging each micro-batch's costs less than keeping them whole. */
static bool trains_model(const train_spec *s)
{
    return s->base || s->experts || s->own;
}

int64_t together_choose_groups(const pesc_train_options *o, const device *dev,
                               const train_spec *spec, int64_t trained)
{
    uint64_t total = memory_total(dev), each = (uint64_t)trained * sizeof(float);
    gradient_shape s = { .groups = GROUPS, .micros = together_micros(o), .processes = 1 };
    if (o->grad_groups != PESC_AUTO)
        return o->grad_groups;
    if (trains_model(spec) && 2 * each > total) /* one process cannot train it in any case */
        return GROUPS;
    while (s.groups > 1 && gradient_bytes(&s, trained) > total / SHARE)
        s.groups /= 2;
    return s.groups;
}

gradient_shape together_shape(const pesc_train_options *o, const device *dev,
                              const train_spec *spec, int64_t trained)
{
    gradient_shape s = { .groups = together_choose_groups(o, dev, spec, trained),
                         .micros = together_micros(o),
                         .processes = o->processes };
    s.rounds = trains_model(spec) && s.micros <= s.groups;
    while (s.groups < s.processes)
        s.groups *= 2;
    return s;
}

/* *v becomes the least of all processes' values. */
static pesc_status agree_least(peers *p, int64_t *v)
{
    int64_t negative = -*v;
    TRY(peers_most(p, "choosing options", &negative));
    *v = -negative;
    return PESC_OK;
}

pesc_status together_choose(pesc_trainer *t, int64_t trained)
{
    pesc_train_options *o = &t->opt;
    TRY(agree_least(t->peers, &o->micro_tokens));
    o->grad_groups = together_choose_groups(o, t->m->dev, &t->spec, trained);
    return agree_least(t->peers, &o->grad_groups);
}

void together_notice(const pesc_trainer *t, const gradient_shape *s)
{
    long long size = s->processes, asked = t->opt.grad_groups;
    if (s->groups != asked)
        log_notice("%lld processes are more than grad_groups %lld: the gradient of a step is added "
                   "in %lld groups, so the bits will not be those of a run with fewer processes",
                   size, asked, (long long)s->groups);
    else if (size & (size - 1))
        log_notice("%lld processes are not a power of two: the bits will not be those of a run "
                   "with another number of processes",
                   size);
    if (size == 1 || !trains_model(&t->spec) || s->rounds)
        return;
    if (s->micros == INT64_MAX)
        log_notice("over_length split has no largest number of micro-batches of a step: gradients "
                   "are whole in each process instead of sharded");
    else
        log_notice("a step may have more micro-batches than grad_groups %lld: gradients are whole "
                   "in each process instead of sharded; a larger grad_groups, or larger "
                   "micro-batches (micro_tokens), would need less memory",
                   asked);
}

/* ---- what must be the same everywhere ---- */

typedef struct identity {
    char base[17], tokenizer[17], data[17], eval_data[17], config[17];
    int64_t yaml; /* bytes of run.yaml, which follows */
} identity;

static identity identify(const pesc_trainer *t)
{
    const runstate_manifest *m = &t->saver.about;
    identity d = { 0 };
    memcpy(d.base, m->base_hash, sizeof d.base);
    memcpy(d.tokenizer, m->tokenizer_hash, sizeof d.tokenizer);
    memcpy(d.data, m->data_hash, sizeof d.data);
    memcpy(d.config, m->config_hash, sizeof d.config);
    if (t->eval_data)
        str_hex(d.eval_data, dataset_hash(t->eval_data));
    d.yaml = (int64_t)strlen(t->yaml) + 1;
    return d;
}

/* Keys whose values may differ: places (what is there is compared by hashes), and what concerns a
 * process alone. */
static bool may_differ(const char *line)
{
    static const char *const keys[] = { "model:",     "output:",         "data:", "eval_data:",
                                        "device:",    "keep:",           "lora:", "- ",
                                        "init_from:", "experts_config:", "  - " };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(line, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

/* The line of a text that begins with the key of `line`, or "". */
static const char *same_key(const char *text, const char *line)
{
    size_t key = strcspn(line, ":\n") + 1;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (strncmp(text, line, key) == 0)
            return text;
    return "";
}

/* The first option that rank 0 has otherwise. */
static pesc_status compare_options(const char *first, const char *own)
{
    for (const char *line = first; *line;) {
        size_t n = strcspn(line, "\n");
        const char *mine = same_key(own, line);
        size_t m = strcspn(mine, "\n");
        if (!may_differ(line) && (m != n || memcmp(line, mine, n) != 0))
            return fail(PESC_USAGE, "an option is not that of rank 0: found %.*s, expected %.*s",
                        (int)(m ? m : 7), m ? mine : "nothing", (int)n, line);
        line += n + (line[n] == '\n');
    }
    return PESC_OK;
}

static pesc_status compare(const identity *first, const identity *own)
{
    const struct {
        const char *first, *own, *what;
    } rows[] = {
        { first->base, own->base, "the model is" },
        { first->tokenizer, own->tokenizer, "the tokenizer is" },
        { first->data, own->data, "the data files are" },
        { first->eval_data, own->eval_data, "the validation data is" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].first, rows[i].own) != 0)
            return fail(PESC_USAGE, "%s not that of rank 0: found hash %s, expected %s",
                        rows[i].what, rows[i].own, rows[i].first);
    return PESC_OK;
}

pesc_status together_check(pesc_trainer *t)
{
    static const char what[] = "comparing models, data and options";
    identity own = identify(t), first = own;
    TRY(peers_follow(t->peers, what, &first, sizeof first));
    char *yaml = mem_alloc((size_t)first.yaml, 1);
    if (!yaml)
        return fail_nomem("run.yaml", (size_t)first.yaml);
    if (peers_lead(t->peers))
        memcpy(yaml, t->yaml, (size_t)own.yaml);
    pesc_status s = peers_follow(t->peers, what, yaml, (size_t)first.yaml);
    if (s == PESC_OK) {
        s = compare(&first, &own);
        if (s == PESC_OK)
            s = compare_options(yaml, t->yaml);
        if (s == PESC_OK && strcmp(first.config, own.config) != 0)
            s = fail(PESC_USAGE, "experts_config is not that of rank 0");
        s = peers_agree(t->peers, what, s);
    }
    mem_free(yaml);
    return s;
}
