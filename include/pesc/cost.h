/* cost: what a model costs: parameters, FLOP, bytes, and measured time, also of each operation.
 * Part of pesc.h. */
#ifndef PESC_COST_H
#define PESC_COST_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_cost_options {
    size_t size;
    PESC_COST_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_cost_options;

/* A part of a model. FLOP are those of matrix products, 2 for each multiply-add, of one sequence
 * of `tokens` tokens whose logits are all computed; layers that training recomputes to save memory
 * are not counted. */
typedef struct pesc_cost_part {
    char name[16]; /* "attention", "scores", "ffn", "adapters", ...; "total" */
    uint64_t params, activated, trained;
    uint64_t inference;         /* FLOP of the model as it is */
    uint64_t forward, backward; /* FLOP of training, with the LoRA that the method adds */
} pesc_cost_part;

enum { PESC_COST_PARTS = 16 };

typedef struct pesc_cost_report {
    size_t size;
    char kind[16];   /* "dense", "pesc", "experts", "molora" */
    char method[16]; /* what trains */
    int64_t tokens;
    pesc_cost_part total, parts[PESC_COST_PARTS]; /* parts that the model does not have are left out
                                                   */
    size_t n_parts;
    uint64_t weight_bytes;     /* as they are held in memory */
    uint64_t kv_bytes;         /* of one token in the KV cache */
    uint64_t inference_bytes;  /* activations and scratch of a forward of `tokens` tokens */
    uint64_t activation_bytes; /* of a training step of `tokens` tokens, every layer kept */
    uint64_t trained_bytes;    /* weights that train, their gradients and moments (AdamW) */
    int64_t lora_r; /* rank of the LoRA that trains: the model's own, or options.lora_r; 0:
                       none */
} pesc_cost_report;

/* Counts from the configuration and file headers; path may also be a config.json alone. Without
 * opt->method, what trains is what the model is made for: adapters with routers and LoRA, full
 * experts with routers and LoRA, a mixture of LoRA, or LoRA on a dense model. */
pesc_status pesc_cost(pesc_device *dev, const char *path, const pesc_cost_options *opt,
                      pesc_cost_report *out);

typedef enum pesc_cost_phase {
    PESC_COST_PREFILL = 0, /* `tokens` of each sequence at once; the last one's logits */
    PESC_COST_DECODE = 1,  /* one token of each sequence, after `tokens` in the KV cache */
    PESC_COST_TRAIN = 2    /* a step: forward, backward and the optimiser's update */
} pesc_cost_phase;

/* One measurement: the caller sets the first three, pesc_cost_measure() the others. */
typedef struct pesc_cost_run {
    pesc_cost_phase phase;
    int64_t tokens, sequences;
    double seconds; /* the shortest of three, after one that is not counted; NaN: no memory */
    double update_seconds; /* of these, the optimiser's */
    uint64_t flop;         /* of all sequences */
    uint64_t bytes;        /* memory that model and run take */
    bool recomputed; /* not all layers kept their activations: more than `flop` was computed */
} pesc_cost_run;

/* Opens the model, runs all of them on random tokens, and closes it. Phases of inference come
 * first, with the model opened as by `pesc generate`: with bf16 its LoRA is merged. On a CPU bytes
 * are resident memory of the process, on a GPU memory taken from it. */
pesc_status pesc_cost_measure(pesc_device *dev, const char *path, const pesc_cost_options *opt,
                              pesc_cost_run *runs, size_t n);

/* Whether each operation of the device is timed from now on; true also forgets what was timed
 * before. Every operation is then waited for, so all are a little slower, on a GPU much. Not while
 * another thread uses the device. */
pesc_status pesc_device_profile(pesc_device *dev, bool on);

typedef struct pesc_profile_row {
    char name[32]; /* of the operation, and for products the format of the weights: "matmul q4_k" */
    uint64_t calls;
    uint64_t weight_bytes; /* of the matrices of products; 0: no product */
    double seconds;
} pesc_profile_row;

/* What was timed, the slowest first. Returns how many rows there are, of which at most `cap` are
 * written; rows NULL: none. */
size_t pesc_device_profile_rows(const pesc_device *dev, pesc_profile_row *rows, size_t cap);

#endif
