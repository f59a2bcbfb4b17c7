/* cmd_help: `pesc help` and `pesc version`. */
#include "cli/command.h"
#include "cli/show/help.h"

#include <stdio.h>

static void list_commands(void)
{
    out_begin(NULL, '{');
    out_begin("commands", '[');
    for (size_t i = 0; i < N_COMMANDS; i++) {
        out_begin(NULL, '{');
        out_text("name", commands[i].name);
        out_text("summary", commands[i].summary);
        out_end();
    }
    out_end();
    out_end();
}

pesc_status cmd_help(const options *o)
{
    const command *c = NULL;
    if (o->topic)
        TRY(command_find(o->topic, &c));
    if (o->markdown && !c)
        return out_fail(PESC_USAGE, "help: --markdown needs a command: pesc help info --markdown");
    if (o->json)
        list_commands();
    else if (o->man)
        help_man();
    else if (o->completion)
        help_bash();
    else if (o->markdown)
        help_markdown(c);
    else if (c)
        help_command(c);
    else
        help_overview();
    return PESC_OK;
}

pesc_status cmd_version(const options *o)
{
    if (o->json) {
        out_begin(NULL, '{');
        out_text("version", PESC_VERSION);
        out_end();
    } else {
        puts("pesc " PESC_VERSION);
    }
    return PESC_OK;
}
