#include "grammar/rules.h"

#include "base/mem.h"

#include <string.h>

void rules_free(rules *r)
{
    mem_free(r->rules);
    mem_free(r->first);
    mem_free(r->edges);
    mem_free(r->from);
    *r = (rules){ 0 };
}

void rules_fail(rules *r, pesc_status s)
{
    if (r->status == PESC_OK)
        r->status = s;
}

/* ---- building ---- */

uint32_t rules_node(rules *r)
{
    if (r->status == PESC_OK && r->n_nodes == RULES_MAX_NODES)
        rules_fail(r, fail(PESC_UNSUPPORTED,
                           "the grammar is too large: it needs more than %d states; use fewer or "
                           "shorter repetitions",
                           RULES_MAX_NODES));
    return r->status == PESC_OK ? (uint32_t)r->n_nodes++ : 0;
}

uint32_t rules_add(rules *r)
{
    if (r->status == PESC_OK &&
        !mem_room((void **)&r->rules, &r->cap_rules, r->n_rules, sizeof *r->rules))
        rules_fail(r, fail_nomem("a grammar", r->n_rules * sizeof *r->rules));
    rule_span s = { rules_node(r), rules_node(r) };
    if (r->status != PESC_OK)
        return 0;
    r->rules[r->n_rules] = s;
    return (uint32_t)r->n_rules++;
}

static void add_edge(rules *r, uint32_t from, rule_edge e)
{
    if (r->status != PESC_OK)
        return;
    if (r->n_edges == RULES_MAX_EDGES)
        rules_fail(r, fail(PESC_UNSUPPORTED,
                           "the grammar is too large: it has more than %d symbols; use fewer or "
                           "shorter repetitions",
                           RULES_MAX_EDGES));
    else if (!mem_room((void **)&r->edges, &r->cap_edges, r->n_edges, sizeof *r->edges) ||
             !mem_room((void **)&r->from, &r->cap_from, r->n_edges, sizeof *r->from))
        rules_fail(r, fail_nomem("a grammar", r->n_edges * sizeof *r->edges));
    if (r->status != PESC_OK)
        return;
    r->from[r->n_edges] = from;
    r->edges[r->n_edges++] = e;
}

void rules_bytes(rules *r, uint32_t from, uint32_t to, unsigned char lo, unsigned char hi)
{
    add_edge(r, from, (rule_edge){ to, RULE_NONE, lo, hi });
}

void rules_empty(rules *r, uint32_t from, uint32_t to)
{
    add_edge(r, from, (rule_edge){ to, RULE_EMPTY, 0, 0 });
}

void rules_call(rules *r, uint32_t from, uint32_t to, uint32_t rule)
{
    add_edge(r, from, (rule_edge){ to, rule, 0, 0 });
}

void rules_text(rules *r, uint32_t from, uint32_t to, const char *text, size_t n)
{
    if (n == 0)
        rules_empty(r, from, to);
    for (size_t i = 0; i < n && r->status == PESC_OK; i++) {
        uint32_t next = i + 1 < n ? rules_node(r) : to;
        rules_bytes(r, from, next, (unsigned char)text[i], (unsigned char)text[i]);
        from = next;
    }
}

/* ---- order by node ---- */

static pesc_status sort_edges(rules *r)
{
    rule_edge *sorted = mem_alloc(r->n_edges + 1, sizeof *sorted);
    uint32_t *first = mem_zalloc(r->n_nodes + 2, sizeof *first);
    if (!sorted || !first) {
        mem_free(sorted);
        mem_free(first);
        return fail_nomem("a grammar", r->n_edges * sizeof *sorted);
    }
    for (size_t i = 0; i < r->n_edges; i++)
        first[r->from[i] + 2]++;
    for (size_t i = 2; i < r->n_nodes + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < r->n_edges; i++)
        sorted[first[r->from[i] + 1]++] = r->edges[i];
    mem_free(r->edges);
    mem_free(r->from);
    mem_free(r->first);
    r->edges = sorted;
    r->first = first;
    r->from = NULL;
    r->cap_edges = r->n_edges;
    r->cap_from = 0;
    return PESC_OK;
}

/* ---- nodes from which an end is reached ---- */

/* Marks what holds (`good`) backwards over the edges. An edge carries it if `passes`; a call edge
 * carries it only when the start of its rule has it, too. Each edge is looked at twice at most. */
