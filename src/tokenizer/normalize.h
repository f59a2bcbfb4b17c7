/* normalize: the normaliser chain of tokenizer.json.
 *
 * Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Precompiled and Sequences
 * of them. Each step reads one text and writes the next; all are linear in the text. */
#ifndef PESC_TOKENIZER_NORMALIZE_H
#define PESC_TOKENIZER_NORMALIZE_H

#include "base/json.h"
#include "base/str.h"
#include "tokenizer/regex.h"
#include "tokenizer/normalform.h"

typedef struct normalizer normalizer;

/* `v` may be null or NULL: *out is then NULL, and text stays as it is. `file` is for messages. */
pesc_status normalizer_open(normalizer **out, const json_t *v, const char *file);
void normalizer_close(normalizer *z); /* NULL is allowed */

typedef struct normalize_scratch {
    regex_scratch *rs; /* borrowed */
    budget *work;      /* borrowed */
    str a, b;
    normalform_scratch forms;
    bool cut; /* of the last text: a step took characters away from its beginning */
} normalize_scratch;

/* Valid UTF-8 in, valid UTF-8 out: *result points into `text` or one of the two buffers. z may be
 * NULL. */
pesc_status normalizer_run(const normalizer *z, normalize_scratch *s, const char *text, size_t n,
                           const char **result, size_t *result_n);
void normalize_scratch_free(normalize_scratch *s); /* the buffers; what is borrowed stays */

#endif
