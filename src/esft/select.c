/* select: the experts of each layer that a task uses most.
 *
 * The rule of ESFT: in a layer, experts come in the order of their rounded scores, ties in the
 * order of their numbers; they are taken until the scores taken add up to p. The test comes before
 * the addition, so the last one reaches p, and where all scores together do not, all are taken.
 * A budget takes the best experts of all layers instead, or of those that p took. Random experts
 * are what a choice is compared with.
 *
 * Against a background experts come in the order of their score divided by that on general data,
 * and those below a floor are not taken: what a task uses much is often what all data uses. */
#include "arch/family.h"
#include "arch/info.h"
#include "arch/param_group.h"
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/rng.h"
#include "esft/full_experts.h"
#include "esft/summary.h"
#include "format/expertcfg.h"
#include "run/runmodel.h"

#include <stdlib.h>
#include <string.h>

static pesc_status open_choice(pesc_esft_choice *c, size_t n_layers, size_t n_experts)
{
    size_t n = n_layers * n_experts;
    *c = (pesc_esft_choice){ .size = sizeof *c, .n_layers = n_layers, .n_experts = n_experts };
    c->layers = mem_alloc(n_layers, sizeof *c->layers);
    c->scores = mem_zalloc(n, sizeof *c->scores);
    c->chosen = mem_zalloc(n, sizeof *c->chosen);
    c->order = mem_zalloc(n, sizeof *c->order);
    c->counts = mem_zalloc(n_layers, sizeof *c->counts);
    bool ok = c->layers && c->scores && c->chosen && c->order && c->counts;
    return ok ? PESC_OK : fail_nomem("a choice of experts", n * sizeof *c->scores);
}

void pesc_esft_choice_free(pesc_esft_choice *c)
{
    if (!c)
        return;
    mem_free(c->layers);
    mem_free(c->scores);
    mem_free(c->chosen);
    mem_free(c->order);
    mem_free(c->counts);
    ARGS_CLEAR(c);
}

/* ---- the rule ---- */

typedef struct ranked {
    double score; /* or what else they are ranked by */
    size_t layer; /* index */
    int32_t expert;
} ranked;

/* What experts are ranked by, [n_layers, n_experts]: their scores, or their ratios to those of a
 * background. */
typedef struct ranking {
    const double *by;
    ranked *list; /* [n_layers * n_experts]: room */
} ranking;

/* Highest score first; ties in the order of layers, then of experts. */
static int best_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

static void take_expert(pesc_esft_choice *c, const ranked *r)
{
    size_t row = r->layer * c->n_experts;
    c->chosen[row + (size_t)r->expert] = true;
    c->order[row + (size_t)c->counts[r->layer]++] = r->expert;
    c->total++;
}

/* What is ranked below 0 is never taken. */
enum { NEVER = -1 };

/* p < 0: everything, in order; most: at most so many. Returns whether the scores reached p. */
static bool take_layer(pesc_esft_choice *c, size_t layer, double p, size_t most, ranking r)
{
    double sum = 0;
    const size_t row = layer * c->n_experts;
    for (size_t e = 0; e < c->n_experts; e++)
        r.list[e] = (ranked){ r.by[row + e], layer, (int32_t)e };
    qsort(r.list, c->n_experts, sizeof *r.list, best_first);
    for (size_t i = 0; i < most && r.list[i].score != NEVER && (p < 0 || sum < p); i++) {
        take_expert(c, &r.list[i]);
        sum += c->scores[row + (size_t)r.list[i].expert];
    }
    return sum >= p;
}

static double layer_sum(const pesc_esft_choice *c, size_t layer)
{
    double sum = 0;
    for (size_t e = 0; e < c->n_experts; e++)
        sum += c->scores[layer * c->n_experts + e];
    return sum;
}

static void take_by_p(pesc_esft_choice *c, double p, bool relative, ranking r)
{
    size_t short_of = 0, example = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        if (!take_layer(c, l, relative ? p * layer_sum(c, l) : p, c->n_experts, r)) {
            example = short_of++ ? example : l;
        }
    if (short_of && r.by != c->scores)
        log_notice("in %zu of %zu layers the scores of the experts above the floor are together "
                   "less than p, so all of these are chosen (layer %d: %d experts)",
                   short_of, c->n_layers, c->layers[example], c->counts[example]);
    else if (short_of)
        log_notice("in %zu of %zu layers all scores together are less than p, so all %zu experts "
                   "are chosen (layer %d: %.4f)",
                   short_of, c->n_layers, c->n_experts, c->layers[example], layer_sum(c, example));
}

