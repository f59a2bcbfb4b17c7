/* esft: expert-specialised fine-tuning (ESFT): which experts a task uses, and patches of experts.
 * Part of pesc.h. */
#ifndef PESC_ESFT_H
#define PESC_ESFT_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_esft_score_options {
    size_t size;
    PESC_ESFT_SCORE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_esft_score_options;

typedef struct pesc_esft_score_report {
    size_t size;
    uint64_t tokens, records; /* records: 0 if unknown */
    int64_t layers, experts, top_k;
    double gate_sum; /* sum of the gates of a token, mean over tokens and layers */
    double seconds;  /* of the forward passes */
} pesc_esft_score_report;

/* Scores how much a task uses each expert, in one forward pass over its records up to the last
 * router. Writes out_dir/summary.json: with n tokens and k experts per token, the token score of an
 * expert is its choices / (n k), its gate score the sum of its gates / n, rounded to 4 decimals. */
pesc_status pesc_esft_score(pesc_model *m, pesc_data *d, const char *out_dir,
                            const pesc_esft_score_options *opt, pesc_esft_score_report *out);
/* The same from logs of the reference code: expert_weights_<layer>.txt in log_dir. */
pesc_status pesc_esft_score_logs(const char *log_dir, const char *out_dir,
                                 const pesc_esft_score_options *opt, const pesc_events *ev,
                                 pesc_esft_score_report *out);

typedef struct pesc_esft_select_options {
    size_t size;
    PESC_ESFT_SELECT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_esft_select_options;

/* Experts selected by their scores. Layers are in the order of the summary. */
typedef struct pesc_esft_choice {
    size_t size;
    size_t n_layers, n_experts; /* layers that have experts; experts of a layer */
    int32_t *layers;            /* [n_layers]: their numbers in the model, from 0 */
    double *scores;             /* [n_layers, n_experts] */
    bool *chosen;               /* [n_layers, n_experts] */
    int32_t *order;             /* [n_layers, n_experts]: numbers of the chosen, best first */
    int32_t *counts;            /* [n_layers]: how many are chosen */
    int64_t total;
    /* Set by the caller before pesc_esft_write() and pesc_esft_count(). */
    bool shared_experts;     /* the shared experts train too */
    bool non_expert_modules; /* everything that is not an expert trains too */
} pesc_esft_choice;
void pesc_esft_choice_free(pesc_esft_choice *c); /* clears *c; also after a failure */

/* path: a summary.json, or the directory it is in. */
pesc_status pesc_esft_select(const char *path, const pesc_esft_select_options *opt,
                             const pesc_events *ev, pesc_esft_choice *out);
/* The union of n choices over the same layers: the experts of a layer in the order of the choices,
 * each with its largest score. */
pesc_status pesc_esft_unite(const pesc_esft_choice *const *choices, size_t n,
                            pesc_esft_choice *out);
/* Writes the choice as an expert_cfg.json. */
pesc_status pesc_esft_write(const pesc_esft_choice *choice, const char *path);

typedef struct pesc_esft_counts {
    size_t size;
    uint64_t trainable, total; /* parameters */
    uint64_t bytes;            /* of the trainable ones, in the model's dtype */
} pesc_esft_counts;
/* Counts what of a model a choice trains; fails if the choice is for another model. Reads no
 * weights. */
pesc_status pesc_esft_count(const char *model, const pesc_esft_choice *choice,
                            const pesc_events *ev, pesc_esft_counts *out);

/* Writes the base with the patch applied as a model directory: patched tensors in the dtype in
 * which the base stores them, all others bit for bit. patch_dir as in pesc_model_patch(). The
 * logits of both are compared on dev; dev NULL: they are not compared, and there are no events.
 * out_dir NULL: only checks that the patch is for this base. */
pesc_status pesc_esft_apply(pesc_device *dev, const char *base_dir, const char *patch_dir,
                            const char *out_dir);

/* Writes the base of a tuned model again, as a model directory: tuned_dir is what pesc_esft_apply()
 * wrote, or a run of method esft or its checkpoint, all of which record their base; base_dir (NULL:
 * the recorded one) is where it is now. Every tensor that is not one of the tuned experts must be
 * the base's bit for bit, else it is another model's base and refused. The logits are compared with
 * the base's on dev (NULL: they are not). */
pesc_status pesc_esft_unapply(pesc_device *dev, const char *tuned_dir, const char *base_dir,
                              const char *out_dir);

typedef struct pesc_esft_prune_report {
    size_t size;
    int64_t layers, experts, kept;        /* experts of a layer: before, and after */
    uint64_t params_before, params_after; /* of the whole model */
    double lost; /* the scores of the dropped experts, a part of those of the layer, mean */
} pesc_esft_prune_report;
/* Writes a model of the same family that has the chosen experts alone, in the order in which they
 * were: the choice has as many of each layer, at least as many as a token gets. ev may be NULL. */
pesc_status pesc_esft_prune(const char *model, const pesc_esft_choice *choice, const char *out_dir,
                            const pesc_events *ev, pesc_esft_prune_report *out);

#endif
