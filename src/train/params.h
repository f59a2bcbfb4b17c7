/* params: what trains, as a list over flat buffers.
 *
 * PESC, QLoRA, LoRA, full tuning, upcycling, a mixture of LoRA and ESFT differ only in what enters
 * the list. The optimiser, clipping, checkpoints and counts walk it; the numbers lie in flat f32
 * buffers, so that zeroing, the norm and AdamW are one call each. Between parameters there may be
 * padding, which is zero and stays so.
 *
 * Forward reads what trains in the flat buffers, with one exception: where only some experts of a
 * stack train (ESFT), the stack stays whole and where it is, and after every update the trained
 * ones are written back into it. So the flat buffers hold the chosen experts alone, and forward
 * knows nothing of it.
 *
 * `mirror` shows backward where their gradients are (mirror.h).
 *
 * `own` is the list of ranges that this process updates and has the moments of: all in one process;
 * with several (those that the device of the model has joined) each segment (flat.h) is in one of
 * their lists. Where forward reads a copy in bf16, they divide the master weights as well
 * (`divided`), and what forward reads in f32 (norms, routers, biases) each has a whole copy of,
 * `exact`. Where forward reads the master weights themselves they are whole.
 *
 * Gradients are a flat buffer too, or a window (train_spec.window). Backward completes gradients in
 * stages: those of the head and the final norm, of each layer from the top one down, and of the
 * embeddings. A window has room for any two stages that follow each other: those with an even
 * number begin at its start, the others end at its end. So when a stage begins, the one before the
 * last must have been taken out and its place zeroed. The gradient of embeddings that are also the
 * head has a place of its own, because all stages are between its two parts. */
#ifndef PESC_TRAIN_PARAMS_H
#define PESC_TRAIN_PARAMS_H

#include "arch/family.h"
#include "arch/layers.h"
#include "arch/model.h"
#include "arch/param_group.h"
#include "format/expertcfg.h"
#include "model/cost.h"
#include "model/mirror.h"
#include "train/flat.h"

enum {
    TARGET_Q = 1 << 0,
    TARGET_K = 1 << 1,
    TARGET_V = 1 << 2,
    TARGET_O = 1 << 3,
    TARGET_GATE = 1 << 4,
    TARGET_UP = 1 << 5,
    TARGET_DOWN = 1 << 6,
    TARGET_EXPERTS = 1 << 7, /* gate, up and down of every full expert */
    TARGET_IN = 1 << 8,      /* the input projections of a layer without attention */
    TARGET_ALL = ((1 << 7) - 1) | TARGET_IN,
};

typedef struct train_spec {
    bool adapters, routers, experts;
    bool biases;       /* of linears and of experts, not of routers */
    bool dense_router; /* routers learn from the outputs of all experts */
    bool step_shares;  /* f of the balance loss is that of the whole step */
    bool balance_bias; /* each expert has a bias in the choice, which router_bias.h moves: it is in
                          the list, without a gradient */
    bool base;         /* all else: embeddings, norms, linears, shared experts, biases, head */
    /* ESFT: these experts, and what else the file says; the four flags above are not looked at.
     * Borrowed for as long as the spec and all that was made from it live. NULL: none. */
    const expertcfg *own;
    int32_t lora_r; /* 0: no LoRA trains */
    float lora_alpha, lora_dropout;
    uint32_t lora_targets; /* TARGET_ bits */
    /* LoRA goes to these experts alone, and to what else the file says; borrowed like own. NULL: to
     * all of lora_targets. */
    const expertcfg *lora_own;
    layer_ranges lora_layers;
    float adapter_dropout;
    int32_t molora_experts, molora_k; /* experts 0: no mixture of LoRA; rank is lora_r */
    bool fp8_grads; /* gradients pass through frozen linears in fp8, on a device that has it */
    bool window;    /* gradients have a window: they are added up by rounds (gradient.h) */
    bool no_adapter_copies; /* in bf16 there is no copy of the adapters: products round them each
                               time */
    uint64_t seed;          /* of what is initialised here */
} train_spec;

enum { PARAM_NAME = 160 };

typedef struct param {
    char name[PARAM_NAME]; /* as a file has it; each expert has its own */
    param_group group;
    int64_t at;       /* first element in the flat buffers */
    int64_t grad_at;  /* and in `grad` */
    int64_t work_at;  /* and in `work` */
    int64_t exact_at; /* and in `exact`; -1: forward does not read it in f32 */
    int32_t nd;
    int64_t ne[4];
    int32_t ready; /* its gradient is complete after backward of this layer; n_layers: after that of
                      the head, -1: at the end of backward */
    tensor into; /* its part of the model's stack, which forward reads; absent: the flat buffers */
} param;

/* The place of a stage of backward in the window. */
typedef struct grad_stage {
    int64_t at, n; /* elements */
} grad_stage;

/* Elements [first, end) of the flat buffers that lie side by side in the window. */
typedef struct grad_run {
    flat_range flat;
    int64_t at; /* in the window */
    int32_t stage;
} grad_run;

