/* info: what a model directory holds, read from configuration and file headers alone. */
#ifndef PESC_ARCH_INFO_H
#define PESC_ARCH_INFO_H

#include "arch/model.h"

/* Parameters of an architecture. Of E experts k count as activated; a tied head counts once. */
typedef struct info_counts {
    uint64_t total, activated, trainable;
} info_counts;

/* PESC_FORMAT when the configuration describes more than 2^62 parameters. */
pesc_status info_count(const config *c, const char *file, info_counts *out);

/* Everything but `chat` and `tokenizer`. */
pesc_status info_fill(const config *c, const hfdir *dir, pesc_model_info *out);

/* The chat format of a tokenizer's template; where there is no template, the family's. NULL: none
 * is known. */
const chat_format *info_chat(const config *c, const pesc_tokenizer *tok);
/* The text of the control token that ends an answer of the tokenizer's own template; "": there is
 * none, or it is too long. */
pesc_status info_stop(const chat_writer *w, const pesc_tokenizer *tok, char *text, size_t cap);
void info_text(pesc_model_info *out, const pesc_tokenizer *tok, const chat_writer *w);

#endif
