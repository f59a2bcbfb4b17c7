/* options: every option of the library, one row each. (What only the command has is in
 * src/cli/opt/opt_rows.h.)
 *
 *     X(kind, key, default, accepts, flags, group, commands, help)
 *
 * A row is the only place where an option is written down. From it come the field of the public
 * struct, its default and range check, the key in a YAML file, the flag of the command (--lora-r
 * for lora_r), --help, the manual page, the reference pages, `pesc init`, run.yaml and the hash
 * that a resumed run must match. To add an option, append a row at the end of its map and write
 * the code that reads the field.
 *
 * kind      type of the field, and what a user may write
 *           TEXT             const char *      any text; NULL or "" means that none is given
 *           CHAT             const char *      name of a chat format; the field is chat_<key>,
 *                                              because `template` is a keyword of C++
 *           CHOICE           const char *      one of the values listed in `accepts`
 *           WORDS            const char *      words separated by commas; a file may write a list
 *           INT, REAL        int64_t, double   a number in the range given by `accepts`
 *           AUTO_INT, AUTO_REAL                the same, or "auto", which is stored as PESC_AUTO
 *           BOOL             bool              true or false
 *           LIST             const char *const *key; size_t n_<key>;      any number of texts
 * default   the text a user would write, or NONE (texts, choices and lists)
 * accepts   RANGE(least, most), ONE_OF("a|b"), or NAMED("DIR"), the name of the value in the help;
 *           YES_NO for BOOL
 * flags     DECIDES: changes the numbers of a run, so that a resumed run must have the same value;
 *           LENGTH: only if the schedule depends on the number of steps;
 *           PATH: a file or directory, which run.yaml records as an absolute path;
 *           UNSAVED: concerns one call and is not recorded in run.yaml; or 0
 * group     the heading under which the help of a command lists it: see pesc_option_group
 * commands  names of the commands that take the option, separated by spaces; "*" is every command,
 *           "" is none (a field of the C API alone)
 * help      what the option means. It is also the documentation of the field.
 *
 * ALSO(...), directly after an X row, is a further row of the same field: the same option in other
 * commands, with another default, range or help text. C callers get the default and the range of
 * the X row.
 *
 * Append new rows at the end of their map, and do not reorder or remove rows: programs that were
 * compiled with an earlier version have the fields at the same offsets (see option_table.h).
 *
 * The words RANGE, DECIDES and so on are defined by the library where it makes its table. */
#ifndef PESC_OPTIONS_H
#define PESC_OPTIONS_H

/* Value of an AUTO_INT or AUTO_REAL field that the library is to choose. */
#define PESC_AUTO (-1)

/* clang-format off */

/* ---- ranges and rows that several structs share ---- */

#define PESC_ANY_SEED RANGE(0, 9e18)
#define PESC_ANY_STEP RANGE(0, 2147483647)
#define PESC_ANY_TOKENS RANGE(0, 16777216)

/* The shape of a sparse model: craft makes it, train must be able to name it. */
#define PESC_EXPERT_ROWS(X, commands, flags, note)                                                 \
    X(INT, experts, "8", RANGE(0, 4096), flags, METHOD, commands,                                  \
      "number of experts of a layer" note)                                                         \
    X(INT, top_k, "2", RANGE(0, 4096), flags, METHOD, commands,                                    \
      "number of experts that process a token" note)                                               \
    X(INT, adapter_dim, "512", RANGE(0, 4194304), flags, METHOD, commands,                         \
      "width of an adapter" note)                                                                  \
    X(REAL, adapter_scale, "1", RANGE(-1e6, 1e6), flags, METHOD, commands,                         \
      "factor on the output of the adapters; 0.25 in the published models" note)

/* How instruction records are read. */
#define PESC_RECORD_ROWS(X, commands, flags)                                                       \
    X(TEXT, format, NONE, NAMED("NAME"), flags, DATA, commands,                                    \
      "format of the records; detected from the first record if absent")                           \
    X(CHAT, template, NONE, NAMED("NAME"), flags, DATA, commands,                                  \
      "chat format in which records are written; the model's own if absent")

#define PESC_REASONING_ROW(X, commands, flags)                                                     \
    X(BOOL, keep_reasoning, "true", YES_NO, flags, DATA, commands,                                 \
      "false is the same as reasoning: drop")

#define PESC_TURNS_ROWS(X, commands, flags)                                                        \
    X(CHOICE, reasoning, "keep", ONE_OF("keep|last|drop|mask"), flags, DATA, commands,             \
      "reasoning of answers (reasoning_content, reasoning, thinking, <think>): keep it, keep that "\
      "of the last answer, drop it, or mask it: it is read but not trained")                       \
    X(CHOICE, turns, "all", ONE_OF("all|last|split"), flags, DATA, commands,                       \
      "answers of a conversation that are trained: all at once, the last, or each in a sample of " \
      "its own with the messages before it")

