/* full_experts: whether the experts of a model are what ESFT selects and trains: FFNs. */
#ifndef PESC_ESFT_FULL_EXPERTS_H
#define PESC_ESFT_FULL_EXPERTS_H

#include "arch/config.h"

/* PESC_UNSUPPORTED where the experts are adapters or LoRA. A dense model passes:
 * callers that need experts check that themselves. */
pesc_status full_experts_check(const config *c, const char *model);

#endif
