/* planned: a GPU that is not there, for plans: they ask a device for its memory and its habits, and
 * compute nothing on it. */
#ifndef PESC_BACKEND_PLANNED_H
#define PESC_BACKEND_PLANNED_H

#include "backend/backend.h"

pesc_status planned_open(device **out, int mib); /* of memory */

#endif