#define PESC_UNPACK_ROW(X, commands, flags)                                                        \
    X(INT, unpack_ratio, "20", RANGE(1, 1e9), flags, DATA, commands,                               \
      "refuse compressed and Parquet files that unpack to more than N times their size, and to "   \
      "more than 16 MiB")

/* ---- pesc_load_options: how a model is opened ---- */

#define PESC_OPENING "generate chat logits perplexity eval routes info esft bench serve"

#define PESC_LOAD_OPTIONS(X, ALSO)                                                                 \
    X(CHOICE, base_dtype, NONE, ONE_OF("f32|bf16|nf4|stored"), 0, MODEL, PESC_OPENING " compare",  \
      "how weights are held in memory; if absent, a run as it was trained, any other model as "    \
      "stored, but f16 as f32, and on a GPU a GGUF's quantised weights as bf16 (f32 if it does "   \
      "not multiply bf16) and, where it computes in bf16, f32 as bf16; stored: the same, but "     \
      "quantised weights and f32 always as f32")                                                   \
    X(BOOL, double_quant, "true", YES_NO, 0, MODEL, PESC_OPENING " compare",                       \
      "with nf4: quantise the scales too")                                                         \
    X(CHOICE, compute_dtype, NONE, ONE_OF("auto|f32|bf16"), 0, MODEL, PESC_OPENING " compare",     \
      "dtype of the activations; auto, which is the default of all commands but logits and "       \
      "compare (f32): of a run as it was trained, of any other model bf16 where the device "       \
      "multiplies it faster, else f32; eval of several models has one for all, that of the run")                                                     \
    X(TEXT, lora, NONE, NAMED("DIR"), PATH, MODEL,                                                 \
      "generate chat logits perplexity eval routes info esft bench",                               \
      "directory of a PEFT adapter to apply")                                                      \
    X(TEXT, patch, NONE, NAMED("DIR"), PATH, MODEL,                                                \
      "generate chat logits perplexity eval routes info esft bench train plan",                    \
      "directory of an expert patch to apply")                                                     \
    X(BOOL, whole_experts, "false", YES_NO, 0, MODEL, "",                                          \
      "with nf4: hold full experts as they are stored, so that they can train")                    \
    X(TEXT, base, NONE, NAMED("DIR"), PATH, MODEL, PESC_OPENING,                                   \
      "directory of the base of a run, where it is not at the recorded path")                      \
    X(BOOL, merge_lora, "false", YES_NO, 0, MODEL, "",                                             \
      "the model is not to be trained, and with compute_dtype bf16 a LoRA is added to the "        \
      "weights, which rounds them once more; with nf4 it is held in bf16 instead")                 \
    ALSO(BOOL, merge_lora, "true", YES_NO, 0, MODEL, "generate chat bench serve",                  \
         "with compute_dtype bf16: add a LoRA to the weights when they are loaded, which rounds "  \
         "them once more and saves its products; with nf4 it is held in bf16 instead")             \
    ALSO(BOOL, merge_lora, "false", YES_NO, 0, MODEL, "perplexity eval routes",                    \
         "with compute_dtype bf16: add a LoRA to the weights when they are loaded, which rounds "  \
         "them once more, so that losses are no more those of training, and saves its products")   \
    X(BOOL, shard_base, "false", YES_NO, 0, MODEL, "",                                             \
      "the model is to be trained by the processes that its device has joined: each keeps a part " \
      "of every layer's matrices, and the model cannot be used otherwise")                         \
    X(BOOL, host_base, "false", YES_NO, 0, MODEL, "",                                              \
      "the model is to be trained on a device with its own memory: every layer's matrices are in " \
      "the host's memory, and the model cannot be used otherwise")

/* ---- pesc_craft_options, pesc_export_options: models made from others ---- */

#include <pesc/craft_options.h>

/* ---- pesc_sample_options: generating text ---- */

