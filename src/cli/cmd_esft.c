/* cmd_esft: scores the experts that a task uses (score), selects the best (select), and writes a
 * model with a patch of tuned experts (apply). */
#include "cli/show/chosen.h"
#include "cli/command.h"
#include "cli/show/made.h"
#include "cli/opt/open.h"
#include "cli/opt/processes.h"
#include "cli/show/progress.h"
#include "cli/opt/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pesc_status needs(const options *o, const char *what, const char *usage)
{
    return out_fail(PESC_USAGE, "esft %s: %s is missing; usage: pesc esft %s %s", o->action, what,
                    o->action, usage);
}

/* ---- score ---- */

static const char score_usage[] = "MODEL --data FILE... -o DIR";

static void print_score(const options *o, const pesc_esft_score_report *r)
{
    double speed = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
        out_int("tokens", (int64_t)r->tokens);
        out_int("records", (int64_t)r->records);
        out_int("layers", r->layers);
        out_int("experts", r->experts);
        out_int("top_k", r->top_k);
        out_real("gate_sum", r->gate_sum);
        out_measure("seconds", r->seconds);
        out_measure("tokens_per_second", speed);
        out_end();
        return;
    }
    printf("%s/summary.json: %" PRIu64 " tokens", o->output, r->tokens);
    if (r->records)
        printf(" of %" PRIu64 " records", r->records);
    printf(", %" PRId64 " layers of %" PRId64 " experts, %" PRId64 " a token\n", r->layers,
           r->experts, r->top_k);
    printf("the gates of a token sum to %.3f on average%s\n", r->gate_sum,
           r->gate_sum > 0.99 ? ": choose by gate with --p-relative" : "");
    if (!o->from_logs)
        printf("%.1f tokens/s\n", speed);
}

static pesc_status score_model(options *o, pesc_comm *all, pesc_esft_score_report *r)
{
    o->data.seq_len = o->score.seq_len ? o->score.seq_len : INT32_MAX;
    open_model m = { 0 };
    pesc_data *d = NULL;
    o->model = o->inputs[0];
    pesc_status st = open_from(&m, o);
    if (st == PESC_OK)
        st = pesc_device_join(m.device, all);
    if (st == PESC_OK)
        st = pesc_data_open(&d, o->model, &o->data, progress_events());
    if (st == PESC_OK)
        st = pesc_esft_score(m.model, d, o->output, &o->score, r);
    pesc_data_close(d);
    open_free(&m);
    return st;
}

/* In several processes, if there are several. */
static pesc_status score_together(options *o, pesc_esft_score_report *r, bool *leads)
{
    pesc_comm *all = NULL;
    TRY(processes_start(o));
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
        return needs(o, "MODEL", score_usage);
    if (o->data.n_data == 0 && !o->from_logs)
        return needs(o, "--data", score_usage);
    if (o->data.n_data && o->from_logs)
        return out_fail(PESC_USAGE, "esft score: --data and --from-logs exclude each other");
    if (!o->output)
        return needs(o, "-o DIR", score_usage);
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
    }
    TRY(pesc_esft_unite(list, o->n_inputs, &all));
    chosen c = { .o = o, .metric = opt->metric, .all = &all, .tasks = tasks, .n = o->n_inputs };
    pesc_status st = PESC_OK;
    if (o->model) {
        st = pesc_esft_count(o->model, &all, progress_events(), &counts);
        c.counts = &counts;
    }
    if (st == PESC_OK)
        st = pesc_esft_write(&all, o->output);
    if (st == PESC_OK)
        st = chosen_show(&c);
    pesc_esft_choice_free(&all);
    return st;
}

static pesc_status select_experts(options *o)
{
    pesc_esft_select_options opt = o->select;
    if (o->n_inputs == 0)
        return needs(o, "SUMMARY", select_usage);
    if (!o->output)
        return needs(o, "-o expert_cfg.json", select_usage);
    if (opt_given(o, "metric"))
        opt.metric = o->score.metric;
    opt.seed = o->score.seed;
    pesc_esft_choice *tasks = calloc(o->n_inputs, sizeof *tasks);
    const pesc_esft_choice **list = calloc(o->n_inputs, sizeof *list);
    pesc_status st = tasks && list ? select_all(o, &opt, tasks, list) : out_nomem("the tasks");
    for (size_t i = 0; tasks && i < o->n_inputs; i++)
        pesc_esft_choice_free(&tasks[i]);
    free(list);
    free(tasks);
    return st;
}

/* ---- apply ---- */

static const char apply_usage[] = "BASE --patch DIR [-o OUT]";

static pesc_status apply_into(const options *o, const char *dir, void *unused)
{
    (void)unused;
    pesc_device *device = NULL;
    if (o->check)
        TRY(open_device(&device, o));
    pesc_status st = pesc_esft_apply(device, o->model, o->load.patch, dir);
    pesc_device_close(device);
    return st;
}

static pesc_status apply(options *o)
{
    if (o->n_inputs != 1)
        return o->n_inputs ? out_fail(PESC_USAGE,
                                      "esft apply: unexpected argument \"%s\"; a patch is put into "
                                      "one model",
                                      o->inputs[1])
                           : needs(o, "BASE", apply_usage);
    if (!o->load.patch)
        return needs(o, "--patch", apply_usage);
    if (o->load.lora)
        return out_fail(PESC_USAGE, "esft apply: --lora has no effect here; fold it into the base "
                                    "first: pesc merge BASE --lora DIR -o MERGED");
    o->model = o->inputs[0];
    if (o->output) {
        TRY(replace_dir(o, apply_into, NULL));
        return made_report(o, &(made){ .check = &PESC_INIT(pesc_logit_check) });
    }
    TRY(pesc_esft_apply(NULL, o->model, o->load.patch, NULL));
    if (o->json) {
        out_begin(NULL, '{');
        out_bool("fits", true);
        out_end();
    } else {
        printf("%s: belongs to %s; -o OUT writes the model with it\n", o->load.patch, o->model);
    }
    return PESC_OK;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    pesc_status (*run)(options *o);
} actions[] = { { "score", score }, { "select", select_experts }, { "apply", apply } };
enum { N_ACTIONS = sizeof actions / sizeof *actions };

pesc_status cmd_esft(const options *o)
{
    const char *names[N_ACTIONS];
    options mine = *o; /* open_from() reads o->model, which the actions set */
    for (size_t i = 0; i < N_ACTIONS; i++) {
        names[i] = actions[i].name;
        if (strcmp(o->action, names[i]) == 0)
            return actions[i].run(&mine);
    }
    const char *near = opt_nearest(o->action, names, N_ACTIONS);
    return out_fail(PESC_USAGE, "esft: found \"%s\", expected score, select or apply%s%s%s",
                    o->action, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}
