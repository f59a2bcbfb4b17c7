/* profile: how much time each op takes, for `pesc bench --profile` and bench/shape. */
#ifndef PESC_BACKEND_PROFILE_H
#define PESC_BACKEND_PROFILE_H

#include "backend/backend.h"

/* Ends the profile of a device that is closed. */
void profile_close(device *d);

#endif
