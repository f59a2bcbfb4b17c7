/* peak: how fast a device is at best. */
#ifndef PESC_BACKEND_PEAK_H
#define PESC_BACKEND_PEAK_H

#include "backend/backend.h"

/* Times large products of this dtype; *flops: operations a second. */
pesc_status peak_measure(device *dev, dtype dt, double *flops);

#endif