#define PESC_SAMPLE_OPTIONS(X, ALSO)                                                               \
    X(INT, max_tokens, "256", RANGE(1, 2147483647), 0, SAMPLING, "generate",                       \
      "maximum number of tokens to generate")                                                      \
    ALSO(INT, max_tokens, "1024", RANGE(1, 2147483647), 0, SAMPLING, "chat",                       \
      "maximum number of tokens of an answer")                                                     \
    X(REAL, temperature, "0", RANGE(0, 100), 0, SAMPLING, "generate chat",                         \
      "0 takes the most likely token, higher values vary more; if absent, this and the four "      \
      "options that follow are those of the model's generation_config.json, where it has them")    \
    X(INT, top_k, "0", RANGE(0, 2147483647), 0, SAMPLING, "generate chat",                         \
      "sample among the N most likely tokens; 0 is all")                                           \
    X(REAL, top_p, "1", RANGE(1e-6, 1), 0, SAMPLING, "generate chat",                              \
      "sample among the most likely tokens whose probabilities add up to X")                       \
    X(REAL, min_p, "0", RANGE(0, 1), 0, SAMPLING, "generate chat",                                 \
      "leave out tokens whose probability is below X times that of the most likely one")           \
    X(REAL, repetition_penalty, "1", RANGE(0.01, 100), 0, SAMPLING, "generate chat",               \
      "values above 1 make tokens that already occurred less likely")                              \
    X(INT, seed, "0", PESC_ANY_SEED, 0, SAMPLING, "generate chat",                                 \
      "seed of the random numbers: the same seed gives the same text")                             \
    X(LIST, stop, NONE, NAMED("TEXT"), 0, SAMPLING, "generate chat",                               \
      "end before this text; may be given several times")                                          \
    X(BOOL, ignore_eos, "false", YES_NO, 0, SAMPLING, "generate",                                  \
      "continue after the model's end token")                                                      \
    X(BOOL, add_special, "true", YES_NO, 0, SAMPLING, "generate",                                  \
      "add BOS and EOS to the prompt as the tokenizer defines")                                    \
    X(BOOL, parse_special, "false", YES_NO, 0, SAMPLING, "generate",                               \
      "control tokens written in the prompt become control tokens")                                \
    X(AUTO_INT, draft_tokens, "auto", RANGE(0, 8), 0, SAMPLING, "generate chat",                   \
      "tokens that are guessed from the text so far and checked in one forward: as many as pay "   \
      "(auto), or up to N; the answer is the same; on a CPU")

/* ---- pesc_data_options: instruction records ---- */

#define PESC_DATA_OPTIONS(X, ALSO)                                                                 \
    X(LIST, data, NONE, NAMED("FILE"), PATH, DATA, "data",                                         \
      "records: files (JSON lines, a JSON array, CSV, TSV, Parquet or plain text, also .gz, .xz and " \
      ".zst), DIR[:SPLIT], or org/name[:SPLIT] of the Hugging Face cache; may be given several times")                                                                                     \
    ALSO(LIST, data, NONE, NAMED("FILE"), PATH, DATA, "esft",                                      \
      "score, prune: records of the task, in any format that train reads; may be given several "   \
      "times; prune: for the loss before and after")                                               \
    PESC_RECORD_ROWS(X, "data esft", 0)                                                            \
    X(INT, seq_len, "2048", RANGE(2, 2147483647), 0, DATA, "data",                                 \
      "records of more than N tokens are counted as too long")                                     \
    PESC_REASONING_ROW(X, "data esft", 0)                                                          \
    X(TEXT, base, NONE, NAMED("DIR"), PATH, MODEL, "data",                                         \
      "directory of the base of a run, where it is not at the recorded path")                      \
    PESC_UNPACK_ROW(X, "data esft", 0)                                                             \
    PESC_TURNS_ROWS(X, "data esft", 0)

/* ---- pesc_train_options: a training run. The keys of run.yaml ---- */

#define PESC_TUNING "train plan init"

