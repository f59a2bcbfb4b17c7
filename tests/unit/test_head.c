/* The strict check of a request's head, at every length of it. Whole requests: tests/serve. */
#include "serve/head.h"
#include "support/check.h"

static const head_rules any = { 0 };

static head_state state_of(const char *text)
{
    api_error e;
    return head_check(text, strlen(text), &any, &e);
}

static void a_head_is_partial_until_its_last_byte(void **state)
{
    (void)state;
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                               "X-Empty:\r\n\r\n";
    api_error e;
    for (size_t n = 0; n < sizeof head - 1; n++)
        assert_int_equal(head_check(head, n, &any, &e), HEAD_PARTIAL);
    assert_int_equal(head_check(head, sizeof head - 1, &any, &e), HEAD_GOOD);
}

/* What follows a head is not looked at. */
static void a_body_is_not_part_of_it(void **state)
{
    (void)state;
    assert_int_equal(state_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n\n\r\x01"), HEAD_GOOD);
}

static void errors_are_found_as_soon_as_they_are_there(void **state)
{
    (void)state;
    assert_int_equal(state_of("GET / HTTP/1.1\r"), HEAD_PARTIAL);
    assert_int_equal(state_of("GET / HTTP/1.1\rX"), HEAD_BAD);
    assert_int_equal(state_of("GET / HTTP/1.1\n"), HEAD_BAD);
    assert_int_equal(state_of("GET / HTTP/1.1\r\nA : b\r\n"), HEAD_BAD);
    assert_int_equal(state_of("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n"), HEAD_BAD);
}

static void hosts_are_compared_without_their_port(void **state)
{
    (void)state;
    static const char *const names[] = { "localhost", "[::1]" };
    static const struct {
        const char *head;
        head_state want;
    } rows[] = {
        { "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD_GOOD },
        { "GET / HTTP/1.1\r\nHost: LocalHost:80\r\n\r\n", HEAD_GOOD },
        { "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", HEAD_GOOD },
        { "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", HEAD_GOOD },
        { "GET / HTTP/1.1\r\nHost: localhosts\r\n\r\n", HEAD_BAD },
        { "GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n", HEAD_BAD },
        { "GET / HTTP/1.1\r\nHost: \r\n\r\n", HEAD_BAD },
    };
    head_rules rules = { names, 2 };
    api_error e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(head_check(rows[i].head, strlen(rows[i].head), &rules, &e), rows[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_partial_until_its_last_byte),
        cmocka_unit_test(a_body_is_not_part_of_it),
        cmocka_unit_test(errors_are_found_as_soon_as_they_are_there),
        cmocka_unit_test(hosts_are_compared_without_their_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
