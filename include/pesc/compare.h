/* compare: how two models differ on the same tokens. Part of pesc.h. */
#ifndef PESC_COMPARE_H
#define PESC_COMPARE_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_compare_options {
    size_t size;
    PESC_COMPARE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_compare_options;

/* Distances are |a - b| / |a|, norms over all tokens together; 0: equal. */
typedef struct pesc_compare_layer {
    double ffn;      /* of what the FFN, or the experts together, add to the residual stream */
    double residual; /* of the residual stream after the layer */
    /* Equation 6 of the PESC paper, where one model has adapters and the other full experts, as
     * many of them: every expert of both computes the outputs of all tokens, from the same input,
     * that of model a in this layer. |full - adapter| / |full|, mean over the experts; NaN where
     * it does not apply. */
    double experts; /* of experts with the same number */
    double nearest; /* of each full expert and the adapter nearest to it */
} pesc_compare_layer;

typedef struct pesc_compare_report {
    size_t size;
    uint64_t records, tokens;
    pesc_compare_layer *layers;
    size_t n_layers;
    double kl;             /* mean KL divergence of b's next token from a's, in nats */
    uint64_t greedy_same;  /* tokens after which the most likely next one is the same */
    uint64_t targets;      /* tokens that have a next one in their record */
    double loss_a, loss_b; /* mean -log p of these, in nats; NaN: there are none */
} pesc_compare_report;

/* Runs the records through both models, which must be open on one device and have the same width,
 * layers and vocabulary (PESC_SHAPE). Tokenizer and chat format are those of a. a and b may be the
 * same model. */
pesc_status pesc_compare(pesc_model *a, pesc_model *b, const pesc_compare_options *opt,
                         pesc_compare_report *out);
void pesc_compare_free(pesc_compare_report *r); /* also after a failure */

#endif
