/* panels: the products of an engine that multiplies strips of rows by panels of lanes (AMX).
 *
 * The left side costs nothing where it lies as tiles; the right side is packed once a product, by
 * all threads, into the shared scratch. Then chunks of rows and columns are multiplied: a strip of
 * rows stays in L1 while it meets the panels of its chunk, which stay in L2. All terms of a product
 * are summed in the tiles, and out is written once.
 *
 * Sides change places where that is cheaper. Few strips pack the lanes they meet for themselves,
 * and so do sums that are too long to be packed whole. */
#ifndef PESC_BACKEND_CPU_PANELS_H
#define PESC_BACKEND_CPU_PANELS_H

#include "backend/cpu/matmul.h"

void panels_run(cpu_device *d, const mm_set *set);

#endif
