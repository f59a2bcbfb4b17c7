/* rules: a grammar as a graph over bytes, which the front ends write and the automaton reads.
 *
 * A rule is a graph from its start node to its end node. An edge takes a byte of a range, takes
 * nothing, or takes a text of another rule (a call); the calls make it a pushdown automaton. All
 * front ends (gbnf, regex, schema) add parts between two nodes that they have: "a digit from a
 * to b". rules_finish() refuses left recursion, takes away what no text can reach the end through
 * (so a position that is alive can always be completed), and gives the graph a compact form.
 *
 * The first failure (memory, a limit) is kept in `status`; later calls then do nothing and return
 * number 0, so that a front end checks once. Its sentence is pesc_last_error(). */
#ifndef PESC_GRAMMAR_RULES_H
#define PESC_GRAMMAR_RULES_H

#include "base/status.h"

enum { RULES_MAX_NODES = 250000, RULES_MAX_EDGES = 500000 };

#define RULE_NONE UINT32_MAX /* of an edge: it takes a byte */
#define RULE_EMPTY (UINT32_MAX - 1)

typedef struct rule_edge {
    uint32_t to, rule; /* rule: which is called, or one of the above */
    unsigned char lo, hi;
} rule_edge;

typedef struct rule_span {
    uint32_t start, end; /* nodes; no edge leaves the end */
} rule_span;

typedef struct rules {
    rule_span *rules; /* [n_rules] */
    size_t n_rules, cap_rules;
    uint32_t *first; /* [n_nodes + 1] after rules_finish(): the edges of a node */
    size_t n_nodes, cap_nodes;
    rule_edge *edges; /* [n_edges] */
    uint32_t *from;   /* [n_edges] */
    size_t n_edges, cap_edges, cap_from;
    pesc_status status;
} rules;

void rules_free(rules *r);

uint32_t rules_node(rules *r);
uint32_t rules_add(rules *r); /* a rule with its two nodes; its number */
void rules_bytes(rules *r, uint32_t from, uint32_t to, unsigned char lo, unsigned char hi);
void rules_empty(rules *r, uint32_t from, uint32_t to);
void rules_call(rules *r, uint32_t from, uint32_t to, uint32_t rule);
void rules_text(rules *r, uint32_t from, uint32_t to, const char *text, size_t n);
/* Keeps a failure of the front end. */
void rules_fail(rules *r, pesc_status s);

/* `root` is what a text must be. name(ud, rule): what to call a rule in messages. PESC_FORMAT: left
 * recursion, or no text at all fits. */
typedef const char *(*rule_name_fn)(const void *ud, uint32_t rule);
pesc_status rules_finish(rules *r, uint32_t root, rule_name_fn name, const void *ud);

#endif
