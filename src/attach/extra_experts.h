/* extra_experts: the experts of expert patches beside an open model's own, so that rows of
 * different patches and of the model run in one forward.
 *
 * A layer holds a copy of each expert that a patch replaces, in the dtype of the layer's stack, and
 * a table: row i of it says for patch i which expert stands for the router's choice e, the patch's
 * copy or the layer's own. The choices of each row go through its row of the table before rows are
 * sorted by expert; the grouped products then run over the layer's experts and over the copies. So
 * a row computes what it would in a model with the patch applied: on a CPU bit for bit. The
 * memory is that of the copies and the tables.
 *
 * Only routed experts can differ from row to row. A patch that replaces shared experts or other
 * modules is refused. */
#ifndef PESC_ATTACH_EXTRA_EXPERTS_H
#define PESC_ATTACH_EXTRA_EXPERTS_H

#include "arch/model.h"
#include "format/patch.h"

struct extra;

/* patches [n]: that of served adapter i + 1; NULL: it has none. *out is NULL where none has. On
 * failure *out is for extra_close() too. */
pesc_status extra_open(struct extra **out, pesc_model *m, patch *const *patches, int32_t n);
void extra_close(struct extra *x, pesc_model *m); /* NULL is allowed */

#endif
