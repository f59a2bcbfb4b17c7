/* JSON Schema as a grammar: what each keyword accepts and rejects, and what is refused by name.
 * tools/conformance/grammar.py compares random schemas with another implementation. */
#include "grammar/grammar.h"
#include "support/check.h"
#include "support/vocabulary.h"

typedef struct row {
    const char *schema, *yes[10], *no[10];
} row;

static void check_rows(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        grammar *g;
        must(open_grammar(&g, PESC_GRAMMAR_SCHEMA, rows[i].schema));
        for (int yes = 0; yes < 2; yes++)
            for (int k = 0; k < 10; k++) {
                const char *text = yes ? rows[i].yes[k] : rows[i].no[k];
                bool whole, begins;
                if (!text)
                    break;
                must(grammar_matches(g, text, strlen(text), &whole, &begins));
                if (whole != (bool)yes)
                    fail_msg("%s: %s is %d", rows[i].schema, text, whole);
            }
        grammar_close(g);
    }
}
#define CHECK(rows) check_rows(rows, sizeof rows / sizeof *rows)

static void values_of_any_type(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{}",
          { "null", "true", "false", "-0.5e+10", "\"\"", "[]", "{}", "[1,{\"a\":[]}]" },
          { "", " 1", "1 ", "nul", "01", "1.", ".5", "[1,]", "{\"a\":1,}" } },
        { "{\"type\":\"object\"}",
          { "{}", "{ }", "{\"a\": 1, \"b\" :[]}", "{\n  \"a\":\n1}" },
          { "[]", "{\"a\"}", "{a:1}", "{\n\n\n}", "{  }", "{}{}" } },
        { "{\"type\":[\"integer\",\"null\"]}",
          { "0", "-0", "null", "1234567890123456" },
          { "1.0", "1e3", "\"1\"", "12345678901234567", "00" } },
        { "{\"type\":\"string\"}",
          { "\"\"", "\"\\u0000\\ud83d\\ude00\\/\"", "\"\xf0\x9f\x98\x80\xc3\xa9\"", "\"\\\"\"" },
          { "\"\\ud83d\"", "\"\\ude00\\ud83d\"", "\"\n\"", "\"\\x\"", "\"\"\"", "\"\xff\"",
            "\"\\u12\"" } },
    };
    CHECK(rows);
}

static void objects_keep_the_order_of_the_schema(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"null\"},\"a\":{\"type\":\"null\"}"
          "},\"required\":[\"a\"]}",
          { "{\"b\":null,\"a\":null}", "{\"a\":null}" },
          { "{\"a\":null,\"b\":null}", "{\"b\":null}", "{\"a\":null,\"c\":null}",
            "{\"b\":null,\"b\":null}", "{}" } },
        { "{\"type\":\"object\",\"required\":[\"x\",\"y\"]}",
          { "{\"x\":1,\"y\":2}", "{\"x\":1,\"y\":2,\"z\":3}" },
          { "{\"y\":1,\"x\":2}", "{\"x\":1}", "{\"x\":1,\"y\":2,\"\\u0078\":3}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\":true},\"additionalProperties\":{\"type\":"
          "\"integer\"}}",
          { "{\"a\":\"x\",\"b\":1}", "{\"ab\":1,\"\":2}", "{}", "{\"\\u0062\":1}" },
          { "{\"b\":\"x\"}", "{\"b\":1,\"a\":1}", "{\"\\u0061\":\"x\"}" } },
        { "{\"type\":\"object\",\"patternProperties\":{\"^n\":{\"type\":\"integer\"},\"s$\":{"
          "\"minimum\":5}},\"additionalProperties\":false}",
          { "{\"n\":1,\"ns\":5}", "{\"ss\":\"x\"}", "{}" },
          { "{\"x\":1}", "{\"ns\":4}", "{\"n\":\"1\"}" } },
        { "{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2,\"properties\":{\"a\":true,"
          "\"b\":true,\"c\":true}}",
          { "{\"a\":1}", "{\"b\":1,\"c\":1}" },
          { "{}", "{\"a\":1,\"b\":1,\"c\":1}" } },
        { "{\"type\":\"object\",\"properties\":{\"a\\\"\\n\\u00e9\":{\"const\":1}}}",
          { "{\"a\\\"\\n\xc3\xa9\":1}" },
          { "{\"a\\\"\\n\\u00e9\":1}" } },
    };
    CHECK(rows);
}

