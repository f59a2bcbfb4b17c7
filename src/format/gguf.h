/* gguf: one file, or the first of several, that is a whole model: metadata, tokenizer and tensors
 * (GGUF v2 and v3).
 *
 * gguf_open() maps the file and walks its header once; everything it keeps points into the map, so
 * opening costs the header and nothing else. The rest of pesc never sees GGUF's names: the metadata
 * becomes the config.json that Hugging Face would have (gguf_config.c), tensor names become Hugging
 * Face's (gguf_names.c), stacked experts become one weight an expert. What cannot be expressed is
 * refused by name. */
#ifndef PESC_FORMAT_GGUF_H
#define PESC_FORMAT_GGUF_H

#include "base/json.h"
#include "format/weights.h"
#include "tokenizer/tokenizer.h"

typedef struct gguf gguf;

/* Whether a file is one, by its name or its first bytes: in model caches files are often named by
 * their hash. */
pesc_status gguf_is(const char *path, bool *out);

/* A split model is opened by its first part, NAME-00001-of-00003.gguf. */
pesc_status gguf_open(gguf **out, const char *path);
void gguf_close(gguf *g); /* NULL is allowed */

/* A new object for json_decref(). */
pesc_status gguf_config(json_t **out, const gguf *g);

/* The text under a key of the metadata, cut to n bytes with its NUL; "" where there is none. */
void gguf_text_of(const gguf *g, const char *key, char *out, size_t n);

/* The tensors under Hugging Face's names. The map passes to the table: afterwards close g, and
 * before the table. */
pesc_status gguf_weights(weights **out, gguf *g);

/* Needs no tensors: a file with a vocabulary alone will do. *out NULL with PESC_OK when the file
 * has no tokenizer. */
pesc_status gguf_tokenizer(tokenizer **out, const gguf *g);

/* The same as files of a Hugging Face directory; a file without a tokenizer writes none, with a
 * notice. */
pesc_status gguf_write_tokenizer(const gguf *g, const char *dir);

#endif
