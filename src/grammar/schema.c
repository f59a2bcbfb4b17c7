/* JSON Schema, taken apart: which schemas hold at once for a value.
 *
 * $ref and allOf add schemas to the list, anyOf and oneOf make one list of several. What is left
 * are lists of schemas without such keywords, which schemavalue.c writes. Keywords that cannot be
 * enforced are refused by name. */
#include "base/mem.h"
#include "grammar/frontends.h"
#include "grammar/schemaparts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 128, /* of the JSON text: 64 schemas inside each other */
    MAX_PROPERTIES = 5000,
    MAX_VALUES = 1000,
    MAX_CHAIN = 200,         /* of references */
    MAX_ALTERNATIVES = 10000 /* lists that anyOf and oneOf make */
};

/* ---- keywords ---- */

typedef enum keyword_kind { ENFORCED, ANNOTATION, REFUSED } keyword_kind;

static const struct {
    const char *name;
    keyword_kind kind;
} keywords[] = {
    { "type", ENFORCED },
    { "enum", ENFORCED },
    { "const", ENFORCED },
    { "properties", ENFORCED },
    { "required", ENFORCED },
    { "additionalProperties", ENFORCED },
    { "patternProperties", ENFORCED },
    { "minProperties", ENFORCED },
    { "maxProperties", ENFORCED },
    { "items", ENFORCED },
    { "prefixItems", ENFORCED },
    { "additionalItems", ENFORCED },
    { "minItems", ENFORCED },
    { "maxItems", ENFORCED },
    { "minLength", ENFORCED },
    { "maxLength", ENFORCED },
    { "pattern", ENFORCED },
    { "format", ENFORCED },
    { "minimum", ENFORCED },
    { "maximum", ENFORCED },
    { "exclusiveMinimum", ENFORCED },
    { "exclusiveMaximum", ENFORCED },
    { "multipleOf", ENFORCED },
    { "$ref", ENFORCED },
    { "allOf", ENFORCED },
    { "anyOf", ENFORCED },
    { "oneOf", ENFORCED },
    { "$defs", ANNOTATION },
    { "definitions", ANNOTATION },
    { "uniqueItems", REFUSED },
    { "contains", REFUSED },
    { "minContains", REFUSED },
    { "maxContains", REFUSED },
    { "not", REFUSED },
    { "if", REFUSED },
    { "then", REFUSED },
    { "else", REFUSED },
    { "dependentRequired", REFUSED },
    { "dependentSchemas", REFUSED },
    { "dependencies", REFUSED },
    { "propertyNames", REFUSED },
    { "unevaluatedItems", REFUSED },
    { "unevaluatedProperties", REFUSED },
    { "$dynamicRef", REFUSED },
    { "$recursiveRef", REFUSED },
    { "nullable", REFUSED },
    { "divisibleBy", REFUSED },
    { "disallow", REFUSED },
    { "extends", REFUSED },
};

/* Any other name is an annotation, as the standard has it. */
static keyword_kind kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0)
            return keywords[i].kind;
    return ANNOTATION;
}

static bool asks_nothing(const char *name, const json_t *v)
{
    return json_is_false(v) && (strcmp(name, "uniqueItems") == 0 || strcmp(name, "nullable") == 0);
}

/* ---- places and failures ---- */

static void put_path(const schema_writer *w, uint32_t path, str *out)
{
    uint32_t chain[2 * MAX_DEPTH];
    size_t n = 0;
    for (; path && n < sizeof chain / sizeof *chain; path = w->paths[path].up)
        chain[n++] = path;
    str_putc(out, '#');
    while (n-- > 0) {
        const path_step *s = &w->paths[chain[n]];
        if (s->word)
            str_printf(out, "/%.60s", s->word);
        else
            str_printf(out, "/%zu", s->index);
    }
}

uint32_t schema_path(schema_writer *w, uint32_t up, const char *word, size_t index)
{
    if (!mem_room((void **)&w->paths, &w->cap_paths, w->n_paths, sizeof *w->paths)) {
        rules_fail(w->r, fail_nomem("a schema", w->n_paths * sizeof *w->paths));
        return 0;
    }
    w->paths[w->n_paths] = (path_step){ up, word, index };
    return (uint32_t)w->n_paths++;
}

