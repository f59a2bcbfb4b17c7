/* added: finds added tokens in text.
 *
 * The rule is Hugging Face's: the leftmost match wins, of those that begin there the longest. The
 * scan goes from the end of the text to its start with an Aho-Corasick automaton over the reversed
 * tokens: it then knows at each position the longest token that begins there, and walking forward
 * over these gives the matches. So the time is linear in the text whatever the tokens are: many,
 * long, or each the start of another. */
#ifndef PESC_TOKENIZER_ADDED_H
#define PESC_TOKENIZER_ADDED_H

#include "base/json.h"

typedef struct added_token {
    char *text; /* owned by the owner of the list */
    size_t n;   /* at least 1 */
    int32_t id;
    bool special;        /* a control token: text becomes it only when asked for */
    bool control_form;   /* looks like a control token, whatever the file says of it */
    bool normalized;     /* matched in normalised text, not in the text as given */
    bool single_word;    /* only between characters that are not of a word */
    bool lstrip, rstrip; /* swallows the white space on that side */
} added_token;

/* The flags of a token as tokenizer.json and tokenizer_config.json write them. */
pesc_status added_read_flags(json_where w, added_token *a);

typedef struct added_match {
    size_t start, end; /* swallowed white space included */
    int32_t id;
} added_match;

typedef struct added_matches {
    added_match *at; /* for mem_free() */
    size_t n, cap;
} added_matches;

typedef struct added added;

/* Matches keys[i] where tokens[i] is meant. Keys are borrowed for the call, the tokens' flags and
 * ids are copied. n 0 gives *out NULL with PESC_OK. */
typedef struct added_key {
    const char *text;
    size_t n; /* at least 1 */
} added_key;
pesc_status added_open(added **out, const added_key *keys, const added_token *tokens, size_t n);
void added_close(added *a); /* NULL is allowed */

/* Whether the token spelled at text[start..end) counts as that token. */
typedef bool (*added_allow)(void *ctx, const added_token *token, size_t start, size_t end);

/* The matches in valid UTF-8, in order, without overlap, into `out` (emptied first). A token that
 * is not allowed stays text; tokens that overlap it stay text too, as with Hugging Face's
 * encode_special_tokens. allow NULL: all but control tokens are. a NULL: no matches. */
pesc_status added_find(const added *a, const char *text, size_t n, added_allow allow, void *ctx,
                       added_matches *out);

#endif
