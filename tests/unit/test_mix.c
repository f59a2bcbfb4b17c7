#include "base/json.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 40 };

/* n records "<name>i" -> "a<name>i" in a public format. */
static const char *questions(const char *name, const char *prompt, const char *answer, int n)
{
    char text[1 << 14], file[64];
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "{\"%s\": \"%s%d\", \"%s\": \"a%s%d\"}\n",
                             prompt, name, i, answer, name, i);
    snprintf(file, sizeof file, "%s.jsonl", name);
    return files_put(file, text, at);
}

static pesc_status mix_two(uint64_t wanted_a, uint64_t wanted_b, uint64_t seed, const char *out)
{
    const char *a = questions("query", "query", "response", N);
    const char *b[] = { questions("oss", "problem", "solution", N / 2),
                        questions("evol", "instruction", "response", N / 2) };
    pesc_mix_part parts[] = {
        { .domain = "maths", .files = &a, .n_files = 1, .records = wanted_a },
        { .domain = "code", .files = b, .n_files = 2, .records = wanted_b },
    };
    return pesc_data_mix(parts, 2, seed, out, NULL);
}

/* Every line is one of the records of its domain, none twice; returns how often the domain changes
 * from line to line. */
static int check_lines(const char *path, int wanted_maths, int wanted_code)
{
    size_t n;
    char *text = files_get(path, &n), *save = NULL, last = 0;
    int maths[N] = { 0 }, code[2][N] = { 0 }, count[2] = { 0 }, changes = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *v;
        const char *user, *answer, *domain, *roles[2];
        int i;
        must(json_parse(&v, line, strlen(line), "line"));
        assert_int_equal(json_unpack(v, "{s:[{s:s,s:s},{s:s,s:s}],s:s}", "messages", "role",
                                     &roles[0], "content", &user, "role", &roles[1], "content",
                                     &answer, "domain", &domain),
                         0);
        assert_string_equal(roles[0], "user");
        assert_string_equal(roles[1], "assistant");
        assert_string_equal(answer + 1, user);
        if (sscanf(user, "query%d", &i) == 1) {
            assert_string_equal(domain, "maths");
            assert_int_equal(maths[i]++, 0);
        } else {
            bool evol = user[0] == 'e';
            assert_string_equal(domain, "code");
            assert_int_equal(sscanf(user, evol ? "evol%d" : "oss%d", &i), 1);
            assert_int_equal(code[evol][i]++, 0);
        }
        count[domain[0] == 'c']++;
        changes += last && last != domain[0];
        last = domain[0];
        json_decref(v);
    }
    free(text);
    assert_int_equal(count[0], wanted_maths);
    assert_int_equal(count[1], wanted_code);
    return changes;
}

static void draws_what_is_wanted(void **state)
{
    (void)state;
    const char *out = files_path("out.jsonl");
    must(mix_two(25, 30, 1, out));
    assert_true(check_lines(out, 25, 30) > 10);
    must(mix_two(N, N, 1, out)); /* everything there is */
    check_lines(out, N, N);
}

static void the_seed_decides(void **state)
{
    (void)state;
    const char *paths[3] = { files_path("s1"), files_path("s1again"), files_path("s2") };
    char *text[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s", paths[i]); /* files_path() holds for a few calls only */
        must(mix_two(20, 20, i == 2 ? 2 : 1, path));
        text[i] = files_get(path, &n[i]);
    }
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    for (int i = 0; i < 3; i++)
        free(text[i]);
}

/* Three different usable records in all: two in a, one more in b. */
static pesc_status mix_doubles(uint64_t wanted_a, uint64_t wanted_b, uint64_t seed)
{
    const char *a = files_text("a.jsonl", "{\"query\":\"1\",\"response\":\"x\"}\n"
                                          "{\"query\":\"1\",\"response\":\"x\",\"type\":\"t\"}\n"
                                          "{\"query\":\"1\",\"response\":\"y\"}\n"
                                          "{\"query\":\"\",\"response\":\"z\"}\n"
                                          "{\"query\":\"2\",\"response\":\" \\n\"}\n");
    const char *b = files_text("b.json", "[{\"problem\":\"1\",\"solution\":\"y\"},"
                                         "{\"problem\":\"3\",\"solution\":\"w\"}]");
    pesc_mix_part parts[] = {
        { .domain = "a", .files = &a, .n_files = 1, .records = wanted_a },
        { .domain = "b", .files = &b, .n_files = 1, .records = wanted_b },
    };
    return pesc_data_mix(parts, wanted_b ? 2 : 1, seed, files_path("doubles.jsonl"), NULL);
}

static void leaves_out_what_is_there_or_empty(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) { /* whatever the order */
        must(mix_doubles(2, 0, seed));
        size_t n;
        char *text = files_get(files_path("doubles.jsonl"), &n);
        const char *x = strstr(text, "\"content\":\"x\""), *y = strstr(text, "\"content\":\"y\"");
        assert_true(x && y && !strstr(x + 1, "\"content\":\"x\"") &&
                    !strstr(y + 1, "\"content\":\"y\""));
        free(text);
    }
}

