/* unknown_family: what to say of a model_type that no row has. */
#ifndef PESC_ARCH_UNKNOWN_FAMILY_H
#define PESC_ARCH_UNKNOWN_FAMILY_H

#include "base/status.h"

/* PESC_UNSUPPORTED: the family that is nearest, and what it lacks where that is known. */
pesc_status unknown_family(const char *model_type, const char *file);

#endif
