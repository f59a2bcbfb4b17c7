/* Every public function, called as it must not be: it returns PESC_USAGE with a sentence that names
 * the argument, or does nothing. The last test finds functions that are not called here. */
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
static pesc_device *dev;
static pesc_model *m;
static pesc_session *s;
static pesc_tokenizer *t;
static pesc_data *d;
static pesc_trainer *trainer;
static struct {
    pesc_device *dev;
    pesc_model *m;
    pesc_session *s;
    pesc_grammar *g;
    pesc_tokenizer *t;
    pesc_data *d;
    pesc_trainer *trainer;
    pesc_server *server;
    pesc_comm *comm;
    const int32_t *ids, *labels;
    const float *logits;
    const char *name;
    size_t n;
    bool match;
    double x, y;
    int32_t room[8];
    float all[1 << 16];
    char text[64];
} got;
static const int32_t ids[] = { 1, 2, 3 };
static const char *const no_file[] = { NULL };
static pesc_model_info info;
static pesc_logit_check check;
static pesc_generation generation;
static pesc_perplexity_report perplexity;
static pesc_data_report survey;
static pesc_step step;
static pesc_train_info train_info;
static pesc_plan_report plan;
static pesc_eval_report eval;
static pesc_benchmark_report benchmark;
static const pesc_benchmark_score score,
    scored = { .task = "a", .each = (const double[]){ 1 }, .n = 1 };
