/* Objects and arrays of JSON Schema.
 *
 * The properties of an object come in the order in which the schemas name them, then those that are
 * only required, then others. A chain of nodes says how far an object is in that order, each
 * optional property an edge that may be left out; a second chain beside it is for objects that have
 * members already and need a comma, further ones where members are counted. */
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/schemaparts.h"

#include <string.h>

enum { MAX_PATTERNS = 5 }; /* of patternProperties; each combination of them has names of its own */

typedef struct property {
    const char *name; /* borrowed */
    uint32_t path;
    bool required;
} property;

/* A pattern of patternProperties. */
typedef struct name_pattern {
    const char *text;
    size_t member; /* whose it is, of the list of schemas */
    subschema s;
    expr_pool pool;
    uint32_t root;
    chardfa d; /* of the names that it matches */
} name_pattern;

typedef struct object_writer {
    schema_writer *w;
    const all_of *of;
    const limits *l;
    property *all; /* [n] */
    size_t n, cap;
    json_t *index; /* places in `all` by name */
    name_pattern patterns[MAX_PATTERNS];
    size_t n_patterns;
    bool closed; /* no other properties */
} object_writer;

/* ---- what the schemas name ---- */

static property *find_property(object_writer *o, const char *name, uint32_t path)
{
    json_t *at = json_object_get(o->index, name);
    if (at)
        return &o->all[json_integer_value(at)];
    if (!mem_room((void **)&o->all, &o->cap, o->n, sizeof *o->all) ||
        json_object_set_new_nocheck(o->index, name, json_integer((json_int_t)o->n)) != 0) {
        rules_fail(o->w->r, fail_nomem("a schema", o->n * sizeof *o->all));
        return NULL;
    }
    o->all[o->n] = (property){ name, path, false };
    return &o->all[o->n++];
}

/* A keyword whose value must be an object of schemas; NULL: it is not there. */
static const json_t *schemas_of(schema_writer *w, subschema s, const char *key)
{
    const json_t *v = json_object_get(s.v, key);
    if (v && !json_is_object(v)) {
        schema_fail(w, PESC_FORMAT, s.path, "%s: found %s, expected an object", key, json_kind(v));
        return NULL;
    }
    return v;
}

static void take_required(object_writer *o, subschema s)
{
    const json_t *v = json_object_get(s.v, "required");
    if (v && !json_is_array(v))
        schema_fail(o->w, PESC_FORMAT, s.path, "required: found %s, expected an array of names",
                    json_kind(v));
    for (size_t i = 0; i < json_array_size(v) && o->w->r->status == PESC_OK; i++) {
        const char *name = json_string_value(json_array_get(v, i));
        property *p = name ? find_property(o, name, s.path) : NULL;
        if (p)
            p->required = true;
        else
            schema_fail(o->w, PESC_FORMAT, s.path, "required: found %s, expected a name",
                        json_kind(json_array_get(v, i)));
    }
}

static void take_pattern(object_writer *o, size_t member, const char *text, subschema s)
{
    if (o->n_patterns == MAX_PATTERNS) {
        schema_cannot(o->w, s.path, "patternProperties", "there are more than 5 patterns");
        return;
    }
    name_pattern *p = &o->patterns[o->n_patterns];
    *p = (name_pattern){ .text = text, .member = member, .s = s };
    pesc_status st = regex_parse(&p->pool, text, strlen(text), &p->root);
    char_condition c = { .pool = &p->pool, .root = p->root, .anywhere = true };
    if (st == PESC_OK)
        st = chardfa_build(&p->d, &c, 1, (char_length){ 0, -1 });
    o->n_patterns++;
    if (st != PESC_OK)
        schema_fail(o->w, st, s.path, "patternProperties: %s", pesc_last_error());
}

static void take_names(object_writer *o)
{
    const char *key;
    json_t *v;
    schema_writer *w = o->w;
    bool properties = false, others = false;
    for (size_t i = 0; i < o->of->n && w->r->status == PESC_OK; i++) {
        subschema s = o->of->all[i];
        const json_t *named = schemas_of(w, s, "properties");
        const json_t *patterns = schemas_of(w, s, "patternProperties");
        uint32_t in_patterns = schema_path(w, s.path, "patternProperties", 0);
        uint32_t path = named ? schema_path(w, s.path, "properties", 0) : 0;
        json_object_foreach((json_t *)named, key, v)
        {
            (void)find_property(o, key, schema_path(w, path, key, 0));
        }
        json_object_foreach((json_t *)patterns, key, v)
        {
            take_pattern(o, i, key, (subschema){ v, schema_path(w, in_patterns, key, 0) });
        }
        properties |= named != NULL;
        others |= json_object_get(s.v, "additionalProperties") != NULL;
    }
    for (size_t i = 0; i < o->of->n; i++)
        take_required(o, o->of->all[i]);
    o->closed = properties && !others;
}