#define PESC_TRAIN_OPTIONS(X, ALSO)                                                                \
    X(TEXT, output, NONE, NAMED("RUN"), 0, OUTPUT, PESC_TUNING,                                    \
      "directory of the run")                                                                      \
    X(LIST, data, NONE, NAMED("FILE"), PATH, DATA, PESC_TUNING,                                    \
      "what to train on: files (JSON lines, a JSON array, CSV, TSV, Parquet or plain text, also .gz, " \
      ".xz and .zst), DIR[:SPLIT], or org/name[:SPLIT] of the Hugging Face cache; may be given "    \
      "several times")                                                                                     \
    X(LIST, eval_data, NONE, NAMED("FILE"), PATH, DATA, PESC_TUNING,                               \
      "records for the validation loss")                                                           \
    X(BOOL, resume, "false", YES_NO, UNSAVED, OUTPUT, "train",                                     \
      "continue the run in RUN from its newest intact checkpoint, bit for bit; its run.yaml "      \
      "gives the options")                                                                         \
    X(BOOL, strict, "false", YES_NO, UNSAVED, OUTPUT, "train",                                     \
      "with resume: fail if the newest checkpoint is damaged, instead of using the one before it") \
    X(BOOL, overwrite, "false", YES_NO, UNSAVED, OUTPUT, "train",                                  \
      "replace the run that RUN holds; other files in it stay")                                    \
    X(TEXT, init_from, NONE, NAMED("RUN"), PATH, MODEL, "train",                                   \
      "start from the trained weights of another run or checkpoint, which must be those that this " \
      "run trains, with the same LoRA scale; steps, data and optimiser state begin anew")          \
    X(CHOICE, method, "pesc", ONE_OF("pesc|qlora|lora|full|upcycle|molora|esft|router|bias"), DECIDES, METHOD, \
      PESC_TUNING,                                                                                 \
      "what trains: adapters, routers and LoRA; LoRA on 4-bit weights; LoRA; everything; full "    \
      "experts, routers and LoRA; a mixture of LoRA; selected experts; routers alone; biases "     \
      "(BitFit)")                                                                                  \
    X(TEXT, experts_config, NONE, NAMED("FILE"), PATH, METHOD, PESC_TUNING,                        \
      "method esft: the experts that train, as pesc esft select writes them (expert_cfg.json)")    \
    X(INT, seed, "0", PESC_ANY_SEED, DECIDES, SCHEDULE, PESC_TUNING,                               \
      "seed of the random numbers: the same seed gives the same run")                              \
    PESC_EXPERT_ROWS(X, PESC_TUNING, DECIDES, "; a sparse model has its own")                      \
    X(REAL, adapter_dropout, "0.1", RANGE(0, 0.99), DECIDES, METHOD, PESC_TUNING,                  \
      "dropout rate of the inputs of adapters")                                                    \
    X(AUTO_REAL, aux_coef, "auto", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                    \
      "weight of the balance loss; auto is 0.01 where the method trains routers, else 0; given "   \
      "with frozen routers, it moves what trains below them")                                      \
    X(INT, lora_r, "64", RANGE(0, 65536), DECIDES, METHOD, PESC_TUNING,                            \
      "rank of LoRA; 0 is no LoRA")                                                                \
    X(REAL, lora_alpha, "16", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                         \
      "LoRA is scaled by lora_alpha / lora_r")                                                     \
    X(REAL, lora_dropout, "0.1", RANGE(0, 0.99), DECIDES, METHOD, PESC_TUNING,                     \
      "dropout rate of the inputs of LoRA")                                                        \
    X(WORDS, lora_targets, "all", NAMED("LIST"), DECIDES, METHOD, PESC_TUNING,                     \
      "linears that get LoRA: all, or some of "                                                    \
      "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj and in_proj (what layers "          \
      "without attention read; their output is o_proj, and so is out_proj); experts adds gate, up and down of " \
      "every full expert, as in all,experts")                                                      \
    PESC_RECORD_ROWS(X, PESC_TUNING, DECIDES)                                                      \
    X(INT, seq_len, "2048", RANGE(2, 16777216), DECIDES, DATA, PESC_TUNING,                        \
      "maximum number of tokens of a sequence")                                                    \
    X(CHOICE, over_length, "drop", ONE_OF("drop|truncate|split|error"), DECIDES, DATA, PESC_TUNING, \
      "what happens to a longer record")                                                           \
    X(BOOL, packing, "true", YES_NO, DECIDES, DATA, PESC_TUNING,                                   \
      "put several sequences in a forward pass; they do not attend to each other")                 \
    X(BOOL, shuffle, "true", YES_NO, DECIDES, DATA, PESC_TUNING,                                   \
      "a new order of the records in each epoch")                                                  \
    X(REAL, epochs, "1", RANGE(0, 1e6), DECIDES | LENGTH, SCHEDULE, PESC_TUNING,                   \
      "number of passes over the records")                                                         \
    X(INT, steps, "0", PESC_ANY_STEP, DECIDES | LENGTH, SCHEDULE, PESC_TUNING,                     \
      "number of optimiser steps, instead of epochs; 0 is as many as epochs gives")                \
    X(INT, batch, "128", RANGE(1, 1048576), DECIDES, SCHEDULE, PESC_TUNING,                        \
      "records per optimiser step")                                                                \
    X(INT, micro_tokens, "0", PESC_ANY_TOKENS, DECIDES, MACHINE, PESC_TUNING,                      \
      "tokens per forward pass (micro-batch): memory and speed; the balance loss and dropout are " \
      "computed per micro-batch; 0 is chosen from memory")                                         \
    X(REAL, lr, "2e-4", RANGE(0, 1e30), DECIDES, SCHEDULE, PESC_TUNING,                            \
      "learning rate")                                                                             \
    X(CHOICE, schedule, "constant", ONE_OF("constant|cosine|linear"), DECIDES, SCHEDULE, PESC_TUNING, \
      "learning rate after the warm-up")                                                           \
    X(AUTO_INT, warmup_steps, "auto", PESC_ANY_STEP, DECIDES, SCHEDULE, PESC_TUNING,               \
      "steps in which the learning rate rises to lr, beginning with lr / warmup_steps; auto is "   \
      "warmup_ratio of all steps")                                                                 \
    X(REAL, warmup_ratio, "0.03", RANGE(0, 1), 0, SCHEDULE, PESC_TUNING,                           \
      "fraction of all steps in which the learning rate rises to lr")                              \
    X(REAL, clip, "0.3", RANGE(0, 1e30), DECIDES, SCHEDULE, PESC_TUNING,                           \
      "maximum norm of the gradient; 0 is no limit")                                               \
    X(REAL, weight_decay, "0", RANGE(0, 1e6), DECIDES, SCHEDULE, PESC_TUNING, "weight decay of AdamW") \
    X(REAL, beta1, "0.9", RANGE(0, 0.999999), DECIDES, SCHEDULE, PESC_TUNING, "beta 1 of AdamW")   \
    X(REAL, beta2, "0.999", RANGE(0, 0.999999), DECIDES, SCHEDULE, PESC_TUNING, "beta 2 of AdamW") \
    X(REAL, eps, "1e-8", RANGE(1e-30, 1), DECIDES, SCHEDULE, PESC_TUNING, "epsilon of AdamW")      \
    X(CHOICE, optimizer, "adamw", ONE_OF("adamw|adamw8"), DECIDES, SCHEDULE, PESC_TUNING,          \
      "adamw8 keeps its moments in 8 bits")                                                        \
    X(CHOICE, loss, "token", ONE_OF("token|sequence"), DECIDES, METHOD, PESC_TUNING,               \
      "mean over all target tokens of a step, or mean of the means of its sequences")              \
    X(AUTO_INT, keep, "auto", RANGE(0, 65536), 0, MACHINE, PESC_TUNING,                            \
      "layers that keep their activations, the others recompute them; auto is as many as fit")     \
    X(INT, save_every, "500", PESC_ANY_STEP, 0, OUTPUT, PESC_TUNING,                               \
      "steps between checkpoints; 0 saves at the end only")                                        \
    X(INT, keep_checkpoints, "2", RANGE(0, 1048576), 0, OUTPUT, PESC_TUNING,                       \
      "number of newest checkpoints that are kept, at least 2, beside the best; 0 keeps all")      \
    X(INT, eval_every, "500", PESC_ANY_STEP, 0, SCHEDULE, PESC_TUNING,                             \
      "steps between validations; the last step is always validated, and with 0 it alone")         \
    X(INT, log_every, "10", PESC_ANY_STEP, 0, OUTPUT, PESC_TUNING,                                 \
      "steps between step lines")                                                                  \
    X(INT, verify_every, "200", PESC_ANY_STEP, 0, OUTPUT, PESC_TUNING,                             \
      "every so many steps the gradient is computed twice; a difference is silent data "           \
      "corruption and ends the run; 0 is never")                                                   \
    X(TEXT, device, "cpu", NAMED("cpu|cuda[:i]"), 0, MACHINE, "",                                  \
      "device that the model was opened on, for run.yaml")                                         \
    X(CHOICE, base_dtype, NONE, ONE_OF("f32|bf16|nf4"), DECIDES, MODEL, PESC_TUNING,               \
      "how frozen weights are held in memory; as stored if absent, nf4 for method qlora")          \
    X(BOOL, double_quant, "true", YES_NO, DECIDES, MODEL, PESC_TUNING,                             \
      "with nf4: quantise the scales too")                                                         \
    X(CHOICE, compute_dtype, NONE, ONE_OF("auto|f32|bf16"), DECIDES, MODEL, PESC_TUNING,           \
      "dtype of the activations; auto, the default of the command, is bf16 where the device "      \
      "multiplies it faster, else f32; in C and Python f32 if absent")                                                   \
    X(CHOICE, base_grad_dtype, "bf16", ONE_OF("bf16|fp8"), DECIDES, MODEL, PESC_TUNING,            \
      "gradients pass through the frozen weights in this type; fp8 needs a Hopper GPU and "        \
      "compute_dtype bf16, and is faster")                                                         \
    X(TEXT, lora, NONE, NAMED("DIR"), PATH, MODEL, PESC_TUNING,                                    \
      "directory of a PEFT adapter to continue from")                                              \
    X(INT, patience, "0", RANGE(0, 1048576), 0, SCHEDULE, PESC_TUNING,                             \
      "end the run after this many validations in a row without a lower loss; 0 is never")         \
    X(BOOL, eval_at_start, "false", YES_NO, 0, SCHEDULE, PESC_TUNING,                              \
      "validate once before the first step")                                                       \
    X(WORDS, lora_layers, "all", NAMED("LIST"), DECIDES, METHOD, PESC_TUNING,                      \
      "layers that get LoRA: all, or numbers and ranges that count from 0, such as 0,10-20")       \
    X(REAL, val_split, "0", RANGE(0, 0.9), DECIDES, DATA, PESC_TUNING,                             \
      "fraction of the records, drawn by the seed, that validates instead of training; 0 is none") \
    PESC_REASONING_ROW(X, PESC_TUNING, DECIDES)                                                    \
    X(CHOICE, data_changed, NONE, ONE_OF("restart-epoch|continue"), UNSAVED, DATA, "train",        \
      "with resume, if the data files have changed: start the current epoch again with the new "   \
      "data, or continue at the same position in it; if absent, the run is not resumed")           \
    X(TEXT, base, NONE, NAMED("DIR"), PATH | UNSAVED, MODEL, "train plan",                         \
      "directory of the base of a run, where it is not at the recorded path")                      \
    X(CHOICE, aux_reduction, "mean", ONE_OF("mean|sum"), DECIDES, METHOD, PESC_TUNING,             \
      "the balance loss is the mean over the sparse layers, or their sum, as where a block adds "  \
      "its own")                                                                                   \
    X(INT, batch_tokens, "0", PESC_ANY_STEP, DECIDES, SCHEDULE, PESC_TUNING,                       \
      "tokens per optimiser step: batch becomes the number of records that have as many on "       \
      "average; 0 is as batch says")                                                               \
    PESC_COMM_TRAIN_ROWS(X)                                                                        \
    PESC_UNPACK_ROW(X, PESC_TUNING, 0)                                                             \
    PESC_TURNS_ROWS(X, PESC_TUNING, DECIDES)                                                       \
    X(INT, local_processes, "1", RANGE(1, 1048576), UNSAVED, MACHINE, "",                          \
      "plan: of the processes those of one machine, which on a CPU divide its memory")             \
    PESC_PREFERENCE_ROWS(X)                                                                        \
    X(CHOICE, train_router, "auto", ONE_OF("auto|true|false"), DECIDES, METHOD, PESC_TUNING,       \
      "whether routers train; auto is as the method has it: with pesc, full, upcycle, molora and " \
      "router they do")                                                                            \
    X(CHOICE, router_gradient, "chosen", ONE_OF("chosen|dense"), DECIDES, METHOD, PESC_TUNING,     \
      "routers learn from the experts that a token chose, or from all of them (DenseMixer): forward " \
      "stays as it is, and each expert runs on each token once more for the router's gradient")    \
    X(CHOICE, balance, "aux", ONE_OF("aux|bias|none"), DECIDES, METHOD, PESC_TUNING,               \
      "what keeps experts in use: the balance loss; a bias of each expert that counts in the choice " \
      "alone and follows the loads of each step; or nothing")                                      \
    X(REAL, bias_rate, "1e-3", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                        \
      "balance bias: what a step adds to the bias of an expert with less than the mean load, and " \
      "takes from one with more")                                                                  \
    X(REAL, router_z_coef, "0", RANGE(0, 1e6), DECIDES, METHOD, PESC_TUNING,                       \
      "weight of the z-loss, the mean of logsumexp(logits)^2 of the routers, which keeps their "   \
      "logits small")                                                                              \
    X(TEXT, experts_from, NONE, NAMED("FILE"), PATH, METHOD, PESC_TUNING,                          \
      "methods lora and qlora: LoRA on the experts alone that FILE chooses (expert_cfg.json of "   \
      "pesc esft select), and on what else it says trains")                                                  \
    X(WORDS, domain_experts, NONE, NAMED("NAME=FILE,..."), 0, METHOD, PESC_TUNING,                 \
      "methods esft, lora and qlora: the records of each domain (their field \"domain\", or the name of "  \
      "their file) train only the experts that its FILE chooses, instead of experts_config or "    \
      "experts_from for all")                                                                      \
    X(REAL, max_epochs, "0", RANGE(0, 1e9), UNSAVED, SCHEDULE, "train",                            \
      "refuse a run whose steps pass over the records more often than this; 0 is never; 1000 with " \
      "preset esft, unless steps or epochs are given")                              \
    X(CHOICE, aux_over, "micro", ONE_OF("micro|step"), DECIDES, METHOD, PESC_TUNING,               \
      "tokens whose choices the gradient of the balance loss counts: those of a micro-batch, or "  \
      "of the whole step, which takes one more forward of each where a step has several")

