/* io_own: what the files of io share; for them alone. Each function passes the fault hook. */
#ifndef PESC_BASE_IO_OWN_H
#define PESC_BASE_IO_OWN_H

#include <stddef.h>
#include <stdint.h>

/* Writes all n bytes at the offset: 0, or the errno of the call that failed. */
int io_put(int fd, const void *bytes, size_t n, uint64_t offset);
int io_flush(int fd); /* fsync: 0 or the errno */

/* A new file beside `path`, opened for writing and locked; *temp: its name, for mem_free(). 0, or
 * the errno. */
int io_temp_file(const char *path, char **temp, int *fd);

/* The directory that holds `path`, for mem_free(); NULL when out of memory. */
char *io_parent(const char *path);

#endif
