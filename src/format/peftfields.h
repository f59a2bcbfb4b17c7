/* peftfields: what each field of a PEFT adapter_config.json means for the function of the adapter.
 *
 * PEFT adds scale * B A to the base's weights. Most fields only say how the adapter was trained;
 * some make PEFT compute something else, or change the base while it loads the adapter, and those
 * are refused by name unless they are off. A field that is not on the list comes from a newer PEFT:
 * it is refused where it switches something on. */
#ifndef PESC_FORMAT_PEFTFIELDS_H
#define PESC_FORMAT_PEFTFIELDS_H

#include "base/json.h"

/* `config` is an object; `file` is for messages. */
pesc_status peftfields_check(const json_t *config, const char *file);

/* That PEFT attaches a LoRA to this module of the base: target_modules names it, exclude_modules
 * does not, and its layer is in layers_to_transform. PEFT drops tensors of other modules. */
pesc_status peftfields_selects(const json_t *config, const char *file, const char *module);

#endif