void schema_fail(schema_writer *w, pesc_status s, uint32_t path, const char *fmt, ...)
{
    char what[300];
    str where = { 0 };
    va_list args;
    if (w->r->status != PESC_OK)
        return;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    put_path(w, path, &where);
    rules_fail(w->r, fail(s, "the schema, %.200s: %s", where.p ? where.p : "#", what));
    str_free(&where);
}

void schema_cannot(schema_writer *w, uint32_t path, const char *keyword, const char *why)
{
    if (!w->ignored) {
        schema_fail(w, PESC_UNSUPPORTED, path, "%s cannot be enforced%s%s; leave it out", keyword,
                    *why ? ": " : "", why);
        return;
    }
    str one = { 0 };
    str_puts(&one, ", ");
    put_path(w, path, &one);
    str_printf(&one, "/%s", keyword);
    if (one.p && !(w->ignored->p && strstr(w->ignored->p, one.p)))
        str_add(w->ignored, one.p, one.n);
    str_free(&one);
}

/* ---- lists of schemas ---- */

void schema_add(schema_writer *w, all_of *to, subschema s)
{
    for (size_t i = 0; i < to->n; i++)
        if (to->all[i].v == s.v)
            return;
    if (json_is_true(s.v) || (json_is_object(s.v) && json_object_size(s.v) == 0))
        return;
    if (!mem_room((void **)&to->all, &to->cap, to->n, sizeof *to->all))
        rules_fail(w->r, fail_nomem("a schema", to->n * sizeof *to->all));
    else
        to->all[to->n++] = s;
}

static bool copy_list(all_of *to, const all_of *from)
{
    *to = (all_of){ 0 };
    if (from->n == 0)
        return true;
    to->all = mem_alloc(from->n, sizeof *to->all);
    if (!to->all)
        return false;
    memcpy(to->all, from->all, from->n * sizeof *to->all);
    to->n = to->cap = from->n;
    return true;
}

uint32_t schema_rule_of(schema_writer *w, const all_of *of)
{
    size_t n = of->n * (sizeof of->all->v / sizeof(uint32_t));
    if (w->r->status != PESC_OK)
        return 0;
    uint32_t *key = mem_alloc(n + 1, sizeof *key);
    if (!key || !mem_room((void **)&w->rules, &w->cap_rules, w->n_rules, sizeof *w->rules)) {
        rules_fail(w->r, fail_nomem("a schema", n * sizeof *key));
        mem_free(key);
        return 0;
    }
    for (size_t i = 0; i < of->n; i++)
        memcpy(key + i * (sizeof of->all->v / sizeof *key), &of->all[i].v, sizeof of->all->v);
    uint32_t number = intern_add(&w->known, key, n);
    mem_free(key);
    if (number < w->n_rules)
        return w->rules[number].rule;
    schema_rule *x = &w->rules[w->n_rules];
    if (number == INTERN_NONE || !copy_list(&x->of, of)) {
        rules_fail(w->r, fail_nomem("a schema", n));
        return 0;
    }
    w->n_rules++;
    return x->rule = rules_add(w->r);
}

/* ---- references ---- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* One part of a JSON pointer, with %XX, ~1 and ~0 undone. False: it is malformed. */
static bool take_part(const char **at, str *part)
{
    const char *p = *at;
    str_clear(part);
    for (; *p && *p != '/'; p++) {
        char c = *p;
        if (c == '%') {
            int hi = hex_of(p[1]), lo = hi < 0 ? -1 : hex_of(p[2]);
            if (lo < 0)
                return false;
            c = (char)(hi * 16 + lo);
            p += 2;
        }
        if (c == '~') {
            if (p[1] != '0' && p[1] != '1')
                return false;
            c = *++p == '0' ? '~' : '/';
        }
        str_putc(part, c);
    }
    *at = p;
    return str_ok(part);
}

static bool step_into(schema_writer *w, subschema *s, const char *part)
{
    long long index;
    const char *key;
    json_t *v;
    if (json_is_array(s->v)) {
        if (!str_to_i64(part, 0, (long long)json_array_size(s->v) - 1, &index))
            return false;
        *s = (subschema){ json_array_get(s->v, (size_t)index),
                          schema_path(w, s->path, NULL, (size_t)index) };
        return true;
    }
    json_object_foreach((json_t *)s->v, key, v)
    {
        if (strcmp(key, part) == 0) {
            *s = (subschema){ v, schema_path(w, s->path, key, 0) };
            return true;
        }
    }
    return false;
}

