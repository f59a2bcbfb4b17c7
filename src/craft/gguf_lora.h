/* gguf_lora: a LoRA as a GGUF file, which llama.cpp and Ollama apply to a GGUF file of its base. */
#ifndef PESC_CRAFT_GGUF_LORA_H
#define PESC_CRAFT_GGUF_LORA_H

#include "craft/target.h"
#include "format/peft.h"

/* Writes place, or place/lora.gguf, and sets p->last. dt: f32, f16 or bf16. What llama.cpp has no
 * place for is PESC_UNSUPPORTED, by name. */
pesc_status gguf_lora_write(target_model *p, const peft *adapter, dtype dt);

#endif
