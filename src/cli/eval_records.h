/* eval_records: loss and exact match of a model's answers to files of records, by domain. */
#ifndef PESC_CLI_EVAL_RECORDS_H
#define PESC_CLI_EVAL_RECORDS_H

#include "cli/open.h"

typedef struct eval_files {
    const char *const *list;
    size_t n;
} eval_files;

/* o->model names the model. With --json the result is one object. Of several processes the one that
 * leads prints. */
pesc_status eval_records(const options *o, const open_model *m, eval_files files, bool leads);

#endif
