/* modelfile: what Ollama needs besides a GGUF file. */
#ifndef PESC_CRAFT_MODELFILE_H
#define PESC_CRAFT_MODELFILE_H

#include "tokenizer/tokenizer.h"

/* FROM ./gguf; TEMPLATE where the chat template is of a known format, else Ollama's own guess
 * stays; PARAMETER stop for what ends an answer. t may be NULL: then FROM alone. */
pesc_status modelfile_write(const char *path, const char *gguf, const tokenizer *t);

#endif
