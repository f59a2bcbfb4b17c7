/* libFuzzer: a task file, then (after a NUL byte) an answer of a model. The file's templates are
 * filled in with a row that has every column as text, its filters are applied to the answer, and
 * the answer goes through every normal form. */
#include "eval/judge.h"
#include "eval/mathtext.h"
#include "eval/overlap.h"
#include "eval/taskregistry.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_task(const taskdef *def, const json_t *row, slice answer)
{
    str out = { 0 };
    json_t *v = NULL;
    bool match;
    (void)task_template_text(def->description, row, &out);
    (void)task_template_text(def->question, row, &out);
    if (def->target && task_template_value(def->target, row, &v) == PESC_OK && json_is_string(v))
        pytext_literal(&out, (slice){ json_string_value(v), json_string_length(v) });
    json_decref(v);
    json_t *golds = json_pack("[s]", "gold");
    for (size_t i = 0; i < def->n_filters; i++) {
        str_clear(&out);
        if (judge_filter(&def->filters[i], answer, &out) == PESC_OK)
            (void)judge_text_match(def, slice_of(&out), golds, &match);
    }
    json_decref(golds);
    str_free(&out);
}

static void use_answer(slice answer)
{
    str out = { 0 };
    slice found;
    double score;
    bool equal;
    minerva_extract(&out, answer);
    minerva_normalize(&out, answer);
    (void)hendrycks_equal(boxed_dollars(answer), slice_of(&out), &equal);
    (void)boxed_answer(answer, &found);
    (void)rational_compare(answer, slice_of(&out), &equal);
    (void)overlap_rouge_l(answer, slice_of(&out), &score);
    (void)overlap_chrf(answer, slice_of(&out), &score);
    pytext_literal(&out, answer);
    str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t n = size ? strnlen(text, size) : 0;
    slice answer = n < size ? (slice){ text + n + 1, size - n - 1 } : (slice){ "", 0 };
    task_registry b = { 0 };
    (void)registry_parse(&b, size ? text : "", n, "fuzz.json");
    for (size_t i = 0; i < b.n_tasks; i++) {
        json_t *row = json_object(), *t = json_stringn(answer.p, answer.n);
        for (size_t k = 0; t && k < b.tasks[i]->n_columns; k++)
            json_object_set(row, b.tasks[i]->columns[k].name, t);
        use_task(b.tasks[i], row, answer);
        json_decref(t);
        json_decref(row);
    }
    registry_free(&b);
    use_answer(answer);
    return 0;
}
