/* jinja_value: the values of a rendering and the memory they live in.
 *
 * Values follow Python: strings are sequences of code points, True is 1, dictionaries keep their
 * order. The sandbox allows no change of a list or dictionary, so values are shared freely; only a
 * namespace changes. All memory comes from one pool that is freed after the rendering.
 *
 * The first failure stays in the context; after it every function returns an undefined value and
 * does nothing. So results need no check where they are passed on, but each loop must end once
 * jctx_failed() holds. */
#ifndef PESC_JINJA_JINJA_VALUE_H
#define PESC_JINJA_JINJA_VALUE_H

#include "jinja/jinja.h"

/* ---- memory that is freed as a whole, with a limit: zero-initialise, set max ---- */

typedef struct jpool {
    struct jpool_chunk *chunks;
    size_t total, max; /* bytes taken from the heap; max 0: any number */
    bool full;         /* the last NULL was because of max */
} jpool;

/* Zeroed and aligned for any value; NULL when memory runs out or max would be exceeded. */
void *jpool_take(jpool *p, size_t n, size_t size);
void jpool_free(jpool *p);

/* ---- values ---- */

typedef enum jkind {
    J_MISSING, /* an argument that was not given; never a value of a template */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST, /* J_LIST to J_ITER have `seq` */
    J_TUPLE,
    J_RANGE,
    J_VIEW, /* keys(), values() or items() of a dictionary */
    J_ITER, /* what a generator yields: can be read once, has no length */
    J_DICT, /* J_DICT and J_NAMESPACE have `dict` */
    J_NAMESPACE,
    J_LOOP,
    J_MACRO,
    J_FUNCTION,
    J_METHOD
} jkind;

typedef struct jstr {
    const char *p; /* valid UTF-8; lives in the pool, the template or the caller's JSON */
    size_t n;
    size_t chars;           /* code points */
    const uint16_t *origin; /* [n]; NULL: all from the template */
    bool markup;            /* a result of escape or safe: + escapes the other operand */
} jstr;

typedef struct jvalue {
    jkind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const char *why; /* J_UNDEFINED: the message when it is used */
        const jstr *str;
        struct jseq *seq;
        struct jdict *dict;
        struct jloop *loop;
        const struct jmacro *macro;
        const struct jbuiltin *fn;
        const struct jmethod *method;
    };
} jvalue;

typedef struct jseq {
    jvalue *v;
    size_t n, cap;
    size_t taken;              /* J_ITER: elements already read */
    const char *failure;       /* J_ITER: the message instead of a further element; NULL: none */
    const char *label;         /* J_VIEW: "dict_keys" */
    int64_t start, stop, step; /* J_RANGE */
} jseq;

typedef struct jpair {
    jvalue key, value;
} jpair;

typedef struct jdict {
    jpair *v;
    size_t n, cap;
} jdict;

typedef struct jmethod {
    jvalue self;
    const struct jbuiltin *fn;
} jmethod;

/* What one rendering works with. */
typedef struct jctx {
    jpool pool;
    const jinja_template *t;
    const jinja_input *in;
    pesc_status status;
    int line, depth;
    uint64_t steps; /* left */
    size_t output_max;
    struct jscope *scope;
    struct jbuf *out;
    int flow; /* of statements: see jinja_exec.c */
} jctx;

enum { JINJA_DEPTH = 400 }; /* nesting of evaluation and of values */

