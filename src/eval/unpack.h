/* unpack: whole files, plain or compressed with gzip or xz (told by their first bytes). */
#ifndef PESC_EVAL_UNPACK_H
#define PESC_EVAL_UNPACK_H

#include "base/status.h"

/* The file's text, NUL-terminated after its n bytes, for mem_free(). More than `max` bytes, also
 * after unpacking, are refused; so is a compressed file that is cut or damaged. */
pesc_status unpack_file(const char *path, size_t max, char **out, size_t *n);

#endif
