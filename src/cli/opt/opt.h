/* opt: options from the command line and from a file (-c).
 *
 * The options themselves are the rows of <pesc/options.h> and of opt_rows.h. A row belongs to a
 * struct; a command has one struct of each kind, and reads those that the functions it calls take.
 * Values from the command line, from a file and the defaults go through the same parser; the
 * command line wins over the file, the file over the default. An unknown name is refused, with what
 * it is called here or the nearest name. Booleans are written `--shuffle false` or `--no-shuffle`;
 * `--shuffle` alone means true. */
#ifndef PESC_CLI_OPT_H
#define PESC_CLI_OPT_H

#include "cli/opt/opt_rows.h"
#include "cli/show/out.h"

typedef struct command command;

typedef struct options {
    /* of the command itself: o->json, o->model */
    COMMAND_ROWS(PESC_FIELD, PESC_NO_FIELD)
    COMMON_ROWS(PESC_FIELD, PESC_NO_FIELD)
    pesc_load_options load;
    pesc_craft_options craft;
    pesc_export_options export;
    pesc_sample_options sample;
    pesc_data_options data;
    pesc_train_options train;
    pesc_eval_options eval;
    pesc_benchmark_options benchmark;
    pesc_serve_options serve;
    pesc_routes_options routes;
    pesc_compare_options compare;
    pesc_cost_options cost;
    pesc_esft_score_options score;
    pesc_esft_select_options select;

    const command *cmd;
    bool *given;  /* for each row: set by the command line or the file; shared by copies */
    char **owned; /* texts from the file, for opt_free */
    size_t n_owned;
} options;

/* All rows: the command's own, those of the library, and those that many commands share. */
const pesc_option *opt_rows(size_t *n);

/* The rows that a command takes: start with NULL; NULL after the last. Rows of positional arguments
 * are among them. */
const pesc_option *opt_next(const command *c, const pesc_option *row);
const char *opt_group_title(pesc_option_group group);
/* The row of a key, or NULL. */
const pesc_option *opt_find(const command *c, const char *key);
bool opt_given(const options *o, const char *key);
/* Of the row in the table of all rows, and in options.given. */
size_t opt_index(const pesc_option *row);

/* The struct that the row's field is in. */
void *opt_struct(options *o, const pesc_option *row);

/* A key as a flag without its dashes: "lora-r". */
typedef char opt_name[40];
const char *opt_flag(opt_name out, const char *key);
/* The letter of the row in this command (-o), or 0. */
char opt_letter(const pesc_option *row, const command *c);
/* What the help calls the value; NULL for a boolean. */
const char *opt_value(const pesc_option *row);

/* argv[0] is the first word after the command's name. Closed by opt_free even when it failed. */
pesc_status opt_parse(options *o, const command *c, int argc, char **argv);
void opt_free(options *o);

/* The options take over `text`, of malloc(), for opt_free; also when it fails or text is NULL. */
pesc_status opt_own(options *o, char *text);

/* Sets one option from text, or appends to a list; `where` begins the sentence of a failure
 * ("run.yaml:3: seed"). Borrows the text. */
pesc_status opt_set(options *o, const pesc_option *row, const char *text, const char *where);
/* Reads the flat YAML file o->config; values that were given before stay. */
pesc_status opt_read_yaml(options *o);

/* Fails: an argument or an option that the command cannot do without is not given. */
pesc_status opt_missing(const options *o, const char *what);

typedef enum opt_spelling { OPT_AS_FLAG, OPT_AS_KEY } opt_spelling;
/* Fails: `word` is no option of the command. Says what it is called here, or suggests the nearest
 * name, in the same spelling. */
pesc_status opt_unknown(const options *o, const char *word, const char *where, opt_spelling as);

/* Whether a word is one of `words`, which are separated by spaces. */
bool opt_lists(const char *words, const char *word);

/* The candidate nearest to word, or NULL when none is near. */
const char *opt_nearest(const char *word, const char *const *candidates, size_t n);
/* What an option of other programs is called here, or NULL; `word` in any spelling. *value: what it
 * must be set to, or NULL. */
const char *opt_synonym(const command *c, const char *word, const char **value);

#endif
