/* schemaparts: what the files of the JSON Schema front end share: schema.c takes schemas apart,
 * schemavalue.c writes values of each type, schematext.c strings, schemanumber.c numbers,
 * schemaobject.c objects and arrays.
 *
 * A value must satisfy several schemas at once: what properties, allOf, $ref and so on ask for in
 * different places. Such a list of schemas ("all of") is the unit that is written: it becomes one
 * rule, however often it is asked for, so recursive schemas become recursive rules. */
#ifndef PESC_GRAMMAR_SCHEMAPARTS_H
#define PESC_GRAMMAR_SCHEMAPARTS_H

#include "base/json.h"
#include "grammar/chardfa.h"
#include "grammar/regexparse.h"

enum { SCHEMA_MAX_COUNT = EXPR_MAX_TIMES }; /* of characters, items and properties */

/* A schema, and where it is, for messages: the number of a step from the root. */
typedef struct subschema {
    const json_t *v;
    uint32_t path;
} subschema;

typedef struct all_of {
    subschema *all;
    size_t n, cap;
} all_of;

typedef struct path_step {
    uint32_t up;
    const char *word; /* borrowed from the schema, or a literal */
    size_t index;     /* of an array, where word is NULL */
} path_step;

/* All of a list that are written when their turn comes. */
typedef struct schema_rule {
    all_of of;
    uint32_t rule;
} schema_rule;

typedef struct schema_writer {
    rules *r;
    const json_t *root;
    str *ignored; /* NULL: what cannot be enforced is an error */
    spell_rules sets;
    path_step *paths;
    size_t n_paths, cap_paths;
    intern known;       /* lists that have a rule */
    schema_rule *rules; /* [n_rules] theirs */
    size_t n_rules, cap_rules;
    uint32_t blank;  /* rules that every schema has: blanks inside a value */
    uint32_t text;   /* any string */
    uint32_t number; /* any number */
    uint32_t integer;
    size_t n_alternatives;
} schema_writer;

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_REAL = 8, /* a number that is no integer; "number" is both */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127
};

/* What the keywords of all schemas of a list ask for together. */
typedef struct limits {
    unsigned types;
    int64_t min_length, max_length; /* max: -1 is none */
    int64_t min_items, max_items;
    int64_t min_properties, max_properties;
    const json_t *lo, *hi; /* the tightest bounds; NULL: none */
    bool lo_open, hi_open; /* exclusive */
    int64_t multiple;      /* 0: any */
} limits;

/* ---- schema.c ---- */

/* Keeps a failure: the sentence begins with the place of the schema. */
void schema_fail(schema_writer *w, pesc_status s, uint32_t path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* What cannot be enforced: an error, or its name among those that are ignored. */
void schema_cannot(schema_writer *w, uint32_t path, const char *keyword, const char *why);
uint32_t schema_path(schema_writer *w, uint32_t up, const char *word, size_t index);
void schema_add(schema_writer *w, all_of *to, subschema s); /* once */
/* The rule of a value that satisfies all of the list, which stays the caller's. */
uint32_t schema_rule_of(schema_writer *w, const all_of *of);

/* ---- schemavalue.c ---- */

/* Values that satisfy all schemas of the list, none of which refers to others by $ref or combines
 * others. */
void schema_write_value(schema_writer *w, const all_of *of, rule_span at);
double schema_number(const json_t *v);

/* ---- schematext.c ---- */

/* Strings, with their quotes. */
void schema_write_text(schema_writer *w, const all_of *of, const limits *l, rule_span at);
/* A regular expression could not be read or is not supported. */
void schema_pattern_failed(schema_writer *w, uint32_t path, const char *keyword, pesc_status s);
/* Whether the string satisfies what schema_write_text() would write. */
bool schema_text_fits(schema_writer *w, const all_of *of, const limits *l, const json_t *v);

/* ---- schemanumber.c ---- */

void schema_write_number(schema_writer *w, const limits *l, rule_span at);
void schema_write_any_number(rules *r, rule_span at, bool integer);

/* ---- schemaobject.c ---- */

void schema_write_object(schema_writer *w, const all_of *of, const limits *l, rule_span at);
void schema_write_array(schema_writer *w, const all_of *of, const limits *l, rule_span at);

#endif
