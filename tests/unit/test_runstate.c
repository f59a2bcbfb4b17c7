#include "run/runstate.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>

static runstate_manifest about(int64_t step)
{
    return (runstate_manifest){ .step = step,
                                .base = (char *)(uintptr_t) "/models/a",
                                .base_hash = "0123456789abcdef",
                                .tokenizer_hash = "3333333333333333",
                                .data_hash = "1111111111111111",
                                .config_hash = "2222222222222222" };
}

static const char *run(void)
{
    return files_path("run");
}

static void make(int64_t step, const char *content)
{
    char name[64];
    snprintf(name, sizeof name, "run/checkpoint-%lld/trained.safetensors", (long long)step);
    files_text(name, content);
    snprintf(name, sizeof name, "run/checkpoint-%lld/trainer_state.json", (long long)step);
    files_text(name, "{}");
    snprintf(name, sizeof name, "run/checkpoint-%lld", (long long)step);
    runstate_manifest m = about(step);
    must(runstate_seal(files_path(name), &m, NULL));
}

static void seals_and_checks(void **state)
{
    (void)state;
    files_clear();
    make(12, "some bytes");
    runstate_manifest m;
    must(runstate_check(files_path("run/checkpoint-12"), true, &m));
    assert_int_equal(m.step, 12);
    assert_string_equal(m.base, "/models/a");
    assert_string_equal(m.tokenizer_hash, "3333333333333333");
    assert_string_equal(m.data_hash, "1111111111111111");
    runstate_manifest_free(&m);
    assert_int_equal(runstate_kind_of(files_path("run/checkpoint-12")), RUNSTATE_CHECKPOINT);
    assert_int_equal(runstate_kind_of(run()), RUNSTATE_NEITHER);
    files_text("run/run.json", "{}");
    files_text("run/run.yaml", "");
    assert_int_equal(runstate_kind_of(run()), RUNSTATE_RUN);
}

/* A manifest whose seal is right, but whose numbers are none that pesc writes. */
static void checks_the_range_of_numbers(void **state)
{
    (void)state;
    files_clear();
    make(12, "some bytes");
    runstate_manifest m = about(INT64_MAX), read;
    const char *dir = files_path("run/checkpoint-12");
    must(runstate_seal(dir, &m, NULL));
    must_fail(runstate_check(dir, true, &read), PESC_FORMAT,
              "step: found 9223372036854775807, expected 0 to 4398046511104");
    m.step = -1;
    must(runstate_seal(dir, &m, NULL));
    must_fail(runstate_check(dir, true, &read), PESC_FORMAT, "step: found -1, expected 0 to");
    assert_int_equal(runstate_step_of("checkpoint-4398046511104"), RUNSTATE_COUNT_MAX);
    assert_int_equal(runstate_step_of("checkpoint-4398046511105"), -1);
}

static void names_what_is_damaged(void **state)
{
    (void)state;
    const struct {
        const char *content; /* NULL: removed */
        const char *sentence;
    } rows[] = {
        { "some bytez", "its bytes are not those that were written" },
        { "some byte", "is 9 bytes, but 10 were written" },
        { NULL, "trained.safetensors" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_clear();
        make(3, "some bytes");
        if (rows[i].content)
            files_text("run/checkpoint-3/trained.safetensors", rows[i].content);
        else
            remove(files_path("run/checkpoint-3/trained.safetensors"));
        runstate_manifest m;
        pesc_status s = runstate_check(files_path("run/checkpoint-3"), true, &m);
        assert_int_not_equal(s, PESC_OK);
        assert_non_null(strstr(pesc_last_error(), rows[i].sentence));
    }
}

/* No flipped bit of the manifest goes unseen, unless it only changes white space. */
static void every_bit_of_the_manifest_counts(void **state)
{
    (void)state;
    files_clear();
    make(3, "some bytes");
    size_t n;
    char *text = files_get(files_path("run/checkpoint-3/manifest.json"), &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        files_put("run/checkpoint-3/manifest.json", text, n);
        runstate_manifest m = { 0 };
        bool blank = text[bit / 8] == ' ' || text[bit / 8] == '\n' || text[bit / 8] == '\t' ||
                     text[bit / 8] == '\r';
        pesc_status s = runstate_check(files_path("run/checkpoint-3"), true, &m);
        if (s == PESC_OK && !blank)
            fail_msg("bit %zu of byte %zu (%c) went unseen", bit % 8, bit / 8, text[bit / 8]);
        runstate_manifest_free(&m);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    free(text);
}

static void finds_the_newest_good_one(void **state)
{
    (void)state;
    files_clear();
    char *dir;
    must(io_make_dir(run()));
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir));
    assert_null(dir);
    make(9, "nine");
    make(10, "ten");
    make(2, "two");
    files_text("run/checkpoint-11.tmp.5/trained.safetensors", "half");
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir)); /* by number, not by name */
    assert_non_null(strstr(dir, "checkpoint-10"));
    mem_free(dir);
    must(io_link("checkpoint-9", files_path("run/latest"))); /* what latest says comes first */
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir));
    assert_non_null(strstr(dir, "checkpoint-9"));
    mem_free(dir);
    files_text("run/checkpoint-9/trained.safetensors", "nein");
    files_text("run/checkpoint-10/trained.safetensors", "teN");
    must_fail(runstate_newest(run(), RUNSTATE_STRICT, &dir), PESC_FORMAT, "checkpoint-9");
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir));
    assert_non_null(strstr(dir, "checkpoint-2"));
    mem_free(dir);
    /* one that a process that died while it replaced it left aside counts where its name is free */
    must(io_rename(files_path("run/checkpoint-2"), files_path("run/checkpoint-2" IO_SWAPPED)));
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir));
    assert_non_null(strstr(dir, "checkpoint-2" IO_SWAPPED));
    mem_free(dir);
    make(2, "newer");
    must(runstate_newest(run(), RUNSTATE_HASHES, &dir));
    assert_null(strstr(dir, IO_SWAPPED));
    mem_free(dir);
    must(io_remove(files_path("run/checkpoint-2" IO_SWAPPED)));
    files_text("run/checkpoint-2/trained.safetensors", "");
    must_fail(runstate_newest(run(), RUNSTATE_HASHES, &dir), PESC_FORMAT,
              "none of its 3 checkpoints is whole");
}

