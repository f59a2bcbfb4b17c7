/* The expected forms are those of minerva_math 3.1; tools/conformance/eval_text.py compares many
 * thousands with the harness itself. */
#include "eval/mathtext.h"

#include "support/check.h"

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

static void normalises(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "x = 5", "5" },
        { "\\frac12", "\\frac{1}{2}" },
        { "\\frac{1}{2}", "\\frac{1}{2}" },
        { "\\sqrt3", "\\sqrt{3}" },
        { "\\sqrt[3]8", "\\sqrt[3]{8}" },
        { "\\sqrt[3]{8}", "\\sqrt[3]{8}" },
        { "100,000", "100000" },
        { "-1,234,567", "-1234567" },
        { "0,1", "0,1" },
        { "1,2345", "1,2345" },
        { "5 cm", "5" },
        { "\\left(1,2\\right)", "\\left(1,2\\right)" },
        { "2\\pi ft", "2\\pi" },
        { "12 squares", "12s" },
        { "it is $7$ or $8$", "7" },
        { "\\text{apples}", "apples" },
        { "\\boxed{a}b}", "a}b" },
        { "90^\\circ", "90" },
        { "an answer", "answer" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        str_puts(&out, "");
        minerva_normalize(&out, text(rows[i][0]));
        assert_string_equal(out.p, rows[i][1]);
        str_free(&out);
    }
}

static void finds_the_answer(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "Final Answer: The final answer is $5$. I hope it is correct.", "$5$" },
        { "Final Answer: The final answer is $5$. ", "$5$" },
        { "Final Answer: The final answer is $5$.", "[invalidanswer]" },
        { "Final Answer: The final answer is 5\n. ", "[invalidanswer]" },
        { "Final Answer: The final answer is\nFinal Answer: The final answer is 6. ", "6" },
        { "Final Answer: The final answer is 7\u00e9 I hope it is correct!", "7" },
        { "no", "[invalidanswer]" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        minerva_extract(&out, text(rows[i][0]));
        assert_string_equal(out.p, rows[i][1]);
        str_free(&out);
    }
}

/* 1 equal, 0 different, -1 not decided. */
static int compare(const char *a, const char *b)
{
    bool equal = false;
    slice x = { a, strlen(a) }, y = { b, strlen(b) };
    return rational_compare(x, y, &equal) ? equal : -1;
}

static void compares_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int result;
    } rows[] = {
        { "1/2", "\\frac{2}{4}", 1 },
        { "0.5", "\\dfrac{1}{2}", 1 },
        { "-\\frac{1}{2}", "\\frac{1}{-2}", 1 },
        { "-\\frac{-1}{2}", ".5", 1 },
        { "007", "7", 1 },
        { "-0", "0", 1 },
        { "0.333", "\\frac{1}{3}", 0 },
        { "999999999999999", "999999999999998", 0 },
        { "1", "-1", 0 },
        { "1000000000000000", "1000000000000000", -1 },
        { "5.", "5", -1 },
        { "1/0", "1", -1 },
        { "\\sqrt{4}", "2", -1 },
        { "(1,2)", "(1,2)", -1 },
        { "", "0", -1 },
        { "--1", "1", -1 },
        { "1 ", "1", -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(compare(rows[i].a, rows[i].b), rows[i].result);
        assert_int_equal(compare(rows[i].b, rows[i].a), rows[i].result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises),
        cmocka_unit_test(finds_the_answer),
        cmocka_unit_test(compares_exactly),
    };
    return cmocka_run_group_tests_name("minerva", tests, NULL, NULL);
}
