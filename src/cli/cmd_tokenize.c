/* cmd_tokenize: text -> ids, and cmd_detokenize: ids -> text; whole, or line by line (--jsonl). */
#include "cli/command.h"
#include "cli/opt/ids.h"
#include "cli/opt/input.h"
#include "cli/show/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct job {
    const options *o;
    pesc_tokenizer *tokenizer;
    unsigned flags;
} job;

/* "lines.jsonl:12", for sentences. */
static const char *line_name(const job *j, size_t number, char *buffer, size_t cap)
{
    snprintf(buffer, cap, "%.200s:%zu", input_name(j->o->jsonl), number);
    return buffer;
}

/* Reads FILE and calls `whole`, or with --jsonl calls `each` for every line. */
static pesc_status run_job(job *j, input_line_fn whole, input_line_fn each)
{
    const options *o = j->o;
    if (o->jsonl && o->file)
        return out_fail(PESC_USAGE, "%s: found FILE and --jsonl, expected one of them",
                        o->cmd->name);
    char *text = NULL;
    size_t n = 0;
    pesc_status st = pesc_tokenizer_open(&j->tokenizer, o->model, progress_events());
    if (st == PESC_OK)
        st = input_read(o->jsonl ? o->jsonl : o->file, &text, &n);
    if (st == PESC_OK)
        st = o->jsonl ? input_lines(text, n, each, j) : whole(j, text, n, 0);
    free(text);
    pesc_tokenizer_close(j->tokenizer);
    return st;
}

/* ---- tokenize ---- */

static pesc_status print_ids(void *ud, const char *text, size_t n, size_t number)
{
    const job *j = ud;
    int32_t *ids;
    size_t count;
    (void)number;
    TRY(ids_encode(j->tokenizer, text, n, j->flags, &ids, &count));
    if (j->o->json) {
        out_begin(NULL, '{');
        out_ids("ids", ids, count);
        out_int("count", (int64_t)count);
        out_end();
    } else {
        out_line_of_ids(ids, count);
    }
    free(ids);
    return PESC_OK;
}

static pesc_status print_ids_line(void *ud, const char *line, size_t n, size_t number)
{
    const job *j = ud;
    char where[256], *text;
    int32_t *ids = NULL;
    size_t n_text, count;
    TRY(ids_json_string(line_name(j, number, where, sizeof where), line, n, &text, &n_text));
    pesc_status st = ids_encode(j->tokenizer, text, n_text, j->flags, &ids, &count);
    if (st == PESC_OK)
        out_ids(NULL, ids, count);
    free(ids);
    free(text);
    return st;
}

pesc_status cmd_tokenize(const options *o)
{
    job j = { .o = o };
    j.flags =
        (o->add_special ? PESC_ADD_SPECIAL : 0u) | (o->parse_special ? PESC_PARSE_SPECIAL : 0u);
    return run_job(&j, print_ids, print_ids_line);
}

/* ---- detokenize ---- */

/* The text of the ids, for free(). */
static pesc_status decode(const job *j, const ids_table *t, char **text, size_t *n)
{
    size_t count = t->n_seqs * t->n_each, cap = 8 * count + 64;
    *text = malloc(cap);
    pesc_status st = PESC_OK;
    while (*text) {
        st = pesc_detokenize(j->tokenizer, t->ids, count, j->flags, *text, cap, n);
        if (st != PESC_OK || *n <= cap)
            break;
        free(*text);
        cap = *n;
        *text = malloc(cap);
    }
    if (!*text)
        return out_nomem("the text of the ids");
    if (st != PESC_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

static pesc_status print_text(void *ud, const char *input, size_t n, size_t number)
{
    const job *j = ud;
    ids_table t;
    char *text = NULL;
    size_t n_text = 0;
    (void)number;
    TRY(ids_from_text(input_name(j->o->file), input, n, &t));
    pesc_status st = decode(j, &t, &text, &n_text);
    if (st == PESC_OK && j->o->json) {
        out_begin(NULL, '{');
        out_string("text", text, n_text);
        out_end();
    } else if (st == PESC_OK) {
        out_write(text, n_text);
        if (isatty(STDOUT_FILENO))
            putchar('\n');
    }
    free(text);
    free(t.ids);
    return st;
}

static pesc_status print_text_line(void *ud, const char *line, size_t n, size_t number)
{
    const job *j = ud;
    char where[256], *text = NULL;
    ids_table t;
    size_t n_text = 0;
    TRY(ids_from_json(line_name(j, number, where, sizeof where), line, n, &t));
    pesc_status st = decode(j, &t, &text, &n_text);
    if (st == PESC_OK) {
        out_string(NULL, text, n_text);
        putchar('\n');
    }
    free(text);
    free(t.ids);
    return st;
}

pesc_status cmd_detokenize(const options *o)
{
    job j = { .o = o, .flags = o->skip_special ? PESC_SKIP_SPECIAL : 0u };
    return run_job(&j, print_text, print_text_line);
}
