/* tool: programs that a model may call, as --tool NAME=PROGRAM names them. */
#ifndef PESC_CLI_TOOL_H
#define PESC_CLI_TOOL_H

#include "cli/show/out.h"

#include <jansson.h>

/* The tools as a conversation has them, of the values of the option. What a tool does and takes is
 * read from PROGRAM.json, an object with description and parameters (a JSON Schema), or a tool of
 * OpenAI's interface; without that file its arguments are any object. *tools NULL: there are none.
 */
pesc_status tool_open(const char *const *given, size_t n, json_t **tools);

/* The program of the tool; NULL: there is none of that name. */
const char *tool_program(const char *const *given, size_t n, const char *name);

/* Runs the program with the arguments on standard input. *result, for free(): what it wrote to
 * standard output, at most 1 MiB, and how it ended where that was not well. PESC_STOPPED: Ctrl-C.
 */
pesc_status tool_run(const char *program, const char *arguments, char **result);

#endif
