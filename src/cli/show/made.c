#include "cli/show/made.h"

#include <inttypes.h>
#include <stdio.h>

static void compare_json(const pesc_logit_check *check, double relative)
{
    out_begin("identity", '{');
    out_int("logits", (int64_t)check->logits);
    out_int("differ", (int64_t)check->differ);
    out_measure("max_diff", check->max_diff);
    out_measure("relative", relative);
    out_measure("kl", check->kl);
    out_int("positions", (int64_t)check->positions);
    out_int("greedy_same", (int64_t)check->greedy_same);
    out_int("beyond_rounding", (int64_t)check->beyond_rounding);
    out_end();
}

static void compare_text(const pesc_logit_check *check, double relative)
{
    printf("identity: max |diff| %.3g over %" PRIu64 " logits, %.2g of the largest; KL %.2g, "
           "greedy %" PRIu64 " of %" PRIu64,
           check->max_diff, check->logits, relative, check->kl, check->greedy_same,
           check->positions);
    if (check->beyond_rounding)
        printf("; %" PRIu64 " positions differ by more than rounding (a mixture may choose another "
               "expert near a tie)\n",
               check->beyond_rounding);
    else
        printf(" (rounding)\n");
}

void made_compare(const options *o, const made *m)
{
    const pesc_logit_check *check = m->check;
    double relative = check->max_logit > 0 ? check->max_diff / check->max_logit : check->max_diff;
    if (check->logits == 0)
        return;
    if (o->json)
        compare_json(check, relative);
    else if (m->exact) /* with a coarser dtype both are rounded to it: the writing is compared */
        printf("identity: %" PRIu64 " of %" PRIu64 " logits differ%s%s\n", check->differ,
               check->logits, m->dtype ? " from the source read as " : "",
               m->dtype ? m->dtype : "");
    else
        compare_text(check, relative);
}

static void describe(const options *o, const pesc_model_info *i)
{
    out_number total, activated, bytes;
    printf("%s: %s", o->output, i->family);
    if (i->experts)
        printf(", %" PRId64 " experts, top %" PRId64, i->experts, i->top_k);
    if (i->adapter_dim)
        printf(", adapters of %" PRId64 ", scale %g", i->adapter_dim, i->adapter_scale);
    if (i->experts && i->sparse_layers < i->layers)
        printf(", in %" PRId64 " of %" PRId64 " layers", i->sparse_layers, i->layers);
    printf(", %s parameters", out_count(total, i->params_total));
    if (i->experts)
        printf(" (%s activated)", out_count(activated, i->params_activated));
    printf(", %s\n", out_bytes(bytes, i->bytes));
}

pesc_status made_report(const options *o, const made *m)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_info(o->output, NULL, NULL, &info));
    if (!o->json) {
        describe(o, &info);
        made_compare(o, m);
        return PESC_OK;
    }
    out_begin(NULL, '{');
    out_text("path", o->output);
    out_text("family", info.family);
    out_int("experts", info.experts);
    out_int("top_k", info.top_k);
    out_int("params", (int64_t)info.params_total);
    out_int("activated", (int64_t)info.params_activated);
    out_int("bytes", (int64_t)info.bytes);
    made_compare(o, m);
    out_end();
    return PESC_OK;
}