/* ---- pesc_eval_options: loss and exact answers ---- */

#define PESC_EVAL_OPTIONS(X, ALSO)                                                                 \
    X(INT, limit, "0", RANGE(0, 1e15), 0, TASKS, "eval",                                           \
      "the first N records of each domain; 0 is all")                                              \
    X(INT, max_tokens, "0", RANGE(0, 1048576), 0, TASKS, "eval",                                   \
      "maximum number of tokens of an answer; 0 is 1.5 times the length of the expected answer, "  \
      "plus 8")                                                                                    \
    X(INT, batch, "16", RANGE(1, 256), 0, TASKS, "eval",                                           \
      "questions answered at the same time: memory and speed, not the result")                     \
    PESC_RECORD_ROWS(X, "eval", 0)                                                                 \
    PESC_REASONING_ROW(X, "eval", 0)                                                               \
    X(BOOL, loss_only, "false", YES_NO, 0, TASKS, "eval",                                          \
      "measure the loss alone; no answer is generated")                                            \
    X(TEXT, answer_after, NONE, NAMED("MARK"), 0, TASKS, "eval",                                   \
      "compare what follows the last MARK in both answers, such as ####, instead of all of them")  \
    PESC_UNPACK_ROW(X, "eval", 0)                                                                  \
    PESC_TURNS_ROWS(X, "eval", 0)