typedef struct backwards {
    const rules *r;
    uint32_t *in_first, *in_from, *in_edge;       /* edges by the node that they lead to */
    uint32_t *call_first, *call_from, *call_edge; /* call edges by the rule that they call */
    uint32_t *starts; /* [n_nodes] the rule that starts there, or NONE */
    uint32_t *todo;
    unsigned char *good;
} backwards;

static void free_backwards(backwards *b)
{
    uint32_t *all[] = { b->in_first,  b->in_from,   b->in_edge, b->call_first,
                        b->call_from, b->call_edge, b->starts,  b->todo };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(b->good);
}

/* Groups edges by a number: those of number k are places [first[k], first[k + 1]) of the lists. */
static void group(const rules *r, bool calls, uint32_t *first, uint32_t *from, uint32_t *edge)
{
    size_t keys = calls ? r->n_rules : r->n_nodes;
    for (size_t e = 0; e < r->n_edges; e++)
        if (!calls || r->edges[e].rule < RULE_EMPTY)
            first[(calls ? r->edges[e].rule : r->edges[e].to) + 2]++;
    for (size_t k = 2; k < keys + 2; k++)
        first[k] += first[k - 1];
    for (uint32_t n = 0; n < r->n_nodes; n++)
        for (uint32_t e = r->first[n]; e < r->first[n + 1]; e++) {
            if (calls && r->edges[e].rule >= RULE_EMPTY)
                continue;
            uint32_t at = first[(calls ? r->edges[e].rule : r->edges[e].to) + 1]++;
            from[at] = n;
            edge[at] = e;
        }
}

static bool open_backwards(backwards *b, const rules *r)
{
    size_t n = r->n_nodes, e = r->n_edges + 1;
    *b = (backwards){ .r = r,
                      .in_first = mem_zalloc(n + 2, sizeof(uint32_t)),
                      .in_from = mem_alloc(e, sizeof(uint32_t)),
                      .in_edge = mem_alloc(e, sizeof(uint32_t)),
                      .call_first = mem_zalloc(r->n_rules + 2, sizeof(uint32_t)),
                      .call_from = mem_alloc(e, sizeof(uint32_t)),
                      .call_edge = mem_alloc(e, sizeof(uint32_t)),
                      .starts = mem_alloc(n, sizeof(uint32_t)),
                      .todo = mem_alloc(n, sizeof(uint32_t)),
                      .good = mem_zalloc(n, 1) };
    if (!b->in_first || !b->in_from || !b->in_edge || !b->call_first || !b->call_from ||
        !b->call_edge || !b->starts || !b->todo || !b->good)
        return false;
    memset(b->starts, 0xff, n * sizeof *b->starts);
    for (uint32_t k = 0; k < r->n_rules; k++)
        b->starts[r->rules[k].start] = k;
    group(r, false, b->in_first, b->in_from, b->in_edge);
    group(r, true, b->call_first, b->call_from, b->call_edge);
    return true;
}

static bool carries(const backwards *b, uint32_t edge, bool bytes)
{
    const rule_edge *e = &b->r->edges[edge];
    if (e->rule == RULE_NONE)
        return bytes && b->good[e->to];
    return b->good[e->to] && (e->rule == RULE_EMPTY || b->good[b->r->rules[e->rule].start]);
}

/* bytes: byte edges carry, so good is what can be completed; else what can be completed by
 * nothing. */
static void spread(backwards *b, bool bytes)
{
    const rules *r = b->r;
    size_t n = 0;
    memset(b->good, 0, r->n_nodes);
    for (size_t k = 0; k < r->n_rules; k++) {
        b->good[r->rules[k].end] = 1;
        b->todo[n++] = r->rules[k].end;
    }
    while (n > 0) {
        uint32_t node = b->todo[--n], rule = b->starts[node];
        for (uint32_t i = b->in_first[node]; i < b->in_first[node + 1]; i++)
            if (!b->good[b->in_from[i]] && carries(b, b->in_edge[i], bytes)) {
                b->good[b->in_from[i]] = 1;
                b->todo[n++] = b->in_from[i];
            }
        if (rule == RULE_NONE)
            continue;
        for (uint32_t i = b->call_first[rule]; i < b->call_first[rule + 1]; i++)
            if (!b->good[b->call_from[i]] && carries(b, b->call_edge[i], bytes)) {
                b->good[b->call_from[i]] = 1;
                b->todo[n++] = b->call_from[i];
            }
    }
}