static void arrays_have_their_items(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
          { "[1]", "[1, 2,3]", "[\n  1\n]" },
          { "[]", "[1,2,3,4]", "[\"1\"]", "[1 2]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":"
          "3}}",
          { "[]", "[1]", "[1,2]", "[1,2,3,3]" },
          { "[2]", "[1,3]", "[1,2,2]" } },
        { "{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":false}",
          { "[]", "[1]" },
          { "[1,1]", "[2]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"minItems\":2,\"items\":false}",
          { NULL },
          { NULL } },
    };
    check_rows(rows, 3);
    grammar *g;
    must_fail(open_grammar(&g, PESC_GRAMMAR_SCHEMA, rows[3].schema), PESC_FORMAT,
              "contradicts itself");
}

static void numbers_keep_their_bounds(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":107}",
          { "-12", "-9", "0", "-0", "99", "100", "107" },
          { "-13", "-20", "108", "110", "200", "1000", "7.0" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":1000}",
          { "10", "99", "999" },
          { "9", "1000", "-10", "0" } },
        { "{\"type\":\"number\",\"minimum\":0.5,\"exclusiveMaximum\":2.25}",
          { "0.5", "0.50", "1", "2.2", "2.2499", "1.0" },
          { "0.49", "2.25", "2.250", "2.3", "3", "0", "-1", "10" } },
        { "{\"type\":\"number\",\"exclusiveMinimum\":0}",
          { "0.0001", "1" },
          { "0", "0.000", "-0", "-1" } },
        { "{\"type\":\"number\",\"maximum\":-1.5}",
          { "-1.5", "-2", "-10.25" },
          { "-1.4999", "-1", "0", "1.5" } },
        { "{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
          { "9007199254740993", "9007199254740995" },
          { "9007199254740992", "9007199254740996" } },
        { "{\"type\":\"integer\",\"minimum\":12345678901234567}",
          { "12345678901234567", "112345678901234567" },
          { "12345678901234566", "9" } },
        { "{\"type\":\"number\",\"minimum\":1e21,\"maximum\":1e22}",
          { "1000000000000000000000", "9999999999999999999999" },
          { "999999999999999999999", "10000000000000000000001" } },
        { "{\"type\":\"integer\",\"multipleOf\":12}",
          { "0", "12", "-24", "120" },
          { "1", "13", "-6", "10" } },
        { "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10,\"maximum\":30}",
          { "14", "21", "28" },
          { "7", "35", "20" } },
    };
    CHECK(rows);
}

