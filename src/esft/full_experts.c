#include "esft/full_experts.h"

pesc_status full_experts_check(const config *c, const char *model)
{
    if (c->moe.kind != EXPERT_ADAPTER && c->moe.kind != EXPERT_LORA)
        return PESC_OK;
    return fail(PESC_UNSUPPORTED,
                "%s: its experts are %s, and ESFT selects and trains full experts: --method esft "
                "could train none of them; pesc routes shows which of them a task uses",
                model, c->moe.kind == EXPERT_ADAPTER ? "adapters (PESC)" : "LoRA");
}
