/* share: texts that every process of an evaluation has a part of. */
#ifndef PESC_EVAL_SHARE_H
#define PESC_EVAL_SHARE_H

#include "base/str.h"
#include "comm/comm.h"

/* Called with the text of each other process, in the order of ranks; a NUL is in the text or comes
 * somewhere after it. */
typedef pesc_status (*share_fn)(void *ctx, const char *text, size_t n);

/* All processes call it, each with its own text. c NULL: nothing is to be shared. */
pesc_status share_texts(comm *c, const str *own, share_fn take, void *ctx);

#endif
