/* Evaluation on the embedded base. The oracles are other roads to the same numbers: losses from
 * float32 logits by a softmax in double precision, answers from a session, one at a time. */
#include "support/check.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static pesc_device *dev;
static pesc_model *model;
static pesc_session *session;

static int open_base(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:2") || pesc_model_open(&model, dev, "share/base", NULL) ||
           pesc_session_open(&session, model, 0);
}

static int close_base(void **state)
{
    (void)state;
    pesc_session_close(session);
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static const char *const questions[] = {
    "What is 2 plus 3?", "Who lives in Feven?", "Write a function f that adds 1 to x.",
    "Name the animal of Tozu and say where it sleeps at night."
};
enum { QUESTIONS = 4, MOST = 20 };

/* The first `MOST` tokens a session would answer, as text. */
static char *ask(const char *question)
{
    int32_t ids[256];
    size_t n;
    pesc_message m = { "user", question };
    pesc_sample_options o = pesc_sample_defaults();
    pesc_generation g = PESC_INIT(pesc_generation);
    must(pesc_chat_tokenize(model, "camelidae", &m, 1, ids, 256, &n));
    o.max_tokens = MOST;
    must(pesc_session_complete(session, ids, n, &o, NULL, NULL, &g));
    char *text = strdup(g.text ? g.text : "");
    pesc_generation_free(&g);
    return text;
}

static void put_json(char *out, const char *text)
{
    for (out += strlen(out); *text; text++)
        out += *text == '\n'                   ? sprintf(out, "\\n")
               : *text == '"' || *text == '\\' ? sprintf(out, "\\%c", *text)
                                               : sprintf(out, "%c", *text);
}

typedef struct kept {
    char answers[QUESTIONS][256];
    bool correct[QUESTIONS];
    int n;
} kept;

static void keep(void *ud, const pesc_eval_sample *s)
{
    kept *k = ud;
    k->n++;
    snprintf(k->answers[s->record], sizeof k->answers[0], "%s", s->answer);
    k->correct[s->record] = s->correct;
}

/* Records that expect what the model says, but for the second. */
static const char *put_task(void)
{
    static char text[8192];
    text[0] = '\0';
    for (int i = 0; i < QUESTIONS; i++) {
        char *answer = ask(questions[i]);
        sprintf(text + strlen(text), "{\"domain\":\"%s\",\"instruction\":\"%s\",\"output\":\"",
                i < 2 ? "one" : "two", questions[i]);
        put_json(text, i == 1 ? "something else" : answer);
        strcat(text, "\"}\n");
        free(answer);
    }
    return files_text("task.jsonl", text);
}

static const char *trimmed(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && strchr(" \n\t\r", text[n - 1]))
        text[--n] = '\0';
    return text + strspn(text, " \n\t\r");
}

/* MOST tokens are asked for, as the session gave: a longer text would go on. */
static void answers_are_those_of_a_session(void **state)
{
    (void)state;
    const char *task = put_task();
    static const int64_t batches[] = { 1, 3, 16 };
    for (int b = 0; b < 3; b++) {
        kept k = { .n = 0 };
        pesc_eval_report r = PESC_INIT(pesc_eval_report);
        pesc_eval_options o = pesc_eval_defaults();
        o.max_tokens = MOST;
        o.batch = batches[b];
        o.each = keep;
        o.ud = &k;
        must(pesc_eval(session, task, &o, &r));
        assert_int_equal(k.n, QUESTIONS);
        for (int i = 0; i < QUESTIONS; i++) {
            char *want = ask(questions[i]);
            assert_string_equal(k.answers[i], trimmed(want));
            assert_int_equal(k.correct[i], i != 1);
            free(want);
        }
        assert_int_equal(r.n_domains, 2);
        assert_string_equal(r.domains[0].domain, "one");
        assert_int_equal(r.domains[0].asked, 2);
        assert_int_equal(r.domains[0].correct, 1);
        assert_float_equal(r.domains[0].exact_match, 0.5, 0);
        assert_float_equal(r.domains[0].exact_match_stderr, sqrt(0.5 * 0.5 / 2), 1e-12);
        assert_int_equal(r.all.correct, 3);
        assert_float_equal(r.all.exact_match, 0.75, 0);
        pesc_eval_free(&r);
    }
}

