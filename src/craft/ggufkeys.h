/* ggufkeys: the facts of a configuration as metadata of a GGUF file, under llama.cpp's keys. */
#ifndef PESC_CRAFT_GGUFKEYS_H
#define PESC_CRAFT_GGUFKEYS_H

#include "arch/config.h"
#include "format/gguf_write.h"

/* PESC_UNSUPPORTED with the first fact that a GGUF file cannot say; `path` is for messages. */
pesc_status ggufkeys_check(const config *c, const struct gguf_arch *arch, const char *path);

/* Says what llama.cpp would compute otherwise. */
void ggufkeys_notice(const config *c, const char *path);

void ggufkeys_put(gguf_writer *w, const config *c, const char *arch);

/* The factors by which the frequencies of a head's pairs are divided, for the tensor rope_freqs;
 * returns how many, at most half of the head's width; 0: the model needs none. */
int32_t ggufkeys_rope_factors(const config *c, float *out);

#endif
