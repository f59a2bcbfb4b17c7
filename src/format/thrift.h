/* thrift: the compact protocol of Apache Thrift, read in place: the language of Parquet's metadata.
 *
 * A struct is a list of fields, each with a number and a type, and ends with a stop byte. A caller
 * walks the fields with thrift_next(), reads those it knows by their type and skips the others.
 * The first failure is kept: from then on every call gives zeros and thrift_next() returns false,
 * so a caller checks `failed` once, at the end. Nothing is allocated, nothing recurses deeper than
 * THRIFT_MAX_DEPTH, and no count is believed beyond the bytes that are left. */
#ifndef PESC_FORMAT_THRIFT_H
#define PESC_FORMAT_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { THRIFT_MAX_DEPTH = 32 };

typedef enum thrift_type {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_I8,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
} thrift_type;

typedef struct thrift {
    const unsigned char *p, *end;
    bool failed;
} thrift;

/* One field of a struct; start a struct with { 0 }. */
typedef struct thrift_field {
    int32_t id;
    thrift_type type;
} thrift_field;

/* The next field of a struct; false at its end and after a failure. The caller then reads or skips
 * its value. */
bool thrift_next(thrift *t, thrift_field *f);

/* The value of the current field. A value of another type than expected is a failure. */
int64_t thrift_int(thrift *t, const thrift_field *f);
bool thrift_bool(thrift *t, const thrift_field *f);
const char *thrift_binary(thrift *t, const thrift_field *f, size_t *n);
void thrift_skip(thrift *t, const thrift_field *f);

/* Enters a list of values of one type: their number. A struct of a list is walked like any other.
 */
size_t thrift_list(thrift *t, const thrift_field *f, thrift_type of);

/* Whether the field is a struct, which the caller walks then. */
bool thrift_struct(thrift *t, const thrift_field *f);

#endif