/* ---- pesc_benchmark_options: named tasks, as lm-evaluation-harness scores them ---- */

#define PESC_BENCHMARK_OPTIONS(X, ALSO)                                                            \
    X(TEXT, data_dir, NONE, NAMED("DIR"), PATH, TASKS, "eval",                                     \
      "tasks: directory of the data, TASK/SPLIT.jsonl or .parquet, shards, also .gz, .xz, .zst; if "  \
      "absent $PESC_DATA/bench, then ./bench")                                                     \
    X(AUTO_INT, shots, "auto", RANGE(0, 1000), 0, TASKS, "eval",                                   \
      "tasks: examples before each question; auto: each task's own number")                        \
    X(INT, limit, "0", RANGE(0, 1e15), 0, TASKS, "",                                               \
      "the first N documents of each task; 0 is all")                                              \
    X(INT, seed, "1234", RANGE(0, 4294967295), 0, TASKS, "eval",                                   \
      "tasks: seed of the choice of examples")                                                     \
    X(CHOICE, suite, "lm-eval", ONE_OF("lm-eval|paper"), 0, TASKS, "eval",                         \
      "tasks: numbers of examples: each task's own, or those of the PESC paper")                   \
    X(BOOL, unsafe_code, "false", YES_NO, 0, TASKS, "eval",                                        \
      "humaneval, mbpp: run the programs even where this machine allows no sandbox")               \
    X(INT, slots, "64", RANGE(1, 4096), 0, TASKS, "",                                              \
      "requests that run at the same time: memory and speed, not the result")                      \
    X(INT, max_length, "0", RANGE(0, 1e9), 0, TASKS, "",                                           \
      "tokens that the model is fed at most; 0 is its context")                                    \
    X(TEXT, output, NONE, NAMED("DIR"), PATH, OUTPUT, "",                                          \
      "directory of results.json and samples_TASK.jsonl; nothing is written if absent")            \
    X(BOOL, chat, "false", YES_NO, 0, TASKS, "eval",                                               \
      "tasks: prompts as conversations in the model's chat format, each example as two turns")     \
    X(BOOL, samples, "false", YES_NO, 0, OUTPUT, "",                                               \
      "the lines of samples_TASK.jsonl also hold the document and its requests")                   \
    PESC_UNPACK_ROW(X, "", 0)                                                                      \
    X(TEXT, served_model, NONE, NAMED("NAME"), 0, TASKS, "eval",                                   \
      "of a MODEL that is an address: the name of the model there; if absent, the one that the "   \
      "server lists")                                                                              \
    X(TEXT, judge, NONE, NAMED("URL"), 0, TASKS, "eval",                                           \
      "esft_summary, esft_law, esft_translation: let the model behind this address score each "    \
      "answer beside the reference, from 0 to 10, once in each order; its key is in "              \
      "PESC_JUDGE_API_KEY, else OPENAI_API_KEY")                                                   \
    X(TEXT, judge_model, NONE, NAMED("NAME"), 0, TASKS, "eval",                                    \
      "the name of the judge there; if absent, the one that the server lists")                     \
    X(INT, retries, "5", RANGE(0, 100), 0, TASKS, "eval",                                          \
      "of a request to a server that is busy, broken or cannot be reached")                        \
    X(REAL, request_timeout, "600", RANGE(0.1, 86400), 0, TASKS, "eval",                           \
      "seconds that an answer of a server may take")