static pesc_routes_report routes;
static pesc_routes_history history;
static pesc_cost_report cost;
static pesc_cost_run timed;
static pesc_compare_report compared;
static pesc_esft_score_report scores;
static pesc_esft_choice choice;
static pesc_esft_counts counts;
static pesc_load_options load;
static pesc_run_info run;
static pesc_sample_options sample;
static pesc_train_options train;
/* clang-format off */
/* X(call, argument that is missing) */
#define MISSING(X)                                                                                 \
    X(pesc_device_open(NULL, "cpu"), "out")                                                        \
    X(pesc_device_open(&got.dev, NULL), "spec")                                                    \
    X(pesc_device_events(NULL, NULL), "dev")                                                       \
    X(pesc_device_profile(NULL, true), "dev")                                                      \
    X(pesc_device_join(NULL, NULL), "dev")                                                         \
    X(pesc_comm_open(NULL, NULL), "out")                                                           \
    X(pesc_model_open(NULL, dev, "x", NULL), "out")                                                \
    X(pesc_model_open(&got.m, NULL, "x", NULL), "dev")                                             \
    X(pesc_model_open(&got.m, dev, NULL, NULL), "path")                                            \
    X(pesc_model_patch(NULL, "x"), "m")                                                            \
    X(pesc_model_patch(m, NULL), "dir")                                                            \
    X(pesc_model_unpatch(NULL), "m")                                                               \
    X(pesc_info(NULL, NULL, NULL, &info), "path")                                                  \
    X(pesc_info("x", NULL, NULL, NULL), "out")                                                     \
    X(pesc_run_base(NULL, NULL, got.text, 64), "run")                                              \
    X(pesc_run_base("x", NULL, NULL, 64), "out")                                                   \
    X(pesc_run_describe(NULL, NULL, &run), "path")                                                 \
    X(pesc_run_describe("x", NULL, NULL), "out")                                                   \
    X(pesc_model_sampling(NULL, &sample), "m")                                                     \
    X(pesc_model_sampling(m, NULL), "opt")                                                         \
    X(pesc_model_describe(NULL, &info), "m")                                                       \
    X(pesc_model_describe(m, NULL), "out")                                                         \
    X(pesc_new(NULL, "x", NULL, "f32", 0, NULL), "config_path")                                    \
    X(pesc_new("x", NULL, NULL, "f32", 0, NULL), "out_dir")                                        \
    X(pesc_craft(NULL, "x", "y", NULL, &check), "dev")                                             \
    X(pesc_craft(dev, NULL, "y", NULL, &check), "dense_dir")                                       \
    X(pesc_craft(dev, "x", NULL, NULL, &check), "out_dir")                                         \
    X(pesc_merge(NULL, "x", "y", NULL, &check), "dev")                                             \
    X(pesc_merge(dev, NULL, "y", NULL, &check), "model")                                           \
    X(pesc_merge(dev, "x", NULL, NULL, &check), "out_dir")                                         \
    X(pesc_export(NULL, "x", "hf", "y", NULL, &check), "dev")                                      \
    X(pesc_export(dev, NULL, "hf", "y", NULL, &check), "model")                                    \
    X(pesc_export(dev, "x", NULL, "y", NULL, &check), "to")                                        \
    X(pesc_export(dev, "x", "hf", NULL, NULL, &check), "out_dir")                                  \
    X(pesc_model_check_replace(NULL, NULL, 0), "dir")                                              \
    X(pesc_model_check_replace("x", NULL, 1), "inputs")                                            \
    X(pesc_model_replace(NULL, "x"), "fresh")                                                      \
    X(pesc_model_replace("x", NULL), "dir")                                                        \
    X(pesc_tokenizer_open(NULL, "x", NULL), "out")                                                 \
    X(pesc_tokenizer_open(&got.t, NULL, NULL), "path")                                             \
    X(pesc_tokenize(NULL, "x", 1, 0, got.room, 8, &got.n), "t")                                    \
    X(pesc_tokenize(t, NULL, 1, 0, got.room, 8, &got.n), "text")                                   \
    X(pesc_tokenize(t, "x", 1, 0, NULL, 8, &got.n), "ids")                                         \
    X(pesc_tokenize(t, "x", 1, 0, got.room, 8, NULL), "count")                                     \
    X(pesc_detokenize(NULL, ids, 3, 0, got.text, 64, &got.n), "t")                                 \
    X(pesc_detokenize(t, NULL, 3, 0, got.text, 64, &got.n), "ids")                                 \
    X(pesc_detokenize(t, ids, 3, 0, NULL, 64, &got.n), "text")                                     \
    X(pesc_detokenize(t, ids, 3, 0, got.text, 64, NULL), "len")                                    \
    X(pesc_session_open(NULL, m, 0), "out")                                                        \
    X(pesc_session_open(&got.s, NULL, 0), "m")                                                     \
    X(pesc_session_feed(NULL, ids, 3, &got.logits), "s")                                           \
    X(pesc_session_feed(s, NULL, 3, &got.logits), "ids")                                           \
    X(pesc_session_feed(s, ids, 3, NULL), "logits")                                                \
    X(pesc_logits(NULL, ids, 3, got.all), "m")                                                     \
    X(pesc_logits(m, NULL, 3, got.all), "ids")                                                     \
    X(pesc_logits(m, ids, 3, NULL), "out")                                                         \
    X(pesc_session_complete(NULL, ids, 3, NULL, NULL, NULL, &generation), "s")                     \
    X(pesc_session_complete(s, NULL, 3, NULL, NULL, NULL, &generation), "ids")                     \
    X(pesc_grammar_open(NULL, m, PESC_GRAMMAR_REGEX, "x", 1), "out")                               \
    X(pesc_grammar_open(&got.g, NULL, PESC_GRAMMAR_REGEX, "x", 1), "m")                            \
    X(pesc_grammar_open(&got.g, m, PESC_GRAMMAR_REGEX, NULL, 1), "text")                           \
    X(pesc_session_answer(NULL, &PESC_INIT(pesc_conversation), NULL, NULL, NULL, NULL), "s")       \
    X(pesc_session_answer(s, NULL, NULL, NULL, NULL, NULL), "c")                                   \
    X(pesc_session_answer(s, &PESC_INIT(pesc_conversation), NULL, NULL, NULL, NULL), "messages")   \
    X(pesc_session_constrain(NULL, NULL), "s")                                                     \
    X(pesc_model_draft(NULL, m), "m")                                                              \
    X(pesc_session_draft(NULL, m), "s")                                                            \
    X(pesc_session_generate(NULL, "x", NULL, NULL, NULL), "s")                                     \
    X(pesc_session_generate(s, NULL, NULL, NULL, NULL), "prompt")                                  \
    X(pesc_perplexity(NULL, "x", 1, 0, &perplexity), "m")                                          \
    X(pesc_perplexity(m, NULL, 1, 0, &perplexity), "text")                                         \
    X(pesc_perplexity(m, "x", 1, 0, NULL), "out")                                                  \
    X(pesc_chat_tokenize(NULL, NULL, NULL, 0, got.room, 8, &got.n), "m")                           \
    X(pesc_chat_tokenize(m, NULL, NULL, 1, got.room, 8, &got.n), "messages")                       \
    X(pesc_chat_tokenize(m, NULL, &(pesc_message){ NULL, "x" }, 1, got.room, 8, &got.n), "role")   \
    X(pesc_chat_tokenize(m, NULL, &(pesc_message){ "", NULL }, 1, got.room, 8, &got.n), "content") \
    X(pesc_chat_tokenize(m, NULL, NULL, 0, NULL, 8, &got.n), "ids")                                \
    X(pesc_chat_tokenize(m, NULL, NULL, 0, got.room, 8, NULL), "count")                            \
    X(pesc_data_open(NULL, "x", NULL, NULL), "out")                                                \
    X(pesc_data_open(&got.d, NULL, NULL, NULL), "path")                                            \
    X(pesc_data_record(NULL, 0, &got.ids, &got.labels, &got.n), "d")                               \
    X(pesc_data_record(d, 0, NULL, &got.labels, &got.n), "ids")                                    \
    X(pesc_data_record(d, 0, &got.ids, NULL, &got.n), "labels")                                    \
    X(pesc_data_record(d, 0, &got.ids, &got.labels, NULL), "n")                                    \
    X(pesc_data_answers(NULL, 0, (void *)got.all, &got.n), "d")                                    \
    X(pesc_data_answers(d, 0, NULL, &got.n), "out")                                                \
    X(pesc_data_domain(NULL, 0, &got.n, &got.name), "d")                                           \
    X(pesc_data_domain(d, 0, NULL, &got.name), "number")                                           \
    X(pesc_data_domain(d, 0, &got.n, NULL), "name")                                                \
    X(pesc_data_survey(NULL, &survey), "d")                                                        \
    X(pesc_data_survey(d, NULL), "out")                                                            \
    X(pesc_data_mix(NULL, 1, 0, "x", NULL), "parts")                                               \
    X(pesc_data_mix(&(pesc_mix_part){ .records = 1 }, 1, 0, "x", NULL), "domain")                  \
    X(pesc_data_mix(&(pesc_mix_part){ "a", NULL, 1, 1, 0, 0, 0, 0 }, 1, 0, "x", NULL), "files")    \
    X(pesc_data_mix(&(pesc_mix_part){ "a", no_file, 1, 1, 0, 0, 0, 0 }, 1, 0, "x", NULL),          \
      "files[k]")                                                                                  \
    X(pesc_data_mix(NULL, 0, 0, NULL, NULL), "out_path")                                           \
    X(pesc_train_preset(NULL, "paper"), "opt")                                                     \
    X(pesc_train_preset(&train, NULL), "name")                                                     \
    X(pesc_train_load(&train, NULL), "out")                                                        \
    X(pesc_trainer_open(NULL, m, NULL), "out") X(pesc_trainer_open(&got.trainer, NULL, NULL), "m") \
    X(pesc_trainer_step(NULL, &step), "t") X(pesc_trainer_step(trainer, NULL), "out")              \
    X(pesc_trainer_save(NULL), "t") X(pesc_trainer_describe(NULL, &train_info), "t")               \
    X(pesc_trainer_describe(trainer, NULL), "out") X(pesc_plan(NULL, "x", NULL, &plan), "dev")     \
    X(pesc_plan(dev, NULL, NULL, &plan), "path") X(pesc_plan(dev, "x", NULL, NULL), "out")         \
    X(pesc_eval(NULL, "x", NULL, &eval), "s") X(pesc_eval(s, NULL, NULL, &eval), "task")           \
    X(pesc_eval(s, "x", NULL, NULL), "out")                                                        \
    X(pesc_eval_pairs(NULL, "x", NULL, (void *)got.all), "s")                                      \
    X(pesc_eval_pairs(s, NULL, NULL, (void *)got.all), "file")                                     \
    X(pesc_eval_pairs(s, "x", NULL, NULL), "out")                                                  \
    X(pesc_benchmark(NULL, "x", NULL, &benchmark), "m")                                            \
    X(pesc_benchmark(m, NULL, NULL, &benchmark), "tasks")                                          \
    X(pesc_benchmark(m, "x", NULL, NULL), "out")                                                   \
    X(pesc_benchmark_server(NULL, "x", NULL, NULL, &benchmark), "url")                             \
    X(pesc_benchmark_server("x", NULL, NULL, NULL, &benchmark), "tasks")                           \
    X(pesc_benchmark_server("x", "x", NULL, NULL, NULL), "out")                                    \
    X(pesc_server_open(NULL, m, NULL), "out")                                                      \
    X(pesc_server_open(&got.server, NULL, NULL), "m")                                              \
    X(pesc_runs_open(NULL, NULL, 0, NULL), "out")                                                  \
    X(pesc_runs_open(&got.server, NULL, 1, NULL), "folders")                                       \
    X(pesc_server_run(NULL), "s")                                                                  \
    X(pesc_benchmark_list(NULL, NULL, NULL), "row")                                                \
    X(pesc_benchmark_difference(NULL, &score, &got.x, &got.y), "a")                                \
    X(pesc_benchmark_difference(&score, NULL, &got.x, &got.y), "b")                                \
    X(pesc_benchmark_difference(&score, &score, NULL, &got.y), "mean")                             \
    X(pesc_benchmark_difference(&score, &score, &got.x, NULL), "error")                            \
    X(pesc_plot_bars(NULL, &(pesc_bars){ .size = sizeof(pesc_bars) }), "path")                     \
    X(pesc_plot_bars("x.svg", NULL), "bars")                                                       \
    X(pesc_eval_intent(NULL, 1, "x", 1, &got.match), "prediction")                                 \
    X(pesc_eval_intent("x", 1, NULL, 1, &got.match), "expected")                                   \
    X(pesc_eval_intent("x", 1, "x", 1, NULL), "match_out")                                         \
    X(pesc_routes(NULL, NULL, &routes), "m")                                                       \
    X(pesc_routes(m, NULL, NULL), "out")                                                           \
    X(pesc_cost(NULL, "x", NULL, &cost), "dev")                                                    \
    X(pesc_cost(dev, NULL, NULL, &cost), "path")                                                   \
    X(pesc_cost(dev, "x", NULL, NULL), "out")                                                      \
    X(pesc_cost_measure(NULL, "x", NULL, &timed, 1), "dev")                                        \
    X(pesc_cost_measure(dev, NULL, NULL, &timed, 1), "path")                                       \
    X(pesc_cost_measure(dev, "x", NULL, NULL, 1), "runs")                                          \
    X(pesc_compare(NULL, m, NULL, &compared), "a")                                                 \
    X(pesc_compare(m, NULL, NULL, &compared), "b")                                                 \
    X(pesc_compare(m, m, NULL, NULL), "out")                                                       \
    X(pesc_esft_score(NULL, d, "x", NULL, &scores), "m")                                           \
    X(pesc_esft_score(m, NULL, "x", NULL, &scores), "d")                                           \
    X(pesc_esft_score(m, d, NULL, NULL, &scores), "out_dir")                                       \
    X(pesc_esft_score(m, d, "x", NULL, NULL), "out")                                               \
    X(pesc_esft_score_logs(NULL, "x", NULL, NULL, &scores), "log_dir")                             \
    X(pesc_esft_score_logs("x", NULL, NULL, NULL, &scores), "out_dir")                             \
    X(pesc_esft_score_logs("x", "x", NULL, NULL, NULL), "out")                                     \
    X(pesc_esft_select(NULL, NULL, NULL, &choice), "path")                                         \
    X(pesc_esft_select("x", NULL, NULL, NULL), "out")                                              \
    X(pesc_esft_unite(NULL, 1, &choice), "choices")                                                \
    X(pesc_esft_unite((const pesc_esft_choice *[]){ NULL }, 1, &choice), "choice")                 \
    X(pesc_esft_unite((const pesc_esft_choice *[]){ &choice }, 1, NULL), "out")                    \
    X(pesc_esft_write(NULL, "x"), "choice")                                                        \
    X(pesc_esft_write(&choice, NULL), "path")                                                      \
    X(pesc_esft_count(NULL, &choice, NULL, &counts), "model")                                      \
    X(pesc_esft_count("x", NULL, NULL, &counts), "choice")                                         \
    X(pesc_esft_count("x", &choice, NULL, NULL), "out")                                            \
    X(pesc_esft_apply(dev, NULL, "x", "y"), "base_dir")                                            \
    X(pesc_esft_apply(dev, "x", NULL, "y"), "patch_dir")                                           \
    X(pesc_esft_unapply(dev, NULL, NULL, "y"), "tuned_dir")                                        \
    X(pesc_esft_unapply(dev, "x", NULL, NULL), "out_dir")                                          \
    X(pesc_esft_prune(NULL, &choice, "y", NULL, NULL), "model")                                    \
    X(pesc_esft_prune("x", NULL, "y", NULL, NULL), "choice")                                       \
    X(pesc_esft_prune("x", &choice, NULL, NULL, NULL), "out_dir")                                  \
    X(pesc_esft_prune("x", &choice, "y", NULL, NULL), "out")                                       \
    X(pesc_plot_lines(NULL, &(pesc_lines){ .size = sizeof(pesc_lines) }), "path")                  \
    X(pesc_plot_lines("x.svg", NULL), "lines")                                                     \
    X(pesc_plot_lines("x.svg", &(pesc_lines){ .size = sizeof(pesc_lines), .n_series = 1 }),        \
      "series")                                                                                    \
    X(pesc_plot_heat(NULL, &(pesc_heat){ .size = sizeof(pesc_heat) }), "path")                     \
    X(pesc_plot_heat("x.svg", NULL), "heat")                                                       \
    X(pesc_plot_run(NULL), "run_dir")                                                              \
    X(pesc_plot_routes(NULL, &routes), "path")                                                     \
    X(pesc_plot_routes("x.svg", NULL), "report")                                                   \
    X(pesc_plot_routes_layer(NULL, &routes, 0), "path")                                            \
    X(pesc_plot_routes_layer("x.svg", NULL, 0), "report")                                          \
    X(pesc_plot_routes_history(NULL, &history, "load"), "path")                                    \
    X(pesc_plot_routes_history("x.svg", NULL, "load"), "history")                                  \
    X(pesc_plot_routes_history("x.svg", &history, NULL), "what")                                   \
    X(pesc_routes_over_time(NULL, NULL, &history), "run_dir")                                      \
    X(pesc_routes_over_time("x", NULL, NULL), "out")                                               \
    X(pesc_option_set(NULL, &load, "x", NULL), "row")                                              \
    X(pesc_option_set(pesc_option_rows(NULL), NULL, "x", NULL), "options")                         \
    X(pesc_option_set(pesc_option_rows(NULL), &load, NULL, NULL), "text")
