/* ids: token ids and JSON from files or standard input. */
#ifndef PESC_CLI_IDS_H
#define PESC_CLI_IDS_H

#include "cli/show/out.h"

/* n_seqs sequences of n_each ids. */
typedef struct ids_table {
    int32_t *ids; /* for free() */
    size_t n_seqs, n_each;
    bool nested; /* written as an array of arrays */
} ids_table;

/* JSON: [1, 2], or an object that has such an array under ids or input_ids; [[1, 2], [3, 4]] of
 * equal lengths. `where` begins the sentence of a failure: a file, or a file and a line. */
pesc_status ids_from_json(const char *where, const char *text, size_t n, ids_table *out);
pesc_status ids_read_json(const char *path, ids_table *out); /* a file, or - */
/* The same, or ids separated by spaces, commas and lines. */
pesc_status ids_from_text(const char *where, const char *text, size_t n, ids_table *out);

/* A JSON string; *out for free(), which may hold NUL bytes. */
pesc_status ids_json_string(const char *where, const char *text, size_t n, char **out, size_t *len);

/* Ids of a text, for free(). */
pesc_status ids_encode(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                       int32_t **ids, size_t *count);

#endif
