/* parquet_file: what a Parquet file holds, for the parquet*.c files only: parquet.c reads the
 * footer and finds the pages, parquet_schema.c the columns, parquet_page.c and parquet_values.c
 * decode a page, parquet_row.c assembles rows.
 *
 * A column's entries are its values and the places where one is missing, each with two levels
 * (Melnik et al., Dremel, 2010): `rep`, the list in which it begins a new element (0: a new row),
 * and `def`, how many of the optional and repeated nodes above it are there. */
#ifndef PESC_FORMAT_PARQUET_FILE_H
#define PESC_FORMAT_PARQUET_FILE_H

#include "format/parquet.h"
#include "format/thrift.h"

enum {
    PQ_MAX_DEPTH = 64,
    PQ_PAGE_MAX = 256 << 20, /* bytes of a page, unpacked */
    PQ_ENTRIES_MAX = 1 << 24 /* entries of a page */
};

typedef enum pq_physical {
    PQ_BOOLEAN,
    PQ_INT32,
    PQ_INT64,
    PQ_INT96,
    PQ_FLOAT,
    PQ_DOUBLE,
    PQ_BYTE_ARRAY,
    PQ_FIXED
} pq_physical;

/* What a value becomes. */
typedef enum pq_kind {
    PQ_LEFT_OUT,
    PQ_BOOL,
    PQ_INT,
    PQ_UINT, /* unsigned, as wide as the physical type */
    PQ_REAL,
    PQ_TEXT,
    PQ_MAYBE_TEXT /* bytes that no annotation calls text: null where they are not UTF-8 */
} pq_kind;

typedef enum pq_shape { PQ_LEAF, PQ_STRUCT, PQ_LIST, PQ_MAP } pq_shape;

/* A node of the schema, in depth-first order. A list is one node here: `def` and `rep` are those of
 * its elements, which stand at `child`. */
typedef struct pq_node {
    char *name;
    pq_shape shape;
    uint8_t def;                  /* level at which the node itself is there */
    uint8_t list_def;             /* lists and maps: level at which an element is there, */
    uint8_t list_rep;             /* and at which another one begins */
    int32_t child;                /* the first one, of a list its element; -1: none */
    int32_t next;                 /* the next child of the same parent; -1: none */
    int32_t leaf;                 /* its column; -1: none */
    int32_t first_leaf, end_leaf; /* columns below it */
    int32_t lead;                 /* the first of them that is not left out; -1: none */
} pq_node;

typedef struct pq_leaf {
    pq_physical physical;
    pq_kind kind;
    uint8_t max_def, max_rep;
    int32_t node;
} pq_leaf;

typedef struct pq_value {
    union {
        int64_t i;
        double d;
        const char *s;
    };
    uint32_t n; /* bytes of s */
} pq_value;

/* A decoded page, counted by those who use it: the cache, and pages whose texts are in it. */
typedef struct pq_page {
    int32_t users;
    uint64_t used; /* number of the row that it was last used for */
    size_t bytes;  /* of memory */
    uint32_t n, n_values, n_rows;
    uint8_t *rep, *def;              /* [n]; NULL: all 0 */
    pq_value *values;                /* [n_values] */
    uint32_t *row_entry, *row_value; /* [n_rows]: where the rows that begin here begin */
    unsigned char *raw, *made;       /* what texts point into */
    struct pq_page *dictionary;      /* or theirs is; NULL */
} pq_page;

/* Where a page is, and the page while it is in memory. */
typedef struct pq_place {
    uint64_t at;
    uint32_t packed, unpacked;          /* bytes */
    uint32_t n;                         /* entries */
    uint32_t rep_bytes, def_bytes, crc; /* the first two of version 2 */
    uint8_t encoding;
    bool second; /* version 2: levels stand before the packed bytes, without their lengths */
    bool plain;  /* version 2: not compressed */
    bool has_crc;
    bool def_packed, rep_packed; /* version 1: levels in the old encoding, which is refused */
    uint64_t first_row;          /* of its row group */
    uint32_t rows;               /* that begin here */
    pq_page *page;
} pq_place;

typedef struct pq_chunk {
    uint64_t begin, end; /* in the file */
    uint64_t n;          /* entries */
    uint8_t codec;
    bool has_dictionary;
    pq_place dictionary;
    pq_place *pages;
    size_t n_pages, cap;
} pq_chunk;

typedef struct pq_group {
    uint64_t first, n; /* rows */
    pq_chunk *chunks;  /* [n_leaves] */
} pq_group;

struct parquet {
    const io_map *map;
    pq_node *nodes;
    size_t n_nodes;
    pq_leaf *leaves;
    size_t n_leaves;
    pq_group *groups;
    size_t n_groups;
    uint64_t rows;
    uint64_t content, most; /* bytes of the rows as JSON, about, and how many there may be */
    uint64_t reading;       /* counts the rows that were read, and before that the pages */
    pq_place **cached;
    size_t n_cached, cap_cached;
    size_t cache_bytes;
};

/* PESC_FORMAT: what is wrong with the file, what it has that is not read (with the line that
 * converts it), and "FILE: column NAME, byte N: ...". */
pesc_status pq_damaged(const parquet *p, const char *what);
pesc_status pq_refused(const parquet *p, const char *what);
pesc_status pq_fail(const parquet *p, int32_t leaf, uint64_t at, const char *why);

/* The list of SchemaElements, the current field, as p's nodes and leaves. */
pesc_status pq_schema_read(parquet *p, thrift *t, const thrift_field *f);

/* Bytes that are left to decode. */
typedef struct pq_input {
    const unsigned char *p, *end;
} pq_input;

static inline size_t pq_left(const pq_input *in)
{
    return (size_t)(in->end - in->p);
}

/* A little-endian number of so many bytes. */
static inline uint64_t pq_little(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* n levels of up to `most`, in so many bytes, which `in` is moved past; false: damaged. */
bool pq_levels_read(pq_input *in, size_t bytes, uint8_t *out, uint32_t n, uint8_t most);

/* What decoding the values of a page needs. */
typedef struct pq_values {
    pq_page *page;
    const pq_leaf *leaf;
    pq_input in;
    const pq_page *dictionary; /* NULL: none */
} pq_values;

/* Fills page->values; *fine: false where they are damaged. */
pesc_status pq_values_read(pq_values *v, uint8_t encoding, bool *fine);
bool pq_encoding_known(uint8_t encoding);
bool pq_encoding_indexes(uint8_t encoding); /* values are numbers of the dictionary's */
bool pq_encoding_repeats(uint8_t encoding); /* texts may be longer than the page */

/* Decodes a page of a column; `levels` alone: for counting rows, without values. Freed by
 * pq_page_release(). */
pesc_status pq_page_read(parquet *p, int32_t leaf, pq_chunk *c, const pq_place *place, bool levels,
                         pq_page **out);
void pq_page_release(pq_page *page); /* NULL is allowed */

/* The page from memory, or decoded now and kept; it stays until the next row is read. */
pesc_status pq_page_get(parquet *p, int32_t leaf, pq_chunk *c, pq_place *place, pq_page **out);

/* Unpacks the bytes of a page: out has room for `unpacked`; false: damaged. */
bool pq_unpack(uint8_t codec, const unsigned char *in, size_t packed, unsigned char *out,
               size_t unpacked);
const char *pq_codec_refused(int64_t codec); /* NULL: it is read */

#endif