static pesc_sample_options no_stop_texts(void)
{
    pesc_sample_options o = pesc_sample_defaults();
    o.n_stop = 2;
    return o;
}

static pesc_data_options no_data_files(void)
{
    pesc_data_options o = pesc_data_defaults();
    o.data = no_file;
    o.n_data = 1;
    return o;
}

static const pesc_heat no_cells = { .size = sizeof no_cells, .n_panels = 1, .rows = 1, .cols = 1 };
static const pesc_series no_points = { .n = 3 };
static const pesc_lines no_curve = { .size = sizeof no_curve, .series = &no_points, .n_series = 1 };

/* X(call, words of the sentence) */
#define WRONG(X)                                                                                   \
    X(pesc_device_open(&got.dev, "cpu:0"), "expected 1 to 1024")                                   \
    X(pesc_device_events(dev, &(pesc_events){ 0 }), "ev->size is 0")                               \
    X(pesc_comm_open(&got.comm, &(pesc_comm_options){ 0 }), "opt->size is 0")                      \
    X(pesc_info("share/base", NULL, &(pesc_events){ 0 }, &info), "ev->size is 0")                  \
    X(pesc_info("share/base", NULL, NULL, &(pesc_model_info){ 0 }), "out->size is 0")              \
    X(pesc_model_open(&got.m, dev, "share/base", &(pesc_load_options){ 0 }), "has size 0")         \
    X(pesc_model_describe(m, &(pesc_model_info){ 0 }), "out->size is 0")                           \
    X(pesc_run_describe("x", NULL, &(pesc_run_info){ 0 }), "out->size is 0")                       \
    X(pesc_model_sampling(m, &(pesc_sample_options){ 0 }), "opt->size is 0")                       \
    X(pesc_craft(dev, "share/base", "x", NULL, &(pesc_logit_check){ 0 }), "check->size is 0")      \
    X(pesc_merge(dev, "share/base", "x", NULL, &(pesc_logit_check){ 0 }), "check->size is 0")      \
    X(pesc_export(dev, "share/base", "hf", "x", NULL, &(pesc_logit_check){ 0 }),                   \
      "check->size is 0")                                                                          \
    X(pesc_export(dev, "share/base", "word", "x", NULL, NULL), "to: found \"word\"")               \
    X(pesc_tokenize(t, "x", 1, 64, got.room, 8, &got.n), "flags: found 64")                        \
    X(pesc_detokenize(t, ids, 3, 1, got.text, 64, &got.n), "flags: found 1")                       \
    X(pesc_session_open(&got.s, m, -1), "the context is -1 tokens")                                \
    X(pesc_session_feed(s, ids, 0, &got.logits), "no tokens were given")                           \
    X(pesc_session_feed(s, ids, (size_t)-1, &got.logits), "do not fit")                            \
    X(pesc_logits(m, ids, 0, got.all), "0 tokens were given")                                      \
    X(pesc_logits(m, ids, (size_t)-1, got.all), "tokens were given")                               \
    X(pesc_session_complete(s, ids, 0, NULL, NULL, NULL, &generation), "the prompt is empty")      \
    X(pesc_session_complete(s, ids, 3, NULL, NULL, NULL, &(pesc_generation){ 0 }),                 \
      "out->size is 0")                                                                            \
    X(pesc_session_complete(s, ids, 3, &(pesc_sample_options){ 0 }, NULL, NULL, NULL),             \
      "has size 0")                                                                                \
    X(pesc_session_complete(s, ids, 3, &(pesc_sample_options[]){ no_stop_texts() }[0], NULL, NULL, \
                            NULL),                                                                 \
      "stop: found NULL")                                                                          \
    X(pesc_grammar_open(&got.g, m, (pesc_grammar_kind)9, "x", 1), "no known kind")                 \
    X(pesc_perplexity(m, "x", 1, 1, &perplexity), "a window of 1 tokens")                          \
    X(pesc_perplexity(m, "x", 1, -7, &perplexity), "a window of -7 tokens")                        \
    X(pesc_perplexity(m, "x", 1, 0, &(pesc_perplexity_report){ 0 }), "out->size is 0")             \
    X(pesc_chat_tokenize(m, "none", NULL, 0, got.room, 8, &got.n), "chat format")                  \
    X(pesc_data_open(&got.d, "share/base", NULL, NULL), "data")                                    \
    X(pesc_data_open(&got.d, "share/base", &(pesc_data_options[]){ no_data_files() }[0], NULL),    \
      "data: found NULL")                                                                          \
    X(pesc_data_record(d, (uint64_t)-1, &got.ids, &got.labels, &got.n), "record 1844674407370")    \
    X(pesc_data_domain(d, (uint64_t)-1, &got.n, &got.name), "record 1844674407370")                \
    X(pesc_data_survey(d, &(pesc_data_report){ 0 }), "out->size is 0")                             \
    X(pesc_data_mix(NULL, 0, 0, "x", NULL), "no record is wanted")                                 \
    X(pesc_train_preset(&(pesc_train_options){ 0 }, "paper"), "opt->size is 0")                    \
    X(pesc_train_load(NULL, &(pesc_load_options){ 0 }), "out->size is 0")                          \
    X(pesc_train_preset(&train, "fast"), "preset: found \"fast\"")                                 \
    X(pesc_trainer_open(&got.trainer, m, &train), "has a trainer already")                         \
    X(pesc_model_patch(m, "x"), "the model has a trainer")                                         \
    X(pesc_model_unpatch(m), "the model has a trainer")                                            \
    X(pesc_trainer_step(trainer, &(pesc_step){ 0 }), "out->size is 0")                             \
    X(pesc_trainer_describe(trainer, &(pesc_train_info){ 0 }), "out->size is 0")                   \
    X(pesc_plan(dev, "share/base", NULL, &(pesc_plan_report){ 0 }), "out->size is 0")              \
    X(pesc_eval(s, "x", NULL, &(pesc_eval_report){ 0 }), "out->size is 0")                         \
    X(pesc_routes(m, NULL, &(pesc_routes_report){ 0 }), "out->size is 0")                          \
    X(pesc_cost(dev, "share/base", NULL, &(pesc_cost_report){ 0 }), "out->size is 0")              \
    X(pesc_cost_measure(dev, "share/base", NULL, &timed, 1), "run 0: found phase 0, 0 tokens")     \
    X(pesc_compare(m, m, NULL, &(pesc_compare_report){ 0 }), "out->size is 0")                     \
    X(pesc_esft_score(m, d, "x", NULL, &(pesc_esft_score_report){ 0 }), "out->size is 0")          \
    X(pesc_esft_score_logs("x", "x", NULL, NULL, &(pesc_esft_score_report){ 0 }),                  \
      "out->size is 0")                                                                            \
    X(pesc_esft_select("x", NULL, NULL, &(pesc_esft_choice){ 0 }), "out->size is 0")               \
    X(pesc_esft_unite((const pesc_esft_choice *[]){ &choice }, 0, &choice), "no choice was given") \
    X(pesc_esft_unite((const pesc_esft_choice *[]){ &(pesc_esft_choice){ 0 } }, 1, &choice),       \
      "choice->size is 0")                                                                         \
    X(pesc_esft_write(&(pesc_esft_choice){ 0 }, "x"), "choice->size is 0")                         \
    X(pesc_esft_write(&(pesc_esft_choice){ .size = sizeof choice, .n_layers = 2 }, "x"), "layers") \
    X(pesc_esft_count("x", &choice, NULL, &(pesc_esft_counts){ 0 }), "out->size is 0")             \
    X(pesc_plot_lines("x.svg", &(pesc_lines){ 0 }), "lines->size is 0")                            \
    X(pesc_plot_lines("x.svg", &no_curve), "x is NULL")                                            \
    X(pesc_plot_heat("x.svg", &(pesc_heat){ 0 }), "heat->size is 0")                               \
    X(pesc_plot_bars("x.svg", &(pesc_bars){ 0 }), "bars->size is 0")                               \
    X(pesc_plot_bars("x.svg", &(pesc_bars){ .size = sizeof(pesc_bars) }), "0 groups of 0 bars")    \
    X(pesc_benchmark(m, "x", NULL, &(pesc_benchmark_report){ 0 }), "out->size is 0")               \
    X(pesc_benchmark_server("x", "x", NULL, NULL, &(pesc_benchmark_report){ 0 }),                  \
      "out->size is 0")                                                                            \
    X(pesc_benchmark_difference(                                                                   \
          &scored, &(pesc_benchmark_score){ .task = "b", .each = scored.each }, &got.x, &got.y),   \
      "expected the same")                                                                         \
    X(pesc_plot_heat("x.svg", &no_cells), "cells")                                                 \
    X(pesc_plot_routes_layer("x.svg", &(pesc_routes_report){ 0 }, 0), "report->size is 0")         \
    X(pesc_plot_routes_history("x.svg", &(pesc_routes_history){ 0 }, "load"),                      \
      "history->size is 0")                                                                        \
    X(pesc_plot_routes_history("x.svg", &history, "load"), "found \"load\" over 0 steps")          \
    X(pesc_routes_over_time("x", NULL, &(pesc_routes_history){ 0 }), "out->size is 0")             \
    X(pesc_plot_routes("x.svg", &(pesc_routes_report){ 0 }), "report->size is 0")

