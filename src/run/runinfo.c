/* What a run is and how far it got, from its newest checkpoint and the logs beside it. */
#include "base/args.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/str.h"
#include "run/runstate.h"

#include <math.h>
#include <string.h>

enum { MAX_YAML = 1 << 20, MAX_STATE = 1 << 20 };

static void from_yaml(pesc_run_info *out, const char *yaml)
{
    char number[32];
    const struct {
        const char *key;
        char *to;
        size_t cap;
    } texts[] = {
        { "method", out->method, sizeof out->method },
        { "base_dtype", out->base_dtype, sizeof out->base_dtype },
        { "compute_dtype", out->compute_dtype, sizeof out->compute_dtype },
        { "template", out->chat, sizeof out->chat },
        { "data", out->data, sizeof out->data },
        { "metric_for_best_model", out->metric_for_best_model, sizeof out->metric_for_best_model },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        options_value(PESC_OPTIONS_TRAIN, yaml, texts[i].key, texts[i].to, texts[i].cap);
    options_value(PESC_OPTIONS_TRAIN, yaml, "lora_r", number, sizeof number);
    long long rank = 0;
    if (str_to_i64(number, 0, INT32_MAX, &rank))
        out->lora_r = rank;
}

/* The last line among the first `keep` bytes of a log; a log that is absent has none. */
static pesc_status last_line(json_t **out, const char *run, const char *name, int64_t keep)
{
    *out = NULL;
    char *path = io_join(run, name);
    io_map *log = NULL;
    pesc_status s = path ? PESC_OK : fail_nomem(run, strlen(name));
    if (s == PESC_OK && keep > 0 && io_kind_of(path) == IO_FILE)
        s = io_map_open(&log, path);
    if (log && (uint64_t)keep <= log->size) {
        const char *text = (const char *)log->data;
        size_t end = (size_t)keep, begin;
        while (end > 0 && text[end - 1] == '\n')
            end--;
        for (begin = end; begin > 0 && text[begin - 1] != '\n'; begin--)
            continue;
        s = end > begin ? json_parse(out, text + begin, end - begin, path) : PESC_OK;
    }
    io_map_close(log);
    mem_free(path);
    return s;
}

static pesc_status real_of(const char *run, const char *log, int64_t keep, const char *key,
                           double *out)
{
    json_t *line;
    TRY(last_line(&line, run, log, keep));
    pesc_status s = line ? json_get_f64((json_where){ line, log }, key, false, out) : PESC_OK;
    json_decref(line);
    return s;
}

static pesc_status from_state(pesc_run_info *out, const json_t *state, const char *path,
                              const char *run)
{
    json_where w = { state, path };
    int64_t metrics = 0, evals = 0;
    TRY(json_get_i64(w, "global_step", true, 0, RUNSTATE_COUNT_MAX, &out->step));
    TRY(json_get_i64(w, "max_steps", false, 0, RUNSTATE_COUNT_MAX, &out->steps));
    TRY(json_get_i64(w, "num_input_tokens_seen", false, 0, RUNSTATE_COUNT_MAX, &out->tokens));
    TRY(json_get_i64(w, "best_step", false, 0, RUNSTATE_COUNT_MAX, &out->best_step));
    TRY(json_get_i64(w, "metrics_bytes", false, 0, RUNSTATE_COUNT_MAX, &metrics));
    TRY(json_get_i64(w, "eval_bytes", false, 0, RUNSTATE_COUNT_MAX, &evals));
    bool by_loss = strcmp(out->metric_for_best_model, "loss") == 0;
    char measure[sizeof out->metric_for_best_model + 8];
    snprintf(measure, sizeof measure, "eval_%s", out->metric_for_best_model);
    if (out->best_step)
        TRY(json_get_f64(w, "best_metric", false, &out->best_metric));
    out->best_eval_loss = by_loss ? out->best_metric : NAN;
    TRY(real_of(run, "eval.jsonl", evals, measure, &out->eval_metric));
    TRY(real_of(run, "metrics.jsonl", metrics, "loss", &out->loss));
    TRY(real_of(run, "metrics.jsonl", metrics, "lr", &out->lr));
    return real_of(run, "eval.jsonl", evals, "eval_loss", &out->eval_loss);
}

static pesc_status read_yaml(pesc_run_info *out, const char *path)
{
    char *text = NULL;
    size_t n;
    if (io_kind_of(path) != IO_FILE)
        return PESC_OK;
    TRY(io_read_file(path, MAX_YAML, &text, &n));
    from_yaml(out, text);
    mem_free(text);
    return PESC_OK;
}

static pesc_status describe(pesc_run_info *out, const char *checkpoint)
{
    char *run = io_join(checkpoint, ".."), *yaml = io_join(checkpoint, "run.yaml");
    char *file = io_join(checkpoint, "trainer_state.json");
    json_t *state = NULL;
    runstate_manifest m = { 0 };
    pesc_status s = run && yaml && file ? PESC_OK : fail_nomem(checkpoint, strlen(checkpoint));
    if (s == PESC_OK)
        s = runstate_check(checkpoint, false, &m);
    if (s == PESC_OK)
        s = read_yaml(out, yaml);
    if (s == PESC_OK)
        s = json_read(&state, file, MAX_STATE);
    if (s == PESC_OK)
        s = from_state(out, state, file, run);
    if (s == PESC_OK) {
        snprintf(out->checkpoint, sizeof out->checkpoint, "%s", checkpoint);
        snprintf(out->base, sizeof out->base, "%s", m.base);
    }
    runstate_manifest_free(&m);
    json_decref(state);
    mem_free(run);
    mem_free(yaml);
    mem_free(file);
    return s;
}

pesc_status pesc_run_describe(const char *path, const pesc_events *ev, pesc_run_info *out)
{
    status_clear();
    NEED(path);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    ARGS_CLEAR(out);
    pesc_run_info r = { .loss = NAN,
                        .eval_loss = NAN,
                        .best_eval_loss = NAN,
                        .metric_for_best_model = "loss",
                        .eval_metric = NAN,
                        .best_metric = NAN };
    char *newest = NULL;
    pesc_status s = PESC_OK;
    runstate_kind kind = runstate_kind_of(path);
    if (kind == RUNSTATE_RUN)
        s = runstate_newest(path, RUNSTATE_SIZES, &newest);
    if (s == PESC_OK && kind != RUNSTATE_NEITHER && (newest || kind == RUNSTATE_CHECKPOINT))
        s = describe(&r, newest ? newest : path);
    ARGS_WRITE(out, &r);
    mem_free(newest);
    return s;
}
