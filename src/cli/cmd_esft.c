/* cmd_esft: scores the experts that a task uses (score) and selects the best (select); what writes
 * models is in cmd_esft_models.c. */
#include "cli/cmd_esft_models.h"
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/processes.h"
#include "cli/show/progress.h"
#include "cli/show/chosen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- score ---- */

static const char score_usage[] = "MODEL --data FILE... -o DIR";

static void print_score(const options *o, const pesc_esft_score_report *r)
{
    double speed = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    if (o->json) {
        out_object(NULL,
                   "path=%s tokens=%ld records=%ld layers=%ld experts=%ld top_k=%ld gate_sum=%g "
                   "seconds=%.6g tokens_per_second=%.6g",
                   o->output, r->tokens, r->records, r->layers, r->experts, r->top_k, r->gate_sum,
                   r->seconds, speed);
        return;
    }
    printf("%s/summary.json: %" PRIu64 " tokens", o->output, r->tokens);
    if (r->records)
        printf(" of %" PRIu64 " records", r->records);
    printf(", %" PRId64 " layers of %" PRId64 " experts, %" PRId64 " a token\n", r->layers,
           r->experts, r->top_k);
    if (o->n_background)
        printf("%s/background/summary.json: the same of general data, for esft select "
               "--background\n",
               o->output);
    printf("the gates of a token sum to %.3f on average%s\n", r->gate_sum,
           r->gate_sum > 0.99 ? ": choose by gate with --p-relative" : "");
    if (!o->from_logs)
        printf("%.1f tokens/s\n", speed);
}

static pesc_status score_data(const options *o, pesc_model *m, const char *dir,
                              const pesc_data_options *data, pesc_esft_score_report *r)
{
    pesc_data *d = NULL;
    TRY(pesc_data_open(&d, o->model, data, progress_events()));
    pesc_status st = pesc_esft_score(m, d, dir, &o->score, r);
    pesc_data_close(d);
    return st;
}

/* The scores of general data, in DIR/background. */
static pesc_status score_background(const options *o, pesc_model *m)
{
    pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
    pesc_data_options data = o->data;
    data.data = o->background;
    data.n_data = o->n_background;
    size_t n = strlen(o->output) + sizeof "/background";
    char *dir = malloc(n);
    if (!dir)
        return out_nomem("the background");
    snprintf(dir, n, "%s/background", o->output);
    pesc_status st = score_data(o, m, dir, &data, &r);
    free(dir);
    return st;
}

static pesc_status score_model(options *o, pesc_comm *all, pesc_esft_score_report *r)
{
    o->data.seq_len = o->score.seq_len ? o->score.seq_len : INT32_MAX;
    open_model m = { 0 };
    o->model = o->inputs[0];
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_device_join(m.device, all);
    if (st == PESC_OK)
        st = score_data(o, m.model, o->output, &o->data, r);
    if (st == PESC_OK && o->n_background)
        st = score_background(o, m.model);
    open_free(&m);
    return st;
}

/* In several processes, if there are several. */
static pesc_status score_together(options *o, pesc_esft_score_report *r, bool *leads)
{
    pesc_comm *all = NULL;
    TRY(processes_start(o, NULL));
    TRY(processes_join(&all, o));
    *leads = pesc_comm_rank(all) == 0;
    pesc_status st = score_model(o, all, r);
    processes_leave(all, st);
    return st;
}

static pesc_status score(options *o)
{
    pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
    bool leads = true;
    if (o->n_inputs > 1)
        return out_fail(PESC_USAGE, "esft score: unexpected argument \"%s\"; one model is scored",
                        o->inputs[1]);
    if (o->n_inputs == 0 && !o->from_logs)
        return esft_needs(o, "MODEL", score_usage);
    if (o->data.n_data == 0 && !o->from_logs)
        return esft_needs(o, "--data", score_usage);
    if (o->n_background && o->from_logs)
        return out_fail(PESC_USAGE, "esft score: --background and --from-logs exclude each other; "
                                    "score the logs of general data to another directory");
    if (o->data.n_data && o->from_logs)
        return out_fail(PESC_USAGE, "esft score: --data and --from-logs exclude each other");
    if (!o->output)
        return esft_needs(o, "-o DIR", score_usage);
    if (o->from_logs) {
        o->score.model = o->n_inputs ? o->inputs[0] : NULL;
        TRY(pesc_esft_score_logs(o->from_logs, o->output, &o->score, progress_events(), &r));
    } else {
        TRY(score_together(o, &r, &leads));
    }
    if (leads)
        print_score(o, &r);
    return PESC_OK;
}