static double loss_by_hand(const int32_t *ids, const int32_t *labels, size_t n, uint64_t *count)
{
    size_t vocab = (size_t)pesc_vocab_size(pesc_model_tokenizer(model));
    float *logits = malloc(n * vocab * sizeof *logits);
    double sum = 0;
    must(pesc_logits(model, ids, n, logits));
    for (size_t i = 1; i < n; i++) {
        const float *row = logits + (i - 1) * vocab;
        double most = (double)row[0], total = 0;
        if (labels[i] < 0)
            continue;
        for (size_t v = 1; v < vocab; v++)
            most = fmax(most, (double)row[v]);
        for (size_t v = 0; v < vocab; v++)
            total += exp((double)row[v] - most);
        sum += log(total) + most - (double)row[labels[i]];
        ++*count;
    }
    free(logits);
    return sum;
}

static void loss_is_that_of_the_trained_tokens(void **state)
{
    (void)state;
    const char *task = put_task();
    pesc_data *d = NULL;
    pesc_data_options o = pesc_data_defaults();
    o.data = &task;
    o.n_data = 1;
    o.seq_len = 512;
    double sum[2] = { 0 };
    uint64_t count[2] = { 0 };
    must(pesc_data_open(&d, "share/base", &o, NULL));
    for (uint64_t i = 0; i < QUESTIONS; i++) {
        const int32_t *ids, *labels;
        size_t n;
        must(pesc_data_record(d, i, &ids, &labels, &n));
        sum[i / 2] += loss_by_hand(ids, labels, n, &count[i / 2]);
    }
    pesc_data_close(d);
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    must(pesc_eval(session, task, NULL, &r));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r.domains[i].tokens, count[i]);
        assert_float_equal(r.domains[i].loss, sum[i] / (double)count[i], 1e-5);
    }
    assert_float_equal(r.all.loss, (sum[0] + sum[1]) / (double)(count[0] + count[1]), 1e-5);
    pesc_eval_free(&r);
}

static void limit_is_for_each_domain(void **state)
{
    (void)state;
    pesc_eval_options o = pesc_eval_defaults();
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    o.limit = 1;
    must(pesc_eval(session, put_task(), &o, &r));
    assert_int_equal(r.all.records, 2);
    assert_int_equal(r.domains[0].records, 1);
    assert_int_equal(r.domains[1].records, 1);
    pesc_eval_free(&r);
}

static void text_without_a_question_has_a_loss_only(void **state)
{
    (void)state;
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    must(pesc_eval(session,
                   files_text("t.jsonl", "{\"text\":\"The town of Feven lies by the sea.\"}\n"),
                   NULL, &r));
    assert_int_equal(r.all.records, 1);
    assert_int_equal(r.all.asked, 0);
    assert_true(isnan(r.all.exact_match));
    assert_true(r.all.loss > 0);
    pesc_eval_free(&r);
}

static void records_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    pesc_session *small = NULL;
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    must(pesc_session_open(&small, model, 24));
    must(pesc_eval(small, put_task(), NULL, &r));
    assert_true(r.too_long > 0);
    assert_int_equal(r.all.records + r.too_long, QUESTIONS);
    pesc_eval_free(&r);
    pesc_session_close(small);
}

/* The mark is a space here: the last word counts. */
static void compares_after_a_mark(void **state)
{
    (void)state;
    char text[2048] = "", *answer = ask(questions[2]);
    const char *said = trimmed(answer), *word = strrchr(said, ' ');
    const char *const expected[] = { "quite another text ", "", "quite another text " };
    assert_non_null(word);
    for (int i = 0; i < 3; i++) { /* the last word in a text, alone, and another */
        sprintf(text + strlen(text), "{\"instruction\":\"%s\",\"output\":\"%s", questions[2],
                expected[i]);
        put_json(text, i < 2 ? word + 1 : "indeed");
        strcat(text, "\"}\n");
    }
    const char *task = files_text("mark.jsonl", text);
    for (int with = 0; with < 2; with++) {
        kept k = { .n = 0 };
        pesc_eval_report r = PESC_INIT(pesc_eval_report);
        pesc_eval_options o = pesc_eval_defaults();
        o.max_tokens = MOST;
        o.each = keep;
        o.ud = &k;
        o.answer_after = with ? " " : NULL;
        must(pesc_eval(session, task, &o, &r));
        assert_int_equal(r.all.asked, 3);
        assert_int_equal(k.correct[0], with);
        assert_int_equal(k.correct[1], with);
        assert_false(k.correct[2]);
        assert_string_equal(k.answers[0], said); /* samples show all of it */
        pesc_eval_free(&r);
        o.answer_after = "####"; /* which the model does not say */
        must(pesc_eval(session, task, &o, &r));
        assert_int_equal(r.all.correct, 0);
        pesc_eval_free(&r);
    }
    free(answer);
}

