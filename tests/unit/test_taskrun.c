/* Whole evaluations of made tasks on the embedded base: the files depend neither on the number of
 * slots nor on interruptions, and hold what other means compute. */
#include "base/json.h"
#include "eval/chatprompt.h"
#include "eval/loglik.h"
#include "eval/taskrun.h"
#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static pesc_device *dev;
static pesc_model *model;
static uint64_t forwards; /* of the last evaluation */
static bool as_chat;      /* of the next */
static int notices;
static char last_notice[256];

static void take_notice(void *ud, const char *text)
{
    (void)ud;
    notices++;
    snprintf(last_notice, sizeof last_notice, "%s", text);
}

static int open_base(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:1") || pesc_model_open(&model, dev, "share/base", NULL);
}

static int close_base(void **state)
{
    (void)state;
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

/* A task file, and data of two that are built in. */
static void use_format(const char *name)
{
    chat_close(model->chat);
    must(chat_open(&model->chat, model->tok, NULL, chat_find(name)));
}

static void put_data(void)
{
    char text[4096] = "";
    files_text("made/test.jsonl", taskmade_rows);
    files_text("made/train.jsonl", taskmade_shots);
    files_text("made.json", taskmade_choice);
    for (int i = 0; i < 6; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"question\": \"what is number %d\", \"answer\": [\"cat %d\"]}\n", i, i);
    files_text("nq_open/validation.jsonl", text);
    files_text("nq_open/train.jsonl", "{\"question\": \"s\", \"answer\": [\"t\", \"u\"]}\n");
    files_text("gsm8k/test.jsonl", "{\"question\": \"1 and 2?\", \"answer\": \"so\\n#### 3\"}\n"
                                   "{\"question\": \"1 and 3?\", \"answer\": \"so\\n#### 4\"}\n");
    files_text("humaneval/test.jsonl", "{\"task_id\": \"0\", \"prompt\": \"def f():\\n\", "
                                       "\"test\": \"T\", \"entry_point\": \"f\"}\n");
    text[0] = '\0';
    for (int i = 0; i < 5; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"task_id\": %d, \"text\": \"add %d\", \"code\": \"\", \"test_list\": "
                 "[\"assert f(1) == 2\", \"assert f(2) == 3\", \"assert f(3) == 4\"]}\n",
                 i, i);
    files_text("mbpp/test.jsonl", text);
}

static task_set *open_set(const char *names)
{
    char list[512];
    task_options o = task_option_defaults;
    task_set *t;
    o.data_dir = files_path("");
    o.shots = 0;
    snprintf(list, sizeof list, "%s,%s", files_path("made.json"), names);
    must(task_open(&t, list, &o));
    return t;
}

/* Evaluates into the directory "out" of the test. */
static pesc_status evaluate(const char *names, int32_t slots, int32_t max_length, taskrun *r)
{
    char dir[256];
    snprintf(dir, sizeof dir, "%s", files_path("out"));
    task_set *t = open_set(names);
    taskrun_options o = { .dir = dir,
                          .model = "base",
                          .tasks = task_option_defaults,
                          .slots = slots,
                          .max_length = max_length,
                          .chat = as_chat,
                          .code = { .unsafe = true } };
    DEVICE_CALL(dev);
    pesc_status s = taskrun_evaluate(r, model, t, &o);
    forwards = r->count.forwards;
    taskrun_close(r);
    task_close(t);
    return s;
}

static const char *const outputs[] = {
    "out/results.json",          "out/evaluation.json",     "out/samples_made_choice.jsonl",
    "out/samples_nq_open.jsonl", "out/samples_gsm8k.jsonl", "out/samples_mbpp.jsonl"
};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

static void get_outputs(char *texts[OUTPUTS])
{
    size_t n;
    for (int i = 0; i < OUTPUTS; i++)
        texts[i] = files_get(files_path(outputs[i]), &n);
}

static void must_be_outputs(char *const texts[OUTPUTS])
{
    for (int i = 0; i < OUTPUTS; i++)
        files_must_be(outputs[i], texts[i]);
}

static void free_outputs(char *texts[OUTPUTS])
{
    for (int i = 0; i < OUTPUTS; i++)
        free(texts[i]);
}

/* Where line number `line` of a text begins. */
static size_t line_at(const char *text, int line)
{
    const char *at = text;
    while (line-- > 0)
        at = strchr(at, '\n') + 1;
    return (size_t)(at - text);
}

static void files_do_not_depend_on_slots_or_interruptions(void **state)
{
    (void)state;
    static const char tasks[] = "nq_open,gsm8k,mbpp";
    char *want[OUTPUTS];
    taskrun r;
    files_clear();
    put_data();
    must(evaluate(tasks, 64, 0, &r));
    get_outputs(want);
    must(evaluate(tasks, 64, 0, &r)); /* it is finished: nothing is computed */
    assert_int_equal(forwards, 0);
    must_be_outputs(want);
    for (int line = 0; line < 6; line++) {
        size_t at = line_at(want[3], line);
        files_put("out/samples_nq_open.jsonl", want[3], at + (size_t)line * 7 % 20);
        files_put("out/samples_gsm8k.jsonl", want[4], line_at(want[4], line % 4));
        files_put("out/samples_mbpp.jsonl", want[5], line_at(want[5], line % 5));
        remove(files_path("out/results.json"));
        must(evaluate(tasks, 3, 0, &r));
        must_be_outputs(want);
    }
    free_outputs(want);
}

static void files_of_others_stay(void **state)
{
    (void)state;
    taskrun r;
    files_clear();
    put_data();
    files_text("out/samples_gsm8k_2026.jsonl", "mine");
    must_fail(evaluate("nq_open", 8, 0, &r), PESC_USAGE,
              "holds samples_gsm8k_2026.jsonl, which no evaluation.json there speaks of");
    files_must_be("out/samples_gsm8k_2026.jsonl", "mine");
    remove(files_path("out/samples_gsm8k_2026.jsonl"));
    files_text("out/evaluation.json", "[1]");
    must_fail(evaluate("nq_open", 8, 0, &r), PESC_USAGE, "is not from an evaluation");
    files_must_be("out/evaluation.json", "[1]");
    remove(files_path("out/evaluation.json"));
    must(evaluate("nq_open", 8, 0, &r));
    files_text("out/samples_gsm8k_2026.jsonl", "mine");
    must(evaluate("nq_open", 8, 300, &r)); /* begins again */
    files_must_be("out/samples_gsm8k_2026.jsonl", "mine");
    files_text("out/samples_gsm8k.jsonl", "mine");
    must_fail(evaluate("gsm8k", 8, 300, &r), PESC_USAGE, "holds samples_gsm8k.jsonl");
    files_must_be("out/samples_gsm8k.jsonl", "mine");
}

static void a_changed_evaluation_begins_again(void **state)
{
    (void)state;
    taskrun r;
    pesc_events ev = PESC_INIT(pesc_events);
    ev.notice = take_notice;
    files_clear();
    put_data();
    must(pesc_device_events(dev, &ev));
    must(evaluate("nq_open", 8, 0, &r));
    must(evaluate("nq_open", 8, 0, &r));
    assert_int_equal(notices, 0);
    must(evaluate("nq_open", 8, 300, &r));
    assert_int_equal(notices, 1);
    assert_non_null(strstr(last_notice, "another max_length"));
    as_chat = true;
    use_format("camelidae");
    must(evaluate("nq_open", 8, 300, &r));
    as_chat = false;
    assert_int_equal(notices, 2);
    assert_non_null(strstr(last_notice, "another chat_template_sha"));
    must(pesc_device_events(dev, NULL));
    must_fail(evaluate("humaneval", 8, 0, &r), PESC_USAGE, "1024 tokens are to be generated");
}

/* By a softmax in double precision over the logits of the whole string. */
static double logprob_of(const char *context, const char *continuation)
{
    loglik l;
    loglik_tokens t;
    size_t vocab = (size_t)model->shape.cfg.vocab;
    double sum = 0;
    must(loglik_open(&l, model->tok, 512));
    must(loglik_pair(&l, context, continuation, &t));
    float *logits = malloc((size_t)t.n * vocab * sizeof *logits);
    must(pesc_logits(model, t.ids, (size_t)t.n, logits));
    for (int32_t i = t.first; i < t.n; i++) {
        const float *row = logits + (size_t)(i - 1) * vocab;
        double total = 0;
        for (size_t v = 0; v < vocab; v++)
            total += exp((double)row[v]);
        sum += (double)row[t.ids[i]] - log(total);
    }
    free(logits);
    loglik_close(&l);
    return sum;
}

/* The lines of the task of choices hold the scores of their contexts and continuations. Returns how
 * many are right. */
static size_t must_be_scored(chatprompt *chat)
{
    size_t n, right = 0;
    char *text = files_get(files_path("out/samples_made_choice.jsonl"), &n);
    task_set *t = open_set("nq_open");
    for (size_t i = 0, at = 0; i < 3; i++) {
        task_doc d;
        json_t *line;
        size_t end = (size_t)(strchr(text + at, '\n') - text), best = 0;
        must(json_parse(&line, text + at, end - at, "a line"));
        must(task_doc_build(&d, task_at(t, 0), i));
        if (chat)
            must(chatprompt_apply(chat, &d));
        assert_string_equal(json_string_value(json_object_get(line, "prompt_hash")), d.prompt_hash);
        const json_t *resps = json_object_get(line, "resps");
        assert_int_equal(json_array_size(resps), d.n_requests);
        double want[3];
        for (size_t c = 0; c < d.n_requests; c++) {
            want[c] = logprob_of(d.contexts[c], d.continuations[c]);
            double got = json_real_value(json_array_get(json_array_get(resps, c), 0));
            assert_float_equal(got, want[c], 1e-5 * (1 + fabs(want[c])));
            best = want[c] > want[best] ? c : best;
        }
        assert_float_equal(json_number_value(json_object_get(line, "acc")), best == (size_t)d.gold,
                           0);
        right += best == (size_t)d.gold;
        json_decref(line);
        task_doc_free(&d);
        at = end + 1;
    }
    task_close(t);
    free(text);
    return right;
}

static void choices_are_scored_and_judged(void **state)
{
    (void)state;
    taskrun r;
    files_clear();
    put_data();
    must(evaluate("nq_open", 8, 0, &r));
    size_t right = must_be_scored(NULL);
    json_t *results;
    must(json_read(&results, files_path("out/results.json"), 1 << 20));
    const json_t *made = json_object_get(json_object_get(results, "results"), "made_choice");
    assert_float_equal(json_number_value(json_object_get(made, "acc,none")), (double)right / 3,
                       1e-12);
    assert_true(json_is_null(json_object_get(results, "chat_template")));
    json_decref(results);
}

static void conversations_are_scored(void **state)
{
    (void)state;
    taskrun r;
    chatprompt c;
    json_t *results;
    files_clear();
    put_data();
    use_format("camelidae");
    must(chatprompt_open(&c, model, false));
    as_chat = true;
    must(evaluate("nq_open", 8, 0, &r));
    as_chat = false;
    must_be_scored(&c);
    must(json_read(&results, files_path("out/results.json"), 1 << 20));
    assert_ptr_equal(chat_recognise(json_string_value(json_object_get(results, "chat_template"))),
                     chat_find("camelidae"));
    json_decref(results);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_do_not_depend_on_slots_or_interruptions),
        cmocka_unit_test(files_of_others_stay),
        cmocka_unit_test(a_changed_evaluation_begins_again),
        cmocka_unit_test(choices_are_scored_and_judged),
        cmocka_unit_test(conversations_are_scored),
    };
    return cmocka_run_group_tests_name("taskrun", tests, open_base, close_base);
}
