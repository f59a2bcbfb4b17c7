/* rundir: the directory of a run: whether it may be used, the lock on it, what is written into it
 * once, and the two files with which a user asks a run to save or to stop.
 *
 * The directory is locked before anything in it is looked at, so two runs cannot both find it
 * free. --overwrite takes a directory only if it is empty or holds a run. Nothing is removed while
 * the new run can still be refused: rundir_begin() moves the files of the old run aside, and they
 * are deleted after the first checkpoint of the new one. If the new run ends before that, or is
 * killed, the old run is put back: at every moment one of the two is complete.
 *
 * Where the old run is says what is to be done with it, so that a process which is killed at any
 * point leaves no doubt. A directory passes from one name to the next by a rename:
 *
 *     RUN/.replacing    files are being moved in: they are moved back
 *     RUN/.replaced     all of the old run, until the new one has a checkpoint
 *     RUN/.restoring    it is being moved back
 *     RUN/.removing     it is being deleted */
#ifndef PESC_RUN_RUNDIR_H
#define PESC_RUN_RUNDIR_H

#include "base/io.h"
#include "run/runstate.h"

typedef struct rundir rundir;

/* Makes the directory if it is not there, locks it, and looks at what it holds. PESC_USAGE when
 * that is not empty and neither resume nor overwrite was asked for, when overwrite would replace
 * something that is not a run, or when the run would write over `model` or a base of it. */
pesc_status rundir_claim(rundir **out, const pesc_train_options *o, const char *model);

/* After everything that can be refused has been: writes a byte to see that writing works, moves an
 * old run aside where overwrite asks for it, and removes what a killed run left half written. */
pesc_status rundir_begin(rundir *d);

/* Removes a part of a run, whole: it is renamed first, so that it vanishes in one step. */
pesc_status rundir_retire(const char *run, const char *name);
/* Removes what a killed run left half written, or half removed. */
pesc_status rundir_sweep(const char *run);

/* A checkpoint of this run is on the disk: deletes the run it replaces. */
pesc_status rundir_saved(rundir *d);

/* Releases the lock. Where no checkpoint is on the disk the run that was replaced, or was on its
 * way to .replaced, is put back. `unused`: no step was made; without a checkpoint, what this run
 * wrote is removed, and the directory if rundir_claim() made it. NULL is allowed. */
void rundir_close(rundir *d, bool unused);

/* run.yaml: the options as they are now, which a later --resume reads. */
pesc_status rundir_options(const char *run, const char *yaml);
/* run.json of a run that begins; where: the device. */
pesc_status rundir_describe(const char *run, const runstate_manifest *about, const char *where);

/* Whether the user touched RUN/SAVE or RUN/STOP; the file is removed. */
bool rundir_asked(const char *run, const char *name);

#endif
