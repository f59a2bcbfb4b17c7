/* jinja_template: a compiled template: the tree that the parser builds and the evaluator walks.
 *
 * Nodes, names and literals live in the template's pool and do not change after compiling. */
#ifndef PESC_JINJA_JINJA_TEMPLATE_H
#define PESC_JINJA_JINJA_TEMPLATE_H

#include "jinja/jinja_builtin.h"
#include "jinja/jinja_value.h"

typedef enum jnode_kind {
    /* expressions */
    N_CONST, /* value */
    N_NAME,  /* name */
    N_LIST,  /* list: elements */
    N_TUPLE,
    N_DICT,    /* list: keys and values in turn */
    N_CALL,    /* a: callee; list: N_ARG */
    N_FILTER,  /* a: input, NULL in a filter block; fn; list: N_ARG */
    N_TEST,    /* a; fn; list: N_ARG */
    N_ARG,     /* a: value; name: of a keyword argument; op: '*' or 'd' (**) where spread */
    N_ATTR,    /* a; value: the name as a string */
    N_ITEM,    /* a; b: index or N_SLICE */
    N_SLICE,   /* a, b, c: start, stop, step; each may be NULL */
    N_NOT,     /* a */
    N_SIGN,    /* a; op: '-' or '+' */
    N_AND,     /* a, b */
    N_OR,      /* a, b */
    N_COND,    /* a: test; b: then; c: else, may be NULL */
    N_COMPARE, /* a; list: N_OPERAND */
    N_OPERAND, /* a; op: a comparison */
    N_BINARY,  /* a, b; op */
    N_CONCAT,  /* list */
    /* statements */
    N_TEXT,         /* value: a string */
    N_OUTPUT,       /* list: expressions */
    N_IF,           /* a: test; body; c: another N_IF or NULL; other: else */
    N_FOR,          /* a: target; b: sequence; c: condition or NULL; body; other: else */
    N_SET,          /* a: target (N_NAME, N_TUPLE or N_ATTR of a namespace); b: value */
    N_SET_BLOCK,    /* a: target; b: filters (N_FILTER chain) or NULL; body */
    N_MACRO,        /* name; list: parameters, N_ARG with a default in a or NULL; body */
    N_CALL_BLOCK,   /* a: N_CALL; b: the caller, an N_MACRO */
    N_FILTER_BLOCK, /* b: N_FILTER chain; body */
    N_WITH,         /* list: N_SET; body */
    N_GENERATION,   /* body */
    N_BREAK,
    N_CONTINUE
} jnode_kind;

typedef struct jnode {
    jnode_kind kind;
    int line;
    int op;
    int height;    /* of the tree below */
    bool constant; /* an expression without names */
    bool folded;   /* a slice in a constant one */
    const char *name;
    const jbuiltin *fn;
    jvalue value;
    struct jnode *a, *b, *c;
    struct jnode *list, *body, *other; /* first of a chain */
    struct jnode *next;                /* in the chain it belongs to */
} jnode;

struct jinja_template {
    jpool pool;
    const char *where;
    char *source; /* with newlines as \n, without the last one unless it is plain */
    size_t n;
    jnode *body;
    bool has_generation;
    bool plain, strict; /* see jinja_settings */
    const jbuiltin *filters;
    struct jname *names; /* variables that are read, as often as they are */
};

typedef struct jname {
    const char *name;
    struct jname *next;
} jname;

#endif