/* X(what a function returns) is true */
#define RETURNS(X)                                                                                 \
    X(strcmp(pesc_version(), PESC_VERSION) == 0)                                                   \
    X(*pesc_status_text((pesc_status)-1))                                                          \
    X(pesc_status_exit_code((pesc_status)-1) == 1)                                                 \
    X(pesc_last_error() != NULL)                                                                   \
    X(!*pesc_device_name(NULL) && pesc_device_profile_rows(NULL, NULL, 0) == 0)                    \
    X(!strcmp(pesc_device_compute_dtype(NULL), "f32"))                                             \
    X(!pesc_model_tokenizer(NULL))                                                                 \
    X(pesc_vocab_size(NULL) == 0)                                                                  \
    X(*pesc_chat_formats() != NULL)                                                                \
    X(!*pesc_model_chat_format(NULL))                                                              \
    X(!pesc_chat_stops(NULL, &got.n) && got.n == 0)                                                \
    X(!pesc_chat_stops("none", &got.n) && got.n == 0)                                              \
    X(pesc_chat_stops("chatml", NULL) || true)                                                     \
    X(pesc_server_port(NULL) == 0 && pesc_data_records(NULL) == 0)                                 \
    X(!pesc_model_chat_stops(NULL, &got.n) && got.n == 0)                                          \
    X(pesc_model_chat_stops(NULL, NULL) || true)                                                   \
    X(!*pesc_data_format(NULL, 0))                                                                 \
    X(!*pesc_data_format(d, 1000))                                                                 \
    X(!*pesc_data_template(NULL))                                                                  \
    X(!pesc_data_tokenizer(NULL))                                                                  \
    X(pesc_trainer_done(NULL)) X(pesc_option_get(NULL, &load, got.text, 64) == 0)                  \
    X(pesc_option_get(pesc_option_rows(NULL), NULL, got.text, 64) == 0)                            \
    X(pesc_option_get(pesc_option_rows(NULL), &load, NULL, 64) < 64)                               \
    X(pesc_option_rows(&got.n) && got.n > 100)                                                     \
    X(pesc_doctor(NULL, 0) > 0)                                                                    \
    X(pesc_doctor(NULL, 100) == pesc_doctor(NULL, 0))                                              \
    X(pesc_kernels(NULL, 0) > 0)                                                                   \
    X(pesc_kernels(NULL, 100) == pesc_kernels(NULL, 0))                                            \
    X(pesc_comm_doctor(NULL, 0) && !*pesc_comm_host(NULL))                                         \
    X(pesc_comm_rank(NULL) + pesc_comm_local_rank(NULL) == 0 && pesc_comm_size(NULL) == 1)

