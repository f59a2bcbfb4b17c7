#include "cli/cmd_esft_models.h"

#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/output.h"
#include "cli/show/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

pesc_status esft_needs(const options *o, const char *what, const char *usage)
{
    return out_fail(PESC_USAGE, "esft %s: %s is missing; usage: pesc esft %s %s", o->action, what,
                    o->action, usage);
}

/* The one model that the action is for. */
static pesc_status one_input(const options *o, const char *what, const char *usage)
{
    if (o->n_inputs == 0)
        return esft_needs(o, what, usage);
    return o->n_inputs == 1 ? PESC_OK
                            : out_fail(PESC_USAGE,
                                       "esft %s: unexpected argument \"%s\"; one model "
                                       "is read",
                                       o->action, o->inputs[1]);
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

pesc_status esft_apply(options *o)
{
    if (o->n_inputs > 1)
        return out_fail(PESC_USAGE,
                        "esft apply: unexpected argument \"%s\"; a patch is put into one model",
                        o->inputs[1]);
    TRY(one_input(o, "BASE", apply_usage));
    if (!o->load.patch)
        return esft_needs(o, "--patch", apply_usage);
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

/* ---- unapply ---- */

static const char unapply_usage[] = "TUNED [--base MIXTURE] -o OUT";

static pesc_status unapply_into(const options *o, const char *dir, void *unused)
{
    (void)unused;
    pesc_device *device = NULL;
    if (o->check)
        TRY(open_device(&device, o));
    pesc_status st = pesc_esft_unapply(device, o->model, o->load.base, dir);
    pesc_device_close(device);
    return st;
}

pesc_status esft_unapply(options *o)
{
    TRY(one_input(o, "TUNED", unapply_usage));
    if (!o->output)
        return esft_needs(o, "-o OUT", unapply_usage);
    o->model = o->inputs[0];
    TRY(replace_dir(o, unapply_into, NULL));
    return made_report(o, &(made){ .check = &PESC_INIT(pesc_logit_check), .exact = true });
}

/* ---- prune ---- */

static const char prune_usage[] = "MODEL --scores SUMMARY --keep N -o OUT [--data FILE...]";

static pesc_status prune_into(const options *o, const char *dir, void *report)
{
    pesc_esft_select_options opt = o->select;
    pesc_esft_choice choice = PESC_INIT(pesc_esft_choice);
    if (opt_given(o, "metric"))
        opt.metric = o->score.metric;
    opt.background = NULL;
    TRY(pesc_esft_select(o->scores, &opt, progress_events(), &choice));
    pesc_status st = pesc_esft_prune(o->model, &choice, dir, progress_events(), report);
    pesc_esft_choice_free(&choice);
    return st;
}

/* The mean loss of a target token over all files. */
static pesc_status loss_of(const options *o, const char *model, double *loss)
{
    open_model m = { 0 };
    pesc_session *s = NULL;
    options mine = *o;
    double sum = 0, tokens = 0;
    mine.model = model;
    pesc_status st = open_from(&m, &mine);
    if (st == PESC_OK)
        st = pesc_session_open(&s, m.model, m.info.context < 4096 ? m.info.context : 4096);
    for (size_t i = 0; st == PESC_OK && i < o->data.n_data; i++) {
        pesc_eval_options e = pesc_eval_defaults();
        pesc_eval_report r = PESC_INIT(pesc_eval_report);
        e.loss_only = true;
        e.format = o->data.format;
        e.chat_template = o->data.chat_template;
        st = pesc_eval(s, o->data.data[i], &e, &r);
        sum += r.all.loss * (double)r.all.tokens;
        tokens += (double)r.all.tokens;
        pesc_eval_free(&r);
    }
    pesc_session_close(s);
    open_free(&m);
    *loss = tokens > 0 ? sum / tokens : NAN;
    return st;
}

static void prune_report(const options *o, const pesc_esft_prune_report *r, const double loss[2])
{
    out_number before, after;
    if (o->json) {
        out_begin(NULL, '{');
        out_fields("path=%s layers=%ld experts=%ld kept=%ld params_before=%ld params_after=%ld "
                   "lost_share=%g",
                   o->output, r->layers, r->experts, r->kept, r->params_before, r->params_after,
                   r->lost);
        if (o->data.n_data)
            out_fields("loss_before=%g loss_after=%g", loss[0], loss[1]);
        out_end();
        return;
    }
    printf("%s: %" PRId64 " of %" PRId64 " experts in each of %" PRId64
           " layers, %s of %s parameters\n",
           o->output, r->kept, r->experts, r->layers, out_count(after, r->params_after),
           out_count(before, r->params_before));
    printf("the experts that are dropped had %.2f %% of the scores of their layer, on average\n",
           100 * r->lost);
    if (o->data.n_data)
        printf("loss: %.4f before, %.4f after\n", loss[0], loss[1]);
    else
        puts("--data FILE gives the loss before and after");
}

pesc_status esft_prune(options *o)
{
    pesc_esft_prune_report r = PESC_INIT(pesc_esft_prune_report);
    double loss[2] = { NAN, NAN };
    TRY(one_input(o, "MODEL", prune_usage));
    if (!o->scores)
        return esft_needs(o, "--scores", prune_usage);
    if (!o->select.keep)
        return esft_needs(o, "--keep", prune_usage);
    if (!o->output)
        return esft_needs(o, "-o OUT", prune_usage);
    o->model = o->inputs[0];
    TRY(replace_dir(o, prune_into, &r));
    if (o->data.n_data) {
        TRY(loss_of(o, o->inputs[0], &loss[0]));
        TRY(loss_of(o, o->output, &loss[1]));
    }
    prune_report(o, &r, loss);
    return PESC_OK;
}
