/* record_format: the rows of record.c, as record_format.c looks for one. */
#ifndef PESC_DATA_RECORD_FORMAT_H
#define PESC_DATA_RECORD_FORMAT_H

#include "base/str.h"
#include "data/record.h"

typedef pesc_status (*read_fn)(record *r, const record_format *f, const json_t *v);

struct record_format {
    const char *name;
    const char *needs[2]; /* fields that tell the format */
    const char *prompt[3], *answer, *system;
    record_kind kind;
    read_fn read;
    record_class of;
    pair_form form; /* of preferences */
};

/* NULL: there are no more. */
const record_format *record_row(size_t i);

/* "completion" has a second row, of records whose fields are lists of messages: whether a row is
 * one of the two, and which of them a record fits; any other row is given back. */
bool record_row_varies(const record_format *f);
const record_format *record_row_of(const record_format *f, const json_t *v);

/* Appends the names of the fields: "instruction", "text", ... */
void record_list_fields(str *out, const json_t *v);

#endif
