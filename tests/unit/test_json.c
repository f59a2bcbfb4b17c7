#include "base/json.h"
#include "base/mem.h"
#include "support/check.h"

static void refuses_what_is_not_strict(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "{",
                                       "{\"a\":1,\"a\":2}",
                                       "[1,]",
                                       "{\"a\":NaN}",
                                       "[1] x",
                                       "[1e999]",
                                       "\xEF\xBB\xBF{}",
                                       "[\"\xff\"]",
                                       "[\"\\ud800\"]",
                                       "[01]",
                                       "[99999999999999999999]",
                                       "{\"a\":1,\"\\u0061\":2}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *v;
        pesc_status s = json_parse(&v, bad[i], strlen(bad[i]), "x.json");
        if (s != PESC_FORMAT)
            fail_msg("accepted %s", bad[i]);
        assert_true(strstr(pesc_last_error(), "x.json: byte ") == pesc_last_error());
    }
}

static void stops_at_depth(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    static char text[DEEP];
    memset(text, '[', sizeof text);
    json_t *v;
    must_fail(json_parse(&v, text, sizeof text, "deep.json"), PESC_FORMAT, "depth");
}

static void getters_name_file_and_key(void **state)
{
    (void)state;
    const char *text = "{\"n\": 5, \"f\": 0.5, \"b\": true, \"s\": \"x\", \"z\": null}";
    json_t *v;
    must(json_parse(&v, text, strlen(text), "c.json"));
    json_where w = { v, "c.json" };
    int64_t n = -1;
    double f = -1;
    bool b = false;
    const char *s = NULL;
    must(json_get_i64(w, "n", true, 0, 10, &n));
    must(json_get_f64(w, "f", true, &f));
    must(json_get_f64(w, "n", true, &f));
    must(json_get_bool(w, "b", true, &b));
    must(json_get_str(w, "s", true, &s));
    assert_int_equal(n, 5);
    assert_true(b && f == 5);
    assert_string_equal(s, "x");
    must(json_get_i64(w, "z", false, 0, 10, &n));
    assert_int_equal(n, 5);
    must_fail(json_get_i64(w, "z", true, 0, 10, &n), PESC_FORMAT, "c.json: z: is missing");
    must_fail(json_get_i64(w, "n", true, 6, 10, &n), PESC_FORMAT, "c.json: n: found 5, expected 6");
    must_fail(json_get_i64(w, "n", true, 0, 4, &n), PESC_FORMAT, "found 5, expected 0 to 4");
    must(json_get_i64(w, "n", true, 5, 5, &n));
    must_fail(json_get_i64(w, "f", true, 0, 1, &n), PESC_FORMAT, "found a fraction");
    must_fail(json_get_bool(w, "n", true, &b), PESC_FORMAT, "expected true or false");
    must_fail(json_get_str(w, "b", true, &s), PESC_FORMAT, "expected a string");
    json_decref(v);
}

static void survives_every_failed_allocation(void **state)
{
    (void)state;
    const char *text = "{\"a\": [1, 2.5, \"three\", {\"b\": null}], \"c\": true}";
    for (uint64_t n = 1;; n++) {
        json_t *v = NULL;
        mem_fail_at(n);
        pesc_status s = json_parse(&v, text, strlen(text), "m.json");
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        json_decref(v);
        if (!fired)
            break;
        assert_true(s == PESC_NOMEM || s == PESC_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_is_not_strict),
        cmocka_unit_test(stops_at_depth),
        cmocka_unit_test(getters_name_file_and_key),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
