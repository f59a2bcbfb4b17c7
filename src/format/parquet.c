#include "format/parquet_file.h"

#include "base/mem.h"
#include "format/thrift.h"

#include <string.h>

enum {
    FOOTER = 8, /* bytes after the metadata: their length, "PAR1" */
    ROWS_FREE = 1 << 16,
    RUN_LENGTH = 3 /* the encoding of levels that is read */
};

/* ---- failures ---- */

#define CONVERT                                                                                    \
    "convert it: python3 -c \"import pandas; pandas.read_parquet('%s').to_json('%s.jsonl', "       \
    "orient='records', lines=True)\""

pesc_status pq_damaged(const parquet *p, const char *what)
{
    return fail(PESC_FORMAT, "%s: is Parquet, but %s; the file is cut or damaged", p->map->path,
                what);
}

pesc_status pq_refused(const parquet *p, const char *what)
{
    const char *path = p->map->path;
    return fail(PESC_FORMAT, "%s: is Parquet with %s, which is not read; " CONVERT, path, what,
                path, path);
}

pesc_status pq_fail(const parquet *p, int32_t leaf, uint64_t at, const char *why)
{
    return fail(PESC_FORMAT, "%s: column %s, byte %llu: %s", p->map->path,
                p->nodes[p->leaves[leaf].node].name, (unsigned long long)at, why);
}

/* ---- row groups and column chunks ---- */

/* ColumnMetaData */
static pesc_status read_chunk_about(parquet *p, thrift *t, pq_chunk *c, const pq_leaf *leaf)
{
    int64_t codec = 0, n = -1, size = -1, data = -1, dictionary = 0, type = -1;
    thrift_field f = { 0 };
    while (thrift_next(t, &f))
        switch (f.id) {
        case 1:
            type = thrift_int(t, &f);
            break;
        case 4:
            codec = thrift_int(t, &f);
            break;
        case 5:
            n = thrift_int(t, &f);
            break;
        case 7:
            size = thrift_int(t, &f);
            break;
        case 9:
            data = thrift_int(t, &f);
            break;
        case 11:
            dictionary = thrift_int(t, &f);
            break;
        default:
            thrift_skip(t, &f);
        }
    if (leaf->kind == PQ_LEFT_OUT)
        return PESC_OK;
    if (pq_codec_refused(codec))
        return pq_refused(p, pq_codec_refused(codec));
    int64_t begin = dictionary > 0 && dictionary < data ? dictionary : data;
    int64_t limit = (int64_t)p->map->size - FOOTER;
    if (t->failed || type != (int64_t)leaf->physical || n < 0 || begin < 4 || size < 0 ||
        begin > limit || size > limit - begin)
        return pq_damaged(p, "the place of a column is outside the file, or its type differs");
    *c = (pq_chunk){ .begin = (uint64_t)begin,
                     .end = (uint64_t)(begin + size),
                     .n = (uint64_t)n,
                     .codec = (uint8_t)codec };
    return PESC_OK;
}

/* ColumnChunk */
static pesc_status read_chunk(parquet *p, thrift *t, pq_chunk *c, const pq_leaf *leaf)
{
    bool found = false;
    thrift_field f = { 0 };
    while (thrift_next(t, &f)) {
        if (f.id == 1)
            return pq_refused(p, "columns in other files");
        if (f.id == 8 || f.id == 9)
            return pq_refused(p, "encrypted columns");
        if (f.id != 3 || !thrift_struct(t, &f)) {
            thrift_skip(t, &f);
            continue;
        }
        found = true;
        TRY(read_chunk_about(p, t, c, leaf));
    }
    return found ? PESC_OK : pq_damaged(p, "a column has no metadata");
}