static subschema resolve(schema_writer *w, subschema from)
{
    const json_t *ref = json_object_get(from.v, "$ref");
    const char *at = json_string_value(ref);
    subschema s = { w->root, 0 };
    str part = { 0 };
    if (!at) {
        schema_fail(w, PESC_FORMAT, from.path, "$ref: found %s, expected a string", json_kind(ref));
        return s;
    }
    if (*at != '#' || (at[1] && at[1] != '/')) {
        schema_fail(w, PESC_UNSUPPORTED, from.path,
                    "$ref: found \"%.80s\", expected a place in this schema, such as #/$defs/name",
                    at);
        return s;
    }
    bool found = true;
    for (at++; found && *at == '/';) {
        at++;
        found = take_part(&at, &part) && step_into(w, &s, part.p ? part.p : "");
    }
    if (!found)
        schema_fail(w, PESC_FORMAT, from.path, "$ref: the schema has no \"%.80s\"",
                    json_string_value(ref));
    str_free(&part);
    return s;
}

/* ---- what holds at once ---- */

typedef struct visited {
    const json_t *v;
    uint32_t up; /* which refers to it; 0: none */
} visited;

/* The schemas that hold for one value, while they are found. */
typedef struct branch {
    all_of plain;
    visited *seen; /* from 1 */
    size_t n_seen, cap_seen;
    subschema *choices; /* anyOf and oneOf that are still to be chosen from */
    uint32_t *chooser;  /* the schema that has each */
    size_t n_choices, cap_choices, cap_chooser;
    bool never; /* `false` is among them */
} branch;

static void free_branch(branch *b)
{
    mem_free(b->plain.all);
    mem_free(b->seen);
    mem_free(b->choices);
    mem_free(b->chooser);
    *b = (branch){ 0 };
}

static void *copy_array(const void *p, size_t n, size_t size)
{
    void *to = mem_alloc(n + 1, size);
    if (to && n)
        memcpy(to, p, n * size);
    return to;
}

static bool copy_branch(branch *to, const branch *from)
{
    *to = *from;
    bool good = copy_list(&to->plain, &from->plain);
    to->seen = copy_array(from->seen, from->n_seen, sizeof *to->seen);
    to->choices = copy_array(from->choices, from->n_choices, sizeof *to->choices);
    to->chooser = copy_array(from->chooser, from->n_choices, sizeof *to->chooser);
    to->cap_seen = from->n_seen;
    to->cap_choices = to->cap_chooser = from->n_choices;
    return good && to->seen && to->choices && to->chooser;
}

static void visit(schema_writer *w, branch *b, subschema s, uint32_t up, int depth);

static void add_choice(schema_writer *w, branch *b, subschema list, uint32_t self)
{
    if (!json_is_array(list.v) || json_array_size(list.v) == 0)
        schema_fail(w, PESC_FORMAT, list.path, "found %s, expected an array of schemas",
                    json_is_array(list.v) ? "an empty array" : json_kind(list.v));
    else if (!mem_room((void **)&b->choices, &b->cap_choices, b->n_choices, sizeof *b->choices) ||
             !mem_room((void **)&b->chooser, &b->cap_chooser, b->n_choices, sizeof *b->chooser))
        rules_fail(w->r, fail_nomem("a schema", b->n_choices * sizeof *b->choices));
    else {
        b->choices[b->n_choices] = list;
        b->chooser[b->n_choices++] = self;
    }
}

static void visit_all_of(schema_writer *w, branch *b, subschema list, uint32_t self, int depth)
{
    size_t n = json_array_size(list.v);
    if (n == 0)
        schema_fail(w, PESC_FORMAT, list.path, "found %s, expected an array of schemas",
                    json_is_array(list.v) ? "an empty array" : json_kind(list.v));
    for (size_t i = 0; i < n && w->r->status == PESC_OK; i++)
        visit(w, b, (subschema){ json_array_get(list.v, i), schema_path(w, list.path, NULL, i) },
              self, depth + 1);
}

