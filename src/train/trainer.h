/* trainer: a run, from its options to its last checkpoint. trainer.c opens and closes it, step.c
 * makes the steps. */
#ifndef PESC_TRAIN_TRAINER_H
#define PESC_TRAIN_TRAINER_H

#include "model/loss.h"
#include "run/rundir.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/gradient.h"
#include "train/metrics.h"
#include "train/micros.h"
#include "train/schedule.h"
#include "train/watch.h"

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
    batch *eval_ahead; /* the validation records from eval_next on, read in the same way */
    uint64_t eval_next;
    bool eval_read;
    batch *ahead;       /* the records of step ahead_step, read while the device was busy */
    int64_t ahead_step; /* 0: none */
    rundir *dir;        /* the directory of the run, locked; rank 0 alone has it and the logs */
    metrics *log;
    char *yaml, *jinja; /* what saver points to */
    checkpoint saver;
    struct save_thread *saving; /* see save.h; NULL: no thread has been started */
    checkpoint_state state;
    schedule_kind schedule;
    int64_t steps, warmup;
    uint64_t records; /* of the whole run; UINT64_MAX: no end */
    keep_counts keep; /* layers below the top one */
    uint64_t bytes_model, bytes_trained, bytes_pass, bytes_total;
    micro_results micros;
    float *shares;   /* [sparse layers, E] of the last step */
    int64_t *chosen; /* the same as counts */
    double *balance; /* [sparse layers, 2, E]: f and P of the last step */
    int32_t sparse_layers;
    int32_t *sparse; /* [sparse_layers]: their numbers */
    watch watch;
    uint64_t over_length; /* records of the training data longer than seq_len */
    double peak_flops, token_flops;
    double seconds;        /* of a step, smoothed; 0: none yet */
    double seconds_beside; /* of validation and saving since this process began */
    int64_t saved_step;    /* of the last checkpoint */
    int64_t first_step;
    char resumed[32]; /* the checkpoint's name */
};

#endif