/* RowGroup */
static pesc_status read_group(parquet *p, thrift *t, pq_group *g)
{
    int64_t rows = -1;
    thrift_field f = { 0 };
    while (thrift_next(t, &f)) {
        if (f.id == 3) {
            rows = thrift_int(t, &f);
        } else if (f.id == 1) {
            size_t n = thrift_list(t, &f, THRIFT_STRUCT);
            if (n != p->n_leaves || g->chunks)
                return pq_damaged(p, "a row group has another number of columns");
            g->chunks = mem_zalloc(n, sizeof *g->chunks);
            if (!g->chunks)
                return fail_nomem(p->map->path, n * sizeof *g->chunks);
            for (size_t i = 0; i < n; i++)
                TRY(read_chunk(p, t, &g->chunks[i], &p->leaves[i]));
        } else {
            thrift_skip(t, &f);
        }
    }
    if (t->failed || rows < 0 || !g->chunks)
        return pq_damaged(p, "a row group has no columns or no number of rows");
    uint64_t most = (uint64_t)p->map->size * 4 + ROWS_FREE;
    if ((uint64_t)rows > most - p->rows)
        return pq_damaged(p, "it has more rows than bytes");
    g->first = p->rows;
    g->n = (uint64_t)rows;
    p->rows += g->n;
    return PESC_OK;
}

static pesc_status read_groups(parquet *p, thrift *t, const thrift_field *f)
{
    size_t n = thrift_list(t, f, THRIFT_STRUCT);
    if (p->groups)
        return pq_damaged(p, "it has two lists of row groups");
    p->groups = mem_zalloc(n + 1, sizeof *p->groups);
    if (!p->groups)
        return fail_nomem(p->map->path, n * sizeof *p->groups);
    for (; p->n_groups < n; p->n_groups++) {
        pesc_status s = read_group(p, t, &p->groups[p->n_groups]);
        p->n_groups += s != PESC_OK; /* it is freed too */
        TRY(s);
    }
    return PESC_OK;
}

/* FileMetaData: the schema stands before the row groups, in every writer's order of fields. */
static pesc_status read_metadata(parquet *p, thrift *t)
{
    thrift_field f = { 0 };
    int64_t rows = -1;
    while (thrift_next(t, &f))
        switch (f.id) {
        case 2:
            TRY(pq_schema_read(p, t, &f));
            break;
        case 3:
            rows = thrift_int(t, &f);
            break;
        case 4:
            if (!p->n_leaves)
                return pq_damaged(p, "its row groups stand before its columns");
            TRY(read_groups(p, t, &f));
            break;
        default:
            thrift_skip(t, &f);
        }
    if (t->failed || !p->groups || rows < 0 || (uint64_t)rows != p->rows)
        return pq_damaged(p, "its metadata does not hold together");
    return PESC_OK;
}

/* ---- pages ---- */

/* DataPageHeader, DictionaryPageHeader (whose number of values and encoding stand alike) and
 * DataPageHeaderV2. */
static void read_page_about(thrift *t, const thrift_field *f, pq_place *at)
{
    thrift_field in = { 0 };
    int64_t n = 0, encoding = 0, def = 0, rep = 0;
    if (!thrift_struct(t, f))
        return;
    while (thrift_next(t, &in)) {
        if (in.id == 1)
            n = thrift_int(t, &in);
        else if (in.id == (at->second ? 4 : 2))
            encoding = thrift_int(t, &in);
        else if (at->second && in.id == 5)
            def = thrift_int(t, &in);
        else if (at->second && in.id == 6)
            rep = thrift_int(t, &in);
        else if (at->second && in.id == 7)
            at->plain = !thrift_bool(t, &in);
        else if (f->id == 5 && in.id == 3)
            at->def_packed = thrift_int(t, &in) != RUN_LENGTH;
        else if (f->id == 5 && in.id == 4)
            at->rep_packed = thrift_int(t, &in) != RUN_LENGTH;
        else
            thrift_skip(t, &in);
    }
    bool fits = n >= 0 && n <= PQ_ENTRIES_MAX && encoding >= 0 && encoding <= 255 && def >= 0 &&
                rep >= 0 && def <= UINT32_MAX && rep <= UINT32_MAX;
    t->failed = t->failed || !fits;
    at->n = fits ? (uint32_t)n : 0;
    at->encoding = fits ? (uint8_t)encoding : 0;
    at->def_bytes = fits ? (uint32_t)def : 0;
    at->rep_bytes = fits ? (uint32_t)rep : 0;
}

typedef enum page_type { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2 } page_type;