static void resolves_chains(void **state)
{
    (void)state;
    files_clear();
    runstate_chain c;
    must(runstate_resolve(&c, "/no/such/model", NULL)); /* not its business */
    assert_int_equal(c.n, 1);
    runstate_chain_free(&c);
    make(5, "five");
    files_text("run/run.json", "{}");
    files_text("run/run.yaml", "");
    must(runstate_resolve(&c, run(), NULL));
    assert_int_equal(c.n, 2);
    assert_non_null(strstr(c.dirs[0], "checkpoint-5"));
    assert_string_equal(c.dirs[1], "/models/a");
    runstate_chain_free(&c);
    files_text("empty/run.json", "{}");
    files_text("empty/run.yaml", "");
    must_fail(runstate_resolve(&c, files_path("empty"), NULL), PESC_IO,
              "has not saved a checkpoint yet");
    /* a run that stands on itself ends */
    runstate_manifest m = about(5);
    char base[512];
    snprintf(base, sizeof base, "%s", files_path("run/checkpoint-5"));
    m.base = base;
    must(runstate_seal(base, &m, NULL));
    must_fail(runstate_resolve(&c, base, NULL), PESC_FORMAT, "is based on more than");
}

/* A base that is given: it stands for the base that is missing, else for the outermost one. */
static void resolves_with_a_given_base(void **state)
{
    (void)state;
    runstate_chain c;
    files_clear();
    make(5, "five");
    files_text("run/run.json", "{}");
    files_text("run/run.yaml", "");
    must(runstate_resolve(&c, run(), "/other/place"));
    assert_int_equal(c.n, 2);
    assert_string_equal(c.dirs[1], "/other/place");
    assert_string_equal(c.about[0].base, "/models/a");
    runstate_chain_free(&c);
    must_fail(runstate_resolve(&c, "/no/such/model", "/other/place"), PESC_USAGE,
              "is not a run, so it has no base");

    /* a second run on the first: the base of the first is missing */
    char inner[512], outer[512];
    snprintf(inner, sizeof inner, "%s", files_path("run/checkpoint-5"));
    snprintf(outer, sizeof outer, "%s", files_path("second/checkpoint-7"));
    files_text("second/checkpoint-7/trainer_state.json", "{}");
    runstate_manifest m = about(7);
    m.base = inner;
    must(runstate_seal(outer, &m, NULL));
    must(runstate_resolve(&c, outer, "/other/place"));
    assert_int_equal(c.n, 3);
    assert_string_equal(c.dirs[1], inner);
    assert_string_equal(c.dirs[2], "/other/place");
    runstate_chain_free(&c);

    /* nothing is missing */
    files_text("model/config.json", "{}");
    char model[512];
    snprintf(model, sizeof model, "%s", files_path("model"));
    m = about(5);
    m.base = model;
    must(runstate_seal(inner, &m, NULL));
    must(runstate_resolve(&c, outer, "/other/place"));
    assert_int_equal(c.n, 2);
    assert_string_equal(c.dirs[1], "/other/place");
    runstate_chain_free(&c);
}

static void records_the_base(void **state)
{
    (void)state;
    files_clear();
    make(5, "five"); /* as an earlier version did: neither a relative path nor an identity */
    runstate_manifest m;
    must(runstate_check(files_path("run/checkpoint-5"), true, &m));
    assert_null(m.base_relative);
    assert_string_equal(m.identity.tensors, "");
    runstate_manifest_free(&m);
    m = about(5);
    m.base_relative = (char *)(uintptr_t) "../a";
    m.identity = (runbase_identity){ "c", "t", "s" };
    must(runstate_seal(files_path("run/checkpoint-5"), &m, NULL));
    must(runstate_check(files_path("run/checkpoint-5"), true, &m));
    assert_string_equal(m.base_relative, "../a");
    assert_string_equal(m.identity.config, "c");
    assert_string_equal(m.identity.tensors, "t");
    assert_string_equal(m.identity.samples, "s");
    runstate_manifest_free(&m);
}

static void reads_step_numbers(void **state)
{
    (void)state;
    assert_int_equal(runstate_step_of("checkpoint-120"), 120);
    assert_int_equal(runstate_step_of("checkpoint-"), -1);
    assert_int_equal(runstate_step_of("checkpoint-12.tmp.7"), -1);
    assert_int_equal(runstate_step_of("checkpoint--1"), -1);
    assert_int_equal(runstate_step_of("latest"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seals_and_checks),
        cmocka_unit_test(checks_the_range_of_numbers),
        cmocka_unit_test(names_what_is_damaged),
        cmocka_unit_test(every_bit_of_the_manifest_counts),
        cmocka_unit_test(finds_the_newest_good_one),
        cmocka_unit_test(resolves_chains),
        cmocka_unit_test(resolves_with_a_given_base),
        cmocka_unit_test(records_the_base),
        cmocka_unit_test(reads_step_numbers),
    };
    return cmocka_run_group_tests_name("runstate", tests, NULL, NULL);
}
