#include "jinja/jinja_value.h"

#include "base/utf8.h"

#include <string.h>

/* ---- making values ---- */

/* Code points of valid UTF-8: bytes that do not continue one. */
static size_t count_chars(const char *p, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)p[i] & 0xc0) != 0x80;
    return chars;
}

jvalue jvalue_str(jctx *c, const char *p, size_t n, const uint16_t *origin)
{
    jstr *s = jctx_step(c, n / 64) ? jctx_alloc(c, 1, sizeof *s) : NULL;
    if (!s)
        return jundefined("");
    *s = (jstr){ .p = p, .n = n, .chars = count_chars(p, n), .origin = origin };
    return (jvalue){ .kind = J_STR, .str = s };
}

jvalue jvalue_text(jctx *c, const char *text)
{
    return jvalue_str(c, text, strlen(text), NULL);
}

jvalue jvalue_seq(jctx *c, jkind kind, size_t room)
{
    jseq *s = jctx_alloc(c, 1, sizeof *s);
    if (!s)
        return jundefined("");
    s->v = room ? jctx_alloc(c, room, sizeof *s->v) : NULL;
    s->cap = s->v ? room : 0;
    return (jvalue){ .kind = kind, .seq = s };
}

/* The larger array of a sequence or dictionary that is full; NULL after a failure. */
static void *grow(jctx *c, const void *old, size_t n, size_t *cap, size_t size)
{
    size_t more = *cap ? *cap * 2 : 8;
    void *p = jctx_alloc(c, more, size);
    if (p && n)
        memcpy(p, old, n * size);
    *cap = p ? more : *cap;
    return p;
}

void jseq_add(jctx *c, jseq *s, jvalue v)
{
    if (jctx_failed(c))
        return;
    if (s->n == s->cap) {
        jvalue *p = grow(c, s->v, s->n, &s->cap, sizeof *p);
        if (!p)
            return;
        s->v = p;
    }
    s->v[s->n++] = v;
}

jvalue jvalue_tuple2(jctx *c, jvalue a, jvalue b)
{
    jvalue t = jvalue_seq(c, J_TUPLE, 2);
    if (!jctx_failed(c)) {
        jseq_add(c, t.seq, a);
        jseq_add(c, t.seq, b);
    }
    return t;
}

jvalue jvalue_dict(jctx *c, jkind kind, size_t room)
{
    jdict *d = jctx_alloc(c, 1, sizeof *d);
    if (!d)
        return jundefined("");
    d->v = room ? jctx_alloc(c, room, sizeof *d->v) : NULL;
    d->cap = d->v ? room : 0;
    return (jvalue){ .kind = kind, .dict = d };
}

void jdict_add(jctx *c, jdict *d, jvalue key, jvalue value)
{
    if (jctx_failed(c))
        return;
    if (d->n == d->cap) {
        jpair *p = grow(c, d->v, d->n, &d->cap, sizeof *p);
        if (!p)
            return;
        d->v = p;
    }
    d->v[d->n++] = (jpair){ key, value };
}

bool jvalue_hashable(jctx *c, jvalue v)
{
    if (v.kind == J_LIST || v.kind == J_DICT)
        jctx_fail(c, "unhashable type: '%s'", jvalue_type(v));
    return !jctx_failed(c);
}

const jvalue *jdict_get(jctx *c, const jdict *d, jvalue key)
{
    if (!jvalue_hashable(c, key) || !jctx_step(c, d->n / 16))
        return NULL;
    for (size_t i = 0; i < d->n && !jctx_failed(c); i++) {
        const jvalue *k = &d->v[i].key;
        bool text = key.kind == J_STR;
        if (text != (k->kind == J_STR) || (text && k->str->n != key.str->n))
            continue;
        if (text ? jctx_step(c, k->str->n / 64) && memcmp(k->str->p, key.str->p, k->str->n) == 0
                 : jvalue_equal(c, *k, key))
            return &d->v[i].value;
    }
    return NULL;
}

