#include "base/json.h"
#include "base/mem.h"
#include "support/check.h"
#include "data/record.h"

static json_t *parse(const char *text)
{
    json_t *v;
    must(json_parse(&v, text, strlen(text), "t"));
    return v;
}

/* Each format is found by looking, and gives these turns. */
static const struct {
    const char *json, *format;
    record_kind kind;
    const char *turns; /* role=content|... */
} formats[] = {
    { "{\"instruction\":\"I\",\"input\":\"\",\"output\":\"O\"}", "alpaca", RECORD_CHAT,
      "user=I|assistant=O|" },
    { "{\"instruction\":\"I\",\"input\":\"X\",\"output\":\"O\",\"system\":\"S\"}", "alpaca",
      RECORD_CHAT, "system=S|user=I\nX|assistant=O|" },
    { "{\"instruction\":\"I\",\"context\":\"C\",\"response\":\"R\",\"category\":\"c\"}", "dolly",
      RECORD_CHAT, "user=I\nC|assistant=R|" },
    { "{\"instruction\":\"I\",\"input\":\"X\",\"response\":\"R\"}", "dolly", RECORD_CHAT,
      "user=I\nX|assistant=R|" },
    { "{\"instruction\":\"I\",\"output\":\"O\",\"history\":[[\"Q\",\"A\"],[\"V\",\"B\"]]}",
      "alpaca", RECORD_CHAT, "user=Q|assistant=A|user=V|assistant=B|user=I|assistant=O|" },
    { "{\"query\":\"Q\",\"response\":\"R\",\"type\":\"t\"}", "metamath", RECORD_CHAT,
      "user=Q|assistant=R|" },
    { "{\"problem\":\"P\",\"solution\":\"S\",\"lang\":\"c\"}", "magicoder", RECORD_CHAT,
      "user=P|assistant=S|" },
    { "{\"question\":\"Q\",\"answer\":\"A\"}", "question", RECORD_CHAT, "user=Q|assistant=A|" },
    { "{\"prompt\":\"P\",\"completion\":\"C\"}", "completion", RECORD_COMPLETION,
      "user=P|assistant=C|" },
    { "{\"prompt\":\"P\",\"response\":\"R\"}", "prompt", RECORD_CHAT, "user=P|assistant=R|" },
    { "{\"text\":\"T\"}", "text", RECORD_TEXT, "text=T|" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"U\"},{"
      "\"type\":\"text\",\"text\":\"V\"}]},{\"role\":\"tool\",\"content\":\"T\"},{\"role\":"
      "\"function\",\"content\":\"F\"}]}",
      "messages", RECORD_CHAT,
      "user=[{\"type\":\"text\",\"text\":\"U\"},{\"type\":\"text\",\"text\":\"V\"}]|"
      "tool=T|function=F|" },
    /* calls as OpenAI has them, with the nulls of a column; as text; without the object around */
    { "{\"messages\":[{\"role\":\"developer\",\"content\":\"S\"},{\"role\":\"assistant\","
      "\"content\":null,"
      "\"name\":null,\"tool_calls\":[{\"id\":\"7\",\"type\":\"function\",\"function\":{\"name\":"
      "\"f\","
      "\"arguments\":{\"a\":1,\"b\":null}}}]},{\"role\":\"tool\",\"tool_call_id\":\"7\","
      "\"content\":\"T\"},"
      "{\"role\":\"assistant\",\"tool_calls\":\"[{\\\"name\\\":\\\"g\\\"}]\",\"thinking\":\"R\"}]}",
      "messages", RECORD_CHAT,
      "system=S|assistant={\"tool_calls\":[{\"id\":\"7\",\"type\":\"function\",\"function\":{"
      "\"name\":\"f\","
      "\"arguments\":{\"a\":1}}}]}null|tool={\"tool_call_id\":\"7\"}T|"
      "assistant={\"thinking\":\"R\",\"tool_calls\":[{\"function\":{\"name\":\"g\"},\"type\":"
      "\"function\"}]}"
      "null|" },
    /* a function_call gets an id, which its result has too */
    { "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\","
      "\"arguments\":\"{}\"}},{\"role\":\"function\",\"name\":\"f\",\"content\":\"T\"}]}",
      "messages", RECORD_CHAT,
      "assistant={\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"},\"type\":"
      "\"function\",\"id\":\"call00001\"}]}null|tool={\"name\":\"f\",\"tool_call_id\":"
      "\"call00001\"}T|" },
    { "{\"conversations\":[{\"from\":\"human\",\"value\":\"U\"},{\"from\":\"function_call\","
      "\"value\":"
      "\"[{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}},{\\\"name\\\":\\\"g\\\"}]\"},{\"from\":"
      "\"observation\","
      "\"value\":\"1\"},{\"from\":\"observation\",\"value\":\"2\"}]}",
      "sharegpt", RECORD_CHAT,
      "user=U|assistant={\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}},\"type\":"
      "\"function\","
      "\"id\":\"call00001\"},{\"function\":{\"name\":\"g\"},\"type\":\"function\",\"id\":"
      "\"call00002\"}]}null|"
      "tool={\"tool_call_id\":\"call00001\",\"name\":\"f\"}1|tool={\"tool_call_id\":\"call00002\","
      "\"name\":"
      "\"g\"}2|" },
    { "{\"prompt\":[{\"role\":\"user\",\"content\":\"U\"}],\"completion\":[{\"role\":\"assistant\","
      "\"content\":\"A\"}]}",
      "completion", RECORD_CHAT, "user=U|assistant=A|" },
    { "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
      "\"U\"},{\"role\":\"assistant\",\"content\":\"A\"}]}",
      "messages", RECORD_CHAT, "system=S|user=U|assistant=A|" },
    { "{\"conversations\":[{\"from\":\"human\",\"value\":\"U\"},{\"from\":\"gpt\",\"value\":"
      "\"A\"}],\"system\":\"S\"}",
      "sharegpt", RECORD_CHAT, "system=S|user=U|assistant=A|" },
    { "{\"corpus\":\"\",\"dataset\":\"d\",\"instruction\":\"S\",\"conversation\":[{\"input\":"
      "\"U\",\"output\":\"A\"},{\"input\":\"V\",\"output\":\"B\"}]}",
      "camelidae", RECORD_CHAT, "system=S|user=U|assistant=A|user=V|assistant=B|" },
    { "{\"corpus\":\"T\",\"dataset\":\"d\",\"instruction\":\"\",\"conversation\":[]}", "camelidae",
      RECORD_TEXT, "text=T|" },
};

