/* The schema of a Parquet file: its list of elements as a tree of nodes, with the levels at which
 * each is there (parquet-format, LogicalTypes.md for lists and maps). */
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/parquet_file.h"

#include <string.h>

enum { OPTIONAL = 1, REPEATED = 2 };

typedef enum annotation { PLAIN, IS_TEXT, IS_LIST, IS_MAP, IS_UNSIGNED, IS_OTHER } annotation;

/* A SchemaElement of the file. */
typedef struct element {
    const char *name;
    size_t name_bytes;
    int64_t physical, repetition, children; /* -1: not given */
    annotation is;
} element;

typedef struct schema {
    parquet *p;
    element *list;
    size_t n, at; /* at: the next one */
    size_t cap_nodes, cap_leaves;
    size_t left_out;
} schema;

static annotation of_converted_type(int64_t type)
{
    static const annotation of[] = {
        [0] = IS_TEXT,      [1] = IS_MAP,       [2] = IS_MAP,       [3] = IS_LIST,
        [4] = IS_TEXT,      [5] = IS_OTHER,     [6] = IS_OTHER,     [7] = IS_OTHER,
        [8] = IS_OTHER,     [9] = IS_OTHER,     [10] = IS_OTHER,    [11] = IS_UNSIGNED,
        [12] = IS_UNSIGNED, [13] = IS_UNSIGNED, [14] = IS_UNSIGNED, [15] = PLAIN,
        [16] = PLAIN,       [17] = PLAIN,       [18] = PLAIN,       [19] = IS_TEXT,
    };
    return type >= 0 && (size_t)type < sizeof of / sizeof *of ? of[type] : IS_OTHER;
}

/* INTEGER { 1: bits, 2: signed } */
static annotation read_integer(thrift *t, const thrift_field *f)
{
    bool is_signed = true;
    thrift_field inner = { 0 };
    if (thrift_struct(t, f))
        while (thrift_next(t, &inner)) {
            if (inner.id == 2)
                is_signed = thrift_bool(t, &inner);
            else
                thrift_skip(t, &inner);
        }
    return is_signed ? PLAIN : IS_UNSIGNED;
}

/* The union LogicalType: one field, whose number says which. */
static annotation read_logical_type(thrift *t, const thrift_field *f)
{
    static const annotation of[] = { [1] = IS_TEXT,  [2] = IS_MAP,   [3] = IS_LIST,  [4] = IS_TEXT,
                                     [5] = IS_OTHER, [6] = IS_OTHER, [7] = IS_OTHER, [8] = IS_OTHER,
                                     [9] = IS_OTHER, [11] = PLAIN,   [12] = IS_TEXT };
    annotation is = PLAIN;
    thrift_field inner = { 0 };
    if (!thrift_struct(t, f))
        return is;
    while (thrift_next(t, &inner)) {
        bool known = inner.id > 0 && (size_t)inner.id < sizeof of / sizeof *of;
        if (inner.id == 10) {
            is = read_integer(t, &inner);
            continue;
        }
        is = known ? of[inner.id] : IS_OTHER;
        thrift_skip(t, &inner);
    }
    return is;
}

static void read_element(thrift *t, element *e)
{
    annotation logical = PLAIN;
    bool has_logical = false;
    thrift_field f = { 0 };
    *e = (element){ .name = "", .physical = -1, .repetition = 0, .children = 0 };
    while (thrift_next(t, &f))
        switch (f.id) {
        case 1:
            e->physical = thrift_int(t, &f);
            break;
        case 3:
            e->repetition = thrift_int(t, &f);
            break;
        case 4:
            e->name = thrift_binary(t, &f, &e->name_bytes);
            break;
        case 5:
            e->children = thrift_int(t, &f);
            break;
        case 6:
            e->is = of_converted_type(thrift_int(t, &f));
            break;
        case 10:
            logical = read_logical_type(t, &f);
            has_logical = true;
            break;
        default:
            thrift_skip(t, &f);
        }
    e->is = has_logical ? logical : e->is;
}

static pesc_status read_elements(schema *s, thrift *t, const thrift_field *f)
{
    size_t n = thrift_list(t, f, THRIFT_STRUCT);
    if (n == 0 || s->p->nodes)
        return pq_damaged(s->p, "it has no list of columns, or two");
    s->list = mem_alloc(n, sizeof *s->list);
    if (!s->list)
        return fail_nomem(s->p->map->path, n * sizeof *s->list);
    for (; s->n < n; s->n++)
        read_element(t, &s->list[s->n]);
    return t->failed ? pq_damaged(s->p, "its list of columns is cut") : PESC_OK;
}

