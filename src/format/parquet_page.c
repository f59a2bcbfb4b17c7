/* One page of a column: unpacked, its rows found, and the pages that stay in memory. */
#include "format/parquet_file.h"

#include "base/mem.h"

#include <lz4.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum {
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_GZIP,
    CODEC_LZO,
    CODEC_BROTLI,
    CODEC_LZ4,
    CODEC_ZSTD,
    CODEC_LZ4_RAW
};

/* ---- codecs ---- */

const char *pq_codec_refused(int64_t codec)
{
    static const char *const names[] = { [CODEC_LZO] = "columns compressed with LZO",
                                         [CODEC_BROTLI] = "columns compressed with Brotli",
                                         [CODEC_LZ4] = "columns compressed with the old LZ4 of "
                                                       "Hadoop",
                                         [CODEC_LZ4_RAW] = NULL };
    if (codec < 0 || (size_t)codec >= sizeof names / sizeof *names)
        return "columns compressed in a way that is not known";
    return names[codec];
}

static bool gunzip(const unsigned char *in, size_t packed, unsigned char *out, size_t unpacked)
{
    z_stream z = { .next_in = (unsigned char *)(uintptr_t)in,
                   .avail_in = (unsigned)packed,
                   .next_out = out,
                   .avail_out = (unsigned)unpacked };
    if (inflateInit2(&z, 15 + 32) != Z_OK)
        return false;
    int rc = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return rc == Z_STREAM_END && z.avail_out == 0;
}

bool pq_unpack(uint8_t codec, const unsigned char *in, size_t packed, unsigned char *out,
               size_t unpacked)
{
    size_t n = unpacked;
    switch (codec) {
    case CODEC_SNAPPY:
        return snappy_uncompressed_length((const char *)in, packed, &n) == SNAPPY_OK &&
               n == unpacked &&
               snappy_uncompress((const char *)in, packed, (char *)out, &n) == SNAPPY_OK &&
               n == unpacked;
    case CODEC_GZIP:
        return gunzip(in, packed, out, unpacked);
    case CODEC_ZSTD:
        return ZSTD_decompress(out, unpacked, in, packed) == unpacked;
    case CODEC_LZ4_RAW:
        return LZ4_decompress_safe((const char *)in, (char *)out, (int)packed, (int)unpacked) ==
               (int)unpacked;
    default:
        if (packed == unpacked)
            memcpy(out, in, packed);
        return packed == unpacked;
    }
}

/* ---- levels ---- */

/* Version 1 has the length of the levels in front of them. */
static bool one_kind_of_levels(pq_input *in, const pq_place *at, uint32_t bytes, uint8_t *out,
                               uint8_t most)
{
    if (!out) {
        in->p += at->second && bytes <= pq_left(in) ? bytes : 0;
        return true;
    }
    if (!at->second) {
        if (pq_left(in) < 4)
            return false;
        bytes = (uint32_t)pq_little(in->p, 4);
        in->p += 4;
    }
    return pq_levels_read(in, bytes, out, at->n, most);
}

static pesc_status take_levels(pq_page *g, const pq_leaf *l)
{
    g->rep = l->max_rep ? mem_alloc((size_t)g->n + 1, 1) : NULL;
    g->def = l->max_def ? mem_alloc((size_t)g->n + 1, 1) : NULL;
    g->bytes += (l->max_rep ? g->n : 0) + (l->max_def ? g->n : 0);
    if ((l->max_rep && !g->rep) || (l->max_def && !g->def))
        return fail_nomem("the levels of a page", g->n);
    return PESC_OK;
}

/* Counts values and rows, and where rows begin. */
static pesc_status count_page(pq_page *g, const pq_leaf *l, bool levels)
{
    for (uint32_t i = 0; i < g->n; i++) {
        g->n_values += !g->def || g->def[i] == l->max_def;
        g->n_rows += !g->rep || g->rep[i] == 0;
    }
    if (levels)
        return PESC_OK;
    g->row_entry = mem_alloc((size_t)g->n_rows + 1, sizeof *g->row_entry);
    g->row_value = mem_alloc((size_t)g->n_rows + 1, sizeof *g->row_value);
    g->values = mem_zalloc((size_t)g->n_values + 1, sizeof *g->values);
    if (!g->row_entry || !g->row_value || !g->values)
        return fail_nomem("a page", g->n);
    g->bytes += g->n_rows * 2 * sizeof *g->row_entry + g->n_values * sizeof *g->values;
    for (uint32_t i = 0, row = 0, value = 0; i < g->n; i++) {
        if (!g->rep || g->rep[i] == 0) {
            g->row_entry[row] = i;
            g->row_value[row++] = value;
        }
        value += !g->def || g->def[i] == l->max_def;
    }
    return PESC_OK;
}

/* ---- a page ---- */