/* ---- pesc_esft_score_options and pesc_esft_select_options ---- */

#define PESC_ESFT_SCORE_OPTIONS(X, ALSO)                                                           \
    X(INT, tokens, "131072", RANGE(1, 1e15), 0, DATA, "esft",                                      \
      "score: number of tokens to process; records are drawn at random until they have as many")   \
    X(CHOICE, metric, "both", ONE_OF("token|gate|both"), 0, METHOD, "esft",                        \
      "how often an expert is chosen, or how large its gates are; select takes token by default")  \
    X(INT, experts, "64", RANGE(1, 65535), 0, METHOD, "esft",                                      \
      "score --from-logs: experts of a layer, where no MODEL is given")                            \
    X(INT, top_k, "6", RANGE(1, 65535), 0, METHOD, "esft",                                         \
      "score --from-logs: experts per token, where no MODEL is given")                             \
    X(INT, seq_len, "0", PESC_ANY_TOKENS, 0, DATA, "esft",                                         \
      "score: longer records are split; 0 is the context length of the model, at most 4096")       \
    X(INT, micro_tokens, "0", PESC_ANY_TOKENS, 0, MACHINE, "esft",                                 \
      "score: tokens per forward pass: memory and speed, not the result; 0 is 4096")               \
    X(INT, seed, "0", PESC_ANY_SEED, 0, DATA, "esft",                                              \
      "score: seed of the order in which records are drawn; select --random: of the draw")         \
    X(TEXT, model, NONE, NAMED("MODEL"), PATH, MODEL, "",                                          \
      "with logs: the model they are of, which gives experts, top_k and the layers")

