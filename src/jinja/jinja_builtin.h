/* jinja_builtin: filters, tests, methods and functions as rows of tables.
 *
 * A row names its parameters, so positional and keyword arguments are bound in one place. */
#ifndef PESC_JINJA_JINJA_BUILTIN_H
#define PESC_JINJA_JINJA_BUILTIN_H

#include "jinja/jinja_value.h"

enum { JARGS_MAX = 8 }; /* parameters of a row */

typedef struct jargs {
    jvalue *v; /* positional */
    size_t n;
    jpair *kw; /* keyword: key is a string */
    size_t n_kw;
} jargs;

typedef struct jcall {
    jvalue self;      /* what a filter, test or method applies to */
    const jvalue *a;  /* a value for each parameter, J_MISSING where it was not given */
    const jargs *all; /* every argument as it was written, for rows whose parameters are "*" */
    int mode;         /* of the row: which of the things that its function does */
} jcall;

typedef jvalue (*jbuiltin_fn)(jctx *c, const jcall *call);

/* In the mode of a row, a generator: what fails in it fails where its elements are read. */
enum { JLAZY = 1 << 30 };

typedef struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    const char *params; /* names with a space between two; "*": not bound */
    int required;       /* how many must be given */
    int mode;
} jbuiltin; /* a row without a name ends a table */

extern const jbuiltin jinja_filters_text[], jinja_filters_seq[], jinja_filters_value[];
extern const jbuiltin jinja_tests[];
extern const jbuiltin jinja_functions[];
extern const jbuiltin jinja_methods_str[], jinja_methods_dict[], jinja_methods_list[],
    jinja_methods_loop[];

/* Whether an argument is there and not None, which most parameters take for their default. */
static inline bool jgiven(jvalue v)
{
    return v.kind != J_MISSING && v.kind != J_NONE;
}

const jbuiltin *jbuiltin_find(const jbuiltin *table, const char *name, size_t n); /* NULL: none */
const jbuiltin *jbuiltin_filter(const struct jinja_template *t, const char *name, size_t n);
const jbuiltin *jbuiltin_test(const char *name, size_t n);
/* The method of a value; NULL: it has none of that name. */
const jbuiltin *jbuiltin_method(jvalue self, const char *name, size_t n);
/* Whether Python has the name but pesc does not: a method or function, refused when compiling. */
bool jbuiltin_method_unsupported(const char *name);
bool jbuiltin_function_unsupported(const char *name);
bool jbuiltin_filter_unsupported(const char *name); /* the same of jinja2's filters */
/* Whether the sandbox forbids the attribute because it changes a list or dictionary. */
bool jbuiltin_changes(jvalue self, const char *name, size_t n);

jvalue jbuiltin_call(jctx *c, const jbuiltin *fn, jvalue self, const jargs *args);

/* An integer argument; `other` where it is missing. Fails for any other type. */
int64_t jbuiltin_int(jctx *c, jvalue v, int64_t other);
/* A string argument. Fails for any other type, and returns an empty string then. */
const jstr *jbuiltin_str(jctx *c, jvalue v);

#endif
