#include "base/json.h"
#include "support/check.h"
#include "data/record.h"

static json_t *parse(const char *text)
{
    json_t *v;
    must(json_parse(&v, text, strlen(text), "t"));
    return v;
}

/* Each format is found by looking, and gives these turns. */
static void reads_every_format(void **state)
{
    (void)state;
    static const struct {
        const char *json, *format;
        record_kind kind;
        const char *turns; /* role=content|... */
    } rows[] = {
        { "{\"instruction\":\"I\",\"input\":\"\",\"output\":\"O\"}", "alpaca", RECORD_CHAT,
          "user=I|assistant=O|" },
        { "{\"instruction\":\"I\",\"input\":\"X\",\"output\":\"O\",\"system\":\"S\"}", "alpaca",
          RECORD_CHAT, "system=S|user=I\nX|assistant=O|" },
        { "{\"instruction\":\"I\",\"context\":\"C\",\"response\":\"R\",\"category\":\"c\"}",
          "dolly", RECORD_CHAT, "user=I\nC|assistant=R|" },
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
        { "{\"text\":\"T\"}", "text", RECORD_TEXT, "text=T|" },
        { "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":"
          "\"U\"},{\"role\":\"assistant\",\"content\":\"A\"}]}",
          "messages", RECORD_CHAT, "system=S|user=U|assistant=A|" },
        { "{\"conversations\":[{\"from\":\"human\",\"value\":\"U\"},{\"from\":\"gpt\",\"value\":"
          "\"A\"}],\"system\":\"S\"}",
          "sharegpt", RECORD_CHAT, "system=S|user=U|assistant=A|" },
        { "{\"corpus\":\"\",\"dataset\":\"d\",\"instruction\":\"S\",\"conversation\":[{\"input\":"
          "\"U\",\"output\":\"A\"},{\"input\":\"V\",\"output\":\"B\"}]}",
          "camelidae", RECORD_CHAT, "system=S|user=U|assistant=A|user=V|assistant=B|" },
        { "{\"corpus\":\"T\",\"dataset\":\"d\",\"instruction\":\"\",\"conversation\":[]}",
          "camelidae", RECORD_TEXT, "text=T|" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *v = parse(rows[i].json);
        const record_format *f = record_format_detect(v);
        assert_non_null(f);
        assert_string_equal(record_format_name(f), rows[i].format);
        record r;
        must(record_read(&r, f, v));
        assert_int_equal(r.kind, rows[i].kind);
        char turns[256] = "";
        for (size_t t = 0; t < r.n; t++) {
            strncat(turns, r.messages[t].role, 20);
            strncat(turns, "=", 2);
            strncat(turns, r.messages[t].content, 20);
            strncat(turns, "|", 2);
        }
        assert_string_equal(turns, rows[i].turns);
        record_free(&r);
        json_decref(v);
    }
}

static void reads_ids(void **state)
{
    (void)state;
    json_t *v = parse("{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}");
    record r;
    must(record_read(&r, record_format_detect(v), v));
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
    assert_null(record_format_detect(v));
    assert_non_null(strstr(pesc_last_error(), "found the fields \"foo\", \"bar\""));
    json_decref(v);
    assert_null(record_format_find("parquet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_format),
        cmocka_unit_test(reads_ids),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