/* Records the first failure with the line at work. Returns an undefined value. */
jvalue jctx_fail(jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
jvalue jctx_fail_as(jctx *c, pesc_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool jctx_failed(const jctx *c)
{
    return c->status != PESC_OK;
}
/* False, with a failure, for a value that is undefined where the template is strict. */
bool jctx_may_use(jctx *c, jvalue v);
/* Takes n steps; false, with a failure, when none are left or one happened before. */
bool jctx_step(jctx *c, size_t n);
/* One level down; false, with a failure, when too deep. Pair each true with c->depth--. */
bool jctx_enter(jctx *c);
/* NULL after a failure. */
void *jctx_alloc(jctx *c, size_t n, size_t size);

/* ---- making values ---- */

static inline jvalue jnone(void)
{
    return (jvalue){ .kind = J_NONE };
}
static inline jvalue jbool(bool b)
{
    return (jvalue){ .kind = J_BOOL, .b = b };
}
static inline jvalue jint(int64_t i)
{
    return (jvalue){ .kind = J_INT, .i = i };
}
static inline jvalue jfloat(double f)
{
    return (jvalue){ .kind = J_FLOAT, .f = f };
}
/* why: what the message says when the value is used; must live as long as the rendering. */
static inline jvalue jundefined(const char *why)
{
    return (jvalue){ .kind = J_UNDEFINED, .why = why };
}
jvalue jvalue_str(jctx *c, const char *p, size_t n, const uint16_t *origin); /* borrows p, origin */
jvalue jvalue_text(jctx *c, const char *text); /* borrows a NUL-terminated text */
jvalue jvalue_seq(jctx *c, jkind kind, size_t room);
void jseq_add(jctx *c, jseq *s, jvalue v);
jvalue jvalue_tuple2(jctx *c, jvalue a, jvalue b);
jvalue jvalue_dict(jctx *c, jkind kind, size_t room);
void jdict_add(jctx *c, jdict *d, jvalue key, jvalue value);           /* key is new */
void jdict_set(jctx *c, jdict *d, jvalue key, jvalue value);           /* replaces */
const jvalue *jdict_get(jctx *c, const jdict *d, jvalue key);          /* NULL: absent */
const jvalue *jdict_get_text(const jdict *d, const char *p, size_t n); /* NULL: absent */

/* A JSON value; its strings are borrowed and have the origin. */
jvalue jvalue_from_json(jctx *c, const json_t *v, uint16_t origin);
/* A list of messages: element i has the origin JINJA_MESSAGE + i; role names are the template's. */
jvalue jvalue_from_messages(jctx *c, const json_t *v);

/* ---- looking at values ---- */

static inline bool jvalue_is_seq(jvalue v)
{
    return v.kind >= J_LIST && v.kind <= J_ITER;
}
static inline bool jvalue_is_int(jvalue v) /* with True and False, as in Python */
{
    return v.kind == J_INT || v.kind == J_BOOL;
}
static inline bool jvalue_is_number(jvalue v)
{
    return jvalue_is_int(v) || v.kind == J_FLOAT;
}
static inline int64_t jvalue_int(jvalue v) /* of jvalue_is_int() */
{
    return v.kind == J_BOOL ? v.b : v.i;
}
static inline double jvalue_float(jvalue v) /* of jvalue_is_number() */
{
    return v.kind == J_FLOAT ? v.f : (double)jvalue_int(v);
}
const char *jvalue_type(jvalue v); /* Python's name: "str" */
bool jvalue_true(jctx *c, jvalue v);
bool jvalue_equal(jctx *c, jvalue a, jvalue b);
int jvalue_compare(jctx *c, jvalue a, jvalue b); /* <0, 0, >0; fails where Python does */
bool jvalue_is(jvalue v, const char *text);      /* whether it is that string */
bool jvalue_hashable(jctx *c, jvalue v);         /* false, with a failure: a list or dictionary */
/* The elements of anything that can be iterated; fails for the rest. Borrowed. */
jseq jvalue_iterate(jctx *c, jvalue v);
/* len(); -1: it has none. */
int64_t jvalue_length(jvalue v);

/* ---- sorting ---- */

/* The indices of keys in ascending or descending order; equal keys keep their order, as with
 * Python's sort(reverse=...). NULL after a failure: keys that cannot be compared. */
size_t *jsort_order(jctx *c, const jvalue *keys, size_t n, bool descending);

#endif
