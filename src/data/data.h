/* data: the handle pesc_data of the public API: a data set with the tokenizer it is read by.
 * Opening one takes a model's configuration, so that is done by a room that sees models
 * (attach/open_data.c). */
#ifndef PESC_DATA_DATA_H
#define PESC_DATA_DATA_H

#include "data/dataset.h"

struct pesc_data {
    pesc_events events; /* of the calls that use it */
    dataset *set;
    tokenizer *tok; /* NULL where there is none */
};

#endif
