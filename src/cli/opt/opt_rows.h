/* opt_rows: the options that only the command has, in rows as <pesc/options.h> explains them; the
 * fields are those that `options` begins with. Rows of one command may be in any order. */
#ifndef PESC_CLI_OPT_ROWS_H
#define PESC_CLI_OPT_ROWS_H

#include <pesc/pesc.h>

/* Their number as a struct: pesc_option.of. */
enum { OPT_OWN = 10 };

/* clang-format off */

#define COMMAND_ROWS(X, ALSO)                                                                      \
    X(TEXT, action, NONE, NAMED("ACTION"), 0, INPUT, "data",                                       \
      "check, stats, inspect, mix or fetch")                                                        \
    ALSO(TEXT, action, NONE, NAMED("ACTION"), 0, INPUT, "esft",                                    \
      "score, select, apply, unapply or prune")                                                    \
    X(LIST, inputs, NONE, NAMED("INPUT"), 0, INPUT, "esft",                                        \
      "score, apply, prune: the model; unapply: the tuned model; select: one or more summary.json, " \
      "or their directories")                                                                      \
    ALSO(LIST, inputs, NONE, NAMED("DIR"), 0, INPUT, "runs",                                       \
      "runs, or folders of runs; the current directory if absent")                                 \
    X(TEXT, recipe, "pesc", NAMED("RECIPE"), 0, INPUT, "init",                                     \
      "pesc, qlora-pesc, qlora, lora, full, upcycle, molora or esft")                              \
    X(TEXT, config_json, NONE, NAMED("CONFIG"), 0, INPUT, "new",                                   \
      "a config.json, as Hugging Face writes them")                                                \
    X(TEXT, topic, NONE, NAMED("COMMAND"), 0, INPUT, "help",                                       \
      "the command to explain")                                                                    \
    X(TEXT, model, NONE, NAMED("MODEL"), 0, INPUT,                                                 \
      "generate chat serve logits perplexity routes info train plan init merge export compare",    \
      "a Hugging Face directory, a run or one of its checkpoints, or a .gguf file")                \
    ALSO(TEXT, model, NONE, NAMED("DENSE"), 0, INPUT, "craft",                                     \
      "a dense model: a Hugging Face directory, a run or one of its checkpoints, or a .gguf file") \
    ALSO(TEXT, model, NONE, NAMED("TOKENIZER"), 0, INPUT, "tokenize detokenize",                   \
      "a model directory, a .gguf file, tokenizer.json or tokenizer.model")                        \
    ALSO(TEXT, model, NONE, NAMED("MODEL"), 0, INPUT, "bench",                                     \
      "a Hugging Face directory, a run or one of its checkpoints, or a .gguf file; with --text "   \
      "anything that has a tokenizer")                                                             \
    ALSO(TEXT, model, NONE, NAMED("MODEL"), 0, INPUT, "data",                                      \
      "a model, or anything that has a tokenizer; mix takes none, fetch the name of a data set")   \
    ALSO(TEXT, model, NONE, NAMED("MODEL"), 0, INPUT, "esft",                                      \
      "select: the model, to count the parameters that train")                                     \
    ALSO(TEXT, model, NONE, NAMED("MODEL"), 0, INPUT, "eval",                                      \
      "the same as the argument MODEL, where there is one")                                        \
    X(TEXT, file, NONE, NAMED("FILE"), 0, INPUT, "tokenize perplexity",                            \
      "the text, UTF-8; standard input if absent or -")                                            \
    ALSO(TEXT, file, NONE, NAMED("FILE"), 0, INPUT, "detokenize",                                  \
      "the ids, separated by spaces, commas or newlines, or a JSON array; standard input if "      \
      "absent or -")                                                                               \
    ALSO(TEXT, file, NONE, NAMED("FILE"), 0, INPUT, "init",                                        \
      "write the run file here instead of to standard output; an existing file is not replaced")   \
    X(TEXT, output, NONE, NAMED("DIR"), 0, OUTPUT, "new craft merge export",                       \
      "the directory to write")                                                                    \
    ALSO(TEXT, output, NONE, NAMED("DIR"), 0, OUTPUT, "eval",                                      \
      "tasks: directory of results.json, samples_TASK.jsonl and the picture; an evaluation that was " \
      "interrupted goes on from there; files of records: of records.json, which is what --json "   \
      "prints")                                                            \
    ALSO(TEXT, output, NONE, NAMED("OUT.npy"), 0, OUTPUT, "logits",                                \
      "the NumPy file to write: float32 [positions, vocabulary]")                                  \
    ALSO(TEXT, output, NONE, NAMED("OUT.jsonl"), 0, OUTPUT, "data",                                \
      "mix: the file to write")                                                                    \
    ALSO(TEXT, output, NONE, NAMED("OUT"), 0, OUTPUT, "esft",                                      \
      "score: the directory of summary.json; select: the file to write, expert_cfg.json; apply, "  \
      "unapply, prune: the directory of the new model")                                            \
    ALSO(TEXT, output, ".", NAMED("DIR"), 0, OUTPUT, "routes",                                     \
      "directory in which pictures are written: plots/routing.svg, plots/routing.png and so on")   \
    ALSO(TEXT, output, ".", NAMED("DIR"), 0, OUTPUT, "compare",                                    \
      "directory in which plots/compare.svg and plots/compare.png are written")                    \
    ALSO(TEXT, output, ".", NAMED("DIR"), 0, OUTPUT, "cost",                                       \
      "directory in which plots/cost.svg and plots/cost.png are written")                          \
    ALSO(TEXT, output, "pesc-demo", NAMED("DIR"), 0, OUTPUT, "demo",                               \
      "directory for models, table and pictures; those of an earlier demo are replaced")           \
    X(BOOL, overwrite, "false", YES_NO, 0, OUTPUT, "new craft merge export",                       \
      "replace the model that DIR holds; other files in it stay")                                  \
    ALSO(BOOL, overwrite, "false", YES_NO, 0, OUTPUT, "data",                                      \
      "mix: replace OUT.jsonl if it exists")                                                       \
    ALSO(BOOL, overwrite, "false", YES_NO, 0, OUTPUT, "esft",                                      \
      "apply, unapply, prune: replace the model that OUT holds; other files in it stay")           \
    X(TEXT, tokenizer, NONE, NAMED("PATH"), 0, MODEL, "new",                                       \
      "directory or file from which tokenizer files are copied")                                   \
    X(CHOICE, dtype, "bf16", ONE_OF("bf16|f32"), 0, OUTPUT, "new",                                 \
      "dtype of the weights that are written")                                                     \
    X(INT, seed, "0", PESC_ANY_SEED, 0, SCHEDULE, "new",                                           \
      "seed of the random weights")                                                                \
    ALSO(INT, seed, "0", PESC_ANY_SEED, 0, SCHEDULE, "data",                                       \
      "mix: the same seed and files give the same bytes")                                          \
    X(CHOICE, to, NONE, ONE_OF("hf|peft|gguf|camelidae|gguf-lora"), 0, OUTPUT, "export",                     \
      "a Hugging Face directory of the model's family, the LoRA alone, or the published layout "   \
      "of models with adapters")                                                                   \
    X(BOOL, check, "true", YES_NO, 0, OUTPUT, "esft",                                              \
      "apply, unapply: open both models and compare their logits")                                 \
    X(TEXT, from_logs, NONE, NAMED("DIR"), 0, INPUT, "esft",                                       \
      "score: read expert_weights_<layer>.txt of the reference code instead of running a model")   \
    X(LIST, background, NONE, NAMED("FILE"), PATH, DATA, "esft",                                   \
      "score: records of general data, whose scores are written to DIR/background; select: the "   \
      "summary of such data, by which scores are divided")                                         \
    X(TEXT, scores, NONE, NAMED("SUMMARY"), 0, INPUT, "esft",                                      \
      "prune: the scores of the task, summary.json or its directory")                              \
    X(BOOL, shared_experts, "false", YES_NO, 0, METHOD, "esft",                                    \
      "select: the shared experts train too")                                                      \
    X(BOOL, non_expert_modules, "false", YES_NO, 0, METHOD, "esft",                                \
      "select: everything that is not an expert trains too")                                       \
    X(TEXT, prompt, NONE, NAMED("TEXT"), 0, INPUT, "generate",                                     \
      "the text to continue")                                                                      \
    X(TEXT, ids, NONE, NAMED("FILE.json"), 0, INPUT, "generate",                                   \
      "the token ids to continue, a JSON array, instead of --prompt; - is standard input")         \
    ALSO(TEXT, ids, NONE, NAMED("FILE.json"), 0, INPUT, "logits",                                  \
      "token ids: a JSON array, or an array of arrays of the same length; - is standard input")    \
    X(BOOL, chat, "false", YES_NO, 0, INPUT, "generate",                                           \
      "write the prompt as a user's message in the chat format, and print the answer")             \
    X(TEXT, system, NONE, NAMED("TEXT"), 0, INPUT, "generate chat",                                \
      "the system message; generate: with --chat")                                                 \
    X(TEXT, chat_format, NONE, NAMED("NAME"), 0, INPUT, "generate chat",                           \
      "the chat format; that of the model's template if absent")                                   \
    X(INT, ctx, "0", PESC_ANY_STEP, 0, INPUT, "generate chat",                                     \
      "tokens the session can hold; 0 is what the request needs and the model allows")             \
    ALSO(INT, ctx, "0", PESC_ANY_STEP, 0, INPUT, "perplexity",                                     \
      "tokens of a window; 0 is the context length of the model, at most 2048")                    \
    ALSO(INT, ctx, "0", PESC_ANY_STEP, 0, INPUT, "eval",                                           \
      "tokens of the longest record; 0 is the context length of the model, at most 4096")          \
    X(TEXT, jsonl, NONE, NAMED("FILE"), 0, INPUT, "tokenize",                                      \
      "each line of FILE is a JSON string; writes a JSON array of ids for each")                   \
    ALSO(TEXT, jsonl, NONE, NAMED("FILE"), 0, INPUT, "detokenize",                                 \
      "each line of FILE is a JSON array of ids; writes a JSON string for each")                   \
    X(BOOL, add_special, "false", YES_NO, 0, INPUT, "tokenize",                                    \
      "add BOS and EOS as the tokenizer defines")                                                  \
    X(BOOL, parse_special, "false", YES_NO, 0, INPUT, "tokenize",                                  \
      "control tokens written in the text become control tokens")                                  \
    X(BOOL, skip_special, "false", YES_NO, 0, INPUT, "detokenize",                                 \
      "leave control tokens out")                                                                  \
    X(LIST, models, NONE, NAMED("MODEL"), 0, INPUT, "eval",                                        \
      "Hugging Face directories, runs or checkpoints of them, .gguf files, or the addresses of "   \
      "servers with OpenAI's interface, http://HOST:PORT, whose key is in OPENAI_API_KEY")         \
    ALSO(LIST, models, NONE, NAMED("MODEL"), 0, INPUT, "cost",                                     \
      "Hugging Face directories, runs or checkpoints of them, .gguf files, or a config.json alone") \
    X(LIST, tasks, NONE, NAMED("TASK"), 0, TASKS, "eval",                                          \
      "names of tasks and groups, task files (.json) and files of records, separated by spaces or " \
      "commas; --list prints the names")                                                           \
    X(BOOL, list, "false", YES_NO, 0, OUTPUT, "eval",                                              \
      "print the tasks that are built in, and whether their data is there")                        \
    X(BOOL, samples, "false", YES_NO, 0, OUTPUT, "eval",                                           \
      "show every question with its answer; tasks: put documents and prompts into the files "      \
      "samples_TASK.jsonl, for a judge of your own")                                               \
    X(BOOL, subtasks, "false", YES_NO, 0, OUTPUT, "eval",                                          \
      "tasks: show the tasks of a group too, such as the subjects of mmlu")                        \
    X(TEXT, text, NONE, NAMED("FILE"), 0, INPUT, "bench",                                          \
      "measure the tokenizer on this text instead of the model")                                   \
    X(INT, prompt_tokens, "512", RANGE(1, 2147483647), 0, MEASURE, "bench",                        \
      "tokens of the prompt (prefill)")                                                            \
    X(INT, decode_tokens, "128", RANGE(1, 2147483647), 0, MEASURE, "bench",                        \
      "tokens that are then fed one by one (decode)")                                              \
    X(INT, repeat, "5", RANGE(1, 1000000), 0, MEASURE, "bench",                                    \
      "number of runs; the best and the median are reported")                                      \
    X(BOOL, profile, "false", YES_NO, 0, MEASURE, "bench",                                         \
      "a model: say for one more run which operations the time went to, in prefill and in decode") \
    X(REAL, epochs, "3", RANGE(0, 1e6), 0, SCHEDULE, "demo",                                       \
      "number of passes over the instructions: fewer are faster and give worse models")            \
    X(CHOICE, preset, NONE, ONE_OF("paper|published|esft"), 0, METHOD, PESC_TUNING,                \
      "a recipe as a whole: of the PESC paper (method pesc: on NF4 weights, which is QLoRA), of "  \
      "the authors' code (also aux_coef 0, loss sequence, over_length truncate), or of the ESFT "  \
      "paper, for method esft, full or lora; if absent, the PESC paper's without NF4")             \
    ALSO(CHOICE, preset, NONE, ONE_OF("idae-500k|idae-720k"), 0, METHOD, "data",                   \
      "mix: 300000 general, 100000 code, 100000 maths; or 360000, 180000, 180000")                 \
    X(INT, records, "3", RANGE(1, 1e15), 0, OUTPUT, "data",                                        \
      "inspect: number of records to show")                                                        \
    X(LIST, general, NONE, NAMED("FILE"), 0, DATA, "data",                                         \
      "mix: general instructions, such as SlimOrca")                                               \
    X(LIST, code, NONE, NAMED("FILE"), 0, DATA, "data",                                            \
      "mix: programming, such as Magicoder")                                                       \
    X(LIST, maths, NONE, NAMED("FILE"), 0, DATA, "data",                                           \
      "mix: mathematics, such as MetaMathQA")                                                      \
    X(LIST, task, NONE, NAMED("FILE"), 0, DATA, "data",                                            \
      "mix: records of one task, with --alignment, instead of the three domains")                  \
    X(LIST, alignment, NONE, NAMED("FILE"), 0, DATA, "data",                                       \
      "mix: general instructions beside the task; the ESFT paper uses the same number of both")    \
    X(WORDS, counts, NONE, NAMED("N,N,N"), 0, DATA, "data",                                        \
      "mix: number of records of each part, in the order in which --domain names them; of "        \
      "general, code and maths; or of task and alignment")                                         \
    X(BOOL, man, "false", YES_NO, 0, OUTPUT, "help",                                               \
      "print the manual page, for man(1)")                                                         \
    X(BOOL, markdown, "false", YES_NO, 0, OUTPUT, "help",                                          \
      "print the command's reference page")                                                        \
    X(CHOICE, completion, NONE, ONE_OF("bash"), 0, OUTPUT, "help",                                 \
      "print the completion script of the shell")                                                  \
    X(LIST, domain, NONE, NAMED("NAME=FILE"), 0, DATA, "data",                                     \
      "mix: a file of the part NAME; any number of parts, and of files of a part")                 \
    X(INT, total, "0", RANGE(0, 1e15), 0, DATA, "data",                                            \
      "mix: number of records in all, divided by --weights, instead of --counts")                  \
    X(WORDS, weights, NONE, NAMED("X,X,X"), 0, DATA, "data",                                       \
      "mix: weight of each part in --total, in the order of --counts; equal if absent")            \
    X(BOOL, kernels, "false", YES_NO, 0, MEASURE, "doctor",                                        \
      "list the kernels of matrix products, and which rows, types and hardware each serves")       \
    X(TEXT, url, NONE, NAMED("URL"), 0, INPUT, "bench",                                            \
      "serve: the server to measure, http://HOST:PORT")                                            \
    X(INT, requests, "64", RANGE(1, 1000000), 0, MEASURE, "bench",                                 \
      "serve: number of requests")                                                                 \
    X(REAL, rate, "0", RANGE(0, 1e6), 0, MEASURE, "bench",                                         \
      "serve: requests per second, at random times (Poisson); 0 keeps --streams running")          \
    X(INT, streams, "8", RANGE(1, 4096), 0, MEASURE, "bench",                                      \
      "serve: with --rate 0, requests at the same time")                                           \
    X(BOOL, measure, "false", YES_NO, 0, METHOD, "cost",                                           \
      "also run each model: prefill, decode and a training step with 64, 512 and 2048 tokens, 1 "  \
      "and 8 sequences")                                                                           \
    X(TEXT, other, NONE, NAMED("OTHER"), 0, INPUT, "compare",                                      \
      "the model that is compared with it, of the same width, layers and vocabulary")              \
    X(TEXT, over_time, NONE, NAMED("RUN"), 0, METHOD, "routes",                                    \
      "draw load, entropy and dead experts over the steps of a run, instead of routing records")   \
    X(INT, gpus, "0", RANGE(0, 1024), 0, MACHINE, "train",                                         \
      "start N processes on this machine, one on each GPU, or with --device cpu N on the CPU; 0 "  \
      "is this process alone; docs/scale.md explains clusters")                                    \
    ALSO(INT, gpus, "0", RANGE(0, 1024), 0, MACHINE, "esft eval",                                  \
      "score, tasks: start N processes on this machine, one on each GPU, or with --device cpu N "  \
      "on the CPU, which divide the work; the files are the same; 0 is this process alone")        \
    ALSO(INT, gpus, "0", RANGE(0, 1024), 0, MACHINE, "plan",                                       \
      "GPUs of a machine, one process on each; 0 is one process")                                  \
    X(INT, nodes, "1", RANGE(1, 65536), 0, MACHINE, "plan",                                        \
      "machines of the run, each with --gpus GPUs")                                                \
    X(REAL, bandwidth, "50", RANGE(0.001, 1e6), 0, MACHINE, "plan",                                \
      "GB/s at which each GPU exchanges gradients with the others, for the model of time")         \
    X(REAL, gpu_tokens, "0", RANGE(0, 1e9), 0, MACHINE, "plan",                                    \
      "tokens per second that one GPU trains, as measured, for the model of time; 0: not known")   \
    X(TEXT, schema, NONE, NAMED("FILE.json"), 0, SAMPLING, "generate",                             \
      "the answer is a JSON value that satisfies this JSON Schema; - is standard input")           \
    X(TEXT, grammar, NONE, NAMED("FILE"), 0, SAMPLING, "generate",                                 \
      "the answer is a text of this grammar, in GBNF as llama.cpp has it; - is standard input")    \
    X(TEXT, regex, NONE, NAMED("TEXT"), 0, SAMPLING, "generate",                                   \
      "the whole answer matches this regular expression")                                          \
    X(TEXT, draft, NONE, NAMED("MODEL"), 0, MODEL, "generate chat serve eval",                                \
      "a smaller model with the same vocabulary that guesses tokens, which are checked together: " \
      "the answer is the same and comes sooner where it is often right; on a CPU")                 \
    X(TEXT, gpu, NONE, NAMED("NAME"), 0, MACHINE, "plan",                                          \
      "plan for this GPU, which need not be in this machine: its memory, and an estimate of the "  \
      "time of a step; any other name lists those that are known")                                 \
    X(TEXT, gpu_memory, NONE, NAMED("SIZE"), 0, MACHINE, "plan",                                   \
      "plan for a GPU with this much memory, such as 24G, which need not be in this machine")    \
    X(TEXT, checkpoint, NONE, NAMED("latest|best|N"), 0, MODEL,                                    \
      PESC_OPENING " compare cost merge export craft train plan",                                  \
      "of a run the checkpoint to open: latest, which is the default, best, that of the best "     \
      "validation, or that of step N; the same as RUN/best or RUN/checkpoint-N")                   \
    X(LIST, tool, NONE, NAMED("NAME=PROGRAM"), 0, INPUT, "chat",                                   \
      "a tool that the model may call: PROGRAM, which gets the arguments as JSON on standard "     \
      "input and writes the result; PROGRAM.json has its description and parameters; may be "      \
      "given several times")                                                                       \
    X(TEXT, tool_format, NONE, NAMED("NAME"), 0, INPUT, "chat",                                    \
      "how the model writes calls of tools; found from its chat template if absent")

/* Of several commands each, and last in the help. */
#define COMMON_ROWS(X, ALSO)                                                                       \
    X(TEXT, device, "auto", NAMED("auto|cpu|cuda[:i]"), 0, MACHINE,                                \
      PESC_OPENING " train plan init craft merge export demo cost compare",                        \
      "where the model runs; auto: on the GPU where one is usable, else on the CPU")               \
    X(INT, threads, "0", RANGE(0, 1024), 0, MACHINE,                                               \
      PESC_OPENING " train plan init craft merge export demo cost compare",                        \
      "threads on the CPU; 0 is one per core; results do not depend on it")                        \
    X(TEXT, config, NONE, NAMED("FILE.yaml"), 0, COMMAND, "*",                                     \
      "read options from a file, key: value with _ for -; flags win over it")                      \
    X(BOOL, json, "false", YES_NO, 0, COMMAND, "*",                                                \
      "write the result as JSON")                                                                  \
    X(BOOL, quiet, "false", YES_NO, 0, COMMAND, "*",                                               \
      "no progress and no notes")                                                                  \
    X(BOOL, help, "false", YES_NO, 0, COMMAND, "*",                                                \
      "explain the command")

/* clang-format on */
#endif
