/* trainer: a run, from its options to its last checkpoint. trainer.c opens and closes it, step.c
 * makes the steps. */
#ifndef PESC_TRAIN_TRAINER_H
#define PESC_TRAIN_TRAINER_H

#include "model/loss.h"
#include "run/rundir.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/gradient.h"
#include "train/schedule.h"
#include "train/totals.h"
#include "train/watch.h"

/* The files of the run; rank 0 alone has the directory and the logs. */
typedef struct run_files {
    rundir *dir; /* locked */
    metrics *log;
    checkpoint saver;
    char *records;              /* the text of records.json; NULL: nothing is to be written */
    struct save_thread *saving; /* see save.h; NULL: no thread has been started */
    int64_t saved_step;         /* of the last checkpoint */
    char resumed[32];           /* the checkpoint's name */
} run_files;

/* How far the run goes, and the rates on its way. */
typedef struct run_length {
    schedule_kind schedule;
    int64_t steps, warmup;
    uint64_t records;   /* of the whole run; UINT64_MAX: no end */
    int64_t first_step; /* that this process found done */
} run_length;

typedef struct run_bytes {
    uint64_t model, trained, pass, total;
} run_bytes;

typedef struct run_speed {
    double peak_flops, token_flops;
    double step;   /* seconds, smoothed; 0: none yet */
    double beside; /* seconds of validation and saving since this process began */
} run_speed;

struct pesc_trainer {
    pesc_train_options opt; /* resolved; strings are the caller's */
    pesc_model *m;          /* borrowed */
    peers *peers;           /* the processes of the run, that of m's device; NULL: this one */
    train_spec spec;
    expertcfg own; /* what spec.own points to */
    params *params;
    gradient *gradient;
    optimizer *optim;
    pass *pass;
    dataset *data, *eval_data;
    batch *batch, *eval_batch;
    uint64_t eval_next;   /* validation goes on with these records */
    uint64_t over_length; /* records of the training data longer than seq_len */
    run_length length;
    run_files files;
    checkpoint_state state;
    keep_counts keep; /* layers below the top one */
    run_bytes bytes;
    run_speed speed;
    step_totals totals; /* of the last step */
    watch watch;
};

#endif
