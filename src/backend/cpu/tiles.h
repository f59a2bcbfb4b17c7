/* tiles: the products of engines that multiply tiles, some rows by a panel of lanes.
 *
 * Rows are read where they lie. Lanes are packed by the thread that needs them, a few panels and as
 * much of k as stays in L2, and then meet all rows of a chunk, tile by tile. The sums of a tile
 * stay in L1 until they are stored; products that are added to another are stored just before it,
 * so that it finds them there. */
#ifndef PESC_BACKEND_CPU_TILES_H
#define PESC_BACKEND_CPU_TILES_H

#include "backend/cpu/matmul.h"

void tiles_run(cpu_device *d, const mm_set *set);

#endif
