/* rundir: the directory of a run, seen from outside the numbers: may it be used, who holds it, what
 * is written into it once, and the two files a user can touch to be heard. */
#ifndef PESC_TRAIN_RUNDIR_H
#define PESC_TRAIN_RUNDIR_H

#include "base/io.h"
#include "format/runstate.h"

/* Before anything is made: PESC_USAGE when something is there and neither resume nor overwrite was
 * asked for. */
pesc_status rundir_check(const pesc_train_options *o);

/* PESC_USAGE when a run there would write over the model it trains, or over what that stands on. */
pesc_status rundir_apart(const char *run, const char *model);

/* Makes it, takes its lock, removes what --overwrite replaces or a killed run left, and writes a
 * byte to see that writing works. */
pesc_status rundir_open(io_lock **lock, const pesc_train_options *o);

/* Removes what a run has written there, and nothing else. */
pesc_status rundir_clear(const char *run);

/* run.yaml: the options as they are now, for the next who resumes. */
pesc_status rundir_options(const char *run, const char *yaml);
/* run.json of a run that begins; where: the device. */
pesc_status rundir_describe(const char *run, const runstate_manifest *about, const char *where);

/* Whether the user touched RUN/SAVE or RUN/STOP; the file is removed. */
bool rundir_asked(const char *run, const char *name);

#endif
