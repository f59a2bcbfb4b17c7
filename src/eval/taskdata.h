/* taskdata: the rows of a data file, DIR/<place>/<split>.jsonl, plain or compressed (.gz, .xz).
 *
 * Every row has the columns that the task names, with their types; anything else is refused with
 * the file, the line and the column. The rows' SHA-256 is taken over canonical JSON (the named
 * columns alone, keys sorted, no spaces, one row a line), so that it does not depend on how a copy
 * was exported. */
#ifndef PESC_EVAL_TASKDATA_H
#define PESC_EVAL_TASKDATA_H

#include "eval/taskdef.h"

typedef struct taskdata {
    char *path;
    json_t *rows; /* an array of objects */
    size_t bytes; /* of the file, unpacked */
    char sha256[DIGEST_TEXT];
} taskdata;

/* Where the data is: `dir`, or by default $PESC_DATA/bench, then ./bench. For mem_free(). */
char *taskdata_dir(const char *dir);

/* The file of a split, for mem_free(); NULL in *out when there is none. */
pesc_status taskdata_find(char **out, const taskdef *def, const char *split, const char *dir);

/* Reads a split. A missing file is PESC_IO; the sentence says which file is expected, with which
 * columns, and where such data is published. */
pesc_status taskdata_open(taskdata **out, const taskdef *def, const char *split, const char *dir);
void taskdata_close(taskdata *d); /* NULL is allowed */

#endif