static void loss_alone_generates_nothing(void **state)
{
    (void)state;
    const char *task = put_task();
    pesc_eval_report whole = PESC_INIT(pesc_eval_report), r = whole;
    pesc_eval_options o = pesc_eval_defaults();
    o.max_tokens = MOST;
    must(pesc_eval(session, task, &o, &whole));
    o.loss_only = true;
    must(pesc_eval(session, task, &o, &r));
    assert_true(r.all.loss == whole.all.loss && r.all.tokens == whole.all.tokens);
    assert_true(whole.generated > 0 && r.generated == 0);
    assert_int_equal(r.all.asked, 0);
    assert_true(isnan(r.all.exact_match));
    pesc_eval_free(&r);
    pesc_eval_free(&whole);
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    pesc_eval_options o = pesc_eval_defaults();
    must_fail(pesc_eval(session, "mmlu", NULL, &r), PESC_USAGE, "the task \"mmlu\" is not known");
    pesc_eval_free(&r);
    must_fail(pesc_eval(session, "not/there.jsonl", NULL, &r), PESC_IO, "not/there.jsonl");
    pesc_eval_free(&r);
    must_fail(pesc_eval(session, files_text("bad.jsonl", "{\"x\": 1}\n"), NULL, &r), PESC_FORMAT,
              "bad.jsonl:1");
    pesc_eval_free(&r);
    o.batch = 0;
    must_fail(pesc_eval(session, "share/test.jsonl", &o, &r), PESC_USAGE, "batch: found 0");
    pesc_eval_free(&r);
}

/* What is reported as done is answered: the callback of an answer comes first. */
typedef struct watch {
    uint64_t done; /* of the last report on answers */
    int answers;
    bool early;
} watch;

static void watch_progress(void *ud, const char *what, uint64_t done, uint64_t total)
{
    watch *w = ud;
    (void)total;
    if (strcmp(what, "answering") != 0)
        return;
    w->early = w->early || done > (uint64_t)w->answers;
    w->done = done;
}

static void count_answer(void *ud, const pesc_eval_sample *s)
{
    (void)s;
    ((watch *)ud)->answers++;
}

static void progress_counts_what_is_answered(void **state)
{
    (void)state;
    watch w = { 0 };
    pesc_events ev = { .size = sizeof ev, .progress = watch_progress, .ud = &w };
    pesc_eval_report r = PESC_INIT(pesc_eval_report);
    pesc_eval_options o = pesc_eval_defaults();
    const char *task = put_task();
    o.max_tokens = MOST;
    o.each = count_answer;
    o.ud = &w;
    must(pesc_device_events(dev, &ev));
    pesc_status s = pesc_eval(session, task, &o, &r);
    must(pesc_device_events(dev, NULL));
    must(s);
    assert_false(w.early);
    assert_int_equal(w.done, QUESTIONS);
    assert_int_equal(w.answers, QUESTIONS);
    pesc_eval_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_a_session),
        cmocka_unit_test(loss_is_that_of_the_trained_tokens),
        cmocka_unit_test(limit_is_for_each_domain),
        cmocka_unit_test(text_without_a_question_has_a_loss_only),
        cmocka_unit_test(records_that_do_not_fit_are_left_out),
        cmocka_unit_test(compares_after_a_mark),
        cmocka_unit_test(loss_alone_generates_nothing),
        cmocka_unit_test(progress_counts_what_is_answered),
        cmocka_unit_test(refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests_name("eval", tests, open_base, close_base);
}
