/* preference_options: the rows of options.h that concern tuning on preferences. Part of options.h,
 * which explains them. Names, defaults and formulas are those of TRL (docs/preferences.md). */
#ifndef PESC_PREFERENCE_OPTIONS_H
#define PESC_PREFERENCE_OPTIONS_H
#ifndef PESC_OPTIONS_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* clang-format off */

/* What a validation measures of a run on preferences, beside the loss. */
#define PESC_PREFERENCE_METRICS                                                                    \
    "loss|rewards/chosen|rewards/rejected|rewards/margins|rewards/accuracies|logps/chosen|"        \
    "logps/rejected"

#define PESC_PREFERENCE_ROWS(X)                                                                    \
    X(CHOICE, objective, "sft", ONE_OF("sft|dpo|ipo|orpo|simpo|kto"), DECIDES, METHOD, PESC_TUNING, \
      "what is learned: answers (sft), or preferences: from pairs of a chosen and a rejected "     \
      "answer (dpo, ipo, orpo, simpo), or from answers that are labelled desirable or not (kto)")  \
    X(REAL, beta, "0.1", RANGE(1e-6, 1e6), DECIDES, METHOD, PESC_TUNING,                           \
      "dpo, kto: how much a reward weighs against leaving the start of the run; ipo: tau; simpo: " \
      "factor on the mean log-probabilities")                                                      \
    X(REAL, label_smoothing, "0", RANGE(0, 0.49), DECIDES, METHOD, PESC_TUNING,                    \
      "dpo, simpo: probability that a pair is the wrong way round")                                \
    X(REAL, simpo_gamma, "0.5", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                       \
      "simpo: margin that the chosen answer is to have")                                           \
    X(REAL, orpo_lambda, "0.1", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                       \
      "orpo: weight of the odds ratio beside the cross-entropy of the chosen answer")              \
    X(REAL, kto_desirable, "1", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                       \
      "kto: weight of desirable answers")                                                          \
    X(REAL, kto_undesirable, "1", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                     \
      "kto: weight of undesirable answers")                                                        \
    X(REAL, sft_coef, "0", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                            \
      "preferences: weight of an added cross-entropy on the chosen answer, against likelihoods "   \
      "that sink together")                                                                        \
    X(CHOICE, metric_for_best_model, "loss", ONE_OF(PESC_PREFERENCE_METRICS), 0, SCHEDULE,         \
      PESC_TUNING,                                                                                 \
      "the measure of validations by which patience counts and the best checkpoint is kept; all "  \
      "but loss are of preferences")

/* clang-format on */
#endif
