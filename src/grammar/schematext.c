/* Strings of JSON Schema: lengths, patterns and formats, which hold for the text after its escapes
 * are undone. All of them together are one automaton over characters (chardfa.h), which is then
 * spelled as JSON. */
#include "base/mem.h"
#include "grammar/schemaparts.h"

#include <stdio.h>
#include <string.h>

#define YEAR "[0-9]{4}"
#define DATE                                                                                       \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-"   \
    "(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579]"       \
    "[26])00)-02-29)"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5]"   \
    "[0-9])"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define HEX4 "[0-9A-Fa-f]{1,4}"
#define LOW32 "(" HEX4 ":" HEX4 "|" IPV4 ")"
#define IPV6                                                                                       \
    "((" HEX4 ":){6}" LOW32 "|::(" HEX4 ":){5}" LOW32 "|(" HEX4 ")?::(" HEX4 ":){4}" LOW32         \
    "|((" HEX4 ":){0,1}" HEX4 ")?::(" HEX4 ":){3}" LOW32 "|((" HEX4 ":){0,2}" HEX4 ")?::(" HEX4    \
    ":){2}" LOW32 "|((" HEX4 ":){0,3}" HEX4 ")?::" HEX4 ":" LOW32 "|((" HEX4 ":){0,4}" HEX4        \
    ")?::" LOW32 "|((" HEX4 ":){0,5}" HEX4 ")?::" HEX4 "|((" HEX4 ":){0,6}" HEX4 ")?::)"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define REGNAME "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"

/* RFC 3339, 5321, 1123, 4291, 4122 and 3986, and durations of ISO 8601 without gaps. */
static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "[Tt]" TIME },
    { "duration",
      "P([0-9]{1,9}W|([0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?|[0-9]{1,9}M([0-9]{1,9}D)?|"
      "[0-9]{1,9}D)(T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|"
      "[0-9]{1,9}S))?|T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}"
      "S)?|[0-9]{1,9}S))" },
    { "email", ATEXT "(\\." ATEXT ")*@" LABEL "(\\." LABEL ")*" },
    { "hostname", LABEL "(\\." LABEL ")*" },
    { "ipv4", IPV4 },
    { "ipv6", IPV6 },
    { "uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}" },
    { "uri",
      "[A-Za-z][A-Za-z0-9+.-]*:(//((" REGNAME ")@)?(\\[" IPV6 "\\]|" REGNAME ")(:[0-9]*)?(/" PCHAR
      "*)*|/?(" PCHAR "+(/" PCHAR "*)*)?)(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?" },
};

/* The conditions of a text: their expressions in pools of their own. */
typedef struct conditions {
    char_condition *all; /* [n] */
    expr_pool *pools;    /* [n] */
    size_t n;
} conditions;

static void free_conditions(conditions *c)
{
    for (size_t i = 0; c->pools && i < c->n; i++)
        expr_pool_free(&c->pools[i]);
    mem_free(c->pools);
    mem_free(c->all);
}

static pesc_status add_regex(conditions *c, const char *text, size_t n, bool anywhere)
{
    expr_pool *pool = &c->pools[c->n];
    char_condition *x = &c->all[c->n++];
    *pool = (expr_pool){ 0 };
    *x = (char_condition){ .pool = pool, .anywhere = anywhere };
    return regex_parse(pool, text, n, &x->root);
}

void schema_pattern_failed(schema_writer *w, uint32_t path, const char *keyword, pesc_status s)
{
    char why[256];
    snprintf(why, sizeof why, "%s", pesc_last_error());
    if (s == PESC_UNSUPPORTED)
        schema_cannot(w, path, keyword, why);
    else
        schema_fail(w, s, path, "%s: %s", keyword, why);
}

static void add_pattern(schema_writer *w, conditions *c, subschema s)
{
    const json_t *v = json_object_get(s.v, "pattern");
    if (!v)
        return;
    if (!json_is_string(v)) {
        schema_fail(w, PESC_FORMAT, s.path, "pattern: found %s, expected a string", json_kind(v));
        return;
    }
    pesc_status st = add_regex(c, json_string_value(v), json_string_length(v), true);
    if (st == PESC_OK)
        return;
    schema_pattern_failed(w, s.path, "pattern", st);
    expr_pool_free(&c->pools[--c->n]);
}

static void add_format(schema_writer *w, conditions *c, subschema s)
{
    const json_t *v = json_object_get(s.v, "format");
    const char *name = json_string_value(v);
    if (!v)
        return;
    if (!name) {
        schema_fail(w, PESC_FORMAT, s.path, "format: found %s, expected a string", json_kind(v));
        return;
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            rules_fail(w->r, add_regex(c, formats[i].regex, strlen(formats[i].regex), false));
            return;
        }
    schema_cannot(w, s.path, "format",
                  "of the formats date, time, date-time, duration, email, "
                  "hostname, ipv4, ipv6, uuid and uri are known");
}

/* The automaton of the texts; false: there is no condition, or a failure. */
static bool build(schema_writer *w, const all_of *of, const limits *l, chardfa *d)
{
    conditions c = { .all = mem_alloc(2 * of->n + 1, sizeof *c.all),
                     .pools = mem_alloc(2 * of->n + 1, sizeof *c.pools) };
    bool any = false;
    if (!c.all || !c.pools)
        rules_fail(w->r, fail_nomem("a schema", of->n));
    for (size_t i = 0; i < of->n && w->r->status == PESC_OK; i++) {
        add_pattern(w, &c, of->all[i]);
        add_format(w, &c, of->all[i]);
    }
    any = c.n > 0 || l->min_length > 0 || l->max_length >= 0;
    if (w->r->status == PESC_OK && any)
        rules_fail(w->r,
                   chardfa_build(d, c.all, c.n, (char_length){ l->min_length, l->max_length }));
    free_conditions(&c);
    return any && w->r->status == PESC_OK;
}

void schema_write_text(schema_writer *w, const all_of *of, const limits *l, rule_span at)
{
    chardfa d = { 0 };
    if (build(w, of, l, &d)) {
        uint32_t from = rules_node(w->r), to = rules_node(w->r);
        rules_text(w->r, at.start, from, "\"", 1);
        if (w->r->status == PESC_OK)
            chardfa_write(&d, w->r, &w->sets, (rule_span){ from, to }, SPELL_JSON);
        rules_text(w->r, to, at.end, "\"", 1);
    } else {
        rules_call(w->r, at.start, at.end, w->text);
    }
    chardfa_free(&d);
}

bool schema_text_fits(schema_writer *w, const all_of *of, const limits *l, const json_t *v)
{
    chardfa d = { 0 };
    bool fits =
        !build(w, of, l, &d) || chardfa_matches(&d, json_string_value(v), json_string_length(v));
    chardfa_free(&d);
    return fits && w->r->status == PESC_OK;
}
