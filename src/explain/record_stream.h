/* record_stream: the records of a data set, packed into forwards of at most seq_len tokens. */
#ifndef PESC_EXPLAIN_RECORD_STREAM_H
#define PESC_EXPLAIN_RECORD_STREAM_H

#include "data/dataset.h"
#include "data/pack.h"

typedef struct record_stream {
    dataset *data;
    packer *pack;
    int32_t most;            /* tokens of a sample of a record and of a forward */
    const sequence *samples; /* of the record that was read last */
    size_t n_samples;
    pack_run run;
    void *ud; /* of run */
} record_stream;

/* Sets data, pack and most. Closed by record_stream_close() even when it failed. */
pesc_status record_stream_open(record_stream *s, const dataset_options *how);
void record_stream_close(record_stream *s);

/* Reads a record, whose samples are cut to `most` tokens each. *n: its tokens. */
pesc_status record_stream_read(record_stream *s, uint64_t index, uint64_t *n);
/* Adds it; run() gets what was packed before where it does not fit. */
pesc_status record_stream_add(record_stream *s, uintptr_t tag);
pesc_status record_stream_end(record_stream *s); /* runs the last forward */

#endif
