/* Calls of tools against what is allowed of them. */
#include "eval/functioncalls.h"
#include "support/check.h"

static json_t *parse(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    return v;
}

/* A message with these calls: name, arguments, name, arguments..., NULL. */
static json_t *message_of(const char *const *calls)
{
    json_t *list = json_array();
    for (size_t i = 0; calls[i]; i += 2)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", "x", "type", "function",
                                        "function", "name", calls[i], "arguments", calls[i + 1]));
    return json_pack("{s:s, s:n, s:o}", "role", "assistant", "content", "tool_calls", list);
}

static void calls_are_compared_by_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *calls[9], *expected;
        bool right;
    } rows[] = {
        { { "f", "{\"a\": 1}" }, "[{\"f\": {\"a\": [1]}}]", true },
        { { "f", "{\"a\": 1.0}" }, "[{\"f\": {\"a\": [2, 1]}}]", true },
        { { "f", "{\"a\": 2}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "g", "{\"a\": 1}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{\"a\": \"1\"}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{\"a\": true}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{\"a\": true}" }, "[{\"f\": {\"a\": [true]}}]", true },
        { { "f", "{}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{}" }, "[{\"f\": {\"a\": [1, \"\"]}}]", true },
        { { "f", "{}" }, "[{\"f\": {}}]", true },
        { { "f", "{\"a\": 1, \"b\": 2}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{\"a\": \"New York, NY\"}" }, "[{\"f\": {\"a\": [\"new york ny\"]}}]", true },
        { { "f", "{\"a\": \"2026-03-01\"}" }, "[{\"f\": {\"a\": [\"2026/03/01\"]}}]", true },
        { { "f", "{\"a\": \"it's\"}" }, "[{\"f\": {\"a\": [\"its\"]}}]", true },
        { { "f", "{\"a\": \"York\"}" }, "[{\"f\": {\"a\": [\"new york\"]}}]", false },
        { { "f", "{\"a\": [1, 2]}" }, "[{\"f\": {\"a\": [[1, 2]]}}]", true },
        { { "f", "{\"a\": [2, 1]}" }, "[{\"f\": {\"a\": [[1, 2]]}}]", false },
        { { "f", "{\"a\": [1]}" }, "[{\"f\": {\"a\": [[1, 2]]}}]", false },
        { { "f", "{\"a\": {\"b\": 1}}" },
          "[{\"f\": {\"a\": [{\"b\": [1], \"c\": [\"\"]}]}}]",
          true },
        { { "f", "{\"a\": {\"b\": 1, \"d\": 1}}" }, "[{\"f\": {\"a\": [{\"b\": [1]}]}}]", false },
        { { "f", "{\"a\": [{\"b\": 1}]}" }, "[{\"f\": {\"a\": [[{\"b\": [1, 2]}]]}}]", true },
        { { "f", "{\"a\": 1}", "g", "{}" }, "[{\"g\": {}}, {\"f\": {\"a\": [1]}}]", true },
        { { "f", "{\"a\": 1}", "f", "{\"a\": 2}" },
          "[{\"f\": {\"a\": [1, 2]}}, {\"f\": {\"a\": [1]}}]",
          true },
        { { "f", "{\"a\": 1}", "f", "{\"a\": 1}" },
          "[{\"f\": {\"a\": [1]}}, {\"f\": {\"a\": [2]}}]",
          false },
        { { "f", "{\"a\": 1}", "f", "{\"a\": 1}" }, "[{\"f\": {\"a\": [1]}}]", false },
        { { "f", "{\"a\": 1}" }, "[{\"f\": {\"a\": [1]}}, {\"f\": {\"a\": [1]}}]", false },
        { { "f", "not JSON" }, "[{\"f\": {}}]", false },
        { { "f", "[]" }, "[{\"f\": {}}]", false },
        { { NULL }, "[]", true },
        { { NULL }, "[{\"f\": {}}]", false },
        { { "f", "{}" }, "[]", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *message = message_of(rows[i].calls), *expected = parse(rows[i].expected);
        must(functioncalls_check(expected));
        if (functioncalls_match(message, expected) != rows[i].right)
            fail_msg("row %zu: expected %d", i, rows[i].right);
        json_decref(message);
        json_decref(expected);
    }
}

/* Thirty equal calls of which one is not expected: no search through all orders. */
static void many_calls_take_no_time(void **state)
{
    (void)state;
    json_t *calls = json_array(), *expected = json_array();
    for (int i = 0; i < 30; i++) {
        json_array_append_new(
            calls, json_pack("{s:{s:s, s:s}}", "function", "name", "f", "arguments", "{\"a\": 1}"));
        json_array_append_new(expected, json_pack("{s:{s:[i]}}", "f", "a", i < 29 ? 1 : 2));
    }
    json_t *message = json_pack("{s:o}", "tool_calls", calls);
    assert_false(functioncalls_match(message, expected));
    json_decref(message);
    json_decref(expected);
}

static void expectations_and_tools_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = { "{}",
                                       "[1]",
                                       "[{}]",
                                       "[{\"f\": {}, \"g\": {}}]",
                                       "[{\"f\": []}]",
                                       "[{\"f\": {\"a\": 1}}]",
                                       "[{\"f\": {\"a\": []}}]" };
    json_t *tools;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *v = parse(bad[i]);
        must_fail(functioncalls_check(v), PESC_FORMAT, "the target");
        json_decref(v);
    }
    json_t *given = parse(
        "[{\"name\": \"f\", \"parameters\": {\"type\": \"dict\", \"properties\": {\"type\": "
        "{\"type\": \"float\", \"enum\": [{\"type\": \"dict\"}]}, \"b\": {\"type\": \"any\"}}}}]");
    must(functioncalls_tools(given, &tools));
    json_t *wanted = parse(
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\", \"properties\": {\"type\": {\"type\": \"number\", \"enum\": [{\"type\": "
        "\"dict\"}]}, \"b\": {}}}}}]");
    assert_true(json_equal(tools, wanted));
    json_decref(given);
    json_decref(tools);
    must(functioncalls_tools(wanted, &tools));
    assert_true(json_equal(tools, wanted));
    json_decref(tools);
    json_decref(wanted);
    given = parse("[{\"description\": \"no name\"}]");
    must_fail(functioncalls_tools(given, &tools), PESC_FORMAT, "tools: tool 1");
    json_decref(tools);
    json_decref(given);
    given = parse("{}");
    must_fail(functioncalls_tools(given, &tools), PESC_FORMAT, "tools: found an object");
    json_decref(tools);
    json_decref(given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_compared_by_what_is_allowed),
        cmocka_unit_test(many_calls_take_no_time),
        cmocka_unit_test(expectations_and_tools_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
