/* command: the list of commands. main.c holds the table; a row says everything about a command
 * except its options (<pesc/options.h>) and its work (cmd_NAME.c). Help, the manual page, the
 * reference pages and shell completion are printed from these rows. */
#ifndef PESC_CLI_COMMAND_H
#define PESC_CLI_COMMAND_H

#include "cli/opt/opt.h"

/* In the order in which they are listed. */
typedef enum command_id {
    CMD_INIT,
    CMD_DEMO,
    CMD_DOCTOR,
    CMD_INFO,
    CMD_DATA,
    CMD_PLAN,
    CMD_COST,
    CMD_NEW,
    CMD_CRAFT,
    CMD_MERGE,
    CMD_EXPORT,
    CMD_TRAIN,
    CMD_ESFT,
    CMD_EVAL,
    CMD_ROUTES,
    CMD_COMPARE,
    CMD_PERPLEXITY,
    CMD_LOGITS,
    CMD_BENCH,
    CMD_GENERATE,
    CMD_CHAT,
    CMD_SERVE,
    CMD_TOKENIZE,
    CMD_DETOKENIZE,
    CMD_HELP,
    CMD_VERSION,
    N_COMMANDS
} command_id;

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

extern const command commands[N_COMMANDS];

/* Fails with a suggestion when there is no such command. */
pesc_status command_find(const char *word, const command **out);
/* Whether the key is that of a positional argument. */
bool command_is_argument(const command *c, const char *key);

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

#endif
