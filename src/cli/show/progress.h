/* progress: the progress of long calls, on standard error: a bar on a terminal, else a plain line
 * at intervals. Notes of the library are printed too. Nothing is printed when quiet. */
#ifndef PESC_CLI_PROGRESS_H
#define PESC_CLI_PROGRESS_H

#include <pesc/pesc.h>

/* `name` is the command's. */
void progress_open(const char *name, bool quiet);
/* What the library reports goes through here: for devices and calls without one. NULL: quiet. */
const pesc_events *progress_events(void);
/* For the command's own loops. `what` is a string literal and identifies the work. */
void progress_show(const char *what, uint64_t done, uint64_t total);
/* The same where the caller knows better than the time since the first call: work that is resumed
 * or interrupted by other work. */
void progress_show_left(const char *what, uint64_t done, uint64_t total, double seconds_left);
/* Erases the bar; the next progress draws it again. */
void progress_clear(void);
void progress_close(void);

/* Seconds since an arbitrary moment; never goes back. */
double progress_clock(void);

#endif