const jvalue *jdict_get_text(const jdict *d, const char *p, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        const jvalue *k = &d->v[i].key;
        if (k->kind == J_STR && k->str->n == n && memcmp(k->str->p, p, n) == 0)
            return &d->v[i].value;
    }
    return NULL;
}

void jdict_set(jctx *c, jdict *d, jvalue key, jvalue value)
{
    const jvalue *there = jdict_get(c, d, key);
    if (there)
        *(jvalue *)there = value;
    else
        jdict_add(c, d, key, value);
}

/* ---- from JSON ---- */

/* The origin of n bytes of which all have the same one; NULL for the template's. */
static const uint16_t *mark(jctx *c, size_t n, uint16_t origin)
{
    uint16_t *o = origin == JINJA_TEMPLATE || n == 0 ? NULL : jctx_alloc(c, n, sizeof *o);
    for (size_t i = 0; o && i < n; i++)
        o[i] = origin;
    return o;
}

static jvalue string_from_json(jctx *c, const json_t *v, uint16_t origin)
{
    size_t n = json_string_length(v);
    return jvalue_str(c, json_string_value(v), n, mark(c, n, origin));
}

static jvalue object_from_json(jctx *c, const json_t *v, uint16_t origin)
{
    jvalue out = jvalue_dict(c, J_DICT, json_object_size(v));
    const char *key;
    json_t *member;
    if (jctx_failed(c))
        return out;
    json_object_foreach((json_t *)v, key, member)
    {
        size_t n = strlen(key);
        jvalue k = jvalue_str(c, key, n, mark(c, n, origin));
        jdict_add(c, out.dict, k, jvalue_from_json(c, member, origin));
        if (jctx_failed(c))
            break;
    }
    return out;
}

static jvalue array_from_json(jctx *c, const json_t *v, uint16_t origin)
{
    size_t n = json_array_size(v);
    jvalue out = jvalue_seq(c, J_LIST, n);
    for (size_t i = 0; i < n && !jctx_failed(c); i++)
        jseq_add(c, out.seq, jvalue_from_json(c, json_array_get(v, i), origin));
    return out;
}

jvalue jvalue_from_json(jctx *c, const json_t *v, uint16_t origin)
{
    jvalue out = jnone();
    if (!jctx_enter(c))
        return jundefined("");
    if (json_is_object(v))
        out = object_from_json(c, v, origin);
    else if (json_is_array(v))
        out = array_from_json(c, v, origin);
    else if (json_is_string(v))
        out = string_from_json(c, v, origin);
    else if (json_is_integer(v))
        out = jint(json_integer_value(v));
    else if (json_is_real(v))
        out = jfloat(json_real_value(v));
    else if (json_is_boolean(v))
        out = jbool(json_is_true(v));
    c->depth--;
    return out;
}

/* A role is a short name; templates build control tokens from it: '<|' + role + '|>'. */
static bool is_role(const json_t *v)
{
    const char *p = json_string_value(v);
    size_t n = json_string_length(v);
    bool plain = n > 0 && n <= 32;
    for (size_t i = 0; plain && i < n; i++)
        plain = (p[i] >= 'a' && p[i] <= 'z') || p[i] == '_';
    return plain;
}

jvalue jvalue_from_messages(jctx *c, const json_t *v)
{
    if (!json_is_array(v))
        return jvalue_from_json(c, v, JINJA_DATA);
    size_t n = json_array_size(v);
    jvalue out = jvalue_seq(c, J_LIST, n);
    for (size_t i = 0; i < n && !jctx_failed(c); i++) {
        const json_t *message = json_array_get(v, i), *role = json_object_get(message, "role");
        size_t origin = JINJA_MESSAGE + i < JINJA_DATA ? JINJA_MESSAGE + i : JINJA_DATA;
        jvalue m = jvalue_from_json(c, message, (uint16_t)origin);
        if (is_role(role) && m.kind == J_DICT)
            jdict_set(c, m.dict, jvalue_text(c, "role"), string_from_json(c, role, 0));
        jseq_add(c, out.seq, m);
    }
    return out;
}