typedef struct params {
    pesc_model *m; /* borrowed */
    train_spec spec;
    param *list;
    size_t n_list;
    int64_t n;                   /* elements of a flat buffer, padding included */
    int64_t count[PARAM_GROUPS]; /* parameters, padding not included */
    int64_t segment;             /* elements of a segment, but for the last */
    own_range *own;              /* [n_own]: what this process updates */
    size_t n_own;
    int64_t n_kept;  /* elements that it keeps for these alone: moments, divided master weights */
    bool divided;    /* master has them alone */
    tensor master;   /* f32 [n], or of its own ranges */
    int64_t n_grad;  /* elements of `grad`: n, or of the window */
    tensor grad;     /* f32: where backward adds gradients */
    tensor own_grad; /* f32: of a step, its own ranges; absent: they are in `grad` */
    grad_stage *stages; /* [n_stages]; NULL: there is no window */
    int32_t n_stages;
    grad_run *runs; /* [n_runs], in the order of the flat buffers */
    size_t n_runs;
    bool flat;       /* forward reads some of them in the flat buffers */
    int64_t n_work;  /* elements of `work`: n, but without those copies */
    tensor work;     /* bf16: what forward reads there when it computes in bf16; or absent */
    int64_t n_exact; /* elements of `exact` */
    tensor exact;    /* f32, where master is divided */
    void *memory;    /* of master, work and exact: the model's, once its tensors point there */
    size_t memory_bytes;
    void *grad_memory;
    grad_mirror mirror;
    lora *loras; /* those attached here; the model's, like `memory` */
    lora *lora_grads;
} params;

/* Points the model's trained tensors to copies in the flat buffers and attaches LoRA to targets
 * that have none; frozen tensors stay where they are. LoRA that was loaded keeps its rank and
 * scale. A pass opened before does not fit the model any more. The model keeps the copies until it
 * is closed, so it runs with the trained weights after params_close(), but it is opened for
 * training once only: its weights are no longer those of its files. PESC_USAGE when nothing trains,
 * or a weight that trains is held in nf4; then, and when memory runs out, the model is as it was.
 */
pesc_status params_open(params **out, pesc_model *m, const train_spec *spec);
void params_close(params *p); /* NULL is allowed */

/* One parameter's part of a buffer. Of divided master weights there is none: data is NULL. */
tensor params_master(const params *p, const param *q);
tensor params_grad(const params *p, const param *q);

/* Zeroes the place of a stage of the window. The place of embeddings that are also the head is
 * zeroed with stage 0. */
void params_start_stage(params *p, int32_t stage);

/* Zeroes a whole buffer of gradients, but for what the step's first forward
 * (train_input.first) writes instead of adding to: the adapters, which are most of what PESC
 * trains. */
void params_start_grad(params *p);

static inline bool params_has_copy(const params *p, const param *q)
{
    return !p->spec.no_adapter_copies ||
           q->group != PARAM_ADAPTER; /* in `work`, where there is one */
}

/* Elements [first, first + n) of a parameter get the values of `x`, f32 [n] in device memory: in
 * all that this process keeps of them but the stacks of the model. */
void params_put(params *p, const param *q, int64_t first, tensor x);

/* After master changed, forward must see it: all of it, or, where AdamW has written `work` as its
 * copy (as it can where that is whole), what the stacks of the model hold. Master must be whole. */
void params_refresh(params *p);
void params_write_back(params *p);

/* The stages of a window, where there shall be one; false: memory ran out. Then, when their sizes
 * are known, their places. */
bool params_take_stages(params *p, const config *c);
void params_place_stages(params *p, const config *c);

/* When the list is there: where each gradient is, in the window if there is one. */
pesc_status params_place_grads(params *p);

/* In which stage of backward a gradient is completed. */
static inline int32_t params_stage(const params *p, const param *q)
{
    return p->n_stages - 2 - q->ready;
}

static inline bool params_work_whole(const params *p)
{
    return p->work.data && p->n_work == p->n;
}

/* The rank of the LoRA that a linear without one gets; 0: none, as for all other tensors. */
int32_t params_lora_rank(const train_spec *spec, const config *c, const slot *s);

/* Sets the ranks that the buffers of a pass are laid out for to what training will have. */
void params_set_ranks(model_shape *shape, const train_spec *spec);

/* What backward has to know of a spec whose lowest trained layer is `first_layer`. */
backward_facts params_facts(const train_spec *spec, int32_t first_layer);

/* Whether a tensor of a model enters the list. */
bool params_trains(const train_spec *spec, const slot *s);

/* The same counts without a model, for planning; LoRA on all targets. */
typedef struct params_size {
    int64_t n, count[PARAM_GROUPS];
    int64_t n_list, n_work, n_exact, n_grad;
    int32_t first_layer;
    bool flat, own; /* own: train_spec.own */
} params_size;

/* Of weights and gradients, in the one of so many processes that has most. */
int64_t params_bytes(const params_size *z, dtype act_dt, int64_t processes);

/* Whether master is divided among so many processes; own: train_spec.own. */
static inline bool params_divides_master(bool own, dtype act_dt, int64_t processes)
{
    return processes > 1 && act_dt == DT_BF16 && !own;
}

void params_measure(params_size *out, const config *c, const train_spec *spec);

/* As cost_of_training(), of what the spec trains. */
void params_cost(cost_counts *out, const model_shape *m, const train_spec *spec, cost_work w);

/* The configuration as training has it: with a mixture of LoRA, if asked for. */
void params_configure(config *c, const train_spec *spec);

#endif
