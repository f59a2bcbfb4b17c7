/* Prompts as conversations: what is written for descriptions, few-shot examples, questions and
 * choices, against texts written by hand. */
#include "base/mem.h"
#include "eval/chatprompt.h"
#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"

static pesc_device *dev;
static pesc_model *model;
static char last_notice[256];
static int notices;

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

static void take_notice(void *ud, const char *text)
{
    (void)ud;
    notices++;
    snprintf(last_notice, sizeof last_notice, "%s", text);
}

static task_set *open_set(const char *definition, int64_t shots)
{
    task_options o = task_option_defaults;
    task_set *t;
    files_clear();
    files_text("made/test.jsonl", taskmade_rows);
    files_text("made/train.jsonl", taskmade_shots);
    files_text("made.json", definition);
    o.data_dir = files_path("");
    o.shots = shots;
    char path[512];
    snprintf(path, sizeof path, "%s", files_path("made.json"));
    must(task_open(&t, path, &o));
    return t;
}

static chatprompt in_format(const char *format)
{
    chatprompt c = { 0 };
    chat_writer *w;
    must(chat_open(&w, model->tok, format, NULL));
    c.writer = w;
    return c;
}

static void close_format(chatprompt *c)
{
    chat_close((chat_writer *)(uintptr_t)c->writer);
}

static void is_hash_of(const char hash[DIGEST_TEXT], const char *text)
{
    char want[DIGEST_TEXT];
    digest_text(want, text, strlen(text));
    assert_string_equal(hash, want);
}

static void examples_are_turns_and_choices_have_no_delimiter(void **state)
{
    (void)state;
    task_set *t = open_set(taskmade_choice, 1);
    chatprompt c = in_format("camelidae");
    task_doc d;
    must(task_doc_build(&d, task_at(t, 0), 1));
    assert_string_equal(d.continuations[0], " x");
    must(chatprompt_apply(&c, &d));
    /* the description ends with a blank line of its own */
    static const char want[] = "<s>### System:\nAbout two.\n\n\n### Human:\nQ: one\nA:\n"
                               "### Assistant:\nbb</s>### Human:\nQ: two\nA:\n### Assistant:\n";
    assert_string_equal(d.contexts[0], want);
    assert_ptr_equal(d.contexts[0], d.contexts[1]);
    assert_string_equal(d.continuations[0], "x");
    assert_string_equal(d.continuations[1], "y");
    is_hash_of(d.prompt_hash, want);
    task_doc_free(&d);
    close_format(&c);
    task_close(t);
}

static void a_format_without_a_system_message_leaves_it_out(void **state)
{
    (void)state;
    task_set *t = open_set(taskmade_choice, 1);
    chatprompt c = in_format("mistral-v1");
    pesc_events ev = PESC_INIT(pesc_events);
    ev.notice = take_notice;
    must(pesc_device_events(dev, &ev));
    DEVICE_CALL(dev);
    for (size_t i = 0; i < 3; i++) {
        task_doc d;
        must(task_doc_build(&d, task_at(t, 0), i));
        must(chatprompt_apply(&c, &d));
        if (i == 1)
            assert_string_equal(d.contexts[0],
                                "<s>[INST] Q: one\nA: [/INST]bb</s>[INST] Q: two\nA: [/INST]");
        task_doc_free(&d);
    }
    assert_int_equal(notices, 1);
    assert_non_null(strstr(last_notice, "descriptions are left out"));
    close_format(&c);
    task_close(t);
}

/* Each choice is a question of its own; the continuation is shared. */
static void every_input_is_a_context(void **state)
{
    (void)state;
    task_set *t = open_set(
        "{\"task\": \"made_input\", \"kind\": \"choice\", \"version\": 1, \"data\": "
        "\"made\", \"split\": \"test\", \"columns\": {\"q\": \"text\", \"c\": \"texts\", "
        "\"a\": \"label\"}, \"inputs\": \"{{ c }}\", \"continuation\": \"of {{ q }}\", \"gold\": "
        "\"{{ a }}\", \"metrics\": [\"acc\"]}",
        0);
    chatprompt c = in_format("camelidae");
    task_doc d;
    must(task_doc_build(&d, task_at(t, 0), 1));
    must(chatprompt_apply(&c, &d));
    assert_string_equal(d.contexts[0], "<s>### Human:\nx\n### Assistant:\n");
    assert_string_equal(d.contexts[1], "<s>### Human:\ny\n### Assistant:\n");
    assert_string_equal(d.continuations[0], "of two");
    is_hash_of(d.prompt_hash, d.contexts[0]);
    task_doc_free(&d);
    close_format(&c);
    task_close(t);
}

static void needs_a_format(void **state)
{
    (void)state;
    chatprompt c;
    chat_writer *own = model->chat;
    must(chat_open(&model->chat, model->tok, NULL, NULL));
    must_fail(chatprompt_open(&c, model, false), PESC_UNSUPPORTED, "the model has none");
    chat_close(model->chat);
    must(chat_open(&model->chat, model->tok, NULL, chat_find("camelidae")));
    must(chatprompt_open(&c, model, false));
    str text = { 0 };
    must(chatprompt_template(model, &text));
    assert_ptr_equal(chat_recognise(text.p), chat_find("camelidae"));
    str_free(&text);
    chat_close(model->chat);
    model->chat = own;
}

static void survives_no_memory(void **state)
{
    (void)state;
    task_set *t = open_set(taskmade_choice, 1);
    for (uint64_t n = 1;; n++) {
        chatprompt c = in_format("camelidae");
        task_doc d;
        must(task_doc_build(&d, task_at(t, 0), 1));
        mem_fail_at(n);
        pesc_status s = chatprompt_apply(&c, &d);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        task_doc_free(&d);
        close_format(&c);
        if (!fired)
            break;
        assert_int_equal(s, PESC_NOMEM);
    }
    task_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_turns_and_choices_have_no_delimiter),
        cmocka_unit_test(a_format_without_a_system_message_leaves_it_out),
        cmocka_unit_test(every_input_is_a_context),
        cmocka_unit_test(needs_a_format),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests_name("chatprompt", tests, open_base, close_base);
}
