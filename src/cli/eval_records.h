/* eval_records: loss and exact match of a model's answers to files of records, by domain. */
#ifndef PESC_CLI_EVAL_RECORDS_H
#define PESC_CLI_EVAL_RECORDS_H

#include "cli/open.h"

/* o->model names the model. With --json the result is one object. */
pesc_status eval_records(const options *o, const open_model *m, const char *const *files, size_t n);

#endif
