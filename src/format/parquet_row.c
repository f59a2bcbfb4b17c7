/* A row of a Parquet file, assembled from its columns by their levels. */
#include "format/parquet_file.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>

enum { NODES_MAX = 1 << 21 }; /* JSON values of a row */

/* Where a column is in the current row. */
typedef struct cursor {
    pq_chunk *chunk;
    size_t place; /* index of the page */
    const pq_page *page;
    uint32_t entry, value;
    bool begun; /* an entry of the row was taken: the next one with rep 0 is another row's */
} cursor;

typedef struct assembly {
    parquet *p;
    pq_group *group;
    cursor *at; /* [n_leaves] */
    size_t made;
    pesc_status status;
} assembly;

static json_t *give_up(assembly *a, pesc_status s)
{
    if (a->status == PESC_OK)
        a->status = s;
    return NULL;
}

/* The page of the group in which a row begins: of those with the same first_row the last one, since
 * no row begins in the others. */
static size_t page_of(const pq_chunk *c, uint64_t row)
{
    size_t lo = 0, hi = c->n_pages;
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (c->pages[middle].first_row <= row)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

static pesc_status start(assembly *a, int32_t leaf, uint64_t row)
{
    cursor *at = &a->at[leaf];
    pq_chunk *c = &a->group->chunks[leaf];
    *at = (cursor){ .chunk = c, .place = page_of(c, row) };
    pq_place *place = &c->pages[at->place];
    pq_page *page;
    TRY(pq_page_get(a->p, leaf, c, place, &page));
    at->page = page;
    uint64_t within = row - place->first_row;
    if (row < place->first_row || within >= at->page->n_rows)
        return pq_fail(a->p, leaf, place->at, "the page has other rows than when it was opened");
    at->entry = at->page->row_entry[within];
    at->value = at->page->row_value[within];
    return PESC_OK;
}

static const pq_page no_page; /* of a column whose page could not be read */

/* Whether the column has another entry in this row; moves to the next page where one ends. */
static bool has_entry(assembly *a, int32_t leaf)
{
    cursor *at = &a->at[leaf];
    while (at->entry == at->page->n) {
        if (at->place + 1 == at->chunk->n_pages)
            return false;
        pq_page *page = NULL;
        pesc_status s = pq_page_get(a->p, leaf, at->chunk, &at->chunk->pages[++at->place], &page);
        at->page = s == PESC_OK ? page : &no_page;
        if (s != PESC_OK) {
            give_up(a, s);
            return false;
        }
        at->entry = at->value = 0;
    }
    return !at->begun || (at->page->rep && at->page->rep[at->entry] > 0);
}

static uint8_t def_of(const cursor *at)
{
    return at->page->def ? at->page->def[at->entry] : 0;
}

/* Moves past the current entry. */
static void take(assembly *a, int32_t leaf)
{
    cursor *at = &a->at[leaf];
    at->value += def_of(at) == a->p->leaves[leaf].max_def;
    at->entry++;
    at->begun = true;
}

/* The columns below a node that is not there have one entry each that says so. */
static void take_all(assembly *a, const pq_node *n)
{
    for (int32_t i = n->first_leaf; i < n->end_leaf; i++)
        if (a->p->leaves[i].kind != PQ_LEFT_OUT && a->status == PESC_OK) {
            if (has_entry(a, i))
                take(a, i);
            else
                give_up(a, pq_fail(a->p, i, 0, "its levels do not fit those of other columns"));
        }
}

static json_t *value_of(assembly *a, int32_t leaf, pq_value v)
{
    switch (a->p->leaves[leaf].kind) {
    case PQ_BOOL:
        return json_boolean(v.i);
    case PQ_INT:
        return json_integer(v.i);
    case PQ_UINT:
        return v.i >= 0 ? json_integer(v.i) : json_real((double)(uint64_t)v.i);
    case PQ_REAL:
        return isfinite(v.d) ? json_real(v.d) : json_null(); /* JSON has no other numbers */
    default:
        break;
    }
    if (utf8_valid(v.s, v.n))
        return json_stringn_nocheck(v.s, v.n);
    if (a->p->leaves[leaf].kind == PQ_MAYBE_TEXT)
        return json_null();
    return give_up(a, pq_fail(a->p, leaf, 0, "a text is not UTF-8"));
}

static json_t *make(assembly *a, int32_t node);

static json_t *make_leaf(assembly *a, const pq_node *n)
{
    const cursor *at = &a->at[n->leaf];
    json_t *v = json_null();
    if (def_of(at) == a->p->leaves[n->leaf].max_def)
        v = value_of(a, n->leaf, at->page->values[at->value]);
    take(a, n->leaf);
    return v;
}

static json_t *make_struct(assembly *a, const pq_node *n)
{
    json_t *object = json_object();
    for (int32_t i = n->child; object && i >= 0 && a->status == PESC_OK; i = a->p->nodes[i].next) {
        if (a->p->nodes[i].lead < 0)
            continue;
        json_t *v = make(a, i);
        if (v && json_object_set_new(object, a->p->nodes[i].name, v) != 0)
            give_up(a, fail_nomem("a row", 64));
    }
    return object;
}

/* A map becomes an object, so its keys are texts. */
static void add_pair(assembly *a, const pq_node *n, json_t *object)
{
    int32_t key = n->child, value = a->p->nodes[key].next;
    json_t *name = make(a, key);
    json_t *v = a->status == PESC_OK && a->p->nodes[value].lead >= 0 ? make(a, value) : json_null();
    if (a->status == PESC_OK && !json_is_string(name))
        give_up(a, fail(PESC_FORMAT, "%s: column %s: a map has a key that is no text",
                        a->p->map->path, n->name));
    else if (a->status == PESC_OK &&
             json_object_setn_new(object, json_string_value(name), json_string_length(name),
                                  json_incref(v)) != 0)
        give_up(a, fail_nomem("a row", 64));
    json_decref(name);
    json_decref(v);
}

static json_t *make_list(assembly *a, const pq_node *n)
{
    bool map = n->shape == PQ_MAP;
    json_t *list = map ? json_object() : json_array();
    if (def_of(&a->at[n->lead]) < n->list_def) { /* it is there, and empty */
        take_all(a, n);
        return list;
    }
    for (bool more = list != NULL; more && a->status == PESC_OK;) {
        if (map) {
            add_pair(a, n, list);
        } else {
            json_t *v = make(a, n->child);
            if (v && json_array_append_new(list, v) != 0)
                give_up(a, fail_nomem("a row", 64));
        }
        const cursor *at = &a->at[n->lead];
        more = a->status == PESC_OK && has_entry(a, n->lead) &&
               (at->page->rep ? at->page->rep[at->entry] : 0) == n->list_rep;
    }
    return list;
}

/* The value of a node, from the current entries; NULL after a failure. */
static json_t *make(assembly *a, int32_t node)
{
    const pq_node *n = &a->p->nodes[node];
    if (a->status != PESC_OK)
        return NULL;
    if (!has_entry(a, n->lead))
        return give_up(a,
                       pq_fail(a->p, n->lead, 0, "its levels do not fit those of other columns"));
    if (++a->made > NODES_MAX)
        return give_up(
            a, fail(PESC_FORMAT, "%s: a row has more than %d values", a->p->map->path, NODES_MAX));
    json_t *v;
    if (n->shape != PQ_LEAF && def_of(&a->at[n->lead]) < n->def) {
        take_all(a, n);
        v = json_null();
    } else if (n->shape == PQ_LEAF) {
        v = make_leaf(a, n);
    } else if (n->shape == PQ_STRUCT) {
        v = make_struct(a, n);
    } else {
        v = make_list(a, n);
    }
    if (a->status == PESC_OK && v)
        return v;
    json_decref(v);
    return give_up(a, a->status == PESC_OK ? fail_nomem("a row", 64) : a->status);
}

static pq_group *group_of(const parquet *p, uint64_t row)
{
    size_t lo = 0, hi = p->n_groups;
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (p->groups[middle].first <= row)
            lo = middle;
        else
            hi = middle;
    }
    return &p->groups[lo]; /* the last of those that begin there: the others are empty */
}

pesc_status parquet_row(parquet *p, uint64_t row, json_t **out)
{
    ASSERT(row < p->rows);
    *out = NULL;
    p->reading++;
    assembly a = { .p = p, .group = group_of(p, row), .at = mem_zalloc(p->n_leaves, sizeof *a.at) };
    if (!a.at)
        return fail_nomem("a row", p->n_leaves * sizeof *a.at);
    row -= a.group->first;
    for (size_t i = 0; i < p->n_leaves && a.status == PESC_OK; i++)
        if (p->leaves[i].kind != PQ_LEFT_OUT)
            a.status = start(&a, (int32_t)i, row);
    json_t *v = a.status == PESC_OK ? make(&a, 0) : NULL;
    for (size_t i = 0; i < p->n_leaves && a.status == PESC_OK; i++)
        if (p->leaves[i].kind != PQ_LEFT_OUT && has_entry(&a, (int32_t)i))
            give_up(&a, pq_fail(p, (int32_t)i, 0, "its levels do not fit those of other columns"));
    mem_free(a.at);
    if (a.status != PESC_OK) {
        json_decref(v);
        return a.status;
    }
    *out = v;
    return io_map_check(p->map);
}
