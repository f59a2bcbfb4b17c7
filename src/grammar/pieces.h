/* pieces: the bytes that each token of a vocabulary adds to a text, as a trie.
 *
 * The tokens that a grammar allows are found by one walk over the trie together with the grammar's
 * automaton: a subtree is skipped at its first byte that cannot follow. Nodes are in depth-first
 * order, so skipping is a jump, and the tokens of a subtree are neighbours.
 *
 * In a JSON string nearly every token may follow. For that state the walk has a shortcut. A plain
 * character is one that needs no escape there: all but " and \ and controls. The sets of tokens
 * that are at most k plain characters are made once; the trie nodes at which a plain beginning
 * ends ("exits") are listed, and only their subtrees are left to walk. */
#ifndef PESC_GRAMMAR_PIECES_H
#define PESC_GRAMMAR_PIECES_H

#include "tokenizer/tokenizer.h"

enum { PIECES_PLAIN = 32 }; /* the longest plain tokens with sets of their own */

typedef struct piece_exit {
    uint32_t node, chars; /* plain characters before it */
} piece_exit;

typedef struct piece_trie {
    int32_t vocab; /* logits of the model; tokens beyond the tokenizer have no text */
    size_t words;  /* of a set of tokens: 32 to a word */
    char *text;    /* of all tokens */
    size_t *first; /* [vocab + 1] where each begins; empty: a control token, or none */
    /* the trie */
    uint32_t n_nodes;    /* the root, which has no byte, is not among them */
    unsigned char *byte; /* [n_nodes] */
    uint32_t *end;       /* [n_nodes] the node after the subtree */
    uint32_t *token;     /* [n_nodes + 1] place of the first token of the node, in `ids` */
    uint16_t *depth;     /* [n_nodes] from 1 */
    int32_t *ids;        /* tokens in the order of their bytes */
    uint32_t max_depth;
    /* plain tokens */
    uint32_t *plain; /* [PIECES_PLAIN + 1, words]: of at most k characters; 0: of any length */
    int32_t *longer; /* [n_longer]: plain tokens of more than PIECES_PLAIN characters */
    size_t n_longer;
    piece_exit *exits; /* [n_exits] */
    size_t n_exits, cap_exits;
} piece_trie;

/* vocab: how many logits there are. */
pesc_status pieces_open(piece_trie **out, const tokenizer *t, int32_t vocab);
void pieces_close(piece_trie *p); /* NULL is allowed */

static inline size_t pieces_length(const piece_trie *p, int32_t id)
{
    return p->first[id + 1] - p->first[id];
}

/* Where in a character of UTF-8 a text is: 0 at its border, otherwise what may follow. -1: the byte
 * cannot follow. */
int pieces_utf8_step(int at, unsigned char byte);
bool pieces_plain(unsigned char byte); /* begins a plain character */

#endif
