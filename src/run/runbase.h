/* runbase: the base of a run, the model that was trained: where it is now, whether it is still the
 * model it was, and how the run held it in memory. */
#ifndef PESC_RUN_RUNBASE_H
#define PESC_RUN_RUNBASE_H

#include "base/json.h"
#include "format/weights.h"

/* What a checkpoint records of its base, to see without reading all of it whether it has changed:
 * 16 hexadecimal digits each, "" where the checkpoint has none. */
typedef struct runbase_identity {
    char config[17];  /* of the configuration */
    char tensors[17]; /* of names, dtypes, shapes and sizes of all tensors */
    char samples[17]; /* of blocks of every tensor */
} runbase_identity;

/* config NULL: it is not recorded. */
void runbase_identify(runbase_identity *out, const json_t *config, const weights *ws);

/* PESC_FORMAT, naming the base and what differs, where tensors or samples are not as recorded. A
 * configuration that changed, and a record without an identity, are notices. `run` and `base` are
 * for the sentence. */
pesc_status runbase_check(const runbase_identity *then, const runbase_identity *now,
                          const char *run, const char *base);

/* Where a base may be. */
typedef struct runbase_place {
    const char *run;      /* the directory of the run */
    const char *path;     /* recorded: absolute */
    const char *relative; /* recorded: from the run; "": not recorded */
} runbase_place;

/* The recorded path if something is there; else what is at the relative path, or beside the run
 * under the same name, with a notice; else NULL with PESC_OK. For mem_free(). */
pesc_status runbase_find(char **out, const runbase_place *p);

/* PESC_IO: the base of a run was not found; `path` is where it was. */
pesc_status runbase_missing(const char *run, const char *path);

/* The path from directory `from` to `to`, both absolute, for mem_free(). */
pesc_status runbase_relative(char **out, const char *from, const char *to);

/* How the run that left a checkpoint held its model, from the run.yaml in it. */
typedef struct runbase_held {
    bool found;            /* there is one */
    char base_dtype[8];    /* "" as stored */
    char compute_dtype[8]; /* "": f32 */
    bool double_quant;
    bool whole_experts; /* with nf4: experts train, so they were held as stored */
} runbase_held;
pesc_status runbase_read_held(runbase_held *out, const char *checkpoint);

/* The options under which it is held so, in the place of those that are absent; whole_experts where
 * base_dtype is the run's. A trainer opens its model with them too. */
void runbase_load(const runbase_held *h, pesc_load_options *out);

/* Whether a method trains full experts, so that they are not held in nf4. */
bool runbase_trains_experts(const char *method);

#endif