static void strings_keep_lengths_patterns_and_formats(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
          { "\"ab\"", "\"\\u00e9\xc3\xa9\"", "\"\\ud83d\\ude00\xf0\x9f\x98\x80\\n\"" },
          { "\"a\"", "\"abcd\"", "\"\\n\"" } },
        { "{\"type\":\"string\",\"pattern\":\"b+$\"}",
          { "\"b\"", "\"ab\"", "\"\\u0062\"" },
          { "\"\"", "\"ba\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^a\",\"maxLength\":2}",
          { "\"a\"", "\"ab\"" },
          { "\"ba\"", "\"abc\"" } },
        { "{\"type\":\"string\",\"pattern\":\"^\\\"$\"}",
          { "\"\\\"\"", "\"\\u0022\"" },
          { "\"\"\"" } },
        { "{\"type\":\"string\",\"format\":\"date\"}",
          { "\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"" },
          { "\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"" } },
        { "{\"type\":\"string\",\"format\":\"date-time\"}",
          { "\"2024-02-29T23:59:59Z\"", "\"2024-01-01t00:00:00.25+01:30\"" },
          { "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\"" } },
        { "{\"type\":\"string\",\"format\":\"time\"}", { "\"12:00:00z\"" }, { "\"12:60:00Z\"" } },
        { "{\"type\":\"string\",\"format\":\"duration\"}",
          { "\"P1Y2M3DT4H5M6S\"", "\"PT1H\"", "\"P2W\"", "\"P1DT1S\"" },
          { "\"P\"", "\"PT\"", "\"P1Y3D\"", "\"P1W1D\"", "\"1D\"" } },
        { "{\"type\":\"string\",\"format\":\"email\"}",
          { "\"a.b@c-d.org\"" },
          { "\"a\"", "\"@b\"", "\"a@-b\"", "\".a@b\"" } },
        { "{\"type\":\"string\",\"format\":\"hostname\"}",
          { "\"a.b-c.d1\"" },
          { "\"-a\"", "\"a..b\"", "\"a-\"" } },
        { "{\"type\":\"string\",\"format\":\"ipv4\"}",
          { "\"0.255.10.99\"" },
          { "\"256.1.1.1\"", "\"01.1.1.1\"", "\"1.1.1\"" } },
        { "{\"type\":\"string\",\"format\":\"ipv6\"}",
          { "\"::\"", "\"1::8\"", "\"1:2:3:4:5:6:7:8\"", "\"::1.2.3.4\"", "\"1:2:3:4:5:6:7::\"" },
          { "\":::\"", "\"1:2\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8::\"" } },
        { "{\"type\":\"string\",\"format\":\"uuid\"}",
          { "\"123e4567-E89B-12d3-a456-426614174000\"" },
          { "\"123e4567e89b12d3a456426614174000\"" } },
        { "{\"type\":\"string\",\"format\":\"uri\"}",
          { "\"http://a.b:80/c?d=e#f\"", "\"mailto:a@b\"", "\"urn:x:y\"", "\"http://[::1]/\"" },
          { "\"a b:c\"", "\"//a\"", "\"http://a b\"", "\"a\"" } },
    };
    CHECK(rows);
}

static void schemas_are_combined(void **state)
{
    (void)state;
    static const row rows[] = {
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"x\"}]}", { "1", "\"x\"" }, { "\"y\"" } },
        { "{\"minLength\":2,\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"null\"}]}",
          { "\"ab\"", "null" },
          { "\"a\"", "\"abcd\"", "1" } },
        { "{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
          { "\"ab\"", "\"ba\"" },
          { "\"a\"", "1" } },
        { "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"properties\":{\"a\":{"
          "\"minimum\":3},\"b\":true}}],\"type\":\"object\",\"required\":[\"a\"]}",
          { "{\"a\":3}", "{\"a\":4,\"b\":[]}" },
          { "{\"a\":2}", "{\"b\":1,\"a\":3}", "{}" } },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
          { "1", "1.5" },
          { "\"\"" } },
        { "{\"type\":\"string\",\"enum\":[\"a\",1,\"b\",null]}",
          { "\"a\"", "\"b\"" },
          { "1", "null", "\"\\u0061\"" } },
        { "{\"enum\":[1,5,9],\"minimum\":4}", { "5", "9" }, { "1" } },
        { "{\"enum\":[\"ab\",\"b\"],\"pattern\":\"^a\"}", { "\"ab\"" }, { "\"b\"" } },
        { "{\"enum\":[1,2,3],\"allOf\":[{\"enum\":[3,2]}]}", { "2", "3" }, { "1" } },
        { "{\"const\":{\"a\":[1,{}]}}",
          { "{\"a\":[1,{}]}", "{ \"a\": [1, {} ] }" },
          { "{\"a\":[1]}" } },
        { "{\"enum\":[1.0,2.5,1e30]}", { "1", "1.0", "2.5", "1e+30" }, { "2" } },
        { "{\"$ref\":\"#/$defs/a~1b%25\",\"$defs\":{\"a/b%\":{\"type\":\"null\"}}}",
          { "null" },
          { "1" } },
        { "{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
          "\"null\"}]}},\"required\":[\"next\"]}",
          { "{\"next\":null}", "{\"next\":{\"next\":null}}" },
          { "{\"next\":{}}", "{\"next\":1}", "null" } },
        { "{\"$ref\":\"#/definitions/"
          "t\",\"definitions\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/definitions/"
          "t\"}}}}",
          { "[]", "[[],[[]]]" },
          { "[1]" } },
        { "{\"title\":\"t\",\"default\":1,\"x-any\":{},\"uniqueItems\":false,\"type\":\"boolean\"}",
          { "true" },
          { "1" } },
    };
    CHECK(rows);
}