/* X(a call that does nothing) */
#define NOTHING(X)                                                                                 \
    X(pesc_device_close(NULL)) X(pesc_comm_close(NULL, NULL)) X(pesc_model_close(NULL))            \
    X(pesc_tokenizer_close(NULL)) X(pesc_session_close(NULL)) X(pesc_grammar_close(NULL))          \
    X(pesc_session_reset(NULL)) X(pesc_data_close(NULL)) X(pesc_trainer_close(NULL))               \
    X(pesc_server_close(NULL)) X(pesc_server_stop(NULL)) X(pesc_generation_free(NULL))             \
    X(pesc_generation_free(&(pesc_generation){ 0 })) X(pesc_eval_free(NULL))                       \
    X(pesc_benchmark_free(NULL)) X(pesc_benchmark_free(&(pesc_benchmark_report){ 0 }))             \
    X((void)pesc_benchmark_known(NULL)) X((void)pesc_benchmark_is_server(NULL))                    \
    X(pesc_eval_free(&(pesc_eval_report){ 0 }))                                                    \
    X(pesc_routes_free(NULL)) X(pesc_routes_free(&(pesc_routes_report){ 0 }))                      \
    X(pesc_compare_free(NULL)) X(pesc_routes_history_free(NULL))                                   \
    X(pesc_routes_history_free(&(pesc_routes_history){ 0 }))                                       \
    X(pesc_compare_free(&(pesc_compare_report){ 0 })) X(pesc_esft_choice_free(NULL))               \
    X(pesc_esft_choice_free(&(pesc_esft_choice){ 0 }))                                             \
    X(pesc_options_fill(PESC_OPTIONS_LOAD, NULL, 64))                                              \
    X(pesc_options_fill(PESC_OPTIONS_LOAD, &load, 0))                                              \
    X(pesc_options_fill((pesc_option_struct)99, got.text, 8))
