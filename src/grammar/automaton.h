/* automaton: the rules as a deterministic automaton over bytes, made while it is used.
 *
 * A position is a node of the rules and the stack of nodes to return to. A state is the set of all
 * positions in which the text so far can be; equal sets have one number, and a step from a state
 * by a byte is computed once. A rule that is called last needs no place on the stack, so right
 * recursion is a loop.
 *
 * Every position can be completed (rules_finish() sees to it), so a text whose state is not
 * STATE_DEAD begins a text of the grammar. The automaton is bounded: when its tables are full
 * automaton_trim() empties them, and states are found again from the text. It is not for several
 * threads at once. */
#ifndef PESC_GRAMMAR_AUTOMATON_H
#define PESC_GRAMMAR_AUTOMATON_H

#include "grammar/intern.h"
#include "grammar/rules.h"

enum { AUTOMATON_MAX_POSITIONS = 50000 }; /* of a state */

#define STATE_DEAD UINT32_MAX

typedef struct automaton {
    rules r;             /* owned */
    uint32_t root;       /* the rule */
    unsigned char *ends; /* [n_nodes] whether the node is the end of a rule */
    unsigned char class_of[256];
    uint32_t n_classes;     /* of bytes that no edge tells apart */
    intern stacks;          /* (node, stack below); stack 0 is empty, the others are 1 + number */
    intern kernels, states; /* pairs (node, stack): before and after what takes no byte; a
                               state begins with whether the text may end */
    uint32_t *kernel_state; /* [n kernels] */
    size_t cap_kernels;
    uint32_t *next;      /* [n states, n_classes] or STATE_UNKNOWN */
    size_t cap_states;   /* rows of `next` and `plain` */
    uint32_t *plain;     /* see automaton_plain() */
    uint32_t first;      /* the state of the empty text; STATE_UNKNOWN: not yet made */
    uint64_t generation; /* how often the tables were emptied */
    uint64_t limit;      /* bytes of the tables at which they are full */
    /* while a state is made */
    uint64_t *todo, *seen; /* positions; seen: a hash table, whose slots hold if `stamps` says so */
    uint32_t *stamps, stamp;
    size_t n_todo, cap_todo, n_seen, n_slots;
    uint32_t *words;
    size_t cap_words;
    pesc_status status; /* the first failure: memory, too many positions; until automaton_trim()
                           states are then dead */
} automaton;

/* Takes the rules, which are finished. */
pesc_status automaton_open(automaton *a, rules *r, uint32_t root);
void automaton_close(automaton *a);

uint32_t automaton_first(automaton *a); /* the state of the empty text */
uint32_t automaton_step(automaton *a, uint32_t state, unsigned char byte);
bool automaton_accepts(const automaton *a, uint32_t state);
/* The state after one more plain character (pieces.h), if it is the same for all of them; else
 * STATE_DEAD. */
uint32_t automaton_plain(automaton *a, uint32_t state);
/* Empties the tables if they are full or a step has failed: then states are not valid any more. */
void automaton_trim(automaton *a);
size_t automaton_bytes(const automaton *a);

#endif