/* ---- looking at values ---- */

const char *jvalue_type(jvalue v)
{
    static const char *const names[] = {
        [J_MISSING] = "missing",   [J_UNDEFINED] = "Undefined",
        [J_NONE] = "NoneType",     [J_BOOL] = "bool",
        [J_INT] = "int",           [J_FLOAT] = "float",
        [J_STR] = "str",           [J_LIST] = "list",
        [J_TUPLE] = "tuple",       [J_RANGE] = "range",
        [J_VIEW] = "dict view",    [J_ITER] = "generator",
        [J_DICT] = "dict",         [J_NAMESPACE] = "Namespace",
        [J_LOOP] = "LoopContext",  [J_MACRO] = "Macro",
        [J_FUNCTION] = "function", [J_METHOD] = "method",
    };
    return names[v.kind];
}

int64_t jvalue_length(jvalue v)
{
    switch (v.kind) {
    case J_UNDEFINED:
        return 0;
    case J_STR:
        return (int64_t)v.str->chars;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_VIEW:
        return (int64_t)v.seq->n;
    case J_DICT:
        return (int64_t)v.dict->n;
    default:
        return -1;
    }
}

bool jvalue_true(jctx *c, jvalue v)
{
    switch (v.kind) {
    case J_UNDEFINED:
        jctx_may_use(c, v);
        return false;
    case J_MISSING:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0;
    default:
        return jvalue_length(v) != 0;
    }
}

bool jvalue_is(jvalue v, const char *text)
{
    return v.kind == J_STR && v.str->n == strlen(text) && memcmp(v.str->p, text, v.str->n) == 0;
}

static bool seqs_equal(jctx *c, const jseq *a, const jseq *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n && !jctx_failed(c); i++)
        equal = jvalue_equal(c, a->v[i], b->v[i]);
    return equal;
}

static bool dicts_equal(jctx *c, const jdict *a, const jdict *b)
{
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n && !jctx_failed(c); i++) {
        const jvalue *other = jdict_get(c, b, a->v[i].key);
        equal = other && jvalue_equal(c, a->v[i].value, *other);
    }
    return equal;
}

static bool same_kind_equal(jctx *c, jvalue a, jvalue b)
{
    switch (a.kind) {
    case J_UNDEFINED:
    case J_NONE:
        return true;
    case J_STR:
        return a.str->n == b.str->n && jctx_step(c, a.str->n / 64) &&
               memcmp(a.str->p, b.str->p, a.str->n) == 0;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
        return seqs_equal(c, a.seq, b.seq);
    case J_DICT:
        return dicts_equal(c, a.dict, b.dict);
    default: /* the rest is equal to itself only */
        return a.seq == b.seq;
    }
}

bool jvalue_equal(jctx *c, jvalue a, jvalue b)
{
    bool equal = false;
    if (!jctx_may_use(c, a) || !jctx_may_use(c, b) || !jctx_step(c, 1) || !jctx_enter(c))
        return false;
    if (jvalue_is_int(a) && jvalue_is_int(b))
        equal = jvalue_int(a) == jvalue_int(b);
    else if (jvalue_is_number(a) && jvalue_is_number(b))
        equal = jvalue_float(a) == jvalue_float(b);
    else if (a.kind == b.kind)
        equal = same_kind_equal(c, a, b);
    c->depth--;
    return equal;
}

