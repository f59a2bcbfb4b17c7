/* grammar: a compiled grammar for the tokens of one model, and matchers, which say for one answer
 * what may follow.
 *
 * A grammar is made once from a JSON Schema, GBNF, a regular expression or a list of texts, and
 * shared by any number of matchers in any number of threads. The tokens that a state allows are
 * found once and kept, up to a limit of memory. What a matcher allows depends on the text so far
 * alone, so an answer is the same whatever else runs and whatever is kept. */
#ifndef PESC_GRAMMAR_GRAMMAR_H
#define PESC_GRAMMAR_GRAMMAR_H

#include "base/json.h"
#include "grammar/pieces.h"

typedef struct pesc_grammar grammar;

/* What a grammar is made from: one of `schema`, `text` and `choices`. */
typedef struct grammar_source {
    pesc_grammar_kind kind;     /* of text and schema */
    const json_t *schema;       /* JSON Schema that is parsed already; NULL: see `text` */
    const char *text;           /* NULL: see `choices` */
    size_t n;                   /* bytes of the text, or number of choices */
    const char *const *choices; /* texts with a NUL */
    str *ignored; /* NULL: a keyword that cannot be enforced is an error; else the names of such are
                     added, after ", " */
} grammar_source;

/* p is borrowed. PESC_FORMAT, PESC_UNSUPPORTED: the sentence says what is wrong with the source.
 * The grammar has one owner, see grammar_keep(). */
pesc_status grammar_open(grammar **out, const piece_trie *p, const grammar_source *from);
void grammar_keep(grammar *g);  /* one more owner */
void grammar_close(grammar *g); /* one owner less; NULL is allowed */
bool grammar_is_of(const grammar *g, const piece_trie *p);
size_t grammar_bytes(grammar *g);

/* Whether the bytes are a text of the grammar; *begins: whether one begins with them. */
pesc_status grammar_matches(grammar *g, const char *text, size_t n, bool *matches, bool *begins);

/* ---- the state of one answer ---- */

typedef struct matcher matcher;

pesc_status matcher_open(matcher **out, grammar *g); /* keeps g */
void matcher_close(matcher *m);                      /* NULL is allowed */

/* Excludes from the logits (-INFINITY) what may not follow n generated tokens. ends: end tokens,
 * which may follow a complete text only. False: nothing may follow; matcher_status() says whether
 * that is well. The tokens of a call begin with those of the call before. */
bool matcher_exclude(matcher *m, const int32_t *ids, size_t n, const int32_t *ends, size_t n_ends,
                     float *logits);

/* The tokens that may follow, as a set of pieces->words; borrowed until the next call. *accepts:
 * the text is complete. NULL: see matcher_status(). */
const uint32_t *matcher_allowed(matcher *m, const int32_t *ids, size_t n, bool *accepts);

/* Guesses of what follows n generated tokens, at most `most` of them; the tokens of a call begin
 * with those of the call before. The grammar lets only one text follow, but for blanks, of which
 * those are guessed that followed the same byte last; it is spelled in the longest tokens. 0:
 * more than one text may follow. */
int32_t matcher_foresee(matcher *m, const int32_t *ids, size_t n, int32_t *out, int32_t most);
/* How many of the tokens `more` may follow n generated tokens, likewise. */
int32_t matcher_permits(matcher *m, const int32_t *ids, size_t n, const int32_t *more,
                        int32_t n_more);

/* PESC_OK, or why no token may follow although the text is not complete. */
pesc_status matcher_status(const matcher *m);

#endif