/* ---- the schemas of a member ---- */

/* Adds what member i of the list asks of a property: named, matched by patterns, or another one.
 * name NULL: a name that no schema lists. matched: a bit for each pattern that matches it. */
static void add_asked(object_writer *o, size_t i, const char *name, unsigned matched, all_of *to)
{
    subschema s = o->of->all[i];
    const json_t *v = name ? json_object_get(json_object_get(s.v, "properties"), name) : NULL;
    bool known = v != NULL;
    if (v)
        schema_add(o->w, to,
                   (subschema){
                       v, schema_path(o->w, schema_path(o->w, s.path, "properties", 0), name, 0) });
    for (size_t k = 0; k < o->n_patterns; k++)
        if (o->patterns[k].member == i && matched >> k & 1) {
            schema_add(o->w, to, o->patterns[k].s);
            known = true;
        }
    v = known ? NULL : json_object_get(s.v, "additionalProperties");
    if (v)
        schema_add(o->w, to,
                   (subschema){ v, schema_path(o->w, s.path, "additionalProperties", 0) });
}

static unsigned matched_by(const object_writer *o, const char *name)
{
    unsigned matched = 0;
    for (size_t k = 0; k < o->n_patterns; k++)
        if (chardfa_matches(&o->patterns[k].d, name, strlen(name)))
            matched |= 1u << k;
    return matched;
}

/* The rule of the value of a property. */
static uint32_t value_rule(object_writer *o, const char *name, unsigned matched)
{
    all_of of = { 0 };
    for (size_t i = 0; i < o->of->n; i++)
        add_asked(o, i, name, matched, &of);
    uint32_t rule = schema_rule_of(o->w, &of);
    mem_free(of.all);
    return rule;
}

/* ---- members ---- */

static uint32_t blank_after(schema_writer *w, uint32_t from)
{
    uint32_t to = rules_node(w->r);
    rules_call(w->r, from, to, w->blank);
    return to;
}

/* : value, with the blanks around them, from the end of a name on. */
static void write_member_value(schema_writer *w, uint32_t from, uint32_t to, uint32_t value)
{
    uint32_t colon = rules_node(w->r), end = rules_node(w->r);
    rules_text(w->r, blank_after(w, from), colon, ":", 1);
    rules_call(w->r, blank_after(w, colon), end, value);
    rules_call(w->r, end, to, w->blank);
}

/* The rule of ", " and then what `rule` is. */
static uint32_t after_comma(schema_writer *w, uint32_t rule)
{
    uint32_t both = rules_add(w->r), comma = rules_node(w->r);
    if (w->r->status != PESC_OK)
        return 0;
    rule_span at = w->r->rules[both];
    rules_text(w->r, at.start, comma, ",", 1);
    rules_call(w->r, blank_after(w, comma), at.end, rule);
    return both;
}

static uint32_t member_rule(object_writer *o, const property *p)
{
    schema_writer *w = o->w;
    uint32_t value = value_rule(o, p->name, matched_by(o, p->name));
    uint32_t rule = rules_add(w->r), name = rules_node(w->r);
    if (w->r->status != PESC_OK)
        return 0;
    rule_span at = w->r->rules[rule];
    spell_json_string(w->r, (rule_span){ at.start, name }, p->name, strlen(p->name));
    write_member_value(w, name, at.end, value);
    return rule;
}

/* The names of other properties that exactly the patterns in `matched` match: an expression of all
 * that are listed, negated, and each pattern. */
