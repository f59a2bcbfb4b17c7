/* source: records in files, found by number.
 *
 * Opening reads every file once to count records and remembers where each 16th begins, so any
 * record is found in constant time with half a byte of memory a record. Of a large file only what
 * is being read is in memory. Records are numbered through all files in the order given. layout.h
 * has the formats of text files; of a Parquet file the rows are the records. Compressed files are
 * unpacked first (unpack.h). */
#ifndef PESC_DATA_SOURCE_H
#define PESC_DATA_SOURCE_H

#include "base/json.h"
#include "base/status.h"

typedef struct source source;

/* names: see datafiles.h; unpack_ratio: see unpack.h, 0 is its default. PESC_FORMAT, with the file
 * and the place, for what cannot be read as records. */
pesc_status source_open(source **out, const char *const *names, size_t n, int64_t unpack_ratio);
void source_close(source *s); /* NULL is allowed */
uint64_t source_count(const source *s);
size_t source_files(const source *s);
size_t source_file_of(const source *s, uint64_t index);   /* which file holds a record */
uint64_t source_file_first(const source *s, size_t file); /* its first record */
const char *source_file_path(const source *s, size_t file);
/* Which of the names it belongs to. */
size_t source_file_given(const source *s, size_t file, const char **name);
uint64_t source_file_bytes(const source *s, size_t file); /* unpacked */
uint64_t source_file_hash(const source *s, size_t file);  /* XXH3 of its bytes */

/* One record, parsed; always an object. */
pesc_status source_record(source *s, uint64_t index, json_t **record);
/* Its bytes as they stand in the file, or a row as JSON; borrowed until the next call. */
pesc_status source_bytes(source *s, uint64_t index, const char **bytes, size_t *n);
/* "data.jsonl:17" (line, element of an array, or row) for messages, valid until the next call.
 * Reads the file from the place last asked for (or its start) up to there, so it is for failures
 * only. */
const char *source_where(source *s, uint64_t index);

/* XXH3 of all bytes of all files, in their order: what a resumed run compares. */
uint64_t source_hash(const source *s);

#endif
