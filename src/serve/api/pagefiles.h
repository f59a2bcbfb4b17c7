/* pagefiles: the files of share/page, which the build embeds (tools/embed.sh). */
#ifndef PESC_SERVE_API_PAGEFILES_H
#define PESC_SERVE_API_PAGEFILES_H

#include <stddef.h>

typedef struct pagefile {
    const char *name;
    const char *text; /* not NUL-terminated */
    size_t n;
} pagefile;
extern const pagefile pagefiles[];
extern const size_t pagefiles_n;

#endif