/* Notes that the schema holds. False: it was noted before. */
static bool note(schema_writer *w, branch *b, subschema s, uint32_t up, uint32_t *self)
{
    for (uint32_t i = 1; i < b->n_seen; i++)
        if (b->seen[i].v == s.v) {
            for (uint32_t k = up; k; k = b->seen[k].up)
                if (k == i)
                    schema_fail(w, PESC_FORMAT, s.path,
                                "refers to itself without anything between: such a schema has no "
                                "meaning");
            return false;
        }
    if (b->n_seen == 0)
        b->n_seen = 1;
    if (!mem_room((void **)&b->seen, &b->cap_seen, b->n_seen, sizeof *b->seen)) {
        rules_fail(w->r, fail_nomem("a schema", b->n_seen * sizeof *b->seen));
        return false;
    }
    *self = (uint32_t)b->n_seen;
    b->seen[b->n_seen++] = (visited){ s.v, up };
    return true;
}

/* The schema's own keywords have their place in the order where the first of them is written. */
static void visit_object(schema_writer *w, branch *b, subschema s, uint32_t self, int depth)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)s.v, key, v)
    {
        keyword_kind kind = kind_of(key);
        if (w->r->status != PESC_OK)
            return;
        if (strcmp(key, "$ref") == 0)
            visit(w, b, resolve(w, s), self, depth + 1);
        else if (strcmp(key, "allOf") == 0)
            visit_all_of(w, b, (subschema){ v, schema_path(w, s.path, key, 0) }, self, depth);
        else if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0)
            add_choice(w, b, (subschema){ v, schema_path(w, s.path, key, 0) }, self);
        else if (kind == ENFORCED)
            schema_add(w, &b->plain, s);
        else if (kind == REFUSED && !asks_nothing(key, v))
            schema_cannot(w, s.path, key, "");
    }
}

static void visit(schema_writer *w, branch *b, subschema s, uint32_t up, int depth)
{
    uint32_t self;
    if (w->r->status != PESC_OK || json_is_true(s.v))
        return;
    if (json_is_false(s.v))
        b->never = true;
    else if (!json_is_object(s.v))
        schema_fail(w, PESC_FORMAT, s.path, "found %s, expected a schema: an object or a boolean",
                    json_kind(s.v));
    else if (depth > MAX_CHAIN)
        schema_fail(w, PESC_UNSUPPORTED, s.path, "more than %d schemas refer to each other",
                    MAX_CHAIN);
    else if (note(w, b, s, up, &self))
        visit_object(w, b, s, self, depth);
}

/* Writes each list that the choices of a branch make. */
static void write_branch(schema_writer *w, branch *b, rule_span at)
{
    if (w->r->status != PESC_OK || b->never)
        return;
    if (b->n_choices == 0) {
        if (++w->n_alternatives > MAX_ALTERNATIVES)
            schema_fail(w, PESC_UNSUPPORTED, b->plain.n ? b->plain.all[0].path : 0,
                        "anyOf and oneOf inside each other have more than %d combinations",
                        MAX_ALTERNATIVES);
        else
            schema_write_value(w, &b->plain, at);
        return;
    }
    subschema list = b->choices[--b->n_choices];
    uint32_t self = b->chooser[b->n_choices];
    for (size_t i = 0; i < json_array_size(list.v) && w->r->status == PESC_OK; i++) {
        branch one;
        if (!copy_branch(&one, b))
            rules_fail(w->r, fail_nomem("a schema", b->plain.n));
        visit(w, &one, (subschema){ json_array_get(list.v, i), schema_path(w, list.path, NULL, i) },
              self, 0);
        write_branch(w, &one, at);
        free_branch(&one);
    }
}

static void write_list(schema_writer *w, const all_of *of, rule_span at)
{
    branch b = { 0 };
    for (size_t i = 0; i < of->n; i++)
        visit(w, &b, of->all[i], 0, 0);
    write_branch(w, &b, at);
    free_branch(&b);
}

/* ---- the whole ---- */

