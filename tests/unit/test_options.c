#include "base/options.h"

#include "support/check.h"

#include <math.h>
#include <stdio.h>

static const pesc_option *rows;
static size_t n_rows;

/* The first row of this key in a struct. */
static const pesc_option *row_of(pesc_option_struct which, const char *key)
{
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].of == which && strcmp(rows[i].key, key) == 0)
            return &rows[i];
    fail_msg("there is no row %s", key);
    return NULL;
}

static bool is_number(const pesc_option *r)
{
    return r->kind >= PESC_OPTION_INT && r->kind <= PESC_OPTION_AUTO_REAL;
}

/* Room for any of the structs. */
typedef union any {
    pesc_train_options train;
} any;

/* ---- the table ---- */

static void every_row_is_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_rows; i++) {
        const pesc_option *r = &rows[i];
        assert_true(r->key[0] && r->help[0] && r->commands);
        assert_true(strspn(r->key, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(r->key));
        if (is_number(r))
            assert_true(r->min < r->max && r->fallback);
        if (r->kind == PESC_OPTION_BOOL)
            assert_true(r->fallback && !r->values);
        else if (!is_number(r))
            assert_non_null(r->values);
        if (r->kind == PESC_OPTION_LIST)
            assert_null(r->fallback);
    }
}

static void every_default_reads_and_writes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_rows; i++) {
        const pesc_option *r = &rows[i];
        any o;
        char text[64];
        if (!r->fallback)
            continue;
        memset(&o, 0, sizeof o);
        must(pesc_option_set(r, &o, r->fallback, NULL));
        assert_int_equal(pesc_option_get(r, &o, text, sizeof text), strlen(r->fallback));
        assert_string_equal(text, r->fallback);
    }
}

static bool has_word(const char *list, const char *word, size_t n)
{
    for (const char *p = list; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
            return true;
    return false;
}

/* A command takes a key from one row; "*" rows are taken by all. */
static void no_command_has_a_key_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t k = i + 1; k < n_rows; k++) {
            if (strcmp(rows[i].key, rows[k].key) != 0)
                continue;
            assert_string_not_equal(rows[i].commands, "*");
            for (const char *p = rows[i].commands; *p; p += strcspn(p, " "), p += *p == ' ')
                if (has_word(rows[k].commands, p, strcspn(p, " ")))
                    fail_msg("%s: two rows for %s", rows[i].key, p);
        }
}

/* What the command accepts the library does not refuse. */
static void also_rows_are_within_their_field_s_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_rows; i++) {
        const pesc_option *first = row_of(rows[i].of, rows[i].key);
        assert_int_equal(first->kind, rows[i].kind);
        assert_int_equal(first->at, rows[i].at);
        assert_true(rows[i].min >= first->min && rows[i].max <= first->max);
    }
}

static void craft_and_train_agree(void **state)
{
    (void)state;
    static const char *const keys[] = { "experts", "top_k", "adapter_dim", "adapter_scale" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const pesc_option *a = row_of(PESC_OPTIONS_CRAFT, keys[i]),
                          *b = row_of(PESC_OPTIONS_TRAIN, keys[i]);
        assert_true(a->min == b->min && a->max == b->max);
        assert_string_equal(a->fallback, b->fallback);
    }
}

/* ---- values ---- */

