/* codefiles: the files of share/python, which the build embeds (tools/embed.sh). */
#ifndef PESC_CRAFT_CODEFILES_H
#define PESC_CRAFT_CODEFILES_H

#include <stddef.h>

typedef struct codefile {
    const char *name;
    const char *text; /* not NUL-terminated */
    size_t n;
} codefile;
extern const codefile codefiles[];
extern const size_t codefiles_n;

#endif
