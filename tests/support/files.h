/* files: a directory of its own for a test program, gone when the program ends. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The path of a name inside the directory; "" is the directory itself. Holds for 8 calls. */
const char *files_path(const char *name);

/* Writes a file (folders in its name are made) and returns its path. */
const char *files_put(const char *name, const void *bytes, size_t n);
const char *files_text(const char *name, const char *text);

/* The whole file, NUL-terminated, for free(). */
char *files_get(const char *path, size_t *n);

/* The file holds exactly this text. */
void files_must_be(const char *name, const char *text);
bool files_there(const char *name);
void files_clear(void); /* removes everything inside the directory */

#endif
