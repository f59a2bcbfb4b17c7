/* experts: the op experts_fwd as a sequence of other ops, for devices without a kernel of their own
 * for it, and for the shapes that such a kernel does not serve. */
#ifndef PESC_BACKEND_EXPERTS_H
#define PESC_BACKEND_EXPERTS_H

#include "backend/backend.h"

void experts_by_parts(device *d, const experts_fwd *a);

#endif
