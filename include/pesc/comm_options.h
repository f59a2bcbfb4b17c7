/* comm_options: the rows of options.h that concern several processes. Part of options.h, which
 * explains them. */
#ifndef PESC_COMM_OPTIONS_H
#define PESC_COMM_OPTIONS_H
#ifndef PESC_OPTIONS_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* clang-format off */

#define PESC_COMM_TRAIN_ROWS(X)                                                                    \
    X(AUTO_INT, grad_groups, "auto", RANGE(1, 1024), DECIDES, PESC_TUNING,                         \
      "groups of micro-batches of a step, a power of two; a binary tree adds their gradients, so " \
      "up to as many processes give the same bits; takes memory for up to log2 of it gradients "   \
      "more; auto is 8, or less where these would take over an eighth of the memory; methods "     \
      "full, upcycle and esft: with at least as many groups as micro-batches each process keeps "  \
      "a part of the gradients")                                                                   \
    X(INT, processes, "1", RANGE(1, 1048576), UNSAVED, "",                                         \
      "plan: number of processes of the run")                                                      \
    X(CHOICE, shard, "none", ONE_OF("none|base"), 0, PESC_TUNING,                                  \
      "base: each process keeps an equal part of every layer's frozen weights, and the layers "    \
      "are gathered one ahead of the computation; the bits do not change")

#define PESC_COMM_COMMAND_ROWS(X, ALSO)                                                            \
    X(INT, gpus, "0", RANGE(0, 1024), 0, "train",                                                  \
      "start N processes on this machine, one on each GPU, or with --device cpu N on the CPU; 0 "  \
      "is this process alone; docs/scale.md explains clusters")                                    \
    ALSO(INT, gpus, "0", RANGE(0, 1024), 0, "esft eval",                                           \
      "score, tasks: start N processes on this machine, one on each GPU, or with --device cpu N "  \
      "on the CPU, which divide the work; the files are the same; 0 is this process alone")        \
    ALSO(INT, gpus, "0", RANGE(0, 1024), 0, "plan",                                                \
      "GPUs of a machine, one process on each; 0 is one process")                                  \
    X(INT, nodes, "1", RANGE(1, 65536), 0, "plan",                                                 \
      "machines of the run, each with --gpus GPUs")                                                \
    X(REAL, bandwidth, "50", RANGE(0.001, 1e6), 0, "plan",                                         \
      "GB/s at which each GPU exchanges gradients with the others, for the model of time")         \
    X(REAL, gpu_tokens, "0", RANGE(0, 1e9), 0, "plan",                                             \
      "tokens per second that one GPU trains, as measured, for the model of time; 0: not known")

/* clang-format on */
#endif