/* The best `budget` of what is chosen, whichever layer they are in; an expert that was never used
 * is not among them. */
static void keep_best(pesc_esft_choice *c, int64_t budget, ranking r)
{
    size_t n = 0;
    ranked *list = r.list;
    for (size_t i = 0; i < c->n_layers * c->n_experts; i++)
        if (c->chosen[i] && c->scores[i] > 0)
            list[n++] = (ranked){ r.by[i], i / c->n_experts, (int32_t)(i % c->n_experts) };
    qsort(list, n, sizeof *list, best_first);
    memset(c->chosen, 0, c->n_layers * c->n_experts * sizeof *c->chosen);
    memset(c->counts, 0, c->n_layers * sizeof *c->counts);
    c->total = 0;
    for (size_t i = 0; i < n && c->total < budget; i++)
        take_expert(c, &list[i]);
}

/* ---- one summary ---- */

static double default_p(esft_metric m, bool relative)
{
    return m == METRIC_TOKEN ? 0.2 : relative ? 0.27 : 0.1;
}

/* Draws `n` experts, of each layer as many as of any other or one more: those with the lowest of n
 * random numbers. */
static pesc_status take_random(pesc_esft_choice *c, const pesc_esft_select_options *o, ranked *list)
{
    int64_t layers = (int64_t)c->n_layers, most = layers * (int64_t)c->n_experts;
    rng_key key = { (uint64_t)o->seed, rng_stream(6, 0, 0) };
    if (o->p >= 0 || o->budget > 0)
        return fail(PESC_USAGE, "random: takes experts whatever their scores; p and budget cannot "
                                "be given with it");
    if (o->random > most)
        return fail(PESC_USAGE, "random: found %lld, but the model has %lld experts",
                    (long long)o->random, (long long)most);
    for (int64_t l = 0; l < layers; l++) {
        int64_t n = o->random * (l + 1) / layers - o->random * l / layers;
        for (size_t e = 0; e < c->n_experts; e++) {
            uint64_t at = (uint64_t)l * c->n_experts + e;
            list[e] = (ranked){ rng_uniform(key, at), (size_t)l, (int32_t)e };
        }
        qsort(list, c->n_experts, sizeof *list, best_first);
        for (int64_t i = 0; i < n; i++)
            take_expert(c, &list[i]);
    }
    return PESC_OK;
}

/* ---- a background ---- */

/* The smallest score that is not zero, as they are rounded. */
static const double least_score = 1e-4;

/* ratio [n_layers, n_experts]: NEVER below the floor. */
static void take_ratios(double *ratio, const pesc_esft_choice *c, const double *background,
                        double floor)
{
    for (size_t i = 0; i < c->n_layers * c->n_experts; i++) {
        double even = layer_sum(c, i / c->n_experts) / (double)c->n_experts;
        double least = floor < 0 ? even / 2 : floor;
        double under = background[i] > least_score ? background[i] : least_score;
        ratio[i] = c->scores[i] >= least ? c->scores[i] / under : NEVER;
    }
}

static bool same_shape(const summary *a, const summary *b)
{
    return a->n_layers == b->n_layers && a->n_experts == b->n_experts &&
           memcmp(a->layers, b->layers, a->n_layers * sizeof *a->layers) == 0;
}

/* Reads the scores of the background; *ratio: for mem_free(), NULL where none is given. */
static pesc_status read_background(double **ratio, const pesc_esft_choice *c, const summary *s,
                                   esft_metric m, const pesc_esft_select_options *o)
{
    summary b = { 0 };
    *ratio = NULL;
    if (!o->background)
        return PESC_OK;
    pesc_status st = summary_read(&b, o->background);
    if (st == PESC_OK && !b.score[m])
        st = fail(PESC_FORMAT, "%s: has no %s scores; choose the other metric, or score again",
                  o->background, metric_names[m]);
    if (st == PESC_OK && !same_shape(s, &b))
        st = fail(PESC_FORMAT,
                  "%s: is over other layers or experts than the scores of the task: "
                  "it is not of this model",
                  o->background);
    if (st == PESC_OK && !(*ratio = mem_alloc(c->n_layers * c->n_experts, sizeof **ratio)))
        st = fail_nomem("ratios of scores", c->n_layers * c->n_experts * sizeof **ratio);
    if (st == PESC_OK)
        take_ratios(*ratio, c, b.score[m], o->floor);
    summary_free(&b);
    return st;
}