static void sets_from_text(void **state)
{
    (void)state;
    static const struct {
        const char *key, *text, *expected; /* expected NULL: it is a value */
    } cases[] = {
        { "lr", "1e-5", NULL },
        { "lr", "-1", "a number from 0 to 1e30" },
        { "lr", "nan", "a number from 0 to 1e30" },
        { "lr", "1e", "a number from 0 to 1e30" },
        { "lr", "", "a number from 0 to 1e30" },
        { "batch", "64", NULL },
        { "batch", "0", "a whole number from 1 to 1048576" },
        { "batch", "1.5", "a whole number from 1 to 1048576" },
        { "batch", "99999999999999999999", "a whole number from 1 to 1048576" },
        { "seed", "9000000000000000000", NULL },
        { "seed", "9000000000000001024", "a whole number from 0 to 9000000000000000000" },
        { "keep", "auto", NULL },
        { "keep", "-1", "auto or a whole number from 0 to 65536" },
        { "aux_coef", "auto", NULL },
        { "aux_coef", "auto ", "auto or a number from 0 to 1e6" },
        { "adapter_scale", "-2.5", NULL },
        { "optimizer", "adamw8", NULL },
        { "optimizer", "adam", "adamw or adamw8" },
        { "optimizer", "", "adamw or adamw8" },
        { "shuffle", "false", NULL },
        { "shuffle", "no", "true or false" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pesc_train_options o = pesc_train_defaults(), before = o;
        const pesc_option *r = row_of(PESC_OPTIONS_TRAIN, cases[i].key);
        char sentence[256], text[64];
        if (!cases[i].expected) {
            must(pesc_option_set(r, &o, cases[i].text, NULL));
            pesc_option_get(r, &o, text, sizeof text);
            assert_string_equal(text, cases[i].text);
            continue;
        }
        snprintf(sentence, sizeof sentence, "run.yaml:3: found \"%s\", expected %s", cases[i].text,
                 cases[i].expected);
        must_fail(pesc_option_set(r, &o, cases[i].text, "run.yaml:3"), PESC_USAGE, sentence);
        assert_memory_equal(&o, &before, sizeof o);
    }
    pesc_train_options o = pesc_train_defaults();
    must_fail(pesc_option_set(row_of(PESC_OPTIONS_TRAIN, "data"), &o, "x", NULL), PESC_USAGE,
              "data: is a list");
}

static void writes_numbers_as_people_do(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = { { 2e-4, "2e-4" }, { 0.1, "0.1" },       { 3e-5, "3e-5" }, { 0, "0" },
                  { 1e30, "1e30" }, { 1.5e-7, "1.5e-7" }, { 0.25, "0.25" }, { 100, "100" } };
    const pesc_option *r = row_of(PESC_OPTIONS_TRAIN, "lr");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pesc_train_options o = pesc_train_defaults();
        char text[64];
        o.lr = cases[i].value;
        pesc_option_get(r, &o, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
    pesc_train_options o = pesc_train_defaults();
    char text[3];
    assert_int_equal(pesc_option_get(row_of(PESC_OPTIONS_TRAIN, "schedule"), &o, text, 3), 8);
    assert_string_equal(text, "co");
}

/* ---- structs ---- */

static void takes_structs_of_earlier_releases(void **state)
{
    (void)state;
    pesc_sample_options old = pesc_sample_defaults(), o;
    old.temperature = 0.5;
    old.parse_special = true;
    must(options_take(PESC_OPTIONS_SAMPLE, &o, &old));
    assert_true(o.temperature == 0.5 && o.parse_special);
    must(options_take(PESC_OPTIONS_SAMPLE, &o, NULL));
    assert_true(o.temperature == 0 && o.max_tokens == 256 && o.size == sizeof o);
    struct {
        pesc_sample_options known;
        uint64_t more;
    } later = { pesc_sample_defaults(), 0 };
    later.known.size = sizeof later;
    must(options_take(PESC_OPTIONS_SAMPLE, &o, &later));
    assert_int_equal(o.size, sizeof o);
    later.more = 1;
    must_fail(options_take(PESC_OPTIONS_SAMPLE, &o, &later), PESC_USAGE, "does not know");
    old.size = offsetof(pesc_sample_options, seed);
    must_fail(options_take(PESC_OPTIONS_SAMPLE, &o, &old), PESC_USAGE, "has size");
    old.size = 0;
    must_fail(options_take(PESC_OPTIONS_SAMPLE, &o, &old), PESC_USAGE, "has size");
}

/* A library with more rows than its caller fills what the caller has, and nothing after it. */
static void fills_what_the_caller_has(void **state)
{
    (void)state;
    union {
        pesc_train_options o;
        unsigned char bytes[sizeof(pesc_train_options)];
    } u;
    size_t size = offsetof(pesc_train_options, lora_r);
    memset(&u, 0x5a, sizeof u);
    pesc_options_fill(PESC_OPTIONS_TRAIN, &u.o, size);
    assert_int_equal(u.o.size, size);
    assert_int_equal(u.o.experts, 8);
    for (size_t i = size; i < sizeof u; i++)
        assert_int_equal(u.bytes[i], 0x5a);
}

static void an_absent_text_is_the_default(void **state)
{
    (void)state;
    pesc_train_options o = pesc_train_defaults(), all;
    o.method = NULL;
    o.schedule = "";
    o.base_dtype = "";
    must(options_take(PESC_OPTIONS_TRAIN, &all, &o));
    assert_string_equal(all.method, "pesc");
    assert_string_equal(all.schedule, "constant");
    assert_null(all.base_dtype);
}

static void checks_what_callers_assign(void **state)
{
    (void)state;
    pesc_train_options o = pesc_train_defaults();
    o.lr = -1;
    must_fail(options_check(PESC_OPTIONS_TRAIN, &o), PESC_USAGE,
              "lr: found -1, expected a number from 0 to 1e30");
    o.lr = NAN;
    must_fail(options_check(PESC_OPTIONS_TRAIN, &o), PESC_USAGE, "lr: found nan");
    o = pesc_train_defaults();
    o.keep = -2;
    must_fail(options_check(PESC_OPTIONS_TRAIN, &o), PESC_USAGE,
              "keep: found -2, expected auto or a whole number from 0 to 65536");
    o = pesc_train_defaults();
    o.loss = "mean";
    must_fail(options_check(PESC_OPTIONS_TRAIN, &o), PESC_USAGE,
              "loss: found \"mean\", expected token or sequence");
    o = pesc_train_defaults();
    o.n_data = 1;
    must_fail(options_check(PESC_OPTIONS_TRAIN, &o), PESC_USAGE, "data: found NULL at 0");
    static const char *const names[] = { "a", "\xff" };
    o.data = names;
    o.n_data = 2;
    must(options_check(PESC_OPTIONS_TRAIN, &o));
    must_fail(options_check_utf8(PESC_OPTIONS_TRAIN, &o), PESC_USAGE, "is not UTF-8");
}

/* ---- what is recorded ---- */

/* The flags of the rows themselves. */
static void what_decides_the_numbers_is_marked(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "method",
        "seed",
        "experts",
        "top_k",
        "adapter_dim",
        "adapter_scale",
        "adapter_dropout",
        "aux_coef",
        "aux_reduction",
        "lora_r",
        "lora_alpha",
        "lora_dropout",
        "lora_targets",
        "lora_layers",
        "format",
        "template",
        "seq_len",
        "over_length",
        "packing",
        "shuffle",
        "epochs",
        "steps",
        "batch",
        "batch_tokens",
        "micro_tokens",
        "lr",
        "schedule",
        "warmup_steps",
        "clip",
        "weight_decay",
        "beta1",
        "beta2",
        "eps",
        "optimizer",
        "loss",
        "base_dtype",
        "double_quant",
        "compute_dtype",
        "base_grad_dtype",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!(row_of(PESC_OPTIONS_TRAIN, keys[i])->flags & PESC_OPTION_DECIDES))
            fail_msg("%s: decides the numbers, but its row does not say so", keys[i]);
}

/* Sets the row to a value that is not its default. */
static void change(const pesc_option *r, void *options)
{
    if (r->kind == PESC_OPTION_BOOL)
        must(
            pesc_option_set(r, options, strcmp(r->fallback, "true") == 0 ? "false" : "true", NULL));
    else if (r->kind == PESC_OPTION_CHOICE)
        must(pesc_option_set(r, options, strrchr(r->values, '|') + 1, NULL));
    else if (r->kind == PESC_OPTION_REAL || r->kind == PESC_OPTION_AUTO_REAL)
        must(pesc_option_set(r, options, "0.0123", NULL));
    else if (r->kind == PESC_OPTION_INT || r->kind == PESC_OPTION_AUTO_INT)
        must(pesc_option_set(r, options, "7", NULL));
    else if (r->kind != PESC_OPTION_LIST)
        must(pesc_option_set(r, options, "other", NULL));
}

/* Every option that decides the numbers is in the hash and in the list of changes; no other is. */
static void the_hash_covers_what_decides(void **state)
{
    (void)state;
    pesc_train_options usual = pesc_train_defaults();
    const uint64_t h = options_hash(PESC_OPTIONS_TRAIN, &usual, 0);
    str then = { 0 };
    size_t decisive = 0;
    options_yaml(PESC_OPTIONS_TRAIN, &usual, &then);
    for (size_t i = 0; i < n_rows; i++) {
        const pesc_option *r = &rows[i];
        if (r->of != PESC_OPTIONS_TRAIN)
            continue;
        pesc_train_options o = usual;
        str now = { 0 }, how = { 0 };
        bool decides = r->flags & PESC_OPTION_DECIDES;
        change(r, &o);
        options_yaml(PESC_OPTIONS_TRAIN, &o, &now);
        options_changed(PESC_OPTIONS_TRAIN, then.p, now.p, 0, &how);
        if ((options_hash(PESC_OPTIONS_TRAIN, &o, 0) != h) != decides)
            fail_msg("%s: is %s the hash", r->key, decides ? "not in" : "in");
        assert_true((how.n > 0) == decides);
        if (decides)
            assert_true(str_starts(how.p, r->key));
        if (r->flags & PESC_OPTION_LENGTH)
            assert_true(options_hash(PESC_OPTIONS_TRAIN, &o, PESC_OPTION_LENGTH) == h);
        decisive += decides;
        str_free(&now);
        str_free(&how);
    }
    assert_true(decisive > 25);
    str_free(&then);
}

static void tells_every_change(void **state)
{
    (void)state;
    const char *then = "model: \"/m\"\nmethod: \"lora\"\nlr: 0.0002\neps: 1e-08\nsteps: 10\n"
                       "clip: 0.3\nsave_every: 5\n";
    const char *now = "method: \"full\"\nlr: 1e-3\neps: 1e-8\nsteps: 20\nsave_every: 7\n"
                      "format: \"alpaca\"\n";
    str how = { 0 };
    options_changed(PESC_OPTIONS_TRAIN, then, now, PESC_OPTION_LENGTH, &how);
    assert_string_equal(how.p, "method lora, now full; format absent, now alpaca; "
                               "lr 0.0002, now 1e-3");
    str_clear(&how);
    options_changed(PESC_OPTIONS_TRAIN, then, now, 0, &how);
    assert_non_null(strstr(how.p, "steps 10, now 20"));
    str_clear(&how);
    options_changed(PESC_OPTIONS_TRAIN, then, then, 0, &how);
    assert_int_equal(how.n, 0);
    str_free(&how);
    char text[16];
    options_value(PESC_OPTIONS_TRAIN, then, "method", text, sizeof text);
    assert_string_equal(text, "lora");
    options_value(PESC_OPTIONS_TRAIN, then, "schedule", text, sizeof text);
    assert_string_equal(text, "constant");
}

static void yaml_has_no_unsaved_and_no_absent_options(void **state)
{
    (void)state;
    pesc_train_options o = pesc_train_defaults();
    str out = { 0 };
    o.resume = o.strict = true;
    o.format = "a \"b\"";
    options_yaml(PESC_OPTIONS_TRAIN, &o, &out);
    assert_non_null(strstr(out.p, "format: \"a \\\"b\\\"\"\n"));
    assert_non_null(strstr(out.p, "\nkeep: auto\n"));
    assert_null(strstr(out.p, "resume"));
    assert_null(strstr(out.p, "strict"));
    assert_null(strstr(out.p, "init_from"));
    assert_null(strstr(out.p, "eval_data"));
    str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(every_default_reads_and_writes_back),
        cmocka_unit_test(no_command_has_a_key_twice),
        cmocka_unit_test(also_rows_are_within_their_field_s_range),
        cmocka_unit_test(craft_and_train_agree),
        cmocka_unit_test(sets_from_text),
        cmocka_unit_test(writes_numbers_as_people_do),
        cmocka_unit_test(takes_structs_of_earlier_releases),
        cmocka_unit_test(fills_what_the_caller_has),
        cmocka_unit_test(an_absent_text_is_the_default),
        cmocka_unit_test(checks_what_callers_assign),
        cmocka_unit_test(what_decides_the_numbers_is_marked),
        cmocka_unit_test(the_hash_covers_what_decides),
        cmocka_unit_test(tells_every_change),
        cmocka_unit_test(yaml_has_no_unsaved_and_no_absent_options),
    };
    rows = pesc_option_rows(&n_rows);
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