/* Takes edges away that lead nowhere. */
static void trim(rules *r, const backwards *b)
{
    uint32_t kept = 0;
    for (uint32_t n = 0; n < r->n_nodes; n++) {
        uint32_t from = r->first[n], to = r->first[n + 1];
        r->first[n] = kept;
        for (uint32_t e = from; e < to; e++)
            if (carries(b, e, true))
                r->edges[kept++] = r->edges[e];
    }
    r->first[r->n_nodes] = kept;
    r->n_edges = kept;
}

/* ---- left recursion ---- */

/* A walk over the rules that a rule may begin with, without recursion of its own. */
typedef struct left_walk {
    uint32_t *stack, *edge; /* nodes on the way, and the edge at which each of them is */
    unsigned char *mark;    /* of nodes: 1 on the way, 2 done */
} left_walk;

/* Where the walk goes over an edge that takes no byte: *second, the node after a call whose rule
 * may be empty; RULE_NONE: nowhere. */
static uint32_t left_targets(const rules *r, const unsigned char *empty, uint32_t edge,
                             uint32_t *second)
{
    const rule_edge *e = &r->edges[edge];
    *second = RULE_NONE;
    if (e->rule == RULE_NONE)
        return RULE_NONE;
    if (e->rule == RULE_EMPTY)
        return e->to;
    if (empty[r->rules[e->rule].start])
        *second = e->to;
    return r->rules[e->rule].start;
}

/* The node at which a walk meets itself through the start of a rule; RULE_NONE: it does not. A
 * cycle of edges that take nothing and call nothing (a repetition of something empty) is fine: it
 * changes no position. */
static uint32_t find_cycle(const rules *r, const backwards *b, left_walk *w, uint32_t from)
{
    size_t n = 0;
    w->stack[n] = from;
    w->edge[n++] = 2 * r->first[from];
    w->mark[from] = 1;
    while (n > 0) {
        uint32_t node = w->stack[n - 1], at = w->edge[n - 1];
        if (at == 2 * r->first[node + 1]) {
            w->mark[node] = 2;
            n--;
            continue;
        }
        w->edge[n - 1]++;
        uint32_t second, to = left_targets(r, b->good, at / 2, &second);
        to = at % 2 ? second : to;
        if (to == RULE_NONE || w->mark[to] == 2)
            continue;
        if (w->mark[to] == 1) {
            for (size_t i = n; i-- > 0;) {
                if (b->starts[w->stack[i]] != RULE_NONE)
                    return b->starts[w->stack[i]];
                if (w->stack[i] == to)
                    break;
            }
            continue;
        }
        w->mark[to] = 1;
        w->stack[n] = to;
        w->edge[n++] = 2 * r->first[to];
    }
    return RULE_NONE;
}

static pesc_status refuse_left_recursion(const rules *r, const backwards *b, rule_name_fn name,
                                         const void *ud)
{
    left_walk w = { mem_alloc(r->n_nodes, sizeof(uint32_t)),
                    mem_alloc(r->n_nodes, sizeof(uint32_t)), mem_zalloc(r->n_nodes, 1) };
    pesc_status st = PESC_OK;
    if (!w.stack || !w.edge || !w.mark)
        st = fail_nomem("a grammar", r->n_nodes);
    for (uint32_t k = 0; st == PESC_OK && k < r->n_rules; k++) {
        uint32_t start = r->rules[k].start, found;
        if (w.mark[start] || (found = find_cycle(r, b, &w, start)) == RULE_NONE)
            continue;
        st = fail(PESC_FORMAT,
                  "the grammar is left-recursive: %s begins with itself; write the repetition "
                  "with * or put what is repeated first",
                  name(ud, found));
    }
    mem_free(w.stack);
    mem_free(w.edge);
    mem_free(w.mark);
    return st;
}

pesc_status rules_finish(rules *r, uint32_t root, rule_name_fn name, const void *ud)
{
    TRY(r->status);
    TRY(sort_edges(r));
    backwards b;
    if (!open_backwards(&b, r)) {
        free_backwards(&b);
        return fail_nomem("a grammar", r->n_nodes * sizeof(uint32_t));
    }
    spread(&b, false);
    pesc_status st = refuse_left_recursion(r, &b, name, ud);
    spread(&b, true);
    if (st == PESC_OK && !b.good[r->rules[root].start])
        st = fail(PESC_FORMAT, "no text fits: what is asked for contradicts itself");
    if (st == PESC_OK)
        trim(r, &b);
    free_backwards(&b);
    return st;
}
