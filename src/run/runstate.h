/* runstate: what a run directory and a checkpoint are.
 *
 *     RUN/run.json run.yaml metrics.jsonl ...   what the run is and did
 *     RUN/checkpoint-120/                       all it takes to go on from step 120
 *     RUN/latest -> checkpoint-120
 *
 * A checkpoint is a directory with manifest.json, written last: the size and SHA-256 of every other
 * file, the step, the base model, hashes of what the run was made from, and a seal over the
 * manifest itself. Its weights are what the run trained: adapter_model.safetensors (LoRA, as PEFT
 * writes it) and trained.safetensors (tensors under the names of the base model, which they
 * replace); config_keys.json holds what a method adds to the configuration, where it adds
 * something. A directory without a manifest, or with one that does not agree with the files, is no
 * checkpoint. Nothing here changes or removes what it reads. */
#ifndef PESC_RUN_RUNSTATE_H
#define PESC_RUN_RUNSTATE_H

#include "base/io.h"
#include "base/json.h"
#include "run/runbase.h"
#include "run/runsums.h"

enum { RUNSTATE_VERSION = 1, RUNSTATE_MAX_CHAIN = 8 };

/* No count in a checkpoint (steps, tokens, bytes) is above this, so that sums of counts and a step
 * times a batch stay inside 64 bits. */
#define RUNSTATE_COUNT_MAX ((int64_t)1 << 42)

#define RUNSTATE_TRAINED "trained.safetensors"
#define RUNSTATE_ADAPTER_CONFIG "adapter_config.json"
#define RUNSTATE_CONFIG_KEYS "config_keys.json"

typedef struct runstate_manifest {
    int64_t step;
    char *base;                /* absolute path of the model that was trained */
    char *base_relative;       /* the same from the directory of the run; NULL: not recorded */
    runbase_identity identity; /* of the base */
    char writer[16];           /* version of pesc that wrote it; not used by runstate_seal() */
    char base_hash[17];        /* xxh3 of its configuration and weights, hexadecimal */
    char tokenizer_hash[17];   /* of the files of its tokenizer; "" where the manifest has none */
    char data_hash[17];        /* of the data files, their format and template */
    char config_hash[17];      /* of the options that decide the numbers */
} runstate_manifest;
void runstate_manifest_free(runstate_manifest *m);

/* Writes manifest.json for the files in `dir`. sums: has begun to hash some of them; NULL: none. */
pesc_status runstate_seal(const char *dir, const runstate_manifest *m, runsums *sums);

/* PESC_FORMAT, with the file and the reason, unless every file is as the manifest says. `bytes`
 * false compares sizes only. */
pesc_status runstate_check(const char *dir, bool bytes, runstate_manifest *out);

/* "checkpoint-120" -> 120; -1 for any other name. */
int64_t runstate_step_of(const char *name);

/* The newest good checkpoint of a run, for mem_free(); NULL with PESC_OK when the run has none at
 * all. What `latest` names is tried first, then all by step; each one that fails is named in a
 * notice. PESC_FORMAT when there are some and none is good, or, STRICT, the first is not. */
typedef enum runstate_care {
    RUNSTATE_SIZES,  /* compares sizes only */
    RUNSTATE_HASHES, /* and what is in the files */
    RUNSTATE_STRICT  /* and does not fall back */
} runstate_care;
pesc_status runstate_newest(const char *run, runstate_care care, char **dir);

/* PESC_IO: the run has no checkpoint that could be opened. */
pesc_status runstate_unsaved(const char *run);

/* What a path is, when it is opened as a model. */
typedef enum runstate_kind { RUNSTATE_NEITHER, RUNSTATE_RUN, RUNSTATE_CHECKPOINT } runstate_kind;
runstate_kind runstate_kind_of(const char *path);

/* From a model path to the directories that make it up: dirs[0] the outermost checkpoint, each the
 * base of the one before, the last a plain model directory or file. n is at least 1.
 *
 * `base` (NULL: none) stands for the first base of the chain that is not at its recorded path, or,
 * where all are, for that of the outermost run; PESC_USAGE when `path` is no run. Any other base
 * that is not at its recorded path is searched (runbase_find). One that is not found is the last of
 * the chain under its recorded path: whether it is there is for the caller to see. */
typedef struct runstate_chain {
    char *dirs[RUNSTATE_MAX_CHAIN];
    runstate_manifest about[RUNSTATE_MAX_CHAIN]; /* of all but the last */
    size_t n;
} runstate_chain;
pesc_status runstate_resolve(runstate_chain *out, const char *path, const char *base);
void runstate_chain_free(runstate_chain *c);

#endif
