/* record_stream: the records of a data set, packed into forwards of at most seq_len tokens. */
#ifndef PESC_EXPLAIN_RECORD_STREAM_H
#define PESC_EXPLAIN_RECORD_STREAM_H

#include "data/dataset.h"
#include "data/pack.h"

typedef struct record_stream {
    dataset *data;
    packer *pack;
    int32_t most; /* tokens of a record and of a forward */
    pack_run run;
    void *ud; /* of run */
} record_stream;

/* Sets data, pack and most. Closed by record_stream_close() even when it failed. */
pesc_status record_stream_open(record_stream *s, const dataset_options *how);
void record_stream_close(record_stream *s);

/* Adds a record, cut to `most` tokens; run() gets what was packed before where it does not fit.
 * *n: its tokens; 0: it was left out. */
pesc_status record_stream_add(record_stream *s, uint64_t index, uintptr_t tag, int32_t *n);
pesc_status record_stream_end(record_stream *s); /* runs the last forward */

#endif