static pesc_status take_all(pesc_esft_choice *c, esft_metric m, const pesc_esft_select_options *o,
                            ranking r)
{
    pesc_status st = PESC_OK;
    if (o->random > 0)
        st = take_random(c, o, r.list);
    else if (o->keep > 0 || (o->p < 0 && o->budget > 0))
        for (size_t l = 0; l < c->n_layers; l++)
            take_layer(c, l, -1, o->keep > 0 ? (size_t)o->keep : c->n_experts, r);
    else
        take_by_p(c, o->p < 0 ? default_p(m, o->p_relative) : o->p, o->p_relative, r);
    if (st == PESC_OK && o->budget > 0)
        keep_best(c, o->budget, r);
    return st;
}

static pesc_status choose(pesc_esft_choice *c, const summary *s, esft_metric m,
                          const pesc_esft_select_options *o)
{
    double *ratio;
    TRY(open_choice(c, s->n_layers, s->n_experts));
    memcpy(c->layers, s->layers, s->n_layers * sizeof *c->layers);
    memcpy(c->scores, s->score[m], s->n_layers * s->n_experts * sizeof *c->scores);
    ranked *list = mem_alloc(s->n_layers * s->n_experts, sizeof *list);
    if (!list)
        return fail_nomem("a choice of experts", s->n_layers * s->n_experts * sizeof *list);
    pesc_status st = read_background(&ratio, c, s, m, o);
    if (st == PESC_OK)
        st = take_all(c, m, o, (ranking){ ratio ? ratio : c->scores, list });
    mem_free(ratio);
    mem_free(list);
    TRY(st);
    return c->total > 0
               ? PESC_OK
               : fail(PESC_FORMAT, "no expert is chosen: all scores are 0, so no token was "
                                   "counted");
}

pesc_status pesc_esft_select(const char *path, const pesc_esft_select_options *opt,
                             const pesc_events *ev, pesc_esft_choice *out)
{
    status_clear();
    NEED(path);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    ARGS_CLEAR(out);
    pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
    pesc_esft_select_options o;
    summary s = { 0 };
    TRY(options_take(PESC_OPTIONS_ESFT_SELECT, &o, opt));
    if (o.p == 0)
        return fail(PESC_USAGE, "p: found 0, which selects no expert; expected more than 0");
    esft_metric metric = strcmp(o.metric, "token") == 0 ? METRIC_TOKEN : METRIC_GATE;
    pesc_status st = summary_read(&s, path);
    if (st == PESC_OK && !s.score[metric])
        st = fail(PESC_FORMAT, "%s: has no %s scores; choose the other metric, or score again",
                  path, metric_names[metric]);
    if (st == PESC_OK && (uint64_t)o.keep > s.n_experts)
        st = fail(PESC_USAGE, "keep: found %lld, but a layer has %zu experts", (long long)o.keep,
                  s.n_experts);
    if (st == PESC_OK)
        st = choose(&c, &s, metric, &o);
    summary_free(&s);
    if (st == PESC_OK)
        ARGS_WRITE(out, &c);
    else
        pesc_esft_choice_free(&c);
    return st;
}

/* ---- the union of choices ---- */

/* A caller's choice, of any version of the struct. */
static pesc_status read_choice(pesc_esft_choice *c, const pesc_esft_choice *choice,
                               const char *function)
{
    *c = PESC_INIT(pesc_esft_choice);
    NEED_OF(function, choice);
    TRY(args_read(c, sizeof *c, choice, function, "choice"));
    if (c->n_layers > 0) {
        NEED_OF(function, c->layers);
        NEED_OF(function, c->scores);
        NEED_OF(function, c->chosen);
        NEED_OF(function, c->order);
        NEED_OF(function, c->counts);
    }
    return PESC_OK;
}

static bool same_layers(const pesc_esft_choice *a, const pesc_esft_choice *b)
{
    return a->n_layers == b->n_layers && a->n_experts == b->n_experts &&
           memcmp(a->layers, b->layers, a->n_layers * sizeof *a->layers) == 0;
}

static void add_choice(pesc_esft_choice *out, const pesc_esft_choice *c)
{
    for (size_t l = 0; l < c->n_layers; l++)
        for (int32_t i = 0; i < c->counts[l]; i++) {
            int32_t e = c->order[l * c->n_experts + (size_t)i];
            if (!out->chosen[l * c->n_experts + (size_t)e])
                take_expert(out, &(ranked){ .layer = l, .expert = e });
        }
    for (size_t i = 0; i < c->n_layers * c->n_experts; i++)
        out->scores[i] = c->scores[i] > out->scores[i] ? c->scores[i] : out->scores[i];
    out->shared_experts |= c->shared_experts;
    out->non_expert_modules |= c->non_expert_modules;
}

