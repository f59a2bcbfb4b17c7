/* postproc: the post-processor of tokenizer.json: the ids before and after a text.
 *
 * TemplateProcessing (its `single` form), Bert- and RobertaProcessing and Sequences of them come
 * down to ids in front and ids after; ByteLevel only moves offsets and adds nothing. */
#ifndef PESC_TOKENIZER_POSTPROC_H
#define PESC_TOKENIZER_POSTPROC_H

#include "base/json.h"
#include "tokenizer/tokenizer.h"

/* `v` may be null or NULL. Each step goes around what the steps before have made. */
pesc_status postproc_read(id_list *front, id_list *back, const json_t *v, const char *file);

/* Refuses ids the sealed tokenizer does not have. */
pesc_status postproc_check(const tokenizer *t);

#endif