static pq_kind kind_of(const element *e)
{
    switch (e->physical) {
    case PQ_BOOLEAN:
        return e->is == PLAIN ? PQ_BOOL : PQ_LEFT_OUT;
    case PQ_INT32:
    case PQ_INT64:
        return e->is == PLAIN ? PQ_INT : e->is == IS_UNSIGNED ? PQ_UINT : PQ_LEFT_OUT;
    case PQ_FLOAT:
    case PQ_DOUBLE:
        return e->is == PLAIN ? PQ_REAL : PQ_LEFT_OUT;
    case PQ_BYTE_ARRAY:
        return e->is == IS_TEXT ? PQ_TEXT : e->is == PLAIN ? PQ_MAYBE_TEXT : PQ_LEFT_OUT;
    default:
        return PQ_LEFT_OUT;
    }
}

/* Levels of what stands around a node. */
typedef struct levels {
    int def, rep, depth;
} levels;

static pesc_status add_node(schema *s, const element *e, int def, int32_t *out)
{
    parquet *p = s->p;
    if (!mem_room((void **)&p->nodes, &s->cap_nodes, p->n_nodes, sizeof *p->nodes))
        return fail_nomem(p->map->path, sizeof *p->nodes);
    if (!utf8_valid(e->name, e->name_bytes) || memchr(e->name, '\0', e->name_bytes))
        return pq_damaged(p, "the name of a column is not UTF-8");
    char *name = mem_strndup(e->name, e->name_bytes);
    if (!name)
        return fail_nomem(p->map->path, e->name_bytes);
    *out = (int32_t)p->n_nodes;
    p->nodes[p->n_nodes++] = (pq_node){ .name = name,
                                        .def = (uint8_t)def,
                                        .child = -1,
                                        .next = -1,
                                        .leaf = -1,
                                        .lead = -1,
                                        .first_leaf = (int32_t)p->n_leaves };
    return PESC_OK;
}

static pesc_status add_leaf(schema *s, const element *e, levels l, int32_t node)
{
    parquet *p = s->p;
    if (e->physical < PQ_BOOLEAN || e->physical > PQ_FIXED)
        return pq_damaged(p, "a column has no type");
    if (!mem_room((void **)&p->leaves, &s->cap_leaves, p->n_leaves, sizeof *p->leaves))
        return fail_nomem(p->map->path, sizeof *p->leaves);
    pq_kind kind = kind_of(e);
    s->left_out += kind == PQ_LEFT_OUT;
    if (kind == PQ_LEFT_OUT && s->left_out == 1)
        log_notice("%s: column %s and others like it are left out of the records: dates, decimals "
                   "and raw bytes are not read",
                   p->map->path, p->nodes[node].name);
    p->nodes[node].shape = PQ_LEAF;
    p->nodes[node].leaf = (int32_t)p->n_leaves;
    p->leaves[p->n_leaves++] = (pq_leaf){ .physical = (pq_physical)e->physical,
                                          .kind = kind,
                                          .max_def = (uint8_t)l.def,
                                          .max_rep = (uint8_t)l.rep,
                                          .node = node };
    return PESC_OK;
}

/* Columns below a finished node. */
static void close_node(parquet *p, int32_t node)
{
    pq_node *n = &p->nodes[node];
    n->end_leaf = (int32_t)p->n_leaves;
    for (int32_t i = n->first_leaf; i < n->end_leaf && n->lead < 0; i++)
        if (p->leaves[i].kind != PQ_LEFT_OUT)
            n->lead = i;
}

static pesc_status build(schema *s, bool required, levels l, int32_t *out);

/* Builds the next `n` elements as children of a node. */
static pesc_status build_children(schema *s, int64_t n, levels l, int32_t parent)
{
    int32_t last = -1, child;
    json_t *names = json_object();
    pesc_status st = names ? PESC_OK : fail_nomem(s->p->map->path, 64);
    for (int64_t i = 0; st == PESC_OK && i < n; i++, last = child) {
        st = build(s, false, l, &child);
        if (st != PESC_OK)
            break;
        pq_node *nodes = s->p->nodes;
        if (json_object_get(names, nodes[child].name))
            st = fail(PESC_FORMAT, "%s: two columns have the name \"%s\"", s->p->map->path,
                      nodes[child].name);
        else if (json_object_set_new(names, nodes[child].name, json_true()) != 0)
            st = fail_nomem(s->p->map->path, 64);
        *(last < 0 ? &nodes[parent].child : &nodes[last].next) = child;
    }
    json_decref(names);
    return st;
}

