/* command: the list of commands. main.c holds the table; a row says everything about a command
 * except its options (<pesc/options.h>) and its work (cmd_NAME.c). Help, the manual page, the
 * reference pages and shell completion are printed from these rows. */
#ifndef PESC_CLI_COMMAND_H
#define PESC_CLI_COMMAND_H

#include "cli/opt/opt.h"

struct command {
    const char *name;
    const char *job;            /* its heading in the list of commands */
    const char *synopsis;       /* what follows the name: "MODEL [FILE]" */
    const char *keys[2];        /* options that the positional arguments fill, in order */
    int n_required;             /* how many of the keys */
    const char *const *actions; /* values of the key "action", to NULL; NULL: it has none */
    const char *summary;        /* one line */
    const char *about;          /* a paragraph */
    const char *examples;       /* lines "command  # what it does" */
    pesc_status (*run)(const options *o);
};

extern const command commands[]; /* name NULL: the end */

/* Fails with a suggestion when there is no such command. */
pesc_status command_find(const char *word, const command **out);
/* Whether the key is that of a positional argument. */
bool command_is_argument(const command *c, const char *key);

/* The list of commands, on one screen. */
void help_overview(void);
void help_command(const command *c);

pesc_status cmd_init(const options *o);
pesc_status cmd_demo(const options *o);
pesc_status cmd_info(const options *o);
pesc_status cmd_new(const options *o);
pesc_status cmd_craft(const options *o);
pesc_status cmd_merge(const options *o);
pesc_status cmd_export(const options *o);
pesc_status cmd_tokenize(const options *o);
pesc_status cmd_detokenize(const options *o);
pesc_status cmd_generate(const options *o);
pesc_status cmd_chat(const options *o);
pesc_status cmd_serve(const options *o);
pesc_status cmd_runs(const options *o);
pesc_status cmd_logits(const options *o);
pesc_status cmd_perplexity(const options *o);
pesc_status cmd_data(const options *o);
pesc_status cmd_esft(const options *o);
pesc_status cmd_train(const options *o);
pesc_status cmd_plan(const options *o);
pesc_status cmd_cost(const options *o);
pesc_status cmd_eval(const options *o);
pesc_status cmd_routes(const options *o);
pesc_status cmd_compare(const options *o);
pesc_status cmd_bench(const options *o);
pesc_status cmd_doctor(const options *o);
pesc_status cmd_help(const options *o);
pesc_status cmd_version(const options *o);

/* Each prints names, for the completion: recipes, built-in tasks, GPUs, data sets. */
void init_recipes(void);
void eval_names(void);
void plan_gpus(void);
void data_names(void);

/* Of commands with several jobs, those that have a file of their own. */
pesc_status bench_serve(const options *o); /* `pesc bench serve` */
pesc_status data_mix(const options *o);    /* `pesc data mix` */
pesc_status data_fetch(const options *o);  /* `pesc data fetch` */
pesc_status eval_list(const options *o);   /* prints the built-in tasks */
/* The models of the options, one after the other, on a list of benchmark tasks with commas: a
 * table, a picture, results.json; divided among the processes of `all`; NULL: there is only this
 * one. */
pesc_status eval_tasks(const options *o, const char *tasks, pesc_comm *all);

#endif
