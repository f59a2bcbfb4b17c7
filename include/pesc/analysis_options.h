/* analysis_options: the rows of options.h for functions that look at models: routes, compare, cost.
 * Part of options.h, which explains them. */
#ifndef PESC_ANALYSIS_OPTIONS_H
#define PESC_ANALYSIS_OPTIONS_H
#ifndef PESC_OPTIONS_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* clang-format off */

/* ---- pesc_routes_options: which experts are chosen ---- */

#define PESC_ROUTES_OPTIONS(X, ALSO)                                                               \
    X(LIST, data, NONE, NAMED("FILE"), PATH, DATA, "routes",                                       \
      "the records to route; may be given several times")                                          \
    X(INT, limit, "0", RANGE(0, 1e15), 0, DATA, "routes",                                          \
      "the first N records of each domain; 0 is all")                                              \
    PESC_RECORD_ROWS(X, "routes", 0)                                                               \
    X(INT, seq_len, "1024", RANGE(2, 1048576), 0, DATA, "routes",                                  \
      "number of tokens of a record that are routed")                                              \
    PESC_REASONING_ROW(X, "routes", 0)                                                             \
    X(AUTO_INT, layer, "auto", RANGE(0, 1048576), 0, METHOD, "routes",                             \
      "a layer to look at closely: bars of each choice, and the tokens that each expert takes; "   \
      "auto is none")                                                                              \
    X(INT, permutations, "1000", RANGE(0, 1000000), 0, METHOD, "routes",                           \
      "exchanges of domains among records, to test whether they differ by more than chance; 0 is " \
      "no test")                                                                                   \
    X(INT, seed, "0", PESC_ANY_SEED, 0, METHOD, "routes",                                          \
      "seed of the exchanges")                                                                     \
    PESC_UNPACK_ROW(X, "routes", 0)                                                                \
    PESC_TURNS_ROWS(X, "routes", 0)

/* ---- pesc_compare_options: how two models differ ---- */

#define PESC_COMPARE_OPTIONS(X, ALSO)                                                              \
    X(LIST, data, NONE, NAMED("FILE"), PATH, DATA, "compare",                                      \
      "the records that both models read; may be given several times")                             \
    X(INT, limit, "0", RANGE(0, 1e15), 0, DATA, "compare",                                         \
      "the first N records; 0 is all")                                                             \
    PESC_RECORD_ROWS(X, "compare", 0)                                                              \
    X(INT, seq_len, "512", RANGE(2, 1048576), 0, DATA, "compare",                                  \
      "number of tokens of a record that are read, and of a forward pass")                         \
    PESC_REASONING_ROW(X, "compare", 0)                                                            \
    PESC_UNPACK_ROW(X, "compare", 0)                                                               \
    PESC_TURNS_ROWS(X, "compare", 0)

/* ---- pesc_cost_options: parameters, FLOP and bytes ---- */

#define PESC_COST_OPTIONS(X, ALSO)                                                                 \
    X(INT, tokens, "2048", RANGE(1, 16777216), 0, METHOD, "cost",                                  \
      "length of the sequence whose FLOP and bytes are counted")                                   \
    X(CHOICE, method, NONE, ONE_OF("pesc|qlora|lora|full|upcycle|molora|esft|router|bias"), 0, METHOD, "cost", \
      "what trains; if absent, what the model is made for: pesc for adapters, upcycle for full "   \
      "experts, molora for a mixture of LoRA, lora for a dense model")                             \
    X(TEXT, experts_config, NONE, NAMED("FILE"), PATH, METHOD, "cost",                             \
      "method esft: the experts that train (expert_cfg.json)")                                     \
    X(INT, experts, "8", RANGE(1, 4096), 0, METHOD, "cost",                                        \
      "method molora on a dense model: number of experts of a layer")                              \
    X(INT, top_k, "2", RANGE(1, 4096), 0, METHOD, "cost",                                          \
      "method molora on a dense model: number of experts that process a token")                    \
    X(INT, lora_r, "64", RANGE(0, 65536), 0, METHOD, "cost",                                       \
      "rank of the LoRA that training adds; 0 is no LoRA")                                         \
    X(WORDS, lora_targets, "all", NAMED("LIST"), 0, METHOD, "cost",                                \
      "linears that get LoRA: all, or some of "                                                    \
      "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj and in_proj (what layers "          \
      "without attention read; their output is o_proj, and so is out_proj); experts adds those of every full "  \
      "expert")                                                                                    \
    X(CHOICE, base_dtype, NONE, ONE_OF("f32|bf16|nf4"), 0, MODEL, "cost",                          \
      "how weights are held in memory; as stored if absent, nf4 for method qlora")                 \
    X(CHOICE, compute_dtype, NONE, ONE_OF("f32|bf16"), 0, MODEL, "cost",                           \
      "dtype of activations and KV cache; f32 if absent")                                          \
    X(TEXT, base, NONE, NAMED("DIR"), PATH, MODEL, "cost",                                         \
      "directory of the base of a run, where it is not at the recorded path")                      \
    X(TEXT, experts_from, NONE, NAMED("FILE"), PATH, METHOD, "cost",                               \
      "methods lora and qlora: the experts that get LoRA (expert_cfg.json)")

/* clang-format on */
#endif
