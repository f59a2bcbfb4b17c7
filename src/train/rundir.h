/* rundir: the directory of a run, seen from outside the numbers: may it be used, who holds it, what
 * is written into it once, and the two files a user can touch to be heard. */
#ifndef PESC_TRAIN_RUNDIR_H
#define PESC_TRAIN_RUNDIR_H

#include "base/io.h"
#include "format/runstate.h"

/* Before anything is made: PESC_USAGE when something is there and neither resume nor overwrite was
 * asked for. */
pesc_status rundir_check(const pesc_train_options *o);

/* Makes it, takes its lock, removes what --overwrite replaces or a killed run left, and writes a
 * byte to see that writing works. */
pesc_status rundir_open(io_lock **lock, const pesc_train_options *o);

typedef struct rundir_about {
    const char *yaml;                /* run.yaml's text */
    const runstate_manifest *hashes; /* and the base's path */
    const char *device;
} rundir_about;

/* run.yaml and run.json of a run that begins. */
pesc_status rundir_describe(const char *run, const rundir_about *about);

/* Whether the user touched RUN/SAVE or RUN/STOP; the file is removed. */
bool rundir_asked(const char *run, const char *name);

#endif
