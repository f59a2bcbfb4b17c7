/* parquet: the rows of an Apache Parquet file as JSON objects, found by number.
 *
 * What is read: the page types, encodings and codecs that today's writers use (parquet_file.h lists
 * them), structs, lists of the three-level and the older forms, and maps. Columns of other types
 * (dates, decimals, bytes) are left out of the rows, with one notice. Everything else that is
 * outside is refused by name, with the line that converts the file.
 *
 * Opening reads the footer and the head of every page; pages of columns with lists are unpacked
 * once to count their rows. A row is decoded from the pages that hold it, of which the latest stay
 * in memory, up to PARQUET_CACHE bytes. All sizes and counts of the file are compared with its
 * bytes first. */
#ifndef PESC_FORMAT_PARQUET_H
#define PESC_FORMAT_PARQUET_H

#include "base/io.h"
#include "base/json.h"

enum { PARQUET_CACHE = 64 << 20 };

typedef struct parquet parquet;

/* Whether the bytes begin as a Parquet file does. */
bool parquet_is(const io_map *map);

/* The map is borrowed. PESC_FORMAT also where the rows have more than `most` bytes as JSON, counted
 * from the sizes of the pages, and where these say too little from their values. */
pesc_status parquet_open(parquet **out, const io_map *map, uint64_t most);
void parquet_close(parquet *p); /* NULL is allowed */

uint64_t parquet_rows(const parquet *p);

/* A row as an object with all columns; null where the file has none. */
pesc_status parquet_row(parquet *p, uint64_t row, json_t **out);

#endif
