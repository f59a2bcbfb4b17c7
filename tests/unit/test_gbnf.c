/* GBNF: recursive grammars against plain counting on all short texts, what is read, what is
 * refused. */
#include "grammar/grammar.h"
#include "support/check.h"
#include "support/vocabulary.h"

static bool balanced(const char *text)
{
    int depth = 0;
    for (; *text && depth >= 0; text++)
        depth += *text == '(' ? 1 : -1;
    return depth == 0;
}

static bool palindrome(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n / 2; i++)
        if (text[i] != text[n - 1 - i])
            return false;
    return true;
}

static bool same_count(const char *text)
{
    size_t a = strspn(text, "a"), b = strspn(text + a, "b");
    return text[a + b] == '\0' && a == b;
}

static void recursive_rules_are_followed(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *alphabet;
        bool (*right)(const char *text);
    } all[] = {
        { "root ::= (\"(\" root \")\")*", "()", balanced },
        { "root ::= | \"(\" root \")\" root", "()", balanced },
        { "# all\nroot ::= list\nlist ::= one list | \"\"\none ::= \"(\" list\n  \")\"", NULL,
          NULL },
        { "root ::= \"\" | [ab] | \"a\" root \"a\" | \"b\" root \"b\"", "ab", palindrome },
        { "root ::= \"a\" root \"b\" | \"\"", "ab", same_count },
    };
    char text[16];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        if (!all[i].right) { /* a rule ends at the end of its line */
            must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, all[i].grammar), PESC_FORMAT, "line 5");
            continue;
        }
        must(open_grammar(&g, PESC_GRAMMAR_GBNF, all[i].grammar));
        for (size_t k = 0; k < 4095; k++) {
            nth_text(k, all[i].alphabet, text);
            if (matches(g, text) != all[i].right(text))
                fail_msg("%s: '%s' is %d", all[i].grammar, text, matches(g, text));
        }
        grammar_close(g);
    }
}

static void gbnf_is_read_as_llama_cpp_does(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *yes[4], *no[4];
    } all[] = {
        { "root ::= \"a\\n\\\"\\x41\\u00e9\" .",
          { "a\n\"A\xc3\xa9z", "a\n\"A\xc3\xa9\n" },
          { "a" } },
        { "root ::= [^a-c\\]]", { "d", "[", "\xc3\xa9" }, { "a", "]", "dd" } },
        { "root ::= ( \"a\" |\n \"b\"\n){2} # pairs\n", { "ab", "bb" }, { "a", "abb" } },
        { "root ::= x{1,2} y?\nx ::= \"x\"\ny-1 ::= \"z\"\ny ::= y-1 |\n  \"y\"",
          { "x", "xxz", "xy" },
          { "", "xxx" } },
        { "\n\nroot ::=\n  \"a\"+", { "a", "aaa" }, { "" } },
        { "root ::= \"a\" {2,}", { "aa", "aaa" }, { "a" } },
        { "root ::= [-a]", { "-", "a" }, { "b" } },
        { "root ::= %not \"ab\" \"ab\"",
          { "ab", "aab", "xab", "bbab" },
          { "", "abab", "a", "aba" } },
        { "root ::= %not (\"ab\" | \"c\") \"!\"?",
          { "", "a!", "\xc3\xa9" },
          { "c", "xabx", "\xc3" } },
        { "root ::= \"(\" %json {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/a\"},\n"
          " \"$defs\": {\"a\": {\"enum\": [1, \"}\"]}}} \")\"",
          { "([])", "([1])", "([1, \"}\"])" },
          { "(1)", "([2])", "[]" } },
        { "root ::= x x\nx ::= %json {\"const\": 1} | %json true",
          { "11", "{}1", "[1]2" },
          { "", "]" } },
        { "root ::= <[7]> \"a\"",
          { "\xff"
            "7\xff"
            "a" },
          { "a", "7a" } },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        must(open_grammar(&g, PESC_GRAMMAR_GBNF, all[i].grammar));
        for (int k = 0; k < 4 && all[i].yes[k]; k++)
            if (!matches(g, all[i].yes[k]))
                fail_msg("%s: %s", all[i].grammar, all[i].yes[k]);
        for (int k = 0; k < 4 && all[i].no[k]; k++)
            if (matches(g, all[i].no[k]))
                fail_msg("%s: not %s", all[i].grammar, all[i].no[k]);
        grammar_close(g);
    }
}

static void wrong_grammars_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *part;
    } all[] = { { "", "no rule named root" },
                { "rot ::= \"a\"", "no rule named root" },
                { "root ::= a", "line 1: rule a is used but not written" },
                { "root ::= root \"a\" | \"b\"", "rule root begins with itself" },
                { "root ::= x\nx ::= y? x \"a\" | \"b\"\ny ::= \"y\"", "left-recursive" },
                { "root ::= \"a\" root", "no text fits" },
                { "root ::= \"a", "no closing quote" },
                { "root ::= [a", "no closing bracket" },
                { "root ::= (\"a\"", "no closing parenthesis" },
                { "root ::= \"a\" )", "without a group" },
                { "root ::= *", "nothing before it" },
                { "root = \"a\"", "expected ::=" },
                { "root ::= \"\\q\"", "unknown escape" },
                { "root ::= [b-a]", "comes before its beginning" },
                { "root ::= \"a\"{3,2}", "below its minimum" },
                { "root ::= \"\\ud800\"", "no Unicode character" },
                { "root ::= %json", "no JSON Schema" },
                { "root ::= %json {\"type\": }", "no JSON Schema" },
                { "root ::= %json {\"type\": \"x\"}", "found x" },
                { "root ::= %text", "expected %json or %not" },
                { "root ::= %not root", "takes a text" },
                { "root ::= %not (\"a\" %json {})", "takes a text" },
                { "root ::= %not", "expected the name" },
                { "\xff", "not UTF-8" } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, all[i].grammar), PESC_FORMAT, all[i].part);
    }
    grammar *g;
    must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, "root ::= <think>"), PESC_UNSUPPORTED, "<[id]>");
    must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, "root ::= <[7>"), PESC_UNSUPPORTED, "<[id]>");
    must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, "root ::= <"), PESC_UNSUPPORTED, "<[id]>");
    must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, "root ::= %json {\"not\": {}}"), PESC_UNSUPPORTED,
              "not cannot");
    must_fail(open_grammar(&g, PESC_GRAMMAR_GBNF, "root ::= \"a\"{2001}"), PESC_UNSUPPORTED,
              "2000");
}

/* Rules that no text can complete are never entered. */
static void a_beginning_can_be_completed(void **state)
{
    (void)state;
    grammar *g;
    bool whole, begins;
    must(open_grammar(&g, PESC_GRAMMAR_GBNF,
                      "root ::= \"ab\" endless | \"ac\"\nendless ::= \"x\" endless"));
    must(grammar_matches(g, "ab", 2, &whole, &begins));
    assert_false(whole || begins);
    must(grammar_matches(g, "ac", 2, &whole, &begins));
    assert_true(whole && begins);
    grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recursive_rules_are_followed),
        cmocka_unit_test(gbnf_is_read_as_llama_cpp_does),
        cmocka_unit_test(wrong_grammars_are_refused),
        cmocka_unit_test(a_beginning_can_be_completed),
    };
    return cmocka_run_group_tests_name("gbnf", tests, words_open, words_close);
}
