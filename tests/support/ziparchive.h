/* ziparchive: builds ZIP archives with stored entries, whole or broken, for the torch readers. */
#ifndef TESTS_SUPPORT_ZIPARCHIVE_H
#define TESTS_SUPPORT_ZIPARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ziparchive {
    unsigned char *p; /* for free() */
    size_t n;
    unsigned char directory[8192]; /* central records so far */
    size_t n_directory, entries;
    bool zip64; /* sizes and offsets go to the 64-bit fields */
} ziparchive;   /* zero-initialise to start */

void ziparchive_add(ziparchive *z, const char *name, const void *bytes, size_t n);
void ziparchive_end(ziparchive *z);

#endif
