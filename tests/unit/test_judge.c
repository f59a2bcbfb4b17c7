#include "eval/judge.h"

#include "support/check.h"
#include "support/taskmade.h"

static taskdef *open_def(const char *keys)
{
    char json[1024];
    taskdef *d;
    snprintf(
        json, sizeof json,
        "{\"task\": \"t\", \"kind\": \"text\", \"split\": \"s\", \"columns\": {\"q\": \"text\"},"
        " \"question\": \"{{ q }}\", \"target\": \"{{ q }}\", \"metrics\": [\"exact_match\"]%s}",
        keys);
    json_t *v = json_loads(json, 0, NULL);
    must(taskdef_open(&d, v, "made.json", taskmade_work()));
    json_decref(v);
    return d;
}

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

/* The results are those of the harness's regex filter. */
static void filters(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *text, *want;
    } rows[] = {
        { "{\"name\": \"n\"}", " a ", " a " },
        { "{\"name\": \"n\", \"strip\": true}", " a ", "a" },
        { "{\"name\": \"n\", \"regex\": \"#### (\\\\-?[0-9\\\\.\\\\,]+)\"}", "#### 1 #### 2", "1" },
        { "{\"name\": \"n\", \"regex\": \"[0-9]+ \", \"take\": \"last\"}", "1 22 333", "22" },
        { "{\"name\": \"n\", \"regex\": \"(a)|(b)\", \"take\": \"last\"}", "abc", "b" },
        { "{\"name\": \"n\", \"regex\": \"(x?)|(y?)\"}", "q", "[invalid]" },
        { "{\"name\": \"n\", \"regex\": \"(x?)\"}", "q", "" },
        { "{\"name\": \"n\", \"regex\": \"x\"}", "q", "[invalid]" },
        { "{\"name\": \"n\", \"regex\": \"x\", \"fallback\": \"none\"}", "q", "none" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[512];
        str out = { 0 };
        snprintf(keys, sizeof keys, ", \"filters\": [%s]", rows[i].filter);
        taskdef *d = open_def(keys);
        must(judge_filter(&d->filters[0], text(rows[i].text), &out));
        assert_string_equal(out.p, rows[i].want);
        str_free(&out);
        taskdef_close(d);
    }
}

static void matches(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *prediction, *golds;
        bool match;
    } rows[] = {
        { "", "a", "[\"a\"]", true },
        { "", "a", "[\"A\", \"b\"]", false },
        { "", "a", "[]", false },
        { ", \"ignore_case\": true", "\u00c9", "[\"x\", \"\u00e9\"]", true },
        /* Lower case makes the text longer; the reference cuts it where the longest gold ends. */
        { ", \"ignore_case\": true", "\u0130a", "[\"i\u0307\"]", true },
        { ", \"ignore_case\": true", "\u0130a", "[\"i\u0307a\"]", false },
        { ", \"ignore_punctuation\": true", "a-b.", "[\"ab\"]", true },
        { ", \"ignore_punctuation\": true", "a\u2019b", "[\"ab\"]", false },
        { ", \"ignore\": [\",\", \"x$\"]", "1,0x", "[\"10\"]", true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        taskdef *d = open_def(rows[i].keys);
        json_t *golds = json_loads(rows[i].golds, 0, NULL);
        bool match;
        must(judge_text_match(d, text(rows[i].prediction), golds, &match));
        if (match != rows[i].match)
            fail_msg("row %zu: got %d", i, match);
        json_decref(golds);
        taskdef_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),
        cmocka_unit_test(matches),
    };
    return cmocka_run_group_tests_name("judge", tests, NULL, NULL);
}
