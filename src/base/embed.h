/* embed: files of share/ that the build puts into the library (tools/embed.sh). */
#ifndef PESC_BASE_EMBED_H
#define PESC_BASE_EMBED_H

#include <stddef.h>

typedef struct embedded_file {
    const char *name;
    const char *text; /* not NUL-terminated */
    size_t n;
} embedded_file;

typedef struct embedded_files {
    const embedded_file *v;
    size_t n;
} embedded_files;

extern const embedded_files embedded_chat;   /* share/chat: the built-in chat formats */
extern const embedded_files embedded_page;   /* share/page: the server's page */
extern const embedded_files embedded_python; /* share/python: the modelling file of exports */
extern const embedded_files embedded_tasks;  /* share/tasks: the evaluation tasks */

#endif
