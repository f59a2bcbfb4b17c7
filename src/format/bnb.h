/* bnb: checkpoints that bitsandbytes quantised to NF4.
 *
 * Such a file holds, for each quantised X.weight, the packed codes (u8) and beside it
 * X.weight.absmax, .quant_map, .quant_state.bitsandbytes__nf4 (JSON as bytes) and, with double
 * quantisation, .nested_absmax and .nested_quant_map. Here the group becomes one NF4 weight of the
 * true shape. Everything is checked against everything else, and no code or scale is read yet. FP4
 * and 8-bit checkpoints are refused by name. */
#ifndef PESC_FORMAT_BNB_H
#define PESC_FORMAT_BNB_H

#include "format/weights.h"

/* Does nothing to a table without such groups. */
pesc_status bnb_group(weights *ws);

#endif
