/* parts: the tensors of a checkpoint, by file: what a run trained (LoRA as PEFT writes it, the rest
 * under the base model's names) and the optimiser's moments. */
#ifndef PESC_TRAIN_PARTS_H
#define PESC_TRAIN_PARTS_H

#include "run/runstate.h"
#include "train/optimizer.h"

typedef enum part { PART_ADAPTER, PART_TRAINED, PART_MOMENTS, PARTS } part;

/* One tensor of a file, in device memory. */
typedef struct part_entry {
    char name[PARAM_NAME + 20];
    tensor t;    /* as the file has it; where it is divided, data is what this process has of all */
    int64_t per; /* divided: elements of the flat buffers to one of t; 0: t is whole */
    int64_t at;  /* divided: where t begins in the flat buffers */
    const param *q; /* NULL: moments */
} part_entry;

typedef struct part_list {
    part_entry *list;
    size_t n, cap;
    uint64_t bytes;
} part_list;

typedef struct parts {
    params *p;     /* borrowed */
    bool on_host;  /* the tensors are copies in host memory */
    runsums *sums; /* hashes files once they are filled; NULL: other processes fill them too */
    part_list of[PARTS];
} parts;

/* `o` NULL: without moments. Closed by parts_free even when it failed. */
pesc_status parts_collect(parts *a, params *p, const optimizer *o);
void parts_free(parts *a);
uint64_t parts_bytes(const parts *a); /* of all files, with an estimate for headers */

/* The files that are not empty are written into `dir` by all processes at the same time: rank 0
 * lays them out, and when that is done each process fills in its part: what it owns of what is
 * divided, and every size-th tensor of what all have. */
pesc_status parts_lay_out(const parts *a, const char *dir);
pesc_status parts_fill(const parts *a, const char *dir);

/* Fills all tensors, and what forward reads of them, from the files in `dir`, moments with what
 * this process owns; each must be there with the same dtype and shape, and no other weight. */
pesc_status parts_read(const parts *a, const char *dir);

#endif