/* "role=content|", with what else the message has in front of the content. */
static void add_turn(char *to, size_t cap, json_t *m)
{
    str s = { 0 };
    str_printf(&s, "%s=", json_string_value(json_object_get(m, "role")));
    json_object_del(m, "role");
    json_t *content = json_incref(json_object_get(m, "content"));
    json_object_del(m, "content");
    if (json_object_size(m))
        json_put(&s, m, JSON_COMPACT);
    if (json_is_string(content))
        str_puts(&s, json_string_value(content));
    else
        json_put(&s, content, JSON_COMPACT);
    json_decref(content);
    strncat(to, s.p, cap - strlen(to) - 2);
    strcat(to, "|");
    str_free(&s);
}

static void reads_every_format(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        json_t *v = parse(formats[i].json);
        const record_format *f = record_format_detect(v, RECORD_INSTRUCTION);
        assert_non_null(f);
        assert_string_equal(record_format_name(f), formats[i].format);
        record r;
        must(record_read(&r, f, v));
        assert_int_equal(r.kind, formats[i].kind);
        char turns[1024] = "";
        for (size_t t = 0; t < r.n; t++) {
            add_turn(turns, sizeof turns, json_array_get(r.messages, t));
        }
        assert_string_equal(turns, formats[i].turns);
        record_free(&r);
        json_decref(v);
    }
}

