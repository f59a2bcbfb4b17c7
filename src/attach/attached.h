/* attached: what was put onto an open model, beside the weights of its files. */
#ifndef PESC_ATTACH_ATTACHED_H
#define PESC_ATTACH_ATTACHED_H

#include "arch/holding.h"

struct attached {
    holding how;                    /* of the model's weights */
    struct patched *patch;          /* the expert patch that is applied (patched.h); NULL: none */
    char patch_hash[17];            /* of its contents; "": none */
    struct served_adapters *served; /* LoRAs and patches of single requests; NULL: none */
    char lora_hash[17];             /* of the LoRA that was loaded (peft_hash); "": none */
    bool folded;                    /* some of it is in the weights (fold.h) */
};

#endif
