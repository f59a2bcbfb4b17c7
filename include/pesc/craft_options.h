/* craft_options: the rows of options.h for functions that make a model from another: craft, merge,
 * export. Part of options.h, which explains them. */
#ifndef PESC_CRAFT_OPTIONS_H
#define PESC_CRAFT_OPTIONS_H
#ifndef PESC_OPTIONS_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* clang-format off */

/* ---- pesc_craft_options: a sparse model from a dense one ---- */

#define PESC_CRAFT_OPTIONS(X, ALSO)                                                                \
    X(CHOICE, kind, "pesc", ONE_OF("pesc|upcycle|molora"), 0, METHOD, "craft",                     \
      "experts are adapters on the output of the FFN, or of the experts that a mixture has, full "   \
      "copies of the FFN, or the LoRAs of experts_from")                                           \
    PESC_EXPERT_ROWS(X, "craft", 0, "")                                                            \
    X(INT, seed, "0", PESC_ANY_SEED, 0, METHOD, "craft",                                           \
      "seed of the random initial values of routers and adapters")                                 \
    X(CHOICE, dtype, NONE, ONE_OF("bf16|f32"), 0, OUTPUT, "craft",                                 \
      "dtype of the weights that are written; as stored if absent, bf16 where they are quantised") \
    X(TEXT, tokenizer, NONE, NAMED("PATH"), PATH, MODEL, "craft",                                  \
      "directory or file from which tokenizer files are copied; the model's own if absent")        \
    X(BOOL, check, "true", YES_NO, 0, OUTPUT, "craft",                                             \
      "open both models and compare their logits; needs the memory to run each of them")           \
    X(TEXT, base, NONE, NAMED("DIR"), PATH, MODEL, "craft",                                        \
      "directory of the base of a run, where it is not at the recorded path")                      \
    X(CHOICE, activation, "gelu", ONE_OF("gelu|silu|relu"), 0, METHOD, "craft",                    \
      "activation of the adapters")                                                                \
    X(CHOICE, router, "softmax-after", ONE_OF("softmax-after|softmax-before"), 0, METHOD, "craft", \
      "gates of adapters: the softmax of the k chosen logits, as in Mixtral, or the k largest of " \
      "the softmax of all logits, not renormalised, as in Switch")                                 \
    X(WORDS, layers, "all", NAMED("LIST"), 0, METHOD, "craft",                                     \
      "layers that become sparse: all, or numbers and ranges that count from 0, such as 0-11,20")  \
    X(INT, granularity, "1", RANGE(1, 4096), 0, METHOD, "craft",                                   \
      "upcycle: cut each copy of the FFN into G experts of 1/G of its width: experts G and top_k " \
      "G, with the function of the dense model")                                                   \
    X(INT, shared, "0", RANGE(0, 1), 0, METHOD, "craft",                                           \
      "upcycle: 1 adds a copy of the FFN that every token takes, and that gives half of the "      \
      "output")                                                                                    \
    X(REAL, reinit, "0", RANGE(0, 1), 0, METHOD, "craft",                                          \
      "upcycle: fraction of the hidden units of each expert that is drawn anew, with the mean and " \
      "variance of the layer's matrix, so that experts differ (Drop-Upcycling); the function is "  \
      "then no longer the dense model's")                                                          \
    X(WORDS, experts_from, NONE, NAMED("RUN,..."), 0, METHOD, "craft",                             \
      "upcycle: runs or directories of models that were tuned from DENSE, with full weights or LoRA: " \
      "the FFN of each is an expert of each layer, instead of copies; molora: its LoRA on the FFN " \
      "is; as many experts as names")                                                              \
    X(CHOICE, others, "mean", ONE_OF("mean|base|first"), 0, METHOD, "craft",                       \
      "experts_from: all other weights are the mean of those models', DENSE's, or the first one's")

/* ---- pesc_export_options: merge and export ---- */

#define PESC_EXPORT_OPTIONS(X, ALSO)                                                               \
    X(TEXT, lora, NONE, NAMED("DIR"), PATH, MODEL, "merge export",                                 \
      "directory of a PEFT adapter; the one in the model's directory if absent")                   \
    X(CHOICE, merge_base, NONE, ONE_OF("original|nf4-dequant"), 0, MODEL, "merge export",          \
      "add a LoRA to the stored weights, or to those weights after quantisation to NF4 and back; " \
      "if absent, to the weights it was trained on")                                               \
    X(BOOL, double_quant, "true", YES_NO, 0, MODEL, "merge export",                                \
      "with nf4-dequant: quantise the scales too")                                                 \
    X(CHOICE, dtype, NONE, ONE_OF("f32|f16|bf16|q8_0|q4_0|q4_k|q6_k"), 0, OUTPUT, "export",        \
      "dtype of the weights that are written (f16 and q..: with gguf); as stored if absent, bf16 " \
      "where they are quantised")                                                                  \
    ALSO(CHOICE, dtype, NONE, ONE_OF("bf16|f32"), 0, OUTPUT, "merge",                              \
         "dtype of the weights that are written; as stored if absent, bf16 where they are "        \
         "quantised")                                                                              \
    X(TEXT, tokenizer, NONE, NAMED("PATH"), PATH, MODEL, "merge export",                           \
      "directory or file from which tokenizer files are copied; the model's own if absent")        \
    X(BOOL, check, "true", YES_NO, 0, OUTPUT, "merge export",                                      \
      "open both models and compare their logits; needs the memory to run each of them")           \
    X(TEXT, base, NONE, NAMED("DIR"), PATH, MODEL, "merge export",                                 \
      "directory of the base of a run, where it is not at the recorded path")

/* clang-format on */
#endif
