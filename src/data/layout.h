/* layout: how records lie in a data file: JSON lines, a JSON array (also as the member "data" of an
 * object), a table with a header (CSV, TSV), or documents of plain text.
 *
 * The name decides for .csv, .tsv and .txt (also before .gz, .xz and .zst: a map holds the unpacked
 * bytes of such a file), the first bytes for everything else. A record becomes
 * the same JSON object whatever it was read from: the cells of a row are texts under the names of
 * their columns, a document is {"text": ...}. */
#ifndef PESC_DATA_LAYOUT_H
#define PESC_DATA_LAYOUT_H

#include "base/io.h"
#include "base/json.h"

typedef struct layout_kind layout_kind;

typedef struct layout {
    const io_map *map; /* borrowed */
    const layout_kind *kind;
    size_t begin; /* where the search for the first record starts */
    bool wrapped; /* the array is a member of an object */
    /* tables */
    char separator;
    char **columns;
    size_t n_columns;
} layout;

/* Looks at a file. Refused with what it is and how to convert it: Arrow, archives, UTF-16;
 * an empty file. Closed with layout_free() even after a failure. */
pesc_status layout_open(layout *l, const io_map *map);
void layout_free(layout *l);

/* The bytes [*begin, *end) of the next record at or after `at`; false when there is none. */
bool layout_next(const layout *l, size_t at, size_t *begin, size_t *end);
/* Where to look for the record after one that ended at `end`. */
size_t layout_after(const layout *l, size_t end);
/* Whether what stands between two records, or (begin is the file's size) after the last, belongs
 * there. count: records before. */
pesc_status layout_check(const layout *l, size_t at, size_t begin, uint64_t count);

/* The record of these bytes as an object. `where` begins the sentence of a failure. A record of
 * more than LAYOUT_RECORD_MAX bytes is refused: as an object it takes up to fifty times its size.
 */
#define LAYOUT_RECORD_MAX ((size_t)16 << 20)
pesc_status layout_parse(const layout *l, const char *bytes, size_t n, const char *where,
                         json_t **record);

/* Places are named by line; else by the number of the element. */
bool layout_has_lines(const layout *l);

/* ---- tables (table.c) ----
 *
 * Rows are read as RFC 4180 and Python's csv module read them: a cell that begins with a quotation
 * mark ends at the next single one, and may hold separators, line ends and doubled marks; anywhere
 * else the mark is a character like others. Lines end in LF or CR LF; blank lines are skipped. */

/* The bytes of the next row at or after `at`, without its line end; false when there is none. */
bool table_row(const char *data, size_t n, size_t at, char separator, size_t *begin, size_t *end);

/* Reads the names of the columns from the first row and moves l->begin past it. */
pesc_status table_header(layout *l);

/* A row as an object of texts. */
pesc_status table_parse(const layout *l, const char *row, size_t n, const char *where,
                        json_t **record);

#endif