/* Unpacks the page into g->raw. Version 2 keeps its levels unpacked, in front. */
static pesc_status unpack_page(const parquet *p, int32_t leaf, const pq_chunk *c,
                               const pq_place *at, pq_page *g)
{
    const unsigned char *from = p->map->data + at->at;
    size_t front = at->second ? (size_t)at->rep_bytes + at->def_bytes : 0;
    if (at->has_crc && (uint32_t)crc32(0, from, at->packed) != at->crc)
        return pq_fail(p, leaf, at->at, "the page's checksum differs; the file is damaged");
    if (front > at->packed || front > at->unpacked)
        return pq_fail(p, leaf, at->at, "the levels are longer than the page");
    g->raw = mem_alloc((size_t)at->unpacked + 1, 1);
    if (!g->raw)
        return fail_nomem("a page", at->unpacked);
    g->bytes += at->unpacked;
    memcpy(g->raw, from, front);
    uint8_t codec = at->second && at->plain ? CODEC_NONE : c->codec;
    if (at->unpacked > front || at->packed > front)
        if (!pq_unpack(codec, from + front, at->packed - front, g->raw + front,
                       at->unpacked - front))
            return pq_fail(p, leaf, at->at, "the page cannot be unpacked; the file is damaged");
    io_map_drop(from, at->packed);
    return PESC_OK;
}

static pesc_status read_values(parquet *p, int32_t leaf, pq_chunk *c, const pq_place *at,
                               pq_page *g, pq_input in)
{
    bool dictionary = at == &c->dictionary, fine = false;
    pq_values v = { g, &p->leaves[leaf], in, NULL };
    if (!pq_encoding_known(at->encoding))
        return fail(PESC_FORMAT,
                    "%s: column %s: has values of encoding %u, which is not read; write the file "
                    "again with pandas.read_parquet(...).to_parquet(...)",
                    p->map->path, p->nodes[p->leaves[leaf].node].name, at->encoding);
    if (!dictionary && pq_encoding_indexes(at->encoding) && c->has_dictionary) {
        TRY(pq_page_get(p, leaf, c, &c->dictionary, &g->dictionary));
        g->dictionary->users++;
        v.dictionary = g->dictionary;
    }
    TRY(pq_values_read(&v, dictionary ? 0 : at->encoding, &fine)); /* 0: PLAIN */
    return fine ? PESC_OK
                : pq_fail(p, leaf, at->at,
                          "its values are damaged, or another number than the "
                          "page says");
}

static pesc_status read_page(parquet *p, int32_t leaf, pq_chunk *c, const pq_place *at, bool levels,
                             pq_page *g)
{
    const pq_leaf *l = &p->leaves[leaf];
    bool dictionary = at == &c->dictionary;
    TRY(unpack_page(p, leaf, c, at, g));
    pq_input in = { g->raw, g->raw + at->unpacked };
    static const pq_leaf flat = { 0 };
    if (!dictionary) {
        TRY(take_levels(g, l));
        if (!one_kind_of_levels(&in, at, at->rep_bytes, g->rep, l->max_rep) ||
            !one_kind_of_levels(&in, at, at->def_bytes, g->def, l->max_def))
            return pq_fail(p, leaf, at->at, "its levels are damaged");
    }
    TRY(count_page(g, dictionary ? &flat : l, levels));
    return levels ? PESC_OK : read_values(p, leaf, c, at, g, in);
}

pesc_status pq_page_read(parquet *p, int32_t leaf, pq_chunk *c, const pq_place *place, bool levels,
                         pq_page **out)
{
    *out = NULL;
    pq_page *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("a page", sizeof *g);
    g->users = 1;
    g->n = place->n;
    g->bytes = sizeof *g;
    pesc_status s = read_page(p, leaf, c, place, levels, g);
    if (s == PESC_OK)
        *out = g;
    else
        pq_page_release(g);
    return s;
}

void pq_page_release(pq_page *g)
{
    if (!g || --g->users > 0)
        return;
    pq_page_release(g->dictionary);
    mem_free(g->rep);
    mem_free(g->def);
    mem_free(g->values);
    mem_free(g->row_entry);
    mem_free(g->row_value);
    mem_free(g->raw);
    mem_free(g->made);
    mem_free(g);
}

/* ---- pages in memory ---- */

/* Makes room by forgetting the page that was not used for the longest time, but none of the row at
 * hand. */
static void evict(parquet *p, size_t room)
{
    while (p->cache_bytes + room > PARQUET_CACHE && p->n_cached) {
        size_t oldest = 0;
        for (size_t i = 1; i < p->n_cached; i++)
            if (p->cached[i]->page->used < p->cached[oldest]->page->used)
                oldest = i;
        pq_page *g = p->cached[oldest]->page;
        if (g->used == p->reading)
            return;
        p->cache_bytes -= g->bytes;
        p->cached[oldest]->page = NULL;
        p->cached[oldest] = p->cached[--p->n_cached];
        pq_page_release(g);
    }
}

pesc_status pq_page_get(parquet *p, int32_t leaf, pq_chunk *c, pq_place *place, pq_page **out)
{
    if (!place->page) {
        pq_page *g;
        if (!mem_room((void **)&p->cached, &p->cap_cached, p->n_cached, sizeof *p->cached))
            return fail_nomem("the list of pages", p->n_cached);
        TRY(pq_page_read(p, leaf, c, place, false, &g));
        g->used = p->reading;
        evict(p, g->bytes);
        /* reading a page may have cached its dictionary */
        if (!mem_room((void **)&p->cached, &p->cap_cached, p->n_cached, sizeof *p->cached)) {
            pq_page_release(g);
            return fail_nomem("the list of pages", p->n_cached);
        }
        place->page = g;
        p->cache_bytes += g->bytes;
        p->cached[p->n_cached++] = place;
    }
    place->page->used = p->reading;
    *out = place->page;
    return PESC_OK;
}
