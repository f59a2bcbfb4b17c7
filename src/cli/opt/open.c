#include "cli/opt/open.h"

#include "cli/command.h"
#include "cli/opt/input.h"
#include "cli/show/progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- which checkpoint of a run ---- */

/* "best", "checkpoint-120"; "" is the run itself, which opens its newest. */
static pesc_status checkpoint_name(const options *o, char *out, size_t cap)
{
    const char *word = o->checkpoint, *number = word;
    int64_t step;
    if (strncmp(number, "checkpoint-", 11) == 0)
        number += 11;
    if (input_int(number, strlen(number), 0, INT64_MAX, &step))
        snprintf(out, cap, "checkpoint-%lld", (long long)step);
    else if (strcmp(word, "best") == 0 || strcmp(word, "latest") == 0)
        snprintf(out, cap, "%s", word[0] == 'b' ? word : "");
    else
        return out_fail(PESC_USAGE,
                        "%s: --checkpoint: found \"%s\", expected latest, best or the number of a "
                        "step",
                        o->cmd->name, word);
    return PESC_OK;
}

static pesc_status refuse_checkpoint(const options *o, const char *run, const char *name,
                                     const pesc_run_info *r)
{
    if (strcmp(name, "best") == 0)
        return out_fail(PESC_USAGE, "%s: --checkpoint: %s has no best checkpoint: %s", o->cmd->name,
                        run,
                        r->best_step ? "that of its best validation is not there any more"
                                     : "it was trained without validation (--eval-data)");
    return out_fail(PESC_USAGE, "%s: --checkpoint: %s has no %s; its newest is that of step %lld",
                    o->cmd->name, run, name, (long long)r->step);
}

/* *is: the path is a run, or nothing at all, which the command will say. */
static pesc_status open_checkpoint(options *o, const char **path, const char *name, bool *is)
{
    pesc_run_info r = PESC_INIT(pesc_run_info);
    TRY(pesc_run_describe(*path, progress_events(), &r));
    bool run = r.checkpoint[0] && strcmp(r.checkpoint, *path) != 0;
    *is = *is || run || access(*path, F_OK) != 0;
    if (!run || !name[0])
        return PESC_OK;
    size_t n = strlen(*path) + strlen(name) + 2;
    char *chosen = malloc(n);
    TRY(opt_own(o, chosen));
    snprintf(chosen, n, "%s/%s", *path, name);
    if (access(chosen, F_OK) != 0)
        return refuse_checkpoint(o, *path, name, &r);
    *path = chosen;
    return PESC_OK;
}

pesc_status open_checkpoints(options *o)
{
    char name[40];
    bool is = false;
    const char **single[] = { &o->model, &o->other };
    if (!o->checkpoint)
        return PESC_OK;
    TRY(checkpoint_name(o, name, sizeof name));
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (*single[i])
            TRY(open_checkpoint(o, single[i], name, &is));
    for (size_t i = 0; i < o->n_models; i++)
        TRY(open_checkpoint(o, (const char **)&o->models[i], name, &is));
    if (o->n_inputs) /* of esft: the model, before summaries */
        TRY(open_checkpoint(o, (const char **)&o->inputs[0], name, &is));
    return is ? PESC_OK
              : out_fail(PESC_USAGE, "%s: --checkpoint is of a run, and %s is none; leave it out",
                         o->cmd->name,
                         o->model      ? o->model
                         : o->n_models ? o->models[0]
                         : o->n_inputs ? o->inputs[0]
                                       : "nothing");
}

/* ---- opening ---- */

typedef char open_name[32];

/* auto, cpu, cuda or cuda:i; the library calls a CPU with n threads cpu:n. */
static pesc_status device_name(const options *o, open_name out)
{
    const char *d = o->device;
    int64_t i;
    bool cpu = strcmp(d, "cpu") == 0 || strcmp(d, "auto") == 0;
    bool numbered = strncmp(d, "cuda:", 5) == 0 && input_int(d + 5, strlen(d + 5), 0, 1023, &i);
    if (!cpu && !numbered && strcmp(d, "cuda") != 0)
        return out_fail(PESC_USAGE,
                        "%s: --device: found \"%s\", expected auto, cpu, cuda or cuda:i",
                        o->cmd->name, d);
    if (cpu && o->threads > 0)
        snprintf(out, sizeof(open_name), "%s:%lld", d, (long long)o->threads);
    else
        snprintf(out, sizeof(open_name), "%s", d);
    return PESC_OK;
}

pesc_status open_device(pesc_device **out, const options *o)
{
    open_name device;
    TRY(device_name(o, device));
    TRY(pesc_device_open(out, device));
    return pesc_device_events(*out, progress_events());
}

/* A model, and the processes that its device works with; NULL: none. */
typedef struct open_what {
    const char *path;
    const pesc_load_options *load;
    pesc_comm *all;
} open_what;

