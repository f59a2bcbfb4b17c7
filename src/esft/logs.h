/* logs: the experts that routers chose, read from the text files that ESFT's reference code writes
 * while it runs: expert_weights_<layer>.txt, in a directory or in its parts rank_0, rank_1, ...
 *
 * A line is one forward: the ids of all its tokens, k each, a double tab, as many gates:
 *     id \t id ... \t id \t \t gate \t gate ... \n
 * The files contain neither k nor the number of experts. */
#ifndef PESC_ESFT_LOGS_H
#define PESC_ESFT_LOGS_H

#include "esft/tally.h"

/* Fills `t` (closed by tally_free even after a failure) and the numbers of its layers, for
 * mem_free(), ordered as text. */
pesc_status logs_read(tally *t, int32_t **layers, const char *dir, size_t n_experts, size_t k);

#endif
