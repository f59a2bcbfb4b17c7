#include "explain/record_stream.h"

pesc_status record_stream_open(record_stream *s, const dataset_options *how)
{
    s->most = how->seq_len;
    TRY(dataset_open(&s->data, how));
    return pack_open(&s->pack, (pack_limits){ .max_tokens = s->most, .max_seqs = s->most });
}

void record_stream_close(record_stream *s)
{
    dataset_close(s->data);
    pack_close(s->pack);
}

static int32_t length(const record_stream *s, size_t i)
{
    return s->samples[i].n < s->most ? s->samples[i].n : s->most;
}

pesc_status record_stream_read(record_stream *s, uint64_t index, uint64_t *n)
{
    *n = 0;
    TRY(dataset_samples(s->data, index, &s->samples, &s->n_samples));
    for (size_t i = 0; i < s->n_samples; i++)
        *n += (uint64_t)length(s, i);
    return PESC_OK;
}

pesc_status record_stream_add(record_stream *s, uintptr_t tag)
{
    for (size_t i = 0; i < s->n_samples; i++) {
        const pack_item item = { .ids = s->samples[i].ids, .n = length(s, i), .tag = tag };
        if (item.n > 0)
            TRY(pack_push(s->pack, &item, s->run, s->ud));
    }
    return PESC_OK;
}

pesc_status record_stream_end(record_stream *s)
{
    return pack_flush(s->pack, s->run, s->ud);
}
