/* eval_records: loss and exact match of a model's answers to files of records, by domain. */
#ifndef PESC_CLI_EVAL_RECORDS_H
#define PESC_CLI_EVAL_RECORDS_H

#include "cli/opt/open.h"

typedef struct eval_files {
    const char *const *list;
    size_t n;
} eval_files;

/* What one model makes of all files. */
typedef struct eval_results eval_results;

/* o->model names the model; it must outlive *out, which is for eval_results_free() also after a
 * failure. Prints tables unless --json is given; of several processes the one that leads does. */
pesc_status eval_records(eval_results **out, const options *o, const open_model *m,
                         eval_files files, bool leads);
/* An object, or of several models a list of them. */
void eval_results_json(eval_results *const *all, size_t n);
void eval_results_free(eval_results *m); /* NULL is allowed */

#endif
