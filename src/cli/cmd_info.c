/* cmd_info: what a model is. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_run_json(const pesc_run_info *r)
{
    out_object("run",
               "checkpoint=%s base=%s method=%s base_dtype=%s compute_dtype=%s template=%s data=%s "
               "step=%ld steps=%ld tokens=%ld lora_r=%ld lr=%g loss=%g eval_loss=%g "
               "best_eval_loss=%g best_step=%ld metric_for_best_model=%s eval_metric=%g "
               "best_metric=%g",
               r->checkpoint, r->base, r->method, r->base_dtype, r->compute_dtype, r->chat, r->data,
               r->step, r->steps, r->tokens, r->lora_r, r->lr, r->loss, r->eval_loss,
               r->best_eval_loss, r->best_step, r->metric_for_best_model, r->eval_metric,
               r->best_metric);
}

static void print_json(const char *path, const pesc_model_info *i, const pesc_run_info *r)
{
    out_begin(NULL, '{');
    out_fields("path=%s family=%s format=%s dtype=%s dim=%ld layers=%ld heads=%ld kv_heads=%ld "
               "head_dim=%ld ffn_dim=%ld vocab=%ld context=%ld experts=%ld top_k=%ld "
               "adapter_dim=%ld adapter_scale=%g shared_experts=%ld expert_dim=%ld "
               "sparse_layers=%ld adapter_act=%s router=%s ffn_experts=%ld ffn_top_k=%ld",
               path, i->family, i->format, i->dtype, i->dim, i->layers, i->heads, i->kv_heads,
               i->head_dim, i->ffn_dim, i->vocab, i->context, i->experts, i->top_k, i->adapter_dim,
               i->adapter_scale, i->shared_experts, i->expert_dim, i->sparse_layers, i->adapter_act,
               i->router, i->ffn_experts, i->ffn_top_k);
    out_object("params", "total=%ld activated=%ld trainable=%ld", i->params_total,
               i->params_activated, i->params_trainable);
    out_fields("tensors=%ld files=%ld bytes=%ld tokenizer=%s chat=%s", i->n_tensors, i->n_files,
               i->bytes, i->tokenizer, i->chat);
    if (r->checkpoint[0])
        print_run_json(r);
    out_end();
}

static void print_count(const char *label, uint64_t n)
{
    out_number b;
    printf("%-13s%llu (%s)\n", label, (unsigned long long)n, out_count(b, n));
}

static void print_experts(const pesc_model_info *i)
{
    if (!i->experts)
        return;
    printf("experts      %lld, top %lld", (long long)i->experts, (long long)i->top_k);
    if (i->adapter_dim)
        printf(", adapters of %lld with %s, scaled by %g", (long long)i->adapter_dim,
               i->adapter_act, i->adapter_scale);
    if (i->ffn_experts)
        printf(", beside %lld experts, top %lld", (long long)i->ffn_experts,
               (long long)i->ffn_top_k);
    if (i->expert_dim)
        printf(", feed-forward of %lld", (long long)i->expert_dim);
    if (i->shared_experts)
        printf(", %lld shared", (long long)i->shared_experts);
    printf(", router %s", i->router);
    if (i->sparse_layers < i->layers)
        printf(", in %lld of %lld layers", (long long)i->sparse_layers, (long long)i->layers);
    putchar('\n');
}

static void print_text(const pesc_model_info *i)
{
    out_number b;
    printf("family       %s\n", i->family);
    printf(
        "shape        %lld layers of %lld, %lld heads of %lld, %lld kv heads, feed-forward %lld\n",
        (long long)i->layers, (long long)i->dim, (long long)i->heads, (long long)i->head_dim,
        (long long)i->kv_heads, (long long)i->ffn_dim);
    print_experts(i);
    printf("vocabulary   %lld\n", (long long)i->vocab);
    printf("context      %lld\n", (long long)i->context);
    print_count("parameters", i->params_total);
    print_count("activated", i->params_activated);
    print_count("trainable", i->params_trainable);
    printf("weights      %s, %llu tensors in %llu %s %s, %s\n", i->dtype,
           (unsigned long long)i->n_tensors, (unsigned long long)i->n_files, i->format,
           i->n_files == 1 ? "file" : "files", out_bytes(b, i->bytes));
    printf("tokenizer    %s\n", i->tokenizer[0] ? i->tokenizer : "none");
    printf("chat         %s\n", i->chat[0] ? i->chat : "none known");
}

/* A label, and a text that comes from the files of the run. */
static void print_name(const char *label, const char *text)
{
    fputs(label, stdout);
    out_name(text);
}

/* The loss, and the measure by which the best checkpoint is chosen where that is another one. */
static void print_validation(const pesc_run_info *r)
{
    if (!isfinite(r->eval_loss))
        return;
    printf("validation   %.4f", r->eval_loss);
    if (strcmp(r->metric_for_best_model, "loss") != 0) {
        print_name("; ", r->metric_for_best_model);
        printf(" %.4f", r->eval_metric);
    }
    if (r->best_step)
        printf(", best %.4f at step %lld", r->best_metric, (long long)r->best_step);
    putchar('\n');
}

static void print_run(const pesc_run_info *r)
{
    out_number b;
    if (!r->checkpoint[0])
        return;
    print_name("run          ", r->method);
    printf(", step %lld of %lld, %s tokens\n", (long long)r->step, (long long)r->steps,
           out_count(b, (uint64_t)r->tokens));
    print_name("checkpoint   ", r->checkpoint);
    print_name("\nbase         ", r->base);
    print_name(", held as ", r->base_dtype[0] ? r->base_dtype : "stored");
    print_name(", computed in ", r->compute_dtype);
    putchar('\n');
    if (r->lora_r)
        printf("lora rank    %lld\n", (long long)r->lora_r);
    if (isfinite(r->loss))
        printf("loss         %.4f at lr %g\n", r->loss, r->lr);
    print_validation(r);
    if (r->best_step && r->best_step != r->step)
        puts("             RUN opens its last step; --checkpoint best, or RUN/best, the best");
    print_name("template     ", r->chat[0] ? r->chat : "none");
    print_name("\ndata         ", r->data);
    putchar('\n');
}

/* Opens the model if an option says how to. */
static pesc_status try_open(const options *o)
{
    bool asked = opt_given(o, "device") || opt_given(o, "threads");
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));)
        asked = asked || (r->of == PESC_OPTIONS_LOAD && o->given[opt_index(r)]);
    open_model m = { 0 };
    pesc_status s = asked ? open_from(&m, o) : PESC_OK;
    open_free(&m);
    return s;
}

pesc_status cmd_info(const options *o)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_info(o->model, o->load.base, progress_events(), &info));
    pesc_run_info run = PESC_INIT(pesc_run_info);
    TRY(pesc_run_describe(o->model, NULL, &run));
    TRY(try_open(o));
    if (o->json) {
        print_json(o->model, &info, &run);
        return PESC_OK;
    }
    print_text(&info);
    print_run(&run);
    return PESC_OK;
}
