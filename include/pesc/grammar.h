/* grammar: answers of a given form (docs/structured-output.md). Part of pesc.h. */
#ifndef PESC_GRAMMAR_H
#define PESC_GRAMMAR_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* What every answer must be a text of. */
typedef enum pesc_grammar_kind {
    PESC_GRAMMAR_SCHEMA, /* a JSON Schema: the answer is a JSON value that satisfies it */
    PESC_GRAMMAR_GBNF,   /* llama.cpp's grammars; the rule `root` is the answer */
    PESC_GRAMMAR_REGEX,  /* a regular expression that matches the whole answer */
} pesc_grammar_kind;

/* Compiles n bytes of text for the tokens of the model, which it keeps open. A keyword or construct
 * that cannot be enforced is PESC_UNSUPPORTED and named, never ignored. One grammar may be used by
 * any number of sessions at the same time. */
pesc_status pesc_grammar_open(pesc_grammar **out, pesc_model *m, pesc_grammar_kind kind,
                              const char *text, size_t n);
void pesc_grammar_close(pesc_grammar *g);

/* The answers of the session, from the next one on, are texts of the grammar (or begin one, where
 * the number of tokens ends them first), and end where such a text is complete. NULL: any text.
 * The session keeps the grammar, which must be of its model. */
pesc_status pesc_session_constrain(pesc_session *s, pesc_grammar *g);

#endif