/* Refuses what is too large before anything is made of it. */
static void check_size(schema_writer *w, const json_t *v, const char *name, int depth,
                       size_t *properties)
{
    const char *key;
    json_t *x;
    if (depth > MAX_DEPTH)
        schema_fail(w, PESC_UNSUPPORTED, 0, "is nested more than %d deep", MAX_DEPTH);
    if (w->r->status != PESC_OK)
        return;
    if (json_is_object(v) && strcmp(name, "properties") == 0)
        *properties += json_object_size(v);
    if (*properties > MAX_PROPERTIES)
        schema_fail(w, PESC_UNSUPPORTED, 0, "has more than %d properties", MAX_PROPERTIES);
    if (strcmp(name, "enum") == 0 && json_array_size(v) > MAX_VALUES)
        schema_fail(w, PESC_UNSUPPORTED, 0, "enum has %zu values, expected at most %d",
                    json_array_size(v), MAX_VALUES);
    for (size_t i = 0; i < json_array_size(v); i++)
        check_size(w, json_array_get(v, i), "", depth + 1, properties);
    json_object_foreach((json_t *)v, key, x)
    {
        check_size(w, x, key, depth + 1, properties);
    }
}

/* Nothing, a blank, or one or two newlines and up to 20 blanks: models that may write any blanks
 * write them without end. */
static void write_blank(rules *r, rule_span at)
{
    enum { MOST = 20 };
    uint32_t line = rules_node(r), from = rules_node(r);
    rules_empty(r, at.start, at.end);
    rules_bytes(r, at.start, at.end, ' ', ' ');
    rules_bytes(r, at.start, line, '\n', '\n');
    rules_empty(r, line, from);
    rules_bytes(r, line, from, '\n', '\n');
    for (int i = 0; i < MOST; i++) {
        uint32_t to = i + 1 < MOST ? rules_node(r) : at.end;
        rules_empty(r, from, at.end);
        rules_bytes(r, from, to, ' ', ' ');
        rules_bytes(r, from, to, '\t', '\t');
        from = to;
    }
}

static void write_text(schema_writer *w, rule_span at)
{
    rules *r = w->r;
    charset all = { 0 };
    uint32_t inside = rules_node(r);
    charset_negate(&all);
    rules_bytes(r, at.start, inside, '"', '"');
    spell_set(r, &w->sets, (rule_span){ inside, inside }, &all, SPELL_JSON);
    rules_bytes(r, inside, at.end, '"', '"');
    charset_free(&all);
}

static const char *name_of(const void *ud, uint32_t rule)
{
    (void)ud;
    (void)rule;
    return "a schema";
}

static void write_all(schema_writer *w, uint32_t *root)
{
    rules *r = w->r;
    size_t properties = 0;
    schema_path(w, 0, "", 0);
    check_size(w, w->root, "", 0, &properties);
    w->blank = rules_add(r);
    w->text = rules_add(r);
    w->number = rules_add(r);
    w->integer = rules_add(r);
    if (r->status != PESC_OK)
        return;
    write_blank(r, r->rules[w->blank]);
    write_text(w, r->rules[w->text]);
    schema_write_any_number(r, r->rules[w->number], false);
    schema_write_any_number(r, r->rules[w->integer], true);
    subschema s = { w->root, 0 };
    all_of of = { 0 };
    if (json_is_object(s.v) || json_is_true(s.v))
        schema_add(w, &of, s);
    else
        schema_fail(w, json_is_false(s.v) ? PESC_UNSUPPORTED : PESC_FORMAT, 0,
                    "found %s, expected an object: %s",
                    json_is_false(s.v) ? "false" : json_kind(s.v),
                    json_is_false(s.v) ? "no value satisfies it" : "a schema");
    *root = schema_rule_of(w, &of);
    mem_free(of.all);
    for (size_t i = 0; i < w->n_rules && r->status == PESC_OK; i++) {
        all_of list = w->rules[i].of; /* the array of rules may move meanwhile, the list does not */
        write_list(w, &list, r->rules[w->rules[i].rule]);
    }
}

pesc_status schema_add_rules(rules *r, const json_t *schema, str *ignored, uint32_t *root)
{
    schema_writer w = { .r = r, .root = schema, .ignored = ignored };
    write_all(&w, root);
    for (size_t i = 0; i < w.n_rules; i++)
        mem_free(w.rules[i].of.all);
    mem_free(w.rules);
    mem_free(w.paths);
    intern_free(&w.known);
    spell_rules_free(&w.sets);
    return r->status;
}

pesc_status schema_write(rules *r, const json_t *schema, str *ignored, uint32_t *root)
{
    TRY(schema_add_rules(r, schema, ignored, root));
    return rules_finish(r, *root, name_of, NULL);
}