/* The head of the page at `at`, which is moved past it. */
static bool read_head(const parquet *p, const pq_chunk *c, uint64_t *at, pq_place *out,
                      int64_t *type)
{
    thrift t = { p->map->data + *at, p->map->data + c->end, false };
    thrift_field f = { 0 };
    int64_t packed = -1, unpacked = -1;
    bool about = false;
    *type = -1;
    *out = (pq_place){ 0 };
    while (thrift_next(&t, &f)) {
        if (f.id == 1) {
            *type = thrift_int(&t, &f);
            out->second = *type == PAGE_DATA_2;
        } else if (f.id == 2) {
            unpacked = thrift_int(&t, &f);
        } else if (f.id == 3) {
            packed = thrift_int(&t, &f);
        } else if (f.id == 4) {
            out->crc = (uint32_t)thrift_int(&t, &f);
            out->has_crc = true;
        } else if (f.id == (*type == PAGE_DATA ? 5 : *type == PAGE_DICTIONARY ? 7 : 8)) {
            read_page_about(&t, &f, out);
            about = true;
        } else {
            thrift_skip(&t, &f);
        }
    }
    if (t.failed || packed < 0 || unpacked < 0 || unpacked > PQ_PAGE_MAX || packed > t.end - t.p ||
        (*type != PAGE_INDEX && !about))
        return false;
    out->at = (uint64_t)(t.p - p->map->data);
    out->packed = (uint32_t)packed;
    out->unpacked = (uint32_t)unpacked;
    *at = out->at + (uint64_t)packed;
    return true;
}

/* ---- how much the rows are ---- */

static pesc_status add_content(parquet *p, uint64_t bytes)
{
    p->content += bytes;
    if (p->content <= p->most)
        return PESC_OK;
    return fail(PESC_FORMAT,
                "%s: its rows unpack to more than %llu bytes, of %zu in the file; --unpack-ratio N "
                "allows N times as many",
                p->map->path, (unsigned long long)p->most, p->map->size);
}

static uint32_t longest(const pq_page *page)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < page->n_values; i++)
        most = page->values[i].n > most ? page->values[i].n : most;
    return most;
}

/* Bytes of the texts of a page that are a dictionary's or begin as the text before: at most as many
 * as *out. Where that is over a quarter of what its bytes in the file allow, the page is decoded
 * and *out is exact, so that the bounds of all pages together refuse no file. */
static pesc_status text_bytes(parquet *p, int32_t leaf, pq_chunk *c, pq_place *place, uint64_t *out)
{
    pq_page *page;
    bool indexes = pq_encoding_indexes(place->encoding);
    uint64_t share = place->packed * (p->most / p->map->size / 4);
    *out = (uint64_t)place->n * (indexes ? c->dictionary.unpacked : place->unpacked);
    if (*out > share && indexes && c->has_dictionary) {
        TRY(pq_page_get(p, leaf, c, &c->dictionary, &page));
        *out = (uint64_t)place->n * longest(page);
    }
    if (*out <= share)
        return PESC_OK;
    TRY(pq_page_read(p, leaf, c, place, false, &page));
    *out = 0;
    for (uint32_t i = 0; i < page->n_values; i++)
        *out += page->values[i].n;
    pq_page_release(page);
    return PESC_OK;
}

/* Each entry of a column has a comma and, unless it is an element of a list, a name. */
static uint64_t entry_bytes(const parquet *p, const pq_leaf *l)
{
    const pq_node *above = l->node > 0 ? &p->nodes[l->node - 1] : NULL;
    bool element = above && above->shape == PQ_LIST && above->child == l->node;
    return element ? 4 : strlen(p->nodes[l->node].name) + 8;
}

/* How many rows begin in a page, and how much they are. */
static pesc_status count_rows(parquet *p, int32_t leaf, pq_chunk *c, pq_place *place)
{
    pq_page *page;
    const pq_leaf *l = &p->leaves[leaf];
    uint64_t texts = 0;
    place->rows = place->n;
    p->reading++; /* pages in memory may be forgotten */
    if ((l->max_def && place->def_packed) || (l->max_rep && place->rep_packed))
        return pq_refused(p, "levels in the encoding BIT_PACKED");
    TRY(add_content(p, place->unpacked + place->n * entry_bytes(p, l)));
    if (l->physical == PQ_BYTE_ARRAY && pq_encoding_repeats(place->encoding)) {
        TRY(text_bytes(p, leaf, c, place, &texts));
        TRY(add_content(p, texts));
    }
    if (!l->max_rep)
        return PESC_OK;
    TRY(pq_page_read(p, leaf, c, place, true, &page));
    place->rows = page->n_rows;
    pq_page_release(page);
    return PESC_OK;
}

