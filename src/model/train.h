/* train: the loss of some packed sequences, and its gradients.
 *
 * The head and the cross-entropy see target rows only, a chunk at a time: [tokens, vocabulary]
 * never exists. Gradients of parameters are added to params.grad, so several calls make one step.
 * Backward ends at the lowest layer that trains. */
#ifndef PESC_MODEL_TRAIN_H
#define PESC_MODEL_TRAIN_H

#include "model/model.h"
#include "model/params.h"

typedef struct train_input {
    const token_seq *seqs;
    int32_t n_seqs;
    const int32_t *rows, *targets; /* packed row rows[i] predicts targets[i]; ascending */
    const float *weights;          /* of each target in the loss */
    int32_t n_targets;
    float aux_weight;             /* of the balance loss in what is differentiated */
    uint64_t step, micro;         /* names the dropout masks */
    bool first;                   /* of a step, after params_start_grad() */
    void (*meanwhile)(void *ctx); /* called once all work is with the device; NULL: nothing to do */
    void *ctx;
} train_input;

typedef struct train_output {
    double ce;  /* weighted sum over the targets */
    double aux; /* mean over sparse layers of E sum_i f_i P_i; 0 without experts */
    bool finite;
    /* until the next call; NULL without experts */
    const int64_t *counts; /* [n_layers, E]: choices that fell on each expert */
    const float *balance;  /* [n_layers, 2 E + 1]: f, then P of each layer, and its aux */
} train_output;

/* How many layers keep their activations for backward, from the lowest that it reaches on: all of
 * them, and, behind these, what a light slot has (block.h). More than there are: all. */
typedef struct train_keep {
    int32_t whole, light;
} train_keep;

/* How a pass for training is laid out. */
typedef struct train_plan {
    bool on;
    int32_t first; /* backward reaches this layer */
    train_keep keep;
    int32_t dropped; /* widest input that LoRA reads with dropout; 0: none */
} train_plan;

train_plan train_plan_of(const config *c, const train_spec *s, int32_t first_layer,
                         train_keep keep);

/* A pass over the model of `ps`, for model_train and model_loss alone. */
pesc_status pass_open_train(pass **out, pesc_model *m, pass_limits lim, const params *ps,
                            train_keep keep);

/* What that takes on the device. Of `shape` only dev, cfg, act_dt and lora_rank are looked at. */
size_t pass_train_bytes(const pesc_model *shape, const train_plan *plan, pass_limits lim);

pesc_status model_train(pesc_model *m, pass *p, const train_input *in, train_output *out);
pesc_status model_loss(pesc_model *m, pass *p, const train_input *in, train_output *out);

/* Parts of the pass' layout. */
void train_layout(pass *p, arena *a, int64_t n, int64_t n_out);
void train_host_layout(pass *p, arena *a);

#endif