/* ---- select ---- */

static const char select_usage[] = "SUMMARY... -o expert_cfg.json";

/* The scores of the other metric, where the summary has them. */
static void read_other(const char *input, const char *metric, pesc_esft_choice *out)
{
    pesc_esft_select_options opt = pesc_esft_select_defaults();
    opt.metric = strcmp(metric, "token") == 0 ? "gate" : "token";
    opt.keep = 1;
    *out = PESC_INIT(pesc_esft_choice);
    if (pesc_esft_select(input, &opt, NULL, out) != PESC_OK)
        *out = PESC_INIT(pesc_esft_choice);
}

/* tasks: [2, inputs], by the metric and by the other one. */
static pesc_status select_all(const options *o, const pesc_esft_select_options *opt,
                              pesc_esft_choice *tasks, const pesc_esft_choice **list)
{
    pesc_esft_choice all = PESC_INIT(pesc_esft_choice);
    pesc_esft_counts counts = PESC_INIT(pesc_esft_counts);
    for (size_t i = 0; i < o->n_inputs; i++) {
        tasks[i] = PESC_INIT(pesc_esft_choice);
        list[i] = &tasks[i];
        TRY(pesc_esft_select(o->inputs[i], opt, progress_events(), &tasks[i]));
        tasks[i].shared_experts = o->shared_experts;
        tasks[i].non_expert_modules = o->non_expert_modules;
        read_other(o->inputs[i], opt->metric, &tasks[o->n_inputs + i]);
    }
    TRY(pesc_esft_unite(list, o->n_inputs, &all));
    chosen c = { .o = o,
                 .metric = opt->metric,
                 .all = &all,
                 .tasks = tasks,
                 .other = tasks + o->n_inputs,
                 .n = o->n_inputs };
    pesc_status st = PESC_OK;
    if (o->model) {
        st = pesc_esft_count(o->model, &all, progress_events(), &counts);
        c.counts = &counts;
    }
    if (st == PESC_OK)
        st = pesc_esft_write(&all, o->output);
    if (st == PESC_OK)
        st = show_choice(&c);
    pesc_esft_choice_free(&all);
    return st;
}

static pesc_status select_experts(options *o)
{
    pesc_esft_select_options opt = o->select;
    if (o->n_inputs == 0)
        return esft_needs(o, "SUMMARY", select_usage);
    if (!o->output)
        return esft_needs(o, "-o expert_cfg.json", select_usage);
    if (opt_given(o, "metric"))
        opt.metric = o->score.metric;
    opt.seed = o->score.seed;
    if (o->n_background > 1)
        return out_fail(PESC_USAGE, "esft select: --background: found %zu summaries, expected one",
                        o->n_background);
    if (!o->n_background && opt_given(o, "floor"))
        return out_fail(PESC_USAGE, "esft select: --floor is for scores against a background; give "
                                    "--background, or leave it out");
    opt.background = o->n_background ? o->background[0] : NULL;
    if (opt.keep)
        return out_fail(PESC_USAGE, "esft select: --keep is for esft prune; --p and --budget say "
                                    "how many are selected");
    pesc_esft_choice *tasks = calloc(2 * o->n_inputs, sizeof *tasks);
    const pesc_esft_choice **list = calloc(o->n_inputs, sizeof *list);
    pesc_status st = tasks && list ? select_all(o, &opt, tasks, list) : out_nomem("the tasks");
    for (size_t i = 0; tasks && i < 2 * o->n_inputs; i++)
        pesc_esft_choice_free(&tasks[i]);
    free(list);
    free(tasks);
    return st;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    pesc_status (*run)(options *o);
} actions[] = { { "score", score },
                { "select", select_experts },
                { "apply", esft_apply },
                { "unapply", esft_unapply },
                { "prune", esft_prune } };

pesc_status cmd_esft(const options *o)
{
    options mine = *o; /* open_from() reads o->model, which the actions set */
    size_t i = 0;
    while (strcmp(o->action, actions[i].name) != 0)
        i++; /* opt_parse() takes no other action */
    return actions[i].run(&mine);
}
