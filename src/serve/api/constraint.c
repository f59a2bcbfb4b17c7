#include "serve/api/constraint.h"

#include "base/mem.h"
#include "chat/chat_callgrammar.h"

#include <pthread.h>
#include <string.h>

enum { MAX_CACHED = 512 << 20, MAX_GRAMMARS = 4096, MAX_CHOICES = 1000, MAX_SOURCE = 1 << 20 };

/* ---- from a field ---- */

static bool wrong(api_error *e, const char *field, const json_t *v, const char *expected)
{
    return api_refuse(e, 400, NULL, field, "%s: found %s, expected %s", field, json_kind(v),
                      expected);
}

static bool take_format(constraint *c, const json_t *v, api_error *e)
{
    static const char *const types = "{\"type\": \"text\"}, \"json_object\" or \"json_schema\"";
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *named = json_object_get(v, "json_schema");
    if (!type)
        return wrong(e, c->field, v, types);
    if (strcmp(type, "text") == 0) {
        c->field = NULL;
        return true;
    }
    if (strcmp(type, "json_object") == 0) {
        c->schema = json_object_get(v, "schema");
        return !c->schema || json_is_object(c->schema) ||
               wrong(e, c->field, c->schema, "an object in schema");
    }
    if (strcmp(type, "json_schema") != 0)
        return api_refuse(e, 400, NULL, c->field, "%s: found the type \"%.40s\", expected %s",
                          c->field, type, types);
    c->schema = json_object_get(named, "schema");
    return json_is_object(c->schema) ||
           api_refuse(e, 400, NULL, c->field, "%s: json_schema has no schema that is an object",
                      c->field);
}

static bool take_choices(constraint *c, const json_t *v, api_error *e)
{
    size_t n = json_array_size(v);
    if (n == 0 || n > MAX_CHOICES)
        return api_refuse(e, 400, NULL, c->field,
                          "%s: found %zu texts, expected an array of 1 to %d", c->field, n,
                          MAX_CHOICES);
    for (size_t i = 0; i < n; i++) {
        const json_t *t = json_array_get(v, i);
        if (!json_is_string(t) || strlen(json_string_value(t)) != json_string_length(t))
            return wrong(e, c->field, t, "a text without a NUL character");
    }
    c->choices = v;
    return true;
}

static bool take_schema(constraint *c, const json_t *v, api_error *e)
{
    c->schema = json_is_object(v) ? v : NULL;
    c->text = json_string_value(v); /* the schema as text */
    return c->schema || c->text || wrong(e, c->field, v, "a JSON Schema");
}

static bool take_text(constraint *c, const json_t *v, api_error *e)
{
    c->text = json_string_value(v);
    if (c->text && strlen(c->text) != json_string_length(v))
        return wrong(e, c->field, v, "a text without a NUL character");
    return c->text || wrong(e, c->field, v, "a string");
}

static bool take_grammar(constraint *c, const json_t *v, api_error *e)
{
    c->kind = PESC_GRAMMAR_GBNF;
    return take_text(c, v, e);
}

/* llama.cpp's server takes an empty grammar as none. */
static bool take_any_grammar(constraint *c, const json_t *v, api_error *e)
{
    if (json_is_string(v) && json_string_length(v) == 0) {
        c->field = NULL;
        return true;
    }
    return take_grammar(c, v, e);
}

static bool take_regex(constraint *c, const json_t *v, api_error *e)
{
    c->kind = PESC_GRAMMAR_REGEX;
    return take_text(c, v, e);
}

static bool take_any_object(constraint *c, const json_t *v, api_error *e)
{
    return json_is_true(v) || wrong(e, c->field, v, "true");
}

