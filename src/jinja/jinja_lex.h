/* jinja_lex: a template's source as tokens, with white space controlled as jinja2 does it. */
#ifndef PESC_JINJA_JINJA_LEX_H
#define PESC_JINJA_JINJA_LEX_H

#include "jinja/jinja_template.h"

typedef enum jtoken_kind {
    T_DATA, /* text between tags */
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING, /* p and n: with escapes resolved */
    T_INT,
    T_FLOAT,
    T_OP,
    T_END
} jtoken_kind;

/* Operators: their character, or one of these for two characters. */
enum { OP_EQ = 256, OP_NE, OP_LE, OP_GE, OP_FLOORDIV, OP_POW, OP_IN, OP_NOT_IN };

typedef struct jtoken {
    jtoken_kind kind;
    int line;
    int op;
    const char *p;
    size_t n;
    int64_t i;
    double f;
} jtoken;

/* All tokens, ending with T_END, in the template's pool. Fails with the line. */
pesc_status jlex_tokens(jinja_template *t, jtoken **out);

#endif