/* Finds the pages of a chunk. */
static pesc_status find_pages(parquet *p, pq_group *g, int32_t leaf)
{
    pq_chunk *c = &g->chunks[leaf];
    uint64_t at = c->begin, n = 0, rows = 0;
    while (n < c->n) {
        pq_place place;
        int64_t type;
        uint64_t head = at;
        if (!read_head(p, c, &at, &place, &type))
            return pq_fail(p, leaf, head, "the head of a page is damaged");
        if (type == PAGE_DICTIONARY) {
            if (c->has_dictionary || c->n_pages)
                return pq_fail(p, leaf, head, "a second dictionary");
            TRY(add_content(p, place.unpacked));
            c->dictionary = place;
            c->has_dictionary = true;
        } else if (type == PAGE_DATA || type == PAGE_DATA_2) {
            place.first_row = rows;
            TRY(count_rows(p, leaf, c, &place));
            if (!mem_room((void **)&c->pages, &c->cap, c->n_pages, sizeof *c->pages))
                return fail_nomem(p->map->path, sizeof *c->pages);
            c->pages[c->n_pages++] = place;
            n += place.n;
            rows += place.rows;
        }
    }
    if (n != c->n || rows != g->n)
        return pq_fail(p, leaf, c->begin,
                       "its pages have another number of values than its row "
                       "group says");
    return PESC_OK;
}

static pesc_status find_all_pages(parquet *p)
{
    for (size_t i = 0; i < p->n_groups; i++)
        for (size_t leaf = 0; leaf < p->n_leaves; leaf++)
            if (p->leaves[leaf].kind != PQ_LEFT_OUT)
                TRY(find_pages(p, &p->groups[i], (int32_t)leaf));
    return PESC_OK;
}

/* ---- opening ---- */

bool parquet_is(const io_map *map)
{
    return map->size >= 4 &&
           (memcmp(map->data, "PAR1", 4) == 0 || memcmp(map->data, "PARE", 4) == 0);
}

static pesc_status open_file(parquet *p)
{
    size_t size = p->map->size;
    const unsigned char *end = p->map->data + size;
    if (size < 12 || memcmp(p->map->data, "PAR1", 4) != 0 || memcmp(end - 4, "PAR1", 4) != 0)
        return size >= 12 &&
                       (memcmp(p->map->data, "PARE", 4) == 0 || memcmp(end - 4, "PARE", 4) == 0)
                   ? pq_refused(p, "an encrypted footer")
                   : pq_damaged(p, "it does not end in PAR1");
    uint32_t length = (uint32_t)end[-8] | (uint32_t)end[-7] << 8 | (uint32_t)end[-6] << 16 |
                      (uint32_t)end[-5] << 24;
    if (length > size - 12)
        return pq_damaged(p, "its metadata is longer than the file");
    thrift t = { end - FOOTER - length, end - FOOTER, false };
    TRY(read_metadata(p, &t));
    TRY(find_all_pages(p));
    return io_map_check(p->map);
}

pesc_status parquet_open(parquet **out, const io_map *map, uint64_t most)
{
    *out = NULL;
    parquet *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem(map->path, sizeof *p);
    p->map = map;
    p->most = most;
    pesc_status s = open_file(p);
    if (s == PESC_OK)
        *out = p;
    else
        parquet_close(p);
    return s;
}

void parquet_close(parquet *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_cached; i++)
        pq_page_release(p->cached[i]->page);
    for (size_t i = 0; i < p->n_groups; i++) {
        for (size_t k = 0; p->groups[i].chunks && k < p->n_leaves; k++)
            mem_free(p->groups[i].chunks[k].pages);
        mem_free(p->groups[i].chunks);
    }
    for (size_t i = 0; i < p->n_nodes; i++)
        mem_free(p->nodes[i].name);
    mem_free(p->nodes);
    mem_free(p->leaves);
    mem_free(p->groups);
    mem_free(p->cached);
    mem_free(p);
}

uint64_t parquet_rows(const parquet *p)
{
    return p->rows;
}
