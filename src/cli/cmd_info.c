/* cmd_info: what a model is. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

#include <math.h>
#include <stdio.h>

static void print_run_json(const pesc_run_info *r)
{
    out_begin("run", '{');
    out_text("checkpoint", r->checkpoint);
    out_text("base", r->base);
    out_text("method", r->method);
    out_text("base_dtype", r->base_dtype);
    out_text("compute_dtype", r->compute_dtype);
    out_text("template", r->chat);
    out_text("data", r->data);
    out_int("step", r->step);
    out_int("steps", r->steps);
    out_int("tokens", r->tokens);
    out_int("lora_r", r->lora_r);
    out_real("lr", r->lr);
    out_real("loss", r->loss);
    out_real("eval_loss", r->eval_loss);
    out_real("best_eval_loss", r->best_eval_loss);
    out_int("best_step", r->best_step);
    out_end();
}

static void print_json(const char *path, const pesc_model_info *i, const pesc_run_info *r)
{
    out_begin(NULL, '{');
    out_text("path", path);
    out_text("family", i->family);
    out_text("format", i->format);
    out_text("dtype", i->dtype);
    out_int("dim", i->dim);
    out_int("layers", i->layers);
    out_int("heads", i->heads);
    out_int("kv_heads", i->kv_heads);
    out_int("head_dim", i->head_dim);
    out_int("ffn_dim", i->ffn_dim);
    out_int("vocab", i->vocab);
    out_int("context", i->context);
    out_int("experts", i->experts);
    out_int("top_k", i->top_k);
    out_int("adapter_dim", i->adapter_dim);
    out_real("adapter_scale", i->adapter_scale);
    out_int("shared_experts", i->shared_experts);
    out_int("expert_dim", i->expert_dim);
    out_int("sparse_layers", i->sparse_layers);
    out_text("adapter_act", i->adapter_act);
    out_text("router", i->router);
    out_begin("params", '{');
    out_int("total", (int64_t)i->params_total);
    out_int("activated", (int64_t)i->params_activated);
    out_int("trainable", (int64_t)i->params_trainable);
    out_end();
    out_int("tensors", (int64_t)i->n_tensors);
    out_int("files", (int64_t)i->n_files);
    out_int("bytes", (int64_t)i->bytes);
    out_text("tokenizer", i->tokenizer);
    out_text("chat", i->chat);
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
    if (isfinite(r->eval_loss))
        printf("validation   %.4f, best %.4f at step %lld\n", r->eval_loss, r->best_eval_loss,
               (long long)r->best_step);
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
