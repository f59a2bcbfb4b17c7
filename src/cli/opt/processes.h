/* processes: a command that several processes run together. */
#ifndef PESC_CLI_PROCESSES_H
#define PESC_CLI_PROCESSES_H

#include "cli/opt/opt.h"

/* With --gpus N, in a process that has no rank in its environment: starts N copies of this command,
 * passes signals on to them, waits for them and ends with their exit code. Else it returns. Before
 * that, fits (NULL: it does) says whether each finds the memory it needs. */
typedef pesc_status (*processes_fit)(const options *o);
pesc_status processes_start(const options *o, processes_fit fits);

/* Joins the processes that were started together, if any were; *out NULL: this one is alone. Sets
 * device and threads to those of this process; others than rank 0 become quiet, and their failures
 * are printed with rank and host. */
pesc_status processes_join(pesc_comm **out, options *o);

/* `st`: how the work of this process ended. */
void processes_leave(pesc_comm *c, pesc_status st);

#endif
