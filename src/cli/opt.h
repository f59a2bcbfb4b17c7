/* opt: options are rows of one table.
 *
 * A row gives the flag (`--lora-r 64`), the YAML key (`lora_r: 64`), the type with its range, the
 * default, the help text and the commands that take it. Values from the command line, a file (-c)
 * and the defaults all go through the same parser; the command line wins over the file, the file
 * over the default. What is not in the table is refused, with the nearest name as a suggestion.
 * Booleans are written `--shuffle false`; `--shuffle` alone means true. */
#ifndef PESC_CLI_OPT_H
#define PESC_CLI_OPT_H

#include "cli/out.h"

typedef struct command command;

enum { OPT_MAX = 192 }; /* rows */

typedef struct opt_list {
    const char **items;
    size_t n;
} opt_list;

/* Every option of every command, by its YAML key. Strings are NULL where not given. */
typedef struct options {
    bool help, json, quiet;
    const char *config;
    const char *model, *file, *output, *text, *jsonl, *ids, *topic, *recipe;
    const char *device, *base_dtype, *compute_dtype, *lora, *patch;
    bool double_quant;
    int64_t threads;
    const char *prompt, *system, *chat_format;
    opt_list stop;
    int64_t max_tokens, top_k, seed, ctx;
    double temperature, top_p, min_p, repetition_penalty;
    bool ignore_eos, add_special, parse_special, skip_special;
    const char *config_json, *tokenizer, *dtype;
    bool overwrite;
    const char *kind, *to, *merge_base;
    bool check;
    int64_t prompt_tokens, decode_tokens, repeat;
    const char *preset, *method, *experts_config, *init_from, *lora_targets, *format, *template,
        *over_length;
    const char *schedule, *optimizer, *loss, *keep;
    opt_list data, eval_data, general, code, maths, task, alignment;
    const char *action, *counts;
    int64_t records;
    opt_list tasks;
    int64_t limit;
    bool samples;
    opt_list inputs;
    const char *from_logs, *metric;
    int64_t tokens, budget;
    double p;
    bool p_relative, shared_experts, non_expert_modules;
    bool resume, strict, packing, shuffle;
    int64_t experts, adapter_dim, lora_r, seq_len, steps, batch, micro_tokens, warmup_steps;
    int64_t save_every, keep_checkpoints, eval_every, log_every, verify_every;
    double adapter_scale, adapter_dropout, aux_coef, lora_alpha, lora_dropout, epochs, lr;
    double warmup_ratio, clip, weight_decay, beta1, beta2, eps;
    bool man, markdown;
    const char *completion;

    const command *cmd;
    bool given[OPT_MAX]; /* one for each row: set by the command line or the file */
    char **owned;        /* texts from the file, for opt_free */
    size_t n_owned;
} options;

typedef enum opt_type {
    OPT_BOOL,
    OPT_INT,
    OPT_REAL,
    OPT_TEXT,
    OPT_CHOICE,
    OPT_WORDS, /* one text with commas in it; a file may write it as a list */
    OPT_LIST   /* may be given several times */
} opt_type;

typedef struct opt_row {
    const char *name; /* the flag without its dashes; with _ for - it is the YAML key */
    char letter;      /* -o, or 0 */
    opt_type type;
    size_t field;           /* offset in options */
    const char *value;      /* what the help calls the value; of a choice, all it may be: "a|b" */
    double min, max;        /* of numbers */
    const char *fallback;   /* the default, written as a user would; NULL: none */
    unsigned long commands; /* a bit for each command_id */
    const char *help;
} opt_row;

extern const opt_row opt_rows[];
extern const size_t n_opt_rows;

/* Whether the command takes this row; rows of positional arguments included. */
bool opt_applies(const opt_row *r, const command *c);
/* The row of a name, or NULL; `dash` is '-' for a flag's name and '_' for a YAML key. */
const opt_row *opt_find(const command *c, const char *word, char dash);

/* argv[0] is the first word behind the command's name. Closed by opt_free even when it failed. */
pesc_status opt_parse(options *o, const command *c, int argc, char **argv);
void opt_free(options *o);

/* Sets one option from text; `where` opens the sentence of a failure ("--seed", "run.yaml:3:
 * seed").
 */
pesc_status opt_set(options *o, const opt_row *r, const char *text, const char *where);
/* Reads the flat YAML file o->config; what was given before stays. */
pesc_status opt_read_yaml(options *o);
/* Fails: `word` is no option of the command; suggests one in the same spelling. */
pesc_status opt_unknown(const options *o, const char *word, const char *where, char dash);

/* The candidate nearest to word, or NULL when none is near. */
const char *opt_nearest(const char *word, const char *const *candidates, size_t n);

#endif