/* clang-format on */

static int open_all(void **state)
{
    (void)state;
    static const char *data[] = { "share/test.jsonl" };
    pesc_data_options records = pesc_data_defaults();
    info = PESC_INIT(pesc_model_info);
    check = PESC_INIT(pesc_logit_check);
    generation = PESC_INIT(pesc_generation);
    perplexity = PESC_INIT(pesc_perplexity_report);
    survey = PESC_INIT(pesc_data_report);
    step = PESC_INIT(pesc_step);
    train_info = PESC_INIT(pesc_train_info);
    plan = PESC_INIT(pesc_plan_report);
    eval = PESC_INIT(pesc_eval_report);
    benchmark = PESC_INIT(pesc_benchmark_report);
    routes = PESC_INIT(pesc_routes_report);
    history = PESC_INIT(pesc_routes_history);
    cost = PESC_INIT(pesc_cost_report);
    compared = PESC_INIT(pesc_compare_report);
    scores = PESC_INIT(pesc_esft_score_report);
    choice = PESC_INIT(pesc_esft_choice);
    counts = PESC_INIT(pesc_esft_counts);
    run = PESC_INIT(pesc_run_info);
    load = pesc_load_defaults();
    sample = pesc_sample_defaults();
    train = pesc_train_defaults();
    train.method = "lora";
    train.output = files_path("run");
    train.data = records.data = data;
    train.n_data = records.n_data = 1;
    train.chat_template = records.chat_template = "camelidae";
    must(pesc_device_open(&dev, "cpu:1"));
    must(pesc_model_open(&m, dev, "share/base", NULL));
    must(pesc_tokenizer_open(&t, "share/base", NULL));
    must(pesc_data_open(&d, "share/base", &records, NULL));
    must(pesc_trainer_open(&trainer, m, &train));
    must(pesc_session_open(&s, m, 16));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_trainer_close(trainer);
    pesc_data_close(d);
    pesc_tokenizer_close(t);
    pesc_session_close(s);
    pesc_model_close(m);
    pesc_device_close(dev);
    return 0;
}