/* vLLM's: exactly one of the ways to constrain an answer. */
static bool take_structured(constraint *c, const json_t *v, api_error *e)
{
    static const struct {
        const char *key;
        bool (*take)(constraint *c, const json_t *v, api_error *e);
    } rows[] = { { "json", take_schema },
                 { "regex", take_regex },
                 { "choice", take_choices },
                 { "grammar", take_grammar },
                 { "json_object", take_any_object } };
    enum { N = sizeof rows / sizeof *rows };
    const char *key;
    json_t *x;
    size_t n = 0;
    json_object_foreach((json_t *)v, key, x)
    {
        size_t i = 0;
        if (json_is_null(x) || json_is_false(x))
            continue;
        while (i < N && strcmp(rows[i].key, key) != 0)
            i++;
        if (i == N)
            return api_refuse(e, 400, "unsupported_parameter", c->field,
                              "%s: \"%.40s\" is not supported", c->field, key);
        if (!rows[i].take(c, x, e))
            return false;
        n++;
    }
    return n == 1 || api_refuse(e, 400, NULL, c->field,
                                "%s: found %zu of json, regex, choice, grammar and json_object, "
                                "expected one",
                                c->field, n);
}

bool constraint_take(constraint *c, const char *field, const json_t *v, api_error *e)
{
    static const struct {
        const char *field;
        bool (*take)(constraint *c, const json_t *v, api_error *e);
    } rows[] = {
        { "response_format", take_format }, { "guided_json", take_schema },
        { "guided_regex", take_regex },     { "guided_choice", take_choices },
        { "guided_grammar", take_grammar }, { "structured_outputs", take_structured },
        { "grammar", take_any_grammar },    { "json_schema", take_schema },
    };
    constraint one = { .field = field, .kind = PESC_GRAMMAR_SCHEMA };
    size_t i = 0;
    while (strcmp(rows[i].field, field) != 0)
        i++;
    if (!rows[i].take(&one, v, e))
        return false;
    if (one.field && c->field)
        return api_refuse(e, 400, NULL, field,
                          "%s: %s constrains the answer already; give one of them", field,
                          c->field);
    if (one.field)
        *c = one;
    return true;
}

bool constraint_rule(const constraint *c, str *out)
{
    json_t *parsed = NULL;
    if (c->choices) {
        for (size_t i = 0; i < json_array_size(c->choices); i++) {
            const json_t *text = json_array_get(c->choices, i);
            str_puts(out, i ? "| " : "");
            gbnf_text(json_string_value(text), json_string_length(text), out);
        }
        return true;
    }
    if (c->kind != PESC_GRAMMAR_SCHEMA ||
        (c->text && json_parse(&parsed, c->text, strlen(c->text), c->field) != PESC_OK))
        return false;
    str_puts(out, "%json ");
    if (parsed || c->schema)
        json_put(out, parsed ? parsed : c->schema, JSON_COMPACT);
    else
        str_puts(out, "{\"type\":\"object\"}");
    json_decref(parsed);
    return true;
}

/* ---- grammars that are kept ---- */

typedef struct kept {
    char *key; /* the source */
    size_t n;
    grammar *g;
    char *ignored; /* what it leaves out */
    uint64_t used;
} kept;

struct grammar_cache {
    pesc_model *m;
    pthread_mutex_t lock;
    kept *all; /* [n] */
    size_t n, cap;
    uint64_t clock;
};

pesc_status grammar_cache_open(grammar_cache **out, pesc_model *m)
{
    grammar_cache *k = *out = mem_zalloc(1, sizeof *k);
    if (!k)
        return fail_nomem("grammars", sizeof *k);
    k->m = m;
    pthread_mutex_init(&k->lock, NULL);
    return PESC_OK;
}

static void drop(grammar_cache *k, size_t i)
{
    grammar_close(k->all[i].g);
    mem_free(k->all[i].key);
    mem_free(k->all[i].ignored);
    k->all[i] = k->all[--k->n];
}

void grammar_cache_close(grammar_cache *k)
{
    if (!k)
        return;
    while (k->n)
        drop(k, k->n - 1);
    pthread_mutex_destroy(&k->lock);
    mem_free(k->all);
    mem_free(k);
}

/* What tells sources apart: how strictly it is compiled, its kind, its text. */
static void put_key(const constraint *c, bool lenient, str *key)
{
    str_putc(key, lenient ? 'l' : 's');
    str_putc(key, c->choices ? 'c' : (char)('0' + c->kind));
    if (c->text)
        str_puts(key, c->text);
    else if (c->schema || c->choices)
        json_put(key, c->schema ? c->schema : c->choices, JSON_COMPACT);
    else
        str_puts(key, "{\"type\":\"object\"}");
}

