/* taskdata: the rows of a split of a data set: DIR/<place>/<split>.jsonl or .parquet, or shards of
 * it, plain or compressed (datafiles.h).
 *
 * Every row has the columns that the task names, with their types; anything else is refused with
 * the file, the line and the column. The rows' SHA-256 is taken over canonical JSON (the named
 * columns alone, keys sorted, no spaces, one row a line), so that it does not depend on how a copy
 * was exported. */
#ifndef PESC_EVAL_TASKDATA_H
#define PESC_EVAL_TASKDATA_H

#include "data/datafiles.h"
#include "eval/taskdef.h"

typedef struct taskdata {
    datafiles files;
    const char *place; /* the first file, or that of the definition, for messages */
    json_t *rows;      /* an array of objects */
    uint64_t bytes;    /* of the rows */
    char sha256[DIGEST_TEXT];
} taskdata;

/* Where the data is: `dir`, or by default $PESC_DATA/bench, then ./bench. For mem_free(). */
char *taskdata_dir(const char *dir);

/* Adds the files of a split, none when there are none, for datafiles_free(). split NULL: the rows
 * are in the definition. */
pesc_status taskdata_find(datafiles *out, const taskdef *def, const char *split, const char *dir);

/* Reads a split. A missing file is PESC_IO; the sentence says which file is expected, with which
 * columns, and where such data is published. */
pesc_status taskdata_open(taskdata **out, const taskdef *def, const char *split, const char *dir,
                          int64_t unpack_ratio);
void taskdata_close(taskdata *d); /* NULL is allowed */

#endif
