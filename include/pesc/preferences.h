/* preferences: answers of which one is better (docs/preferences.md). Part of pesc.h. */
#ifndef PESC_PREFERENCES_H
#define PESC_PREFERENCES_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* The answers of a record, each with its prompt: one, or the chosen and the rejected of a pair.
 * role: "" of an instruction; else "chosen" or "rejected", where a label says so "desirable" or
 * "undesirable". The arrays are valid until the next call. */
typedef struct pesc_data_answer {
    const int32_t *ids, *labels;
    size_t n;
    const char *role;
} pesc_data_answer;
pesc_status pesc_data_answers(pesc_data *d, uint64_t index, pesc_data_answer out[2], size_t *n);

/* Means over the answers of a step or a validation, of a run on preferences; NaN: not measured. */
typedef struct pesc_preference {
    int64_t answers;                               /* 0: nothing was measured */
    double reward_chosen, reward_rejected, margin; /* of desirable and undesirable ones with kto */
    double accuracy;                               /* pairs whose chosen answer has the higher */
    double logp_chosen, logp_rejected;             /* log-probabilities */
    double kl;                                     /* kto: from the start of the run */
} pesc_preference;

#endif