static bool is_usage(const char *call, pesc_status st, const char *part)
{
    if (st == PESC_USAGE && strstr(pesc_last_error(), part))
        return true;
    print_error("%s: got \"%s\": \"%s\", expected PESC_USAGE with \"%s\"\n", call,
                pesc_status_text(st), pesc_last_error(), part);
    return false;
}

/* The sentence is "function: the argument NAME is NULL"; NAME may be a field of an argument. */
static bool is_named(const char *call, pesc_status st, const char *argument)
{
    char end[64], function[64];
    snprintf(end, sizeof end, "%s is NULL", argument);
    snprintf(function, sizeof function, "%.*s: the argument ", (int)strcspn(call, "("), call);
    return is_usage(call, st, end) && is_usage(call, st, function);
}

static void missing_arguments_are_named(void **state)
{
    (void)state;
    int wrong = 0;
#define CHECK(call, argument) wrong += !is_named(#call, call, argument);
    MISSING(CHECK)
#undef CHECK
    assert_int_equal(wrong, 0);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    int wrong = 0;
#define CHECK(call, part) wrong += !is_usage(#call, call, part);
    WRONG(CHECK)
#undef CHECK
    assert_int_equal(wrong, 0);
}

static void functions_without_a_status_do_no_harm(void **state)
{
    (void)state;
#define CHECK(value) assert_true(value);
    RETURNS(CHECK)
#undef CHECK
#define CHECK(call) call;
    NOTHING(CHECK)
#undef CHECK
}

