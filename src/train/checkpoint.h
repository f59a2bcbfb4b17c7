/* checkpoint: everything a run needs to continue bit for bit, saved so that after any crash the
 * newest complete one loads: the old one or the new one.
 *
 * The order of operations guarantees it. Disk space is reserved first; the files are written into a
 * directory with a temporary name, each flushed; the manifest with their hashes comes last; then
 * the directory is renamed, `latest` points to it, and only then are older ones deleted. A
 * checkpoint holds the trained tensors, AdamW's moments and a few counters. Random numbers and the
 * position in the data follow from the step, so they need not be saved.
 *
 * Nothing in a checkpoint depends on the number of processes: they write the files that one process
 * would, each its part of them, all at the same time, and each reads the moments that it owns. The
 * directory must be on a file system that all of them share. */
#ifndef PESC_TRAIN_CHECKPOINT_H
#define PESC_TRAIN_CHECKPOINT_H

#include "run/runstate.h"
#include "train/optimizer.h"

typedef struct checkpoint_state {
    int64_t step;    /* finished */
    int64_t applied; /* steps that changed weights: AdamW's step count */
    int64_t tokens;
    int64_t skipped;    /* steps whose loss or gradient was not finite */
    int64_t bad_in_row; /* skipped steps since the last applied one */
    double epoch;
    double best_loss; /* validation; meaningful where best_step > 0 */
    int64_t best_step;
    int64_t worse_evals; /* validations since best_step */
    int64_t eval_due;    /* 1: a stop came before the validation of this step */
    int64_t data_offset; /* records: step s begins at position s * batch + this; 0 unless the last
                            step of all epochs had fewer, or an epoch was started again after the
                            data had changed */
    bool data_changed;   /* not saved: the data is not what the checkpoint was made from */
    uint64_t metrics_bytes, routing_bytes, eval_bytes; /* of the logs */
    char reference_start[17]; /* of preferences: hash of the weights of the reference, else "" */
} checkpoint_state;

/* What all checkpoints of a run share. */
typedef struct checkpoint {
    const char *run; /* the directory */
    params *p;
    optimizer *opt;
    bool on_host;            /* their buffers are copies in host memory, whatever the device */
    runstate_manifest about; /* its step is ignored */
    char patch_base[17];     /* method esft: patched_base_hash() of the base */
    char *yaml;              /* run.yaml's text; the trainer's, like jinja */
    const char *data_diff;   /* how the data differs from that of the run so far; NULL: not known */
    bool allow_other_data;   /* load a checkpoint though its data was another */
    char *jinja;             /* chat_template.jinja, where it is not the base's; else NULL */
    int64_t steps;           /* of the run */
    int64_t keep;            /* newest whole ones that stay, at least 2; 0: all. The best stays. */
    int64_t *whole;          /* [n_whole]: steps whose checkpoints are known to be undamaged */
    size_t n_whole;
} checkpoint;

/* Records that the checkpoint of a step was written or verified by this process. */
pesc_status checkpoint_know_whole(checkpoint *c, int64_t step);

/* PESC_DISK when the disk has no room for one. */
pesc_status checkpoint_fits(const checkpoint *c);

/* Makes `best` lead to the best checkpoint that is there, and removes those that are older than the
 * ones to keep: after each save, and once by a run that goes on, since the one before may have been
 * killed in between. */
pesc_status checkpoint_settle(checkpoint *c, const checkpoint_state *s);

/* Called by all processes. It fails for all of them where it fails for one. */
pesc_status checkpoint_save(checkpoint *c, const checkpoint_state *s);

/* Fills weights, moments and state from a checkpoint that runstate_newest() found good. Refused by
 * PESC_USAGE when it was made from another model, other data (unless allowed) or other options. */
pesc_status checkpoint_load(checkpoint *c, const char *dir, checkpoint_state *out);

/* Only the weights, for a new run that begins where another ended. PESC_USAGE where they are not
 * the same set, or LoRA has another rank or scale. */
pesc_status checkpoint_load_weights(params *p, const char *dir);

#endif
