/* param_group: what a tensor is a part of, and which tensors a choice of experts (ESFT) names. */
#ifndef PESC_ARCH_PARAM_GROUP_H
#define PESC_ARCH_PARAM_GROUP_H

#include "arch/family.h"
#include "format/expertcfg.h"

typedef enum param_group {
    PARAM_LORA,
    PARAM_ADAPTER,
    PARAM_ROUTER,
    PARAM_EXPERT,
    PARAM_SHARED,
    PARAM_BASE,
    PARAM_GROUPS
} param_group;

param_group param_group_of(const tensor_rule *r);
bool param_full_expert(const tensor_rule *r); /* a matrix of one */

/* The bias of a linear or of an expert's matrix. */
bool param_linear_bias(const tensor_rule *r);

/* The bias with which a router chooses: it has no gradient. */
bool param_router_bias(const tensor_rule *r);

/* Whether a tensor of a model is among those that a choice of experts names. */
bool param_chosen(const expertcfg *own, const slot *s);

/* Whether a choice of experts fits a model; `where` begins the sentence of a misfit. */
pesc_status param_check_chosen(const expertcfg *own, const config *c, const char *where);

#endif
