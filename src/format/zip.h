/* zip: the stored (uncompressed) entries of a ZIP archive inside a mapped file, as torch.save()
 * writes them; ZIP64 included.
 *
 * The central directory decides; an entry's local header is read when the entry is requested, and
 * must agree with it. Compressed and encrypted entries are refused by name. */
#ifndef PESC_FORMAT_ZIP_H
#define PESC_FORMAT_ZIP_H

#include "base/io.h"
#include "format/strtab.h"

typedef struct zip_entry {
    uint64_t offset; /* of its local header */
    uint64_t bytes;
    uint32_t crc; /* CRC-32 of the bytes; 0: the writer left it out */
} zip_entry;

typedef struct zip {
    const io_map *map;
    uint64_t directory; /* where the central directory begins: entries end before it */
    strtab names;       /* numbers the entries */
    zip_entry *entries;
    size_t cap;
} zip;

/* The archive borrows the map. zip_close() also after a failure. */
pesc_status zip_open(zip *z, const io_map *map);
void zip_close(zip *z);

/* The bytes of entry number i, at any alignment. */
pesc_status zip_data(const zip *z, size_t i, const unsigned char **data, size_t *n);

#endif