#define PESC_ESFT_SELECT_OPTIONS(X, ALSO)                                                          \
    X(CHOICE, metric, "token", ONE_OF("token|gate"), 0, METHOD, "",                                \
      "the score by which experts are selected")                                                   \
    X(AUTO_REAL, p, "auto", RANGE(0, 1), 0, METHOD, "esft",                                        \
      "select: take the best experts of a layer until their scores add up to X; auto is 0.2 for "  \
      "token and 0.1 for gate, or no such limit with --budget")                                    \
    X(BOOL, p_relative, "false", YES_NO, 0, METHOD, "esft",                                        \
      "select: p is a fraction of the sum of the layer's scores, for models that renormalise "     \
      "their gates; auto is then 0.27 for gate")                                                   \
    X(INT, budget, "0", PESC_ANY_STEP, 0, METHOD, "esft",                                          \
      "select: at most N experts in all layers together, the best first; 0 is no limit")           \
    X(INT, random, "0", PESC_ANY_STEP, 0, METHOD, "esft",                                          \
      "select: N experts drawn at random, spread evenly over the layers, whatever their scores: "  \
      "what a choice is compared with")                                                            \
    X(INT, seed, "0", PESC_ANY_SEED, 0, METHOD, "",                                                \
      "with random: seed of the draw")                                                             \
    X(TEXT, background, NONE, NAMED("SUMMARY"), PATH, METHOD, "",                                  \
      "scores of general data: experts come in the order of their score divided by that one")      \
    X(INT, keep, "0", RANGE(0, 65535), 0, METHOD, "esft",                                          \
      "prune: experts of each layer that stay, those with the highest scores; in the C API: the N " \
      "best of each layer are chosen, and p is not looked at")                                     \
    X(AUTO_REAL, floor, "auto", RANGE(0, 1), 0, METHOD, "esft",                                    \
      "select --background: experts with a lower score are not chosen; auto is half of an even "   \
      "share of the layer's scores")

/* ---- pesc_serve_options: an HTTP server ---- */

#include <pesc/serve_options.h>

#include <pesc/analysis_options.h>
#include <pesc/comm_options.h>
#include <pesc/preference_options.h>

/* ---- from a row to the field it declares ---- */

#define PESC_FIELD(kind, key, fallback, accepts, flags, group, commands, help) PESC_FIELD_##kind(key)
#define PESC_NO_FIELD(kind, key, fallback, accepts, flags, group, commands, help)
#define PESC_FIELD_TEXT(key) const char *key;
#define PESC_FIELD_CHAT(key) const char *chat_##key;
#define PESC_FIELD_CHOICE(key) const char *key;
#define PESC_FIELD_WORDS(key) const char *key;
#define PESC_FIELD_INT(key) int64_t key;
#define PESC_FIELD_REAL(key) double key;
#define PESC_FIELD_AUTO_INT(key) int64_t key;
#define PESC_FIELD_AUTO_REAL(key) double key;
#define PESC_FIELD_BOOL(key) bool key;
#define PESC_FIELD_LIST(key) const char *const *key; size_t n_##key;

/* clang-format on */
#endif
