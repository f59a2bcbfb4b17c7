/* line: lines that a user types; on a terminal with editing and history. */
#ifndef PESC_CLI_LINE_H
#define PESC_CLI_LINE_H

#include "cli/show/out.h"

typedef struct line_input line_input;

typedef enum line_event { LINE_TEXT, LINE_INTERRUPT, LINE_END } line_event;

pesc_status line_open(line_input **out);
bool line_is_terminal(const line_input *l);
/* prompt: what a terminal shows before the line. *text: the line without its newline, valid until
 * the next call. On a terminal a text that is pasted is one line, newlines included, and what is
 * typed during an answer is kept for the next line. */
line_event line_read(line_input *l, const char *prompt, const char **text);
/* On a terminal the next line begins with this text, for editing. */
void line_begin_with(line_input *l, const char *text);
void line_close(line_input *l); /* NULL is allowed */

/* Whether Ctrl-C was pressed since the last call; after line_open() it does not end the process. */
bool line_interrupted(void);

#endif
