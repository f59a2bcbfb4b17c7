/* unpack: files compressed with gzip, xz or zstd, told by their first bytes.
 *
 * A file is unpacked once, into a file without a name (io_spool_open), so that its records are
 * found by number like those of any other. How much it may unpack to is bounded, since a megabyte
 * can hold gigabytes of zeros. */
#ifndef PESC_DATA_UNPACK_H
#define PESC_DATA_UNPACK_H

#include "base/io.h"

/* The bytes that a file of `size` bytes may unpack to: `ratio` times as many, but not fewer than
 * UNPACK_FREE. A ratio of 0 is UNPACK_RATIO. */
enum { UNPACK_RATIO = 20, UNPACK_FREE = 16 << 20 };
static inline uint64_t unpack_most(uint64_t size, int64_t ratio)
{
    uint64_t most;
    if (__builtin_mul_overflow(size, (uint64_t)(ratio ? ratio : UNPACK_RATIO), &most))
        return UINT64_MAX;
    return most > UNPACK_FREE ? most : UNPACK_FREE;
}

/* Puts a map of the unpacked bytes in the place of a map of a compressed file, under the same path;
 * any other stays. PESC_FORMAT: cut, damaged, or more than unpack_most(). */
pesc_status unpack_map(io_map **map, int64_t ratio);

#endif