static void says_when_there_are_too_few(void **state)
{
    (void)state;
    files_clear();
    must_fail(mix_doubles(3, 0, 0), PESC_USAGE,
              "found 2 records that can be used, but 3 are wanted: of 5, 1 are duplicates and 2 "
              "have no prompt or no answer");
    must_fail(mix_doubles(6, 0, 0), PESC_USAGE, "found 5 records, but 6 are wanted");
    for (uint64_t seed = 0; seed < 8; seed++) /* a double in the other part is one too */
        must_fail(mix_doubles(2, 2, seed), PESC_USAGE, "that can be used");
    assert_false(files_there("doubles.jsonl"));
    assert_false(files_there("doubles.jsonl.mix.json"));
}

static void tells_how_it_was_made(void **state)
{
    (void)state;
    char out[256];
    snprintf(out, sizeof out, "%s", files_path("told.jsonl"));
    must(mix_two(7, 9, 5, out));
    json_t *v;
    must(json_read(&v, files_path("told.jsonl.mix.json"), 1 << 16));
    json_int_t seed, records, available;
    const char *hash, *format, *file;
    assert_int_equal(json_unpack(v, "{s:I, s:I, s:s, s:[{},{s:I, s:[{}, {s:s, s:s}]}]}", "seed",
                                 &seed, "records", &records, "xxh3", &hash, "parts", "available",
                                 &available, "files", "format", &format, "path", &file),
                     0);
    assert_int_equal(seed, 5);
    assert_int_equal(records, 16);
    assert_int_equal(available, N);
    assert_int_equal(strlen(hash), 16);
    assert_string_equal(format, "dolly");
    assert_non_null(strstr(file, "evol.jsonl"));
    json_decref(v);
}

static void refuses_what_cannot_be_mixed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        pesc_status status;
        const char *sentence;
    } rows[] = {
        { "{\"text\":\"T\"}\n", PESC_UNSUPPORTED, "bad.jsonl:1: found plain text or token ids" },
        { "{\"input_ids\":[1],\"labels\":[1]}\n", PESC_UNSUPPORTED, "bad.jsonl:1: found plain" },
        { "{\"a\":1}\n", PESC_FORMAT, "bad.jsonl:1: fits no data format" },
        { "{\"query\":\"q\",\"response\":\"r\"}\n\n{\"query\":3,\"response\":\"r\"}\n", PESC_FORMAT,
          "bad.jsonl:3: query: found" },
        { "", PESC_FORMAT, "is empty" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = files_text("bad.jsonl", rows[i].text);
        pesc_mix_part part = { .domain = "d",
                               .files = &path,
                               .n_files = 1,
                               .records = strchr(rows[i].text, '3') ? 2 : 1 };
        must_fail(pesc_data_mix(&part, 1, 0, files_path("never"), NULL), rows[i].status,
                  rows[i].sentence);
        assert_false(files_there("never"));
    }
    const char *path = files_text("good.jsonl", "{\"query\":\"q\",\"response\":\"r\"}\n");
    pesc_mix_part part = { .domain = "\xFF", .files = &path, .n_files = 1, .records = 1 };
    must_fail(pesc_data_mix(&part, 1, 0, files_path("never"), NULL), PESC_USAGE,
              "the name of domain 1 is not UTF-8");
}

/* Any allocation may fail: it says so, or (a record that is parsed again) does all it should. */
static void survives_want_of_memory(void **state)
{
    (void)state;
    char out[256], account[300];
    size_t n;
    snprintf(out, sizeof out, "%s", files_path("thirsty"));
    snprintf(account, sizeof account, "%s.mix.json", out);
    must(mix_two(4, 4, 1, out));
    char *lines = files_get(out, &n), *told = files_get(account, &n);
    bool fired = true;
    for (uint64_t k = 1; fired; k++) {
        mem_fail_at(k);
        pesc_status s = mix_two(4, 4, 1, out);
        fired = mem_fail_fired();
        mem_fail_at(0);
        if (s != PESC_OK) {
            assert_int_equal(pesc_status_exit_code(s), 4);
            continue;
        }
        char *again = files_get(out, &n);
        assert_string_equal(again, lines);
        free(again);
        again = files_get(account, &n);
        assert_string_equal(again, told);
        free(again);
    }
    free(lines);
    free(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_what_is_wanted),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(leaves_out_what_is_there_or_empty),
        cmocka_unit_test(says_when_there_are_too_few),
        cmocka_unit_test(tells_how_it_was_made),
        cmocka_unit_test(refuses_what_cannot_be_mixed),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests_name("mix", tests, NULL, NULL);
}