/* Whether the repeated child of a list is the element itself, as older writers have it, and not a
 * group around the element (LogicalTypes.md, "Backward-compatibility rules"). */
static bool is_element(const schema *s, const element *list, const element *child)
{
    static const char tuple[] = "_tuple";
    size_t n = list->name_bytes;
    if (child->children != 1)
        return true;
    if (child->name_bytes == 5 && memcmp(child->name, "array", 5) == 0)
        return true;
    if (child + 1 < s->list + s->n && child[1].repetition == REPEATED)
        return true;
    return child->name_bytes == n + sizeof tuple - 1 && memcmp(child->name, list->name, n) == 0 &&
           memcmp(child->name + n, tuple, sizeof tuple - 1) == 0;
}

static pesc_status build_list(schema *s, const element *e, levels l, int32_t node)
{
    const element *child = &s->list[s->at];
    levels inner = { l.def + 1, l.rep + 1, l.depth + 1 };
    int32_t first;
    bool itself = is_element(s, e, child);
    s->at += !itself;
    TRY(build(s, itself, inner, &first));
    pq_node *n = &s->p->nodes[node];
    n->shape = PQ_LIST;
    n->child = first;
    n->list_def = (uint8_t)inner.def;
    n->list_rep = (uint8_t)inner.rep;
    return PESC_OK;
}

static pesc_status build_map(schema *s, levels l, int32_t node)
{
    levels inner = { l.def + 1, l.rep + 1, l.depth + 1 };
    s->at++;
    TRY(build_children(s, 2, inner, node));
    pq_node *n = &s->p->nodes[node];
    n->shape = PQ_MAP;
    n->list_def = (uint8_t)inner.def;
    n->list_rep = (uint8_t)inner.rep;
    return PESC_OK;
}

static pesc_status build_inside(schema *s, const element *e, levels l, int32_t node)
{
    bool one = e->children == 1 && s->at < s->n && s->list[s->at].repetition == REPEATED;
    if (e->children == 0)
        return add_leaf(s, e, l, node);
    if (e->is == IS_LIST && one)
        return build_list(s, e, l, node);
    if (e->is == IS_MAP && one && s->list[s->at].children == 2)
        return build_map(s, l, node);
    s->p->nodes[node].shape = PQ_STRUCT;
    return build_children(s, e->children, (levels){ l.def, l.rep, l.depth + 1 }, node);
}

/* The next element and all below it; required: its own repetition was already counted. */
static pesc_status build(schema *s, bool required, levels l, int32_t *out)
{
    if (s->at >= s->n || l.depth > PQ_MAX_DEPTH)
        return pq_damaged(s->p, "its columns are not the tree that their numbers of children say");
    const element *e = &s->list[s->at];
    int32_t child;
    if (e->children < 0 || (size_t)e->children > s->n)
        return pq_damaged(s->p, "a column has an impossible number of children");
    if (!required && e->repetition == REPEATED) { /* a list without an annotation */
        levels inner = { l.def + 1, l.rep + 1, l.depth + 1 };
        TRY(add_node(s, e, l.def, out));
        TRY(build(s, true, inner, &child));
        pq_node *n = &s->p->nodes[*out];
        n->shape = PQ_LIST;
        n->child = child;
        n->list_def = (uint8_t)inner.def;
        n->list_rep = (uint8_t)inner.rep;
    } else {
        s->at++;
        l.def += !required && e->repetition == OPTIONAL;
        TRY(add_node(s, e, l.def, out));
        TRY(build_inside(s, e, l, *out));
    }
    close_node(s->p, *out);
    return PESC_OK;
}

static pesc_status build_schema(schema *s)
{
    int32_t root;
    if (s->list[0].children == 0)
        return pq_damaged(s->p, "it has no columns");
    TRY(build(s, true, (levels){ 0 }, &root));
    if (s->at != s->n)
        return pq_damaged(s->p, "its columns are not the tree that their numbers of children say");
    if (s->p->nodes[root].shape != PQ_STRUCT || s->p->nodes[root].lead < 0)
        return pq_refused(s->p, "no column of texts or numbers");
    return PESC_OK;
}

pesc_status pq_schema_read(parquet *p, thrift *t, const thrift_field *f)
{
    schema s = { .p = p };
    pesc_status st = read_elements(&s, t, f);
    if (st == PESC_OK)
        st = build_schema(&s);
    mem_free(s.list);
    return st;
}