static int compare_strings(jctx *c, const jstr *a, const jstr *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int order = jctx_step(c, n / 64) ? memcmp(a->p, b->p, n) : 0; /* of bytes = of code points */
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static int compare_seqs(jctx *c, const jseq *a, const jseq *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n && !jctx_failed(c); i++)
        if (!jvalue_equal(c, a->v[i], b->v[i]))
            return jvalue_compare(c, a->v[i], b->v[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jvalue_compare(jctx *c, jvalue a, jvalue b)
{
    int order = 0;
    if (!jctx_step(c, 1) || !jctx_enter(c))
        return 0;
    if (jvalue_is_int(a) && jvalue_is_int(b)) {
        order = (jvalue_int(a) > jvalue_int(b)) - (jvalue_int(a) < jvalue_int(b));
    } else if (jvalue_is_number(a) && jvalue_is_number(b)) {
        double x = jvalue_float(a), y = jvalue_float(b);
        order = (x > y) - (x < y);
    } else if (a.kind == J_STR && b.kind == J_STR) {
        order = compare_strings(c, a.str, b.str);
    } else if (a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE)) {
        order = compare_seqs(c, a.seq, b.seq);
    } else if (a.kind == J_UNDEFINED || b.kind == J_UNDEFINED) {
        jctx_fail(c, "%s", a.kind == J_UNDEFINED ? a.why : b.why);
    } else {
        jctx_fail(c, "'<' is not supported between '%s' and '%s'", jvalue_type(a), jvalue_type(b));
    }
    c->depth--;
    return order;
}

/* ---- iterating ---- */

static jseq characters(jctx *c, const jstr *s)
{
    jvalue list = jvalue_seq(c, J_LIST, s->chars);
    for (size_t i = 0; i < s->n && !jctx_failed(c);) {
        int k = utf8_decode(s->p + i, s->n - i, NULL);
        size_t n = k > 0 ? (size_t)k : 1;
        jseq_add(c, list.seq, jvalue_str(c, s->p + i, n, s->origin ? s->origin + i : NULL));
        i += n;
    }
    return jctx_failed(c) ? (jseq){ 0 } : *list.seq;
}

static jseq keys(jctx *c, const jdict *d)
{
    jvalue list = jvalue_seq(c, J_LIST, d->n);
    for (size_t i = 0; i < d->n && !jctx_failed(c); i++)
        jseq_add(c, list.seq, d->v[i].key);
    return jctx_failed(c) ? (jseq){ 0 } : *list.seq;
}

jseq jvalue_iterate(jctx *c, jvalue v)
{
    jseq none = { 0 }, rest;
    if (jctx_failed(c))
        return none;
    switch (v.kind) {
    case J_UNDEFINED:
        jctx_may_use(c, v);
        return none;
    case J_STR:
        return characters(c, v.str);
    case J_DICT:
        return keys(c, v.dict);
    case J_ITER:
        if (v.seq->failure)
            c->status = fail(PESC_FORMAT, "%s", v.seq->failure);
        rest =
            (jseq){ .v = v.seq->n ? v.seq->v + v.seq->taken : NULL, .n = v.seq->n - v.seq->taken };
        v.seq->taken = v.seq->n;
        return v.seq->failure ? none : rest;
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_VIEW:
        return *v.seq;
    default:
        jctx_fail(c, "'%s' object is not iterable", jvalue_type(v));
        return none;
    }
}

/* ---- sorting ---- */

/* Merges [from, middle) and [middle, to) of `in` into `out`. */
static void merge(jctx *c, const jvalue *keys, const size_t *in, size_t *out, const size_t at[3],
                  int sign)
{
    size_t left = at[0], right = at[1];
    for (size_t i = at[0]; i < at[2]; i++) {
        bool take_right = left == at[1];
        if (!take_right && right < at[2] && !jctx_failed(c))
            take_right = jvalue_compare(c, keys[in[right]], keys[in[left]]) * sign < 0;
        out[i] = in[take_right ? right++ : left++];
    }
}

size_t *jsort_order(jctx *c, const jvalue *keys, size_t n, bool descending)
{
    size_t *in = jctx_alloc(c, n, sizeof *in), *out = jctx_alloc(c, n, sizeof *out);
    if (!in || !out)
        return NULL;
    for (size_t i = 0; i < n; i++)
        in[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n;
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            merge(c, keys, in, out, (size_t[3]){ from, middle, to }, descending ? -1 : 1);
        }
        size_t *other = in;
        in = out;
        out = other;
    }
    return jctx_failed(c) ? NULL : in;
}
