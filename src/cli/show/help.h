/* help: the table of commands and the table of options, printed for people, man(1), the reference
 * pages and the shell. */
#ifndef PESC_CLI_HELP_H
#define PESC_CLI_HELP_H

#include "cli/opt/opt.h"

void help_overview(void); /* one screen */
void help_command(const command *c);

/* The options of a group that are no positional arguments: start with NULL; NULL after the last. */
const pesc_option *help_next(const command *c, const pesc_option *row, pesc_option_group group);

/* Words of the text on lines of at most 98 columns; the first begins at column `at`. */
void help_wrap(const char *text, int at, int indent);
void help_indented(const char *lines, const char *indent);

typedef struct help_exit {
    int code;
    const char *text;
} help_exit;
extern const help_exit help_exits[]; /* text NULL: the end */

void help_man(void);
void help_markdown(const command *c);
void help_bash(void);

#endif
