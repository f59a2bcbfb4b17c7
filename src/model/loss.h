/* train: the loss of one micro-batch of packed sequences, and its gradients.
 *
 * model_train() walks through the phases of a pass: forward over all layers, head and loss, then
 * from the top layer down to the lowest one that trains: recompute what the layer did not keep
 * (recompute.h), backward.
 *
 * The head and the cross-entropy see target rows only, a chunk at a time, so the logits of all
 * tokens never exist at once. Gradients of parameters are added to the mirror: gradient
 * accumulation is several calls.
 *
 * A loss whose weights depend on what forward gives (of preferences: `weigh`) takes the head twice:
 * the cross-entropy of all target rows first, then, with the weights that follow from it, their
 * gradients. The second time begins with the chunk whose logits are still there. */
#ifndef PESC_MODEL_LOSS_H
#define PESC_MODEL_LOSS_H

#include "model/forward.h"
#include "model/mirror.h"
#include "model/recompute.h"

typedef struct train_input {
    const token_seq *seqs;
    int32_t n_seqs;
    const int32_t *rows, *targets; /* packed row rows[i] predicts targets[i]; ascending */
    const float *weights;          /* of each target in the loss */
    /* model_train: called after forward with the cross-entropy of each target, to fill in
     * `weights`; NULL: they are there. */
    void (*weigh)(void *ctx, const float *losses);
    int32_t n_targets;
    float aux_weight; /* of the balance loss in what is differentiated, */
    float z_weight;   /* and of the z-loss: means over the sparse layers */
    /* model_train: f of the balance loss, [sparse layers, E]; NULL: that of this micro-batch. With
     * backward_facts.step_shares alone. */
    const float *shares;
    uint64_t step, micro;   /* name the dropout masks */
    uint64_t domain;        /* of all its tokens, as a bit of expert_list.domains; 0: none */
    bool first_micro_batch; /* of a step: gradients of adapters are written, not added to */
    /* Called when the device has the work up to backward of a layer, from n_layers, the head, down
     * to the lowest that trains; NULL: nothing to do. */
    void (*layer_done)(void *ctx, int32_t layer);
    void (*meanwhile)(void *ctx); /* called once the device has all its work; NULL: nothing to do */
    void *ctx;
} train_input;

typedef struct train_output {
    double ce;  /* weighted sum over the targets */
    double aux; /* mean over sparse layers of E sum_i f_i P_i; 0 without experts */
    double z;   /* the same of the mean of logsumexp(logits)^2 */
    bool finite;
    const float *losses; /* [n_targets]: the cross-entropy of each; valid until the next call */
    /* valid until the next call; NULL without experts */
    const int64_t *counts; /* [n_layers, E]: tokens that chose each expert */
    const float *balance;  /* [n_layers, 2 E + 2]: f, then P of each layer, its aux and its z */
} train_output;

/* What the memory of a pass for training depends on, beside its limits. */
typedef struct train_plan {
    recompute_plan recompute;
    int32_t dropout_width; /* of the widest input that LoRA reads with dropout; 0: none */
    bool fp8_grads;        /* backward_facts.fp8 */
    bool dense_router;     /* backward_facts.dense_router */
    bool step_shares;      /* backward_facts.step_shares */
} train_plan;

train_plan train_plan_of(const config *c, const backward_facts *f, keep_counts keep);

/* A pass for model_train and model_loss alone; g is the mirror of m, borrowed. */
pesc_status pass_open_train(pass **out, pesc_model *m, pass_limits lim, const grad_mirror *g,
                            keep_counts keep);

/* The bytes such a pass takes on the device, with the scratch of its ops where that is not reserved
 * yet. Without blocks its weights count as being in the type of the activations. */
size_t pass_train_bytes(device *dev, const model_shape *m, const train_plan *plan, pass_limits lim);

/* The same of a pass for inference without a cache. */
size_t pass_infer_bytes(device *dev, const model_shape *m, pass_limits lim);

/* The loss with dropout, and its gradients. */
pesc_status model_train(pesc_model *m, pass *p, const train_input *in, train_output *out);

/* The forward of model_train() alone, for what its routers choose: *out has neither ce nor losses.
 */
pesc_status model_choose(pesc_model *m, pass *p, const train_input *in, train_output *out);

/* The loss alone, without dropout. */
pesc_status model_loss(pesc_model *m, pass *p, const train_input *in, train_output *out);

#endif