static void what_cannot_be_enforced_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *part;
    } all[] = {
        { "{\"not\":{}}", "#: not cannot be enforced" },
        { "{\"properties\":{\"a\":{\"uniqueItems\":true}}}",
          "#/properties/a: uniqueItems cannot be enforced" },
        { "{\"if\":{}}", "if cannot" },
        { "{\"propertyNames\":{}}", "propertyNames cannot" },
        { "{\"unevaluatedProperties\":false}", "unevaluatedProperties cannot" },
        { "{\"contains\":{}}", "contains cannot" },
        { "{\"dependentRequired\":{}}", "dependentRequired cannot" },
        { "{\"type\":\"string\",\"format\":\"regex\"}", "format cannot" },
        { "{\"type\":\"string\",\"pattern\":\"(?=a)\"}",
          "pattern cannot be enforced: the regular expression has a look-ahead" },
        { "{\"multipleOf\":0.01}", "multipleOf cannot" },
        { "{\"multipleOf\":2000}", "multipleOf cannot" },
        { "{\"maxLength\":2001}", "maxLength cannot be enforced: it is more than 2000" },
        { "{\"maxItems\":100000}", "maxItems cannot" },
        { "{\"$ref\":\"http://a/b\"}", "expected a place in this schema" },
        { "{\"const\":[1],\"minItems\":1}", "minItems cannot" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        must_fail(open_grammar(&g, PESC_GRAMMAR_SCHEMA, all[i].schema), PESC_UNSUPPORTED,
                  all[i].part);
    }
    static const struct {
        const char *schema, *part;
    } wrong[] = {
        { "[1]", "found an array, expected an object" },
        { "{\"type\":\"text\"}", "found text, expected null" },
        { "{\"type\":7}", "found an integer" },
        { "{\"properties\":[]}", "properties: found an array" },
        { "{\"properties\":{\"a\":1}}", "#/properties/a: found an integer, expected a schema" },
        { "{\"required\":\"a\"}", "required: found a string" },
        { "{\"enum\":1}", "enum: found an integer" },
        { "{\"minLength\":-1}", "minLength" },
        { "{\"minimum\":\"1\"}", "minimum: found a string" },
        { "{\"exclusiveMinimum\":true}", "exclusiveMinimum" },
        { "{\"pattern\":\"(\"}", "without its )" },
        { "{\"anyOf\":[]}", "#/anyOf: found an empty array" },
        { "{\"allOf\":{}}", "#/allOf: found an object" },
        { "{\"$ref\":\"#/x\"}", "the schema has no \"#/x\"" },
        { "{\"$ref\":\"#\"}", "refers to itself" },
        { "{\"anyOf\":[{\"$ref\":\"#\"},{}]}", "refers to itself" },
        { "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "contradicts itself" },
        { "{\"enum\":[]}", "contradicts itself" },
        { "{\"type\":", "the schema" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        grammar *g;
        must_fail(open_grammar(&g, PESC_GRAMMAR_SCHEMA, wrong[i].schema), PESC_FORMAT,
                  wrong[i].part);
    }
}

static void lenient_callers_are_told(void **state)
{
    (void)state;
    grammar *g;
    str ignored = { 0 };
    bool whole, begins;
    const char *text = "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\","
                       "\"format\":\"regex\",\"maxLength\":9999}}";
    grammar_source from = {
        .kind = PESC_GRAMMAR_SCHEMA, .text = text, .n = strlen(text), .ignored = &ignored
    };
    must(grammar_open(&g, words.p, &from));
    assert_string_equal(ignored.p, ", #/uniqueItems, #/items/maxLength, #/items/format");
    must(grammar_matches(g, "[\"a\",\"a\"]", 9, &whole, &begins));
    assert_true(whole);
    grammar_close(g);
    str_free(&ignored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_any_type),
        cmocka_unit_test(objects_keep_the_order_of_the_schema),
        cmocka_unit_test(arrays_have_their_items),
        cmocka_unit_test(numbers_keep_their_bounds),
        cmocka_unit_test(strings_keep_lengths_patterns_and_formats),
        cmocka_unit_test(schemas_are_combined),
        cmocka_unit_test(what_cannot_be_enforced_is_named),
        cmocka_unit_test(lenient_callers_are_told),
    };
    return cmocka_run_group_tests_name("schema", tests, words_open, words_close);
}