static void write_other_names(object_writer *o, unsigned matched, rule_span at)
{
    schema_writer *w = o->w;
    char_condition c[MAX_PATTERNS + 1];
    expr_pool listed = { 0 };
    chardfa d = { 0 };
    size_t n = 0;
    uint32_t from = rules_node(w->r), to = rules_node(w->r), code;
    uint32_t root = expr_add(&listed, EXPR_CHOICE, 0);
    for (size_t i = 0; i < o->n && !listed.failed; i++) {
        uint32_t name = expr_add(&listed, EXPR_SEQUENCE, 0);
        for (size_t k = 0, bytes = strlen(o->all[i].name); k < bytes;) {
            k += (size_t)utf8_decode(o->all[i].name + k, bytes - k, &code);
            expr_append(&listed, name, expr_add(&listed, EXPR_CHAR, code));
        }
        expr_append(&listed, root, name);
    }
    if (o->n)
        c[n++] = (char_condition){ .pool = &listed, .root = root, .negated = true };
    for (size_t k = 0; k < o->n_patterns; k++)
        c[n++] = (char_condition){ .pool = &o->patterns[k].pool,
                                   .root = o->patterns[k].root,
                                   .anywhere = true,
                                   .negated = !(matched >> k & 1) };
    if (listed.failed)
        rules_fail(w->r, fail_nomem("a schema", o->n));
    if (w->r->status == PESC_OK)
        rules_fail(w->r, chardfa_build(&d, c, n, (char_length){ 0, -1 }));
    rules_text(w->r, at.start, from, "\"", 1);
    if (w->r->status == PESC_OK)
        chardfa_write(&d, w->r, &w->sets, (rule_span){ from, to }, SPELL_JSON);
    rules_text(w->r, to, at.end, "\"", 1);
    chardfa_free(&d);
    expr_pool_free(&listed);
}

/* The rule of a member that no schema lists. */
static uint32_t other_rule(object_writer *o)
{
    schema_writer *w = o->w;
    uint32_t rule = rules_add(w->r);
    for (unsigned matched = 0; matched < 1u << o->n_patterns; matched++) {
        if ((o->closed && matched == 0) || w->r->status != PESC_OK)
            continue;
        uint32_t name = rules_node(w->r), value = value_rule(o, NULL, matched);
        if (w->r->status != PESC_OK)
            break;
        rule_span at = w->r->rules[rule];
        if (o->n + o->n_patterns)
            write_other_names(o, matched, (rule_span){ at.start, name });
        else
            rules_call(w->r, at.start, name, w->text);
        write_member_value(w, name, at.end, value);
    }
    return rule;
}

/* ---- objects ---- */

/* How many members an object has, as far as it matters: 0, then 1 to `most`, where the last may
 * stand for that many or more. */
typedef struct counts {
    int64_t min, most;
    bool open; /* there is no maximum */
} counts;

static counts counts_of(int64_t min, int64_t max)
{
    int64_t most = max >= 0 ? max : min > 1 ? min : 1;
    return (counts){ min, most, max < 0 };
}

/* Edges that add one member at each count: from[count] to to[count + 1]. */
static void write_one_more(rules *r, counts c, const uint32_t *from, const uint32_t *to,
                           uint32_t rule, uint32_t comma)
{
    for (int64_t k = 0; k < c.most && r->status == PESC_OK; k++)
        rules_call(r, from[k], to[k + 1], k ? comma : rule);
    if (c.open)
        rules_call(r, from[c.most], to[c.most], comma);
}

static void new_nodes(rules *r, counts c, uint32_t *nodes)
{
    for (int64_t k = 0; k <= c.most; k++)
        nodes[k] = rules_node(r);
}

static void write_chain(object_writer *o, uint32_t start, uint32_t end)
{
    rules *r = o->w->r;
    counts c = counts_of(o->l->min_properties, o->l->max_properties);
    uint32_t *nodes = mem_zalloc(2 * (size_t)(c.most + 1), sizeof *nodes);
    uint32_t *from = nodes, *to = nodes ? nodes + c.most + 1 : NULL;
    if (!nodes) {
        rules_fail(r, fail_nomem("a schema", (size_t)c.most));
        return;
    }
    new_nodes(r, c, from);
    rules_empty(r, start, from[0]);
    for (size_t i = 0; i < o->n && r->status == PESC_OK; i++) {
        uint32_t *swap = from, rule = member_rule(o, &o->all[i]);
        new_nodes(r, c, to);
        write_one_more(r, c, from, to, rule, after_comma(o->w, rule));
        for (int64_t k = 0; k <= c.most && !o->all[i].required; k++)
            rules_empty(r, from[k], to[k]);
        from = to;
        to = swap;
    }
    if (!o->closed || o->n_patterns) {
        uint32_t rule = other_rule(o);
        write_one_more(r, c, from, from, rule, after_comma(o->w, rule));
    }
    for (int64_t k = c.min; k <= c.most; k++)
        rules_empty(r, from[k], end);
    mem_free(nodes);
}

