#include "esft/logs.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"

enum { EXPERTS = 4, K = 2 };

static pesc_status read_dir(const char *name)
{
    tally t;
    int32_t *layers;
    pesc_status s = logs_read(&t, &layers, files_path(name), EXPERTS, K);
    tally_free(&t);
    mem_free(layers);
    return s;
}

static void adds_up_in_layers_ordered_as_text(void **state)
{
    (void)state;
    tally t;
    int32_t *layers;
    summary s;
    files_clear();
    files_text("expert_weights_2.txt", "0\t1\t2\t3\t\t0.5\t0.25\t0.5\t0.25\n");
    files_text("expert_weights_10.txt", "3\t0\t\t1.0\t0.0\n0\t3\t\t0.0625\t0.0\n");
    files_text("notes.txt", "no log");
    files_text("expert_weights_x.txt", "no log either");
    must(logs_read(&t, &layers, files_path(""), EXPERTS, K));
    assert_int_equal(t.n_layers, 2);
    assert_int_equal(layers[0], 10);
    assert_int_equal(layers[1], 2);
    assert_true(tally_tokens(&t, 0) == 2 && tally_tokens(&t, 1) == 2);
    must(summary_init(&s, 2, EXPERTS));
    tally_scores(&t, &s);
    const double token[] = { 0.5, 0, 0, 0.5, 0.25, 0.25, 0.25, 0.25 };
    const double gate[] = { 0.0312, 0, 0, 0.5, 0.25, 0.125, 0.25, 0.125 };
    for (int i = 0; i < 2 * EXPERTS; i++) {
        assert_true(s.score[METRIC_TOKEN][i] == token[i]);
        assert_true(s.score[METRIC_GATE][i] == gate[i]);
    }
    summary_free(&s);
    tally_free(&t);
    mem_free(layers);
}

static void adds_the_parts_of_several_processes(void **state)
{
    (void)state;
    tally t;
    int32_t *layers;
    files_clear();
    files_text("rank_0/expert_weights_1.txt", "0\t1\t\t0.5\t0.5\n");
    files_text("rank_1/expert_weights_1.txt", "0\t2\t\t0.5\t0.5\n");
    must(logs_read(&t, &layers, files_path(""), EXPERTS, K));
    assert_true(t.gates[0] == 1 && t.gates[1] == 0.5 && t.gates[2] == 0.5);
    tally_free(&t);
    mem_free(layers);
    files_text("rank_1/expert_weights_2.txt", "0\t2\t\t0.5\t0.5\n");
    must_fail(read_dir(""), PESC_FORMAT, "the parts do not have the same layers");
    files_text("rank_0/expert_weights_2.txt", "0\t2\t\t0.5\t0.5\n");
    files_text("rank_0/expert_weights_3.txt", "0\t2\t\t0.5\t0.5\n");
    must_fail(read_dir(""), PESC_FORMAT, "the log of layer 3 is missing");
}

static void refuses_what_is_no_log(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "", "the log of layer 1 has no tokens" },
        { "0\t1\t\t0.5\t0.5", "line 1: is truncated: it has no line end" },
        { "0\t1\t\t0.5\t0.5\n\n", "line 2: expected ids of experts, a double tab" },
        { "0\t1\n", "line 1: expected ids of experts, a double tab" },
        { "0\t4\t\t0.5\t0.5\n", "line 1: found the expert \"4\", expected 0 to 3" },
        { "0\t-1\t\t0.5\t0.5\n", "found the expert \"-1\"" },
        { "0\t1x\t\t0.5\t0.5\n", "found the expert \"1x\"" },
        { "\t\t0.5\n", "found the expert \"\"" },
        { "0\t0\t\t0.5\t0.5\n", "line 1: token 1 has expert 0 twice; is top_k 2?" },
        { "0\t1\t2\t2\t\t0.5\t0.5\t1\t1\n", "token 2 has expert 2 twice" },
        { "0\t1\t2\t\t0.5\t0.5\t0.5\n", "found 3 ids, expected a multiple of top_k, 2" },
        { "0\t1\t\t0.5\n", "line 1: has fewer gates than ids" },
        { "0\t1\t\t0.5\t0.5\t0.5\n", "line 1: has more gates than ids" },
        { "0\t1\t\t0.5\tnan\n", "line 1: found the gate \"nan\", expected a number" },
        { "0\t1\t\t0.5\t-0.5\n", "found the gate \"-0.5\"" },
        { "0\t1\t\t0.5\t0.50000000000000000000000000000000000000000000\n",
          "found the gate \"0.5000" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_clear();
        files_text("expert_weights_1.txt", rows[i].text);
        must_fail(read_dir(""), PESC_FORMAT, rows[i].part);
    }
    files_clear();
    must_fail(read_dir(""), PESC_FORMAT, "has no expert_weights_<layer>.txt, nor parts rank_0");
    must_fail(read_dir("nowhere"), PESC_IO, "cannot be listed");
}

/* Files without a sign of their end cannot all be refused when cut: at a line's end they are whole.
 */
static void bears_broken_files(void **state)
{
    (void)state;
    static const char text[] = "0\t1\t2\t3\t\t0.5\t0.25\t0.5\t0.25\n";
    files_clear();
    for (size_t n = 0; n < sizeof text - 1; n++) {
        files_put("expert_weights_1.txt", text, n);
        assert_int_equal(read_dir(""), PESC_FORMAT);
    }
    files_text("expert_weights_1.txt", text);
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n);
        pesc_status s = read_dir("");
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(s);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_up_in_layers_ordered_as_text),
        cmocka_unit_test(adds_the_parts_of_several_processes),
        cmocka_unit_test(refuses_what_is_no_log),
        cmocka_unit_test(bears_broken_files),
    };
    return cmocka_run_group_tests_name("logs", tests, NULL, NULL);
}
