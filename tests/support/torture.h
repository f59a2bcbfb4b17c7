/* torture: what every reader must bear: a file cut at each byte, a bit flipped anywhere, any
 * allocation refused. A reader here opens a path, closes what it opened, and says how it went;
 * leaks and bad reads are the sanitizers' to find. */
#ifndef TESTS_SUPPORT_TORTURE_H
#define TESTS_SUPPORT_TORTURE_H

#include "pesc/pesc.h"

typedef pesc_status (*torture_fn)(const char *path);

/* Every proper beginning of the file is refused with a sentence. */
void torture_cuts(const char *name, const void *bytes, size_t n, torture_fn read);

/* Each bit of bytes [first, end) flipped alone: refused with a sentence, or read. Returns how many
 * were refused. */
size_t torture_flips(const char *name, const void *bytes, size_t n, size_t first, size_t end,
                     torture_fn read);

/* With its 1st, 2nd, ... allocation refused it fails with PESC_NOMEM, until it needs no more. */
void torture_memory(const char *path, torture_fn read);

/* The same for a GGUF file whose weights are listed. */
void torture_gguf_memory(const char *path);

/* All three on a file of this text. */
void torture_text(const char *name, const char *text, torture_fn read);

#endif