void schema_write_object(schema_writer *w, const all_of *of, const limits *l, rule_span at)
{
    object_writer o = { .w = w, .of = of, .l = l, .index = json_object() };
    uint32_t open = rules_node(w->r), end = rules_node(w->r);
    if (!o.index)
        rules_fail(w->r, fail_nomem("a schema", sizeof o));
    else
        take_names(&o);
    rules_text(w->r, at.start, open, "{", 1);
    if (w->r->status == PESC_OK)
        write_chain(&o, blank_after(w, open), end);
    rules_text(w->r, end, at.end, "}", 1);
    for (size_t k = 0; k < o.n_patterns; k++) {
        expr_pool_free(&o.patterns[k].pool);
        chardfa_free(&o.patterns[k].d);
    }
    json_decref(o.index);
    mem_free(o.all);
}

/* ---- arrays ---- */

/* Draft 2020-12 has prefixItems and items, draft 7 an array in items, and additionalItems. */
static const json_t *prefix_of(const json_t *v)
{
    const json_t *items = json_object_get(v, "items");
    return json_is_array(items) ? items : json_object_get(v, "prefixItems");
}

static size_t longest_prefix(schema_writer *w, const all_of *of)
{
    size_t most = 0;
    for (size_t i = 0; i < of->n; i++) {
        const json_t *p = prefix_of(of->all[i].v);
        if (p && !json_is_array(p))
            schema_fail(w, PESC_FORMAT, of->all[i].path,
                        "prefixItems: found %s, expected an array of schemas", json_kind(p));
        most = json_array_size(p) > most ? json_array_size(p) : most;
    }
    return most;
}

/* The rule of item number `at` and the blanks after it. */
static uint32_t item_rule(schema_writer *w, const all_of *of, size_t at)
{
    all_of asked = { 0 };
    for (size_t i = 0; i < of->n; i++) {
        subschema s = of->all[i];
        const json_t *prefix = prefix_of(s.v), *items = json_object_get(s.v, "items");
        const char *word = json_is_array(items) ? "additionalItems" : "items";
        const json_t *rest = json_object_get(s.v, word);
        if (at < json_array_size(prefix))
            schema_add(w, &asked,
                       (subschema){ json_array_get(prefix, at), schema_path(w, s.path, NULL, at) });
        else if (rest)
            schema_add(w, &asked, (subschema){ rest, schema_path(w, s.path, word, 0) });
    }
    uint32_t value = schema_rule_of(w, &asked), rule = rules_add(w->r), end = rules_node(w->r);
    mem_free(asked.all);
    if (w->r->status != PESC_OK)
        return 0;
    rule_span span = w->r->rules[rule];
    rules_call(w->r, span.start, end, value);
    rules_call(w->r, end, span.end, w->blank);
    return rule;
}

void schema_write_array(schema_writer *w, const all_of *of, const limits *l, rule_span at)
{
    rules *r = w->r;
    size_t prefix = longest_prefix(w, of);
    counts c = counts_of(l->min_items, l->max_items);
    if (c.open && c.most < (int64_t)prefix + 1)
        c.most = (int64_t)prefix + 1;
    uint32_t open = rules_node(r), end = rules_node(r);
    rules_text(r, at.start, open, "[", 1);
    uint32_t from = blank_after(w, open), rule = 0, comma = 0;
    if (c.min == 0)
        rules_empty(r, from, end);
    for (int64_t i = 0; i < c.most && r->status == PESC_OK; i++) {
        uint32_t to = rules_node(r);
        if (i <= (int64_t)prefix) {
            rule = item_rule(w, of, (size_t)i);
            comma = after_comma(w, rule);
        }
        rules_call(r, from, to, i ? comma : rule);
        if (i + 1 >= c.min)
            rules_empty(r, to, end);
        from = to;
    }
    if (c.open)
        rules_call(r, from, from, comma);
    rules_text(r, end, at.end, "]", 1);
}
