/* driver: the Python program that every process of the sandbox runs.
 *
 * It is compiled once, in the sandbox, and read as bytecode from then on. Its argument is a role.
 * Its job comes on BOX_JOB as sections, each a decimal length, a newline, and so many bytes of
 * UTF-8:
 *
 *   plain      the program    runs it as the reference does, in one name space
 *   solution   the program    runs it, then answers calls from BOX_IN on BOX_OUT
 *   judge      given, tests, names, setup
 *                             runs `given`, then `tests` with every one of `names` (separated by
 *                             spaces; "": what the tests call) standing for the function of that
 *                             name in the solution's process, and every variable that `setup`
 *                             assigns for the variable there, which may be an argument of calls;
 *                             `setup` itself is the end of the solution's program
 *
 * The result is one line on BOX_RESULT: "pass", "fail" or "gone" (the solution's process ended),
 * then 1 or 0 (whether a value was not a plain literal), then the reason. */
#ifndef PESC_SANDBOX_DRIVER_H
#define PESC_SANDBOX_DRIVER_H

extern const char driver_source[];
extern const char driver_compile[]; /* one line: the source on BOX_JOB to bytecode on BOX_RESULT */
extern const char driver_run[];     /* one line: runs the bytecode of BOX_DRIVER */

#endif