static grammar *find(grammar_cache *k, const str *key, str *ignored)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->all[i].n == key->n && memcmp(k->all[i].key, key->p, key->n) == 0) {
            k->all[i].used = ++k->clock;
            if (ignored)
                str_puts(ignored, k->all[i].ignored);
            grammar_keep(k->all[i].g);
            return k->all[i].g;
        }
    return NULL;
}

/* Drops those that were used least recently until the others fit. */
static void shrink(grammar_cache *k)
{
    for (;;) {
        size_t bytes = 0, oldest = 0;
        for (size_t i = 0; i < k->n; i++) {
            bytes += k->all[i].n + grammar_bytes(k->all[i].g);
            oldest = k->all[i].used < k->all[oldest].used ? i : oldest;
        }
        if (k->n <= 1 || (bytes <= MAX_CACHED && k->n <= MAX_GRAMMARS))
            return;
        drop(k, oldest);
    }
}

/* Without memory for it, it is not kept. */
static void keep(grammar_cache *k, const str *key, grammar *g, const str *ignored)
{
    kept one = { mem_strndup(key->p, key->n), key->n, g, mem_strdup(ignored->p ? ignored->p : ""),
                 ++k->clock };
    if (!one.key || !one.ignored || !mem_room((void **)&k->all, &k->cap, k->n, sizeof *k->all)) {
        mem_free(one.key);
        mem_free(one.ignored);
        return;
    }
    grammar_keep(g);
    k->all[k->n++] = one;
    shrink(k);
}

static pesc_status compile(grammar_cache *k, const constraint *c, str *ignored, grammar **out)
{
    static const char any[] = "{\"type\":\"object\"}";
    grammar_source from = { .kind = c->kind, .schema = c->schema, .ignored = ignored };
    const piece_trie *p;
    const char **texts = NULL;
    TRY(constrain_pieces(k->m, &p));
    if (c->choices) {
        from.n = json_array_size(c->choices);
        if (!(texts = mem_alloc(from.n, sizeof *texts)))
            return fail_nomem("choices", from.n * sizeof *texts);
        for (size_t i = 0; i < from.n; i++)
            texts[i] = json_string_value(json_array_get(c->choices, i));
        from.choices = texts;
    } else if (!c->schema) {
        from.text = c->text ? c->text : any;
        from.n = strlen(from.text);
    }
    pesc_status st = grammar_open(out, p, &from);
    mem_free((void *)texts);
    return st;
}

static bool find_or_compile(grammar_cache *k, const constraint *c, const str *key, str *ignored,
                            grammar **out, api_error *e)
{
    str left_out = { 0 };
    pthread_mutex_lock(&k->lock);
    *out = find(k, key, ignored);
    pthread_mutex_unlock(&k->lock);
    if (*out)
        return true;
    pesc_status st = compile(k, c, ignored ? &left_out : NULL, out);
    bool good = st == PESC_OK || api_failed(e, st);
    if (!good)
        api_refuse(e, e->status, NULL, c->field, "%s: %s", c->field, pesc_last_error());
    if (good && ignored && left_out.n)
        str_add(ignored, left_out.p, left_out.n);
    if (good) {
        pthread_mutex_lock(&k->lock);
        keep(k, key, *out, &left_out);
        pthread_mutex_unlock(&k->lock);
    }
    str_free(&left_out);
    return good;
}

bool constraint_compile(grammar_cache *k, const constraint *c, str *ignored, grammar **out,
                        api_error *e)
{
    str key = { 0 };
    *out = NULL;
    if (!c->field)
        return true;
    put_key(c, ignored != NULL, &key);
    bool good = false;
    if (!str_ok(&key))
        api_failed(e, fail_nomem("a grammar", key.n));
    else if (key.n > MAX_SOURCE)
        api_refuse(e, 400, NULL, c->field, "%s: has %zu bytes, expected at most %d", c->field,
                   key.n, MAX_SOURCE);
    else
        good = find_or_compile(k, c, &key, ignored, out, e);
    str_free(&key);
    return good;
}
