/* table: the rows of CSV and TSV files as RFC 4180 and Python's csv module read them: a cell that
 * begins with a quotation mark ends at the next single one, and may hold separators, line ends and
 * doubled marks; anywhere else the mark is a character like others. Lines end in LF or CR LF; blank
 * lines are skipped. */
#ifndef PESC_DATA_TABLE_H
#define PESC_DATA_TABLE_H

#include "data/layout.h"

/* The bytes of the next row at or after `at`, without its line end; false when there is none. */
bool table_row(const char *data, size_t n, size_t at, char separator, size_t *begin, size_t *end);

/* Reads the names of the columns from the first row and moves l->begin past it. */
pesc_status table_header(layout *l);

/* A row as an object of texts. */
pesc_status table_parse(const layout *l, const char *row, size_t n, const char *where,
                        json_t **record);

#endif
