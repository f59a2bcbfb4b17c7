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

pesc_status record_stream_add(record_stream *s, uint64_t index, uintptr_t tag, int32_t *n)
{
    sequence q;
    TRY(dataset_whole(s->data, index, &q));
    *n = q.n < s->most ? q.n : s->most;
    if (*n == 0)
        return PESC_OK;
    return pack_push(s->pack, &(pack_item){ .ids = q.ids, .n = *n, .tag = tag }, s->run, s->ud);
}

pesc_status record_stream_end(record_stream *s)
{
    return pack_flush(s->pack, s->run, s->ud);
}