pesc_status pesc_esft_unite(const pesc_esft_choice *const *choices, size_t n, pesc_esft_choice *out)
{
    status_clear();
    NEED(choices);
    NEED_SIZED(out);
    ARGS_CLEAR(out);
    if (n == 0)
        return fail(PESC_USAGE, "no choice was given; give at least one");
    pesc_esft_choice first, next, all;
    TRY(read_choice(&first, choices[0], __func__));
    for (size_t i = 1; i < n; i++) {
        TRY(read_choice(&next, choices[i], __func__));
        if (!same_layers(&first, &next))
            return fail(PESC_FORMAT,
                        "choice %zu is over other layers or experts than the first: %zu layers of "
                        "%zu experts, and %zu of %zu; they are not of one model",
                        i + 1, next.n_layers, next.n_experts, first.n_layers, first.n_experts);
    }
    pesc_status st = open_choice(&all, first.n_layers, first.n_experts);
    if (st != PESC_OK) {
        pesc_esft_choice_free(&all);
        return st;
    }
    memcpy(all.layers, first.layers, all.n_layers * sizeof *all.layers);
    for (size_t i = 0; i < n; i++) {
        TRY(read_choice(&next, choices[i], __func__)); /* cannot fail the second time */
        add_choice(&all, &next);
    }
    ARGS_WRITE(out, &all);
    return PESC_OK;
}

/* ---- the file, and what it means ---- */

static pesc_status to_config(expertcfg *cfg, const pesc_esft_choice *c)
{
    cfg->shared_experts = c->shared_experts;
    cfg->non_expert_modules = c->non_expert_modules;
    for (size_t l = 0; l < c->n_layers; l++)
        TRY(expertcfg_add(cfg, c->layers[l], c->order + l * c->n_experts, c->counts[l]));
    return PESC_OK;
}

pesc_status pesc_esft_write(const pesc_esft_choice *choice, const char *path)
{
    status_clear();
    NEED(path);
    expertcfg cfg = { 0 };
    pesc_esft_choice full;
    TRY(read_choice(&full, choice, __func__));
    pesc_status st = to_config(&cfg, &full);
    if (st == PESC_OK)
        st = expertcfg_write(&cfg, path);
    expertcfg_free(&cfg);
    return st;
}

/* Parameters that train, tensor by tensor. */
static uint64_t count_trained(const config *c, const expertcfg *cfg)
{
    uint64_t n = 0;
    for (slot s = slot_first(); slot_next(c, &s);) {
        bool trains = s.expert >= 0                ? expertcfg_has(cfg, s.layer, s.expert)
                      : s.rule->need & FACT_SHARED ? cfg->shared_experts
                                                   : cfg->non_expert_modules;
        n += trains ? (uint64_t)slot_count(&s) : 0;
    }
    return n;
}

static pesc_status count(const hfdir *dir, config *c, const expertcfg *cfg, pesc_esft_counts *out)
{
    pesc_model_info info;
    TRY(config_read(c,
                    &(config_source){ dir->config, dir->generation, dir->config_file, dir->ws }));
    TRY(full_experts_check(c, dir->path));
    TRY(info_fill(c, dir, &info));
    TRY(param_check_chosen(cfg, c, dir->path));
    out->trainable = count_trained(c, cfg);
    out->total = info.params_total;
    out->bytes = out->trainable * (strcmp(info.dtype, "f32") == 0 ? 4 : 2);
    return PESC_OK;
}

pesc_status pesc_esft_count(const char *model, const pesc_esft_choice *choice,
                            const pesc_events *ev, pesc_esft_counts *out)
{
    status_clear();
    NEED(model);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    pesc_esft_choice full;
    pesc_esft_counts r = { 0 };
    TRY(read_choice(&full, choice, __func__));
    expertcfg cfg = { 0 };
    hfdir *dir = NULL;
    config c = { 0 };
    pesc_status st = to_config(&cfg, &full);
    if (st == PESC_OK)
        st = runmodel_open(&dir, NULL, (runmodel_where){ .path = model }, 0);
    if (st == PESC_OK)
        st = count(dir, &c, &cfg, &r);
    ARGS_WRITE(out, &r);
    config_free(&c);
    hfdir_close(dir);
    expertcfg_free(&cfg);
    return st;
}
