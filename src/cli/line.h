/* line: lines a user types, with editing and history on a terminal, as they are otherwise. */
#ifndef PESC_CLI_LINE_H
#define PESC_CLI_LINE_H

#include "cli/out.h"

typedef struct line_input line_input;

typedef enum line_event { LINE_TEXT, LINE_INTERRUPT, LINE_END } line_event;

pesc_status line_open(line_input **out);
bool line_is_terminal(const line_input *l);
/* *text: the line without its newline, valid until the next call. */
line_event line_read(line_input *l, const char **text);
void line_close(line_input *l); /* NULL is allowed */

/* Whether Ctrl-C came since it was last asked; from line_open on it no longer ends the process. */
bool line_interrupted(void);

#endif
