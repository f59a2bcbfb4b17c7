/* traffic: exchanges between processes on a thread of their own, so that bytes travel while the
 * device computes.
 *
 * Exchanges run one after another in the order in which they were added, which must be the same in
 * all processes. While one waits or runs, no other thread may call a collective: traffic_wait()
 * comes first. The thread computes on a device of its own that works on the same memory
 * (ops.open_side); an exchange waits by itself for the marks of the work that it needs. */
#ifndef PESC_DIST_TRAFFIC_H
#define PESC_DIST_TRAFFIC_H

#include "backend/backend.h"

/* Which marks of the model's device belong to whom. */
enum { MARK_LAYERS = 0, MARK_BUCKETS = 2, TRAFFIC_BUCKETS = DEVICE_MARKS - MARK_BUCKETS };

typedef struct traffic traffic;

/* For exchanges of the memory of a device; starts the thread. */
pesc_status traffic_open(traffic **out, device *dev);
void traffic_close(traffic *t); /* NULL is allowed; what has not begun is dropped */

/* On which exchanges compute. */
device *traffic_device(traffic *t);

/* One exchange: `i` is the caller's. */
typedef pesc_status (*traffic_fn)(void *ctx, int64_t i);

/* Adds one and returns its number. After a failure nothing runs any more. */
int64_t traffic_add(traffic *t, traffic_fn fn, void *ctx, int64_t i);

/* Returns when exchange `number` and all before it are done, or the first failure. */
pesc_status traffic_wait(traffic *t, int64_t number);

#endif
