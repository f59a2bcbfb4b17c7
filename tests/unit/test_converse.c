/* pesc_session_answer(): what it refuses, and what it tells of a turn. */
#include "support/check.h"

#include <jansson.h>

#include <string.h>

static pesc_device *dev;
static pesc_model *model;
static pesc_session *session;

static const char ask[] = "[{\"role\": \"user\", \"content\": \"hello\"}]";

static int open_all(void **state)
{
    (void)state;
    return pesc_device_open(&dev, "cpu:1") || pesc_model_open(&model, dev, "share/base", NULL) ||
           pesc_session_open(&session, model, 256);
}

static int close_all(void **state)
{
    (void)state;
    pesc_session_close(session);
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static pesc_status answer(const char *messages, const char *tools, pesc_turn_fn emit, void *ud,
                          pesc_generation *out)
{
    pesc_conversation c = PESC_INIT(pesc_conversation);
    pesc_sample_options o = pesc_sample_defaults();
    o.max_tokens = 12;
    c.format = "alpaca";
    c.messages = messages;
    c.tools = tools;
    return pesc_session_answer(session, &c, &o, emit, ud, out);
}

static void wrong_conversations_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *tools, *why;
        pesc_status status;
    } rows[] = {
        { "{}", NULL, "messages: found an object, expected an array", PESC_USAGE },
        { "[", NULL, "messages: byte", PESC_FORMAT },
        { "[]", NULL, "a conversation needs at least one message", PESC_USAGE },
        { "[{\"content\": \"x\"}]", NULL, "role", PESC_USAGE },
        { ask, "{}", "tools: found an object, expected an array of tools", PESC_USAGE },
        { ask, "[{}]", "tools: tool 1 is not a function with a name", PESC_USAGE },
        { ask, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]",
          "tools: the chat template does not take tools", PESC_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(answer(rows[i].messages, rows[i].tools, NULL, NULL, NULL), rows[i].status);
        assert_non_null(strstr(pesc_last_error(), rows[i].why));
    }
    pesc_conversation none = { 0 };
    assert_int_equal(pesc_session_answer(session, &none, NULL, NULL, NULL, NULL), PESC_USAGE);
}

typedef struct heard {
    char text[4096];
    size_t n;
    int left; /* pieces that are wanted; below 0: all */
} heard;

static bool hear(void *ud, bool thought, const char *text, size_t n)
{
    heard *h = ud;
    assert_false(thought);
    memcpy(h->text + h->n, text, n);
    h->n += n;
    return --h->left != 0;
}

static void a_turn_is_told_as_it_grows_and_as_a_message(void **state)
{
    (void)state;
    heard all = { .left = -1 }, some = { .left = 2 };
    pesc_generation whole = PESC_INIT(pesc_generation), part = whole;
    must(answer(ask, "[]", hear, &all, &whole));
    assert_true(all.n > 0);
    json_t *m = json_loads(whole.message, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(m, "role")), "assistant");
    assert_string_equal(json_string_value(json_object_get(m, "content")), whole.text);
    assert_int_equal(json_object_size(m), 2);
    assert_memory_equal(all.text, whole.text, all.n);
    json_decref(m);
    must(answer(ask, NULL, hear, &some, &part));
    assert_string_equal(part.finish, "stopped");
    assert_true(some.n < all.n);
    assert_memory_equal(some.text, all.text, some.n);
    pesc_generation_free(&whole);
    assert_null(whole.message);
    pesc_generation_free(&part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_conversations_are_refused),
        cmocka_unit_test(a_turn_is_told_as_it_grows_and_as_a_message),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