/* The model of --draft guesses for the model, whose LoRA and patches it does not have. */
static pesc_status open_draft(open_model *m, const char *path, pesc_load_options load)
{
    load.lora = load.patch = load.base = NULL;
    TRY(pesc_model_open(&m->draft, m->device, path, &load));
    return pesc_model_draft(m->model, m->draft);
}

static pesc_status open_with(open_model *m, const options *o, open_what w)
{
    *m = (open_model){ .info = PESC_INIT(pesc_model_info) };
    pesc_load_options load = *w.load;
    TRY(open_device(&m->device, o));
    TRY(pesc_device_join(m->device, w.all));
    if (!load.compute_dtype)
        load.compute_dtype = "auto";
    TRY(pesc_model_open(&m->model, m->device, w.path, &load));
    TRY(pesc_model_describe(m->model, &m->info));
    if (o->draft)
        TRY(open_draft(m, o->draft, load));
    progress_clear();
    return PESC_OK;
}

pesc_status open_from(open_model *m, const options *o)
{
    return open_among(m, o, NULL);
}

pesc_status open_among(open_model *m, const options *o, pesc_comm *all)
{
    return open_with(m, o, (open_what){ o->model, &o->load, all });
}

pesc_status open_in_one_dtype(options *o)
{
    bool given = o->load.compute_dtype && strcmp(o->load.compute_dtype, "auto") != 0;
    const char *first = NULL;
    for (size_t i = 0; !given && o->n_models > 1 && i < o->n_models; i++) {
        pesc_run_info r = PESC_INIT(pesc_run_info);
        if (pesc_benchmark_is_server(o->models[i]))
            continue;
        TRY(pesc_run_describe(o->models[i], NULL, &r));
        const char *own = strcmp(r.compute_dtype, "bf16") == 0 ? "bf16" : "f32";
        if (!r.checkpoint[0])
            continue;
        if (first && strcmp(first, own) != 0 && !o->quiet)
            fprintf(
                stderr,
                "pesc: note: %s was trained in %s, and is compared in %s, that of the first run\n",
                o->models[i], own, first);
        first = first ? first : own;
    }
    if (first)
        o->load.compute_dtype = first;
    return PESC_OK;
}

pesc_status open_computes(const open_model *m, const options *o, const char **out)
{
    pesc_run_info r = PESC_INIT(pesc_run_info);
    const char *asked = o->load.compute_dtype, *usual = pesc_device_compute_dtype(m->device);
    bool open = !asked || strcmp(asked, "auto") == 0;
    if (open)
        TRY(pesc_run_describe(o->model, NULL, &r));
    const char *dtype = !open ? asked : r.checkpoint[0] ? r.compute_dtype : usual;
    *out = strcmp(dtype, "bf16") == 0 ? "bf16" : "f32";
    if (open && strcmp(*out, usual) != 0 && !o->quiet)
        fprintf(stderr,
                "pesc: note: %s computes in %s, as it was trained; its base alone computes in %s "
                "here: compare them in one command, or with --compute-dtype %s\n",
                o->model, *out, usual, *out);
    return PESC_OK;
}

pesc_status open_for_training(open_model *m, const options *o, const pesc_train_options *p,
                              pesc_comm *all)
{
    char path[PATH_MAX];
    const char *model = o->model;
    pesc_load_options load = pesc_load_defaults();
    TRY(pesc_train_load(p, &load));
    if (p->resume && p->base) { /* the model is the base of the run */
        model = p->base;
        load.base = NULL;
    } else if (p->resume && access(model, F_OK) != 0) {
        TRY(pesc_run_base(p->output, progress_events(), path, sizeof path));
        model = path;
    }
    return open_with(m, o, (open_what){ model, &load, all });
}

void open_free(open_model *m)
{
    pesc_model_close(m->draft);
    pesc_model_close(m->model);
    pesc_device_close(m->device);
    *m = (open_model){ 0 };
}

pesc_status open_sampling(const open_model *m, const options *o, pesc_sample_options *out)
{
    *out = o->sample;
    TRY(pesc_model_sampling(m->model, out));
    if (opt_given(o, "temperature"))
        out->temperature = o->sample.temperature;
    if (opt_given(o, "top_k"))
        out->top_k = o->sample.top_k;
    if (opt_given(o, "top_p"))
        out->top_p = o->sample.top_p;
    if (opt_given(o, "min_p"))
        out->min_p = o->sample.min_p;
    if (opt_given(o, "repetition_penalty"))
        out->repetition_penalty = o->sample.repetition_penalty;
    return PESC_OK;
}

pesc_status open_tokenizer(const open_model *m, const options *o, const pesc_tokenizer **out)
{
    *out = pesc_model_tokenizer(m->model);
    return *out ? PESC_OK
                : out_fail(PESC_UNSUPPORTED,
                           "%s: has no tokenizer, and this needs one: put tokenizer.json or "
                           "tokenizer.model beside its config.json",
                           o->model);
}
