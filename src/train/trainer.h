/* trainer: a run, from its options to its last checkpoint. trainer.c opens and closes it, step.c
 * makes the steps, records.c reads the data, start.c begins a run or goes on with one, save.c
 * writes checkpoints. */
#ifndef PESC_TRAIN_TRAINER_H
#define PESC_TRAIN_TRAINER_H

#include "model/loss.h"
#include "run/rundir.h"
#include "train/batch.h"
#include "train/checkpoint.h"
#include "train/gradient.h"
#include "train/metrics.h"
#include "train/reference.h"
#include "train/router_bias.h"
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
    expertcfg own; /* what spec.own or spec.lora_own points to */
    params *params;
    gradient *gradient;
    optimizer *optim;
    pass *pass;
    dataset *data, *eval_data;
    batch *batch, *eval_batch;
    uint64_t eval_next;   /* validation goes on with these records */
    uint64_t over_length; /* records of the training data longer than seq_len */
    objective objective;
    reference reference, eval_reference;
    run_length length;
    run_files files;
    checkpoint_state state;
    keep_counts keep; /* layers below the top one */
    run_bytes bytes;
    run_speed speed;
    step_totals totals;                        /* of the last step */
    metrics_domain domains[EXPERTCFG_DOMAINS]; /* its losses, or those of a validation */
    char *domain_experts; /* the option with absolute paths; NULL: it is not given */
    router_bias router_bias;
    watch watch;
};

/* ---- records.c: the data of the run ----
 *
 * It is described in RUN/records.json, by which a resumed run can tell which file has changed and
 * need not check the same records again. */

/* Opens the training data and the validation data, if there is any. */
pesc_status records_open(pesc_trainer *t);

/* Replaces batch_tokens by the batch that has as many tokens on average, by a sample of the
 * training data. A notice tells the batch. */
pesc_status records_batch(pesc_trainer *t);

/* Reads every record, unless RUN/records.json tells that the same records were read before, and
 * leaves those of which training makes no sequence out of the data sets of all processes: a batch
 * is made of the others. Bad records are listed as notices, up to 20 of each data set; then
 * PESC_FORMAT. PESC_USAGE when no record has anything to train on within seq_len. Tells as notices
 * what becomes of records that are longer. Nothing is written. */
pesc_status records_check(pesc_trainer *t);

/* Writes RUN/records.json; the run directory must be there. */
pesc_status records_save(const pesc_trainer *t);

/* Appends how the training data differs from that of RUN/records.json, as a list of files; nothing
 * when it is the same or not known. */
void records_changed(const pesc_trainer *t, str *how);

/* ---- start.c: how a run begins ---- */

/* How far the run goes: in positions of the data, and in steps; again when t->state is another. */
void start_length(pesc_trainer *t);
void start_warmup(pesc_trainer *t);

/* With max_epochs, as preset esft has it: a notice tells how many passes over the records the steps
 * are; PESC_USAGE when they are more. */
pesc_status start_check_epochs(const pesc_trainer *t);

/* Fills in what checkpoints tell of the model, the tokenizer, the data and the options. All
 * processes must have those of rank 0: PESC_USAGE in all of them names the rank where something
 * differs, and what. */
pesc_status start_identify(pesc_trainer *t);

/* Reads and verifies what the run goes on from, if anything, and opens its logs. */
pesc_status start_run(pesc_trainer *t);

/* ---- save.c: checkpoints, written by a thread while the run goes on ----
 *
 * The weights that train and the moments are copied to host memory, and the thread writes the
 * copy: files, hashes, the rename and the removal of older checkpoints. One checkpoint is written
 * at a time: the next one waits for it. Without a thread, before the call returns, are written: the
 * last checkpoint of a run and that of a stop, checkpoints of several processes, which exchange
 * messages while they write, and those whose copy would take more than a quarter of the memory that
 * the host has left. */

/* Before the first step of a run that saves before its end: opens the thread, which touches the
 * memory of the copies, because fresh memory would take the first copy longer than the step. */
void save_open(pesc_trainer *t);

/* Saves the finished step; the caller has settled the checkpoint before. wait: do not use the
 * thread. *saved: it is on the disk when the call returns. */
pesc_status save_step(pesc_trainer *t, bool wait, bool *saved);

/* Looks at the checkpoint that the thread writes, and waits for its end where asked to. True: it
 * is on the disk since this call. A failure becomes a notice. */
bool save_settle(pesc_trainer *t, bool wait);

/* The step of the newest checkpoint, with the one that is being written. */
int64_t save_newest(pesc_trainer *t);

/* Waits for the thread and ends it. */
void save_close(pesc_trainer *t);

#endif
