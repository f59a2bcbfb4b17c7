/* taskfiles: the files of share/tasks, which the build embeds (tools/embed.sh). */
#ifndef PESC_EVAL_TASKFILES_H
#define PESC_EVAL_TASKFILES_H

#include <stddef.h>

typedef struct taskfile {
    const char *name;
    const char *text; /* not NUL-terminated */
    size_t n;
} taskfile;
extern const taskfile taskfiles[];
extern const size_t taskfiles_n;

#endif
