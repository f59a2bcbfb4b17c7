/* publish: after an update every process has the weights of all (ZeRO-1). Where forward reads a
 * copy in bf16 the copies travel, and of the master weights only what forward reads in f32; else
 * the master weights do. */
#ifndef PESC_DIST_PUBLISH_H
#define PESC_DIST_PUBLISH_H

#include "dist/partition.h"

typedef struct publisher publisher;

pesc_status publisher_open(publisher **out, params *p, const partition *parts); /* borrows both */
void publisher_close(publisher *w); /* NULL is allowed */

/* As reducer.publish. */
pesc_status publisher_run(publisher *w);

#endif