static void refused_calls_leave_handles_usable(void **state)
{
    (void)state;
    const float **logits = &got.logits;
    assert_true(!got.dev && !got.m && !got.s && !got.t && !got.d && !got.trainer && !got.comm);
    pesc_session_reset(s);
    must_fail(pesc_session_feed(s, (int32_t[]){ -1 }, 1, logits), PESC_FORMAT, "found id -1");
    must_fail(pesc_session_feed(s, (int32_t[]){ INT32_MAX }, 1, logits), PESC_FORMAT, "found id");
    must(pesc_session_feed(s, ids, 3, logits));
    must(pesc_trainer_describe(trainer, &train_info));
}

/* Parents before children: what the children use stays. */
static void handles_may_be_closed_in_any_order(void **state)
{
    (void)state;
    pesc_device *own_dev;
    pesc_model *own;
    pesc_session *first, *second;
    must(pesc_device_open(&own_dev, "cpu:1"));
    must(pesc_model_open(&own, own_dev, "share/base", NULL));
    must(pesc_session_open(&first, own, 16));
    must(pesc_session_open(&second, own, 16));
    pesc_device_close(own_dev);
    pesc_model_close(own);
    pesc_session_close(first);
    must(pesc_session_feed(second, ids, 3, &got.logits));
    pesc_session_close(second);
}

/* ---- every function is here ---- */

static void strip_comments(char *text)
{
    for (char *p = text; (p = strstr(p, "/*"));) {
        char *end = strstr(p, "*/"); /* the headers compile, so there is one */
        memset(p, ' ', (size_t)(end + 2 - p));
    }
}

/* Calls that declarations in `text` make possible and `own` does not make. */
static int count_absent(const char *text, const char *own)
{
    int absent = 0;
    for (const char *p = text; (p = strstr(p, "pesc_"));) {
        char name[96];
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789_");
        bool declared = p[n] == '(' && n < sizeof name - 1 && (p == text || !isalnum(p[-1]));
        snprintf(name, sizeof name, "%.*s(", (int)n, p);
        if (declared && !strstr(own, name)) {
            print_error("%s...) is not called in test_misuse.c\n", name);
            absent++;
        }
        p += n;
    }
    return absent;
}

static void every_public_function_is_called_here(void **state)
{
    (void)state;
    glob_t headers;
    int absent = 0;
    char *own = files_get("tests/unit/test_misuse.c", &(size_t){ 0 });
    assert_true(glob("include/pesc/*.h", 0, NULL, &headers) == 0 && headers.gl_pathc >= 2);
    for (size_t i = 0; i < headers.gl_pathc; i++) {
        char *text = files_get(headers.gl_pathv[i], &(size_t){ 0 });
        strip_comments(text);
        absent += count_absent(text, own);
        free(text);
    }
    assert_int_equal(absent, 0);
    assert_int_equal(count_absent("void pesc_model_close(pesc_model *m);", "no call"), 1);
    globfree(&headers);
    free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_arguments_are_named),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(functions_without_a_status_do_no_harm),
        cmocka_unit_test(refused_calls_leave_handles_usable),
        cmocka_unit_test(handles_may_be_closed_in_any_order),
        cmocka_unit_test(every_public_function_is_called_here),
    };
    return cmocka_run_group_tests_name("misuse", tests, open_all, close_all);
}
