/* comm_options: the rows of options.h that concern several processes. Part of options.h, which
 * explains them. */
#ifndef PESC_COMM_OPTIONS_H
#define PESC_COMM_OPTIONS_H
#ifndef PESC_OPTIONS_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* clang-format off */

#define PESC_COMM_TRAIN_ROWS(X)                                                                    \
    X(AUTO_INT, grad_groups, "auto", RANGE(1, 1024), DECIDES, MACHINE, PESC_TUNING,                \
      "groups of micro-batches of a step, a power of two; a binary tree adds their gradients, so " \
      "up to as many processes give the same bits; takes memory for up to log2 of it gradients "   \
      "more; auto is 8, or less where these would take over an eighth of the memory; methods "     \
      "full, upcycle and esft: with at least as many groups as micro-batches each process keeps "  \
      "a part of the gradients")                                                                   \
    X(INT, processes, "1", RANGE(1, 1048576), UNSAVED, MACHINE, "",                                \
      "plan: number of processes of the run")                                                      \
    X(CHOICE, shard, "none", ONE_OF("none|base|host"), 0, MACHINE, PESC_TUNING,                    \
      "base: each process keeps an equal part of every layer's frozen weights, and the layers "    \
      "are gathered one ahead of the computation; host: they are in the host's memory and come "   \
      "to the GPU one ahead of the computation; the bits do not change")

/* clang-format on */
#endif