static void reads_ids(void **state)
{
    (void)state;
    json_t *v = parse("{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}");
    record r;
    must(record_read(&r, record_format_detect(v, RECORD_INSTRUCTION), v));
    assert_int_equal(r.kind, RECORD_IDS);
    assert_int_equal(r.n_ids, 3);
    assert_int_equal(r.labels[0], -100);
    record_free(&r);
    json_decref(v);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *json, *format, *sentence;
    } rows[] = {
        { "{\"instruction\":\"I\"}", "alpaca", "output: is missing; found \"instruction\"" },
        { "{\"instruction\":5,\"output\":\"O\"}", "alpaca", "instruction: found an integer" },
        { "{\"instruction\":\"I\",\"output\":\"O\",\"history\":[[\"Q\"]]}", "alpaca",
          "history[0]: is not a question and an answer" },
        { "{\"instruction\":\"I\",\"output\":\"O\",\"history\":[[\"Q\",\"a\\u0000b\"]]}", "alpaca",
          "history[0]: is not" },
        { "{\"instruction\":\"I\",\"output\":\"O\",\"history\":\"Q\"}", "alpaca",
          "history: found a string" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"weight\":0.5}]}", "messages",
          "weight: found another number, expected true, false, 1 or 0" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"train\":\"no\"}]}", "messages",
          "train: found" },
        { "{\"messages\":[]}", "messages", "an empty list" },
        { "{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "messages",
          "found \"wizard\"" },
        { "{\"messages\":[3]}", "messages", "messages[0]: found an integer" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages",
          "messages[0]: content: part 1 has the type \"image_url\", expected text alone" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages",
          "messages[0]: content: found an empty list, expected text" },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}]}",
          "messages",
          "messages[0]: tool_calls: a call is not an object with the name of a function" },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":7}]}", "messages",
          "messages[0]: tool_calls: found an integer, expected calls of tools" },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"function_call\":\"f(\"}]}",
          "messages", "messages[0]: function_call" },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", "messages",
          "messages[0]: content: found null, expected text" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":{\"a\":1}}]}", "messages",
          "messages[0]: content: found an object, expected text" },
        { "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":[1]}]}",
          "messages", "messages[0]: thinking: found an array, expected text" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"trainable\":7}]}", "messages",
          "trainable: found another number" },
        { "{\"input_ids\":[1,2],\"labels\":[1]}", "ids", "has 1 entries, input_ids 2" },
        { "{\"input_ids\":[1,-3],\"labels\":[1,2]}", "ids", "input_ids[1]: is not a token id" },
        { "{\"input_ids\":[],\"labels\":[]}", "ids", "at least one" },
        { "{\"text\":\"a\\u0000b\"}", "text", "NUL" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *v = parse(rows[i].json);
        record r;
        must_fail(record_read(&r, record_format_find(rows[i].format), v), PESC_FORMAT,
                  rows[i].sentence);
        record_free(&r);
        json_decref(v);
    }
    json_t *v = parse("{\"foo\":1,\"bar\":2}");
    assert_null(record_format_detect(v, RECORD_INSTRUCTION));
    assert_non_null(strstr(pesc_last_error(), "found the fields \"foo\", \"bar\""));
    json_decref(v);
    assert_null(record_format_find("parquet"));
}

/* Beside the turns: the system prompt, and tools as a list or as its text. */
static void tools_and_system_of_a_conversation(void **state)
{
    (void)state;
    static const struct {
        const char *tools;
        size_t n;
        const char *wrong;
    } rows[] = {
        { "null", 0, NULL },
        { "[]", 0, NULL },
        { "\"\"", 0, NULL },
        { "[{\"name\":\"f\"}]", 1, NULL },
        { "\"[{\\\"name\\\":\\\"f\\\"}]\"", 1, NULL },
        { "[{\"name\":\"f\",\"parameters\":{\"a\":null,\"b\":{\"default\":null}}}]", 1, NULL },
        { "{\"name\":\"f\"}", 0, "tools: found an object, expected a list" },
        { "\"f\"", 0, "tools" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        record r;
        snprintf(text, sizeof text,
                 "{\"system\":\"S\",\"messages\":[{\"role\":\"user\",\"content\":\"Q\"}],"
                 "\"tools\":%s}",
                 rows[i].tools);
        json_t *v = parse(text);
        pesc_status s = record_read(&r, record_format_find("messages"), v);
        if (rows[i].wrong) {
            must_fail(s, PESC_FORMAT, rows[i].wrong);
        } else {
            must(s);
            assert_int_equal(json_array_size(r.tools), rows[i].n);
            assert_true((r.tools != NULL) == (rows[i].n > 0));
            assert_string_equal(record_text(&r, 0), "S");
            assert_false(record_is_answer(&r, 0));
        }
        record_free(&r);
        json_decref(v);
    }
}

/* Every allocation of every format may fail, and that is never taken for a fault of the record. */
static void says_when_memory_is_short(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        json_t *v = parse(formats[i].json);
        const record_format *f = record_format_detect(v, RECORD_INSTRUCTION);
        bool fired = true;
        for (uint64_t n = 1; fired; n++) {
            record r;
            mem_fail_at(n);
            pesc_status s = record_read(&r, f, v);
            fired = mem_fail_fired();
            mem_fail_at(0);
            assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
            record_free(&r);
        }
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_format),
        cmocka_unit_test(reads_ids),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(tools_and_system_of_a_conversation),
        cmocka_unit_test(says_when_memory_is_short),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
