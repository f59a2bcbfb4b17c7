/* eval_text: the text side of the evaluator as JSON lines, for tools/conformance/eval_text.py.
 *
 *   eval_text prompts NAMES DATA_DIR SHOTS LIMIT   one line a document: requests, turns and hashes
 */
#include "base/mem.h"
#include "eval/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int stop(void)
{
    fprintf(stderr, "eval_text: %s\n", pesc_last_error());
    return 1;
}

static void print_json(json_t *v)
{
    json_dumpf(v, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    putchar('\n');
    json_decref(v);
}

static json_t *texts(char *const *at, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, at[i] ? json_string(at[i]) : json_null());
    return list;
}

static json_t *turns(const task_doc *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_turns; i++)
        json_array_append_new(list, json_pack("[ss]", d->turns[i].role, d->turns[i].text));
    return list;
}

static json_t *doc_json(const task_leaf *leaf, const task_doc *d)
{
    const task_about *a = task_describe(leaf);
    return json_pack("{ss ss sI so so so so so sO ss ss ss}", "task", a->name, "label", a->label,
                     "id", (json_int_t)d->id, "contexts", texts(d->contexts, d->n_requests),
                     "continuations", texts(d->continuations, d->n_requests), "chat_continuations",
                     texts((char *const *)(uintptr_t)d->chat_continuations, d->n_requests), "turns",
                     turns(d), "questions", texts(d->questions, d->n_requests), "target", d->target,
                     "prompt_hash", d->prompt_hash, "target_hash", d->target_hash, "doc_hash",
                     d->doc_hash);
}

static int open_set(task_set **out, char **argv)
{
    task_options opt = task_option_defaults;
    opt.data_dir = argv[1];
    opt.shots = strtoll(argv[2], NULL, 10);
    opt.limit = strtoll(argv[3], NULL, 10);
    return task_open(out, argv[0], &opt) == PESC_OK ? 0 : stop();
}

static int prompts(task_set *set)
{
    for (size_t t = 0; t < task_count(set); t++) {
        const task_leaf *leaf = task_at(set, t);
        for (size_t i = 0; i < task_describe(leaf)->n_docs; i++) {
            task_doc d;
            if (task_doc_build(&d, leaf, i) != PESC_OK)
                return stop();
            print_json(doc_json(leaf, &d));
            task_doc_free(&d);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    task_set *set = NULL;
    if (argc != 6 || strcmp(argv[1], "prompts") != 0) {
        fprintf(stderr, "usage: eval_text prompts NAMES DATA_DIR SHOTS LIMIT\n");
        return 2;
    }
    int rc = open_set(&set, argv + 2);
    if (rc == 0)
        rc = prompts(set);
    task_close(set);
    return rc;
}
