/* A request's head at every length of it, and bodies in chunks. Whole requests: tests/serve. */
#include "serve/http/head.h"
#include "support/check.h"

static const head_rules any = { 0 };

static head_state state_of(const char *text)
{
    api_error e;
    head h;
    return head_parse(&h, text, strlen(text), &any, &e);
}

static void a_head_is_partial_until_its_last_byte(void **state)
{
    (void)state;
    static const char text[] = "POST /v1/completions?a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                               "X-Empty:\r\nX-Key: \t k \t\r\n\r\n";
    api_error e;
    head h;
    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_equal(head_parse(&h, text, n, &any, &e), HEAD_PARTIAL);
    assert_int_equal(head_parse(&h, text, sizeof text - 1, &any, &e), HEAD_GOOD);
    assert_int_equal(h.size, sizeof text - 1);
    assert_int_equal(h.length, 5);
    assert_false(h.chunked || h.close || h.old || h.expects);
    assert_true(head_is(h.method, "POST") && head_is(h.target, "/v1/completions?a"));
    assert_true(head_is(head_find(&h, "x-key"), "k"));
    assert_true(head_find(&h, "x-empty").p && head_find(&h, "x-empty").n == 0);
    assert_null(head_find(&h, "x-other").p);
}

static void a_head_says_whether_another_request_may_follow(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool close;
    } rows[] = {
        { "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", false },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE , Close\r\n\r\n", true },
        { "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", false },
        { "GET / HTTP/1.0\r\n\r\n", true },
    };
    api_error e;
    head h;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(head_parse(&h, rows[i].text, strlen(rows[i].text), &any, &e), HEAD_GOOD);
        assert_int_equal(h.close, rows[i].close);
    }
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
    assert_int_equal(state_of("GET / HTTP/1.1\r\nHost: ab\n"), HEAD_BAD);
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a\0";
    api_error e;
    head h;
    assert_int_equal(head_parse(&h, nul, sizeof nul - 2, &any, &e), HEAD_PARTIAL);
    assert_int_equal(head_parse(&h, nul, sizeof nul - 1, &any, &e), HEAD_BAD);
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
        { "GET / HTTP/1.1\r\nHost: localhost:80,evil\r\n\r\n", HEAD_BAD },
        { "GET / HTTP/1.1\r\nHost: localhost:80 evil\r\n\r\n", HEAD_BAD },
        { "GET / HTTP/1.1\r\nHost: localhost:80.evil\r\n\r\n", HEAD_BAD },
        { "GET / HTTP/1.1\r\nHost: localhost:80:80\r\n\r\n", HEAD_BAD },
    };
    head_rules rules = { names, 2 };
    api_error e;
    head h;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(head_parse(&h, rows[i].head, strlen(rows[i].head), &rules, &e),
                         rows[i].want);
}

/* ---- bodies ---- */

/* Of chunks that come n bytes at a time. */
static body_state take(const char *text, size_t at_a_time, str *data, size_t *used)
{
    static const head chunked = { .chunked = true };
    body b;
    api_error e;
    body_state state = BODY_PARTIAL;
    size_t end = 0, n = strlen(text);
    *used = 0;
    body_open(&b, &chunked);
    while (state == BODY_PARTIAL && end < n) {
        size_t part;
        end = end + at_a_time < n ? end + at_a_time : n;
        state = body_take(&b, text + *used, end - *used, &part, data, &e);
        *used += part;
    }
    assert_int_equal(state == BODY_BAD, e.status >= 400);
    return state;
}

static void chunks_add_up_however_they_come(void **state)
{
    (void)state;
    static const char text[] =
        "5\r\nhello\r\nA;name=\"v\"\r\n, \r\nworld\n\r\n000\r\nT: v\r\n\r\nGET";
    for (size_t n = 1; n < sizeof text; n++) {
        str data = { 0 };
        size_t used;
        assert_int_equal(take(text, n, &data, &used), BODY_WHOLE);
        assert_string_equal(data.p, "hello, \r\nworld\n");
        assert_string_equal(text + used, "GET"); /* the next request */
        str_free(&data);
    }
}

static void malformed_chunks_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "5 \r\nhello\r\n",
        "0x5\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhello!\r\n",
        "5\r\nhello\n",
        "0\r\nT: v\n\r\n",
        "400001\r\n",
        "10000000000000005\r\nhello\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t n = 1; n <= strlen(bad[i]); n++) {
            str data = { 0 };
            size_t used;
            assert_int_equal(take(bad[i], n, &data, &used), BODY_BAD);
            str_free(&data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_partial_until_its_last_byte),
        cmocka_unit_test(a_head_says_whether_another_request_may_follow),
        cmocka_unit_test(a_body_is_not_part_of_it),
        cmocka_unit_test(errors_are_found_as_soon_as_they_are_there),
        cmocka_unit_test(hosts_are_compared_without_their_port),
        cmocka_unit_test(chunks_add_up_however_they_come),
        cmocka_unit_test(malformed_chunks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
