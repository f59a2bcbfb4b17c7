#include "grammar/automaton.h"

#include "base/mem.h"
#include "grammar/pieces.h"

#include <stdlib.h>
#include <string.h>

#define STATE_UNKNOWN (UINT32_MAX - 1)
#define TABLES_FULL ((uint64_t)48 << 20)
#define TABLES_MOST ((uint64_t)192 << 20) /* one walk may go on so far */

/* ---- opening ---- */

/* Bytes between two borders of edges are one class. */
static void find_classes(automaton *a)
{
    bool border[257] = { true };
    for (size_t e = 0; e < a->r.n_edges; e++)
        if (a->r.edges[e].rule == RULE_NONE) {
            border[a->r.edges[e].lo] = true;
            border[a->r.edges[e].hi + 1] = true;
        }
    uint32_t n = 0;
    for (int b = 0; b < 256; b++) {
        n += border[b];
        a->class_of[b] = (unsigned char)(n - 1);
    }
    a->n_classes = n;
}

/* An edge to a node whose only way on takes nothing leads there at once. */
static void shorten(automaton *a)
{
    rules *r = &a->r;
    for (size_t e = 0; e < r->n_edges; e++)
        for (int steps = 0; steps < 64; steps++) {
            uint32_t to = r->edges[e].to, i = r->first[to];
            if (a->ends[to] || r->first[to + 1] != i + 1 || r->edges[i].rule != RULE_EMPTY)
                break;
            r->edges[e].to = r->edges[i].to;
        }
}

pesc_status automaton_open(automaton *a, rules *r, uint32_t root)
{
    *a = (automaton){ .r = *r, .root = root, .first = STATE_UNKNOWN, .limit = TABLES_FULL };
    *r = (rules){ 0 };
    a->ends = mem_zalloc(a->r.n_nodes + 1, 1);
    if (!a->ends)
        return fail_nomem("a grammar", a->r.n_nodes);
    for (size_t i = 0; i < a->r.n_rules; i++)
        a->ends[a->r.rules[i].end] = 1;
    find_classes(a);
    shorten(a);
    return PESC_OK;
}

void automaton_close(automaton *a)
{
    rules_free(&a->r);
    intern_free(&a->stacks);
    intern_free(&a->kernels);
    intern_free(&a->states);
    void *all[] = { a->ends, a->kernel_state, a->next,   a->plain,
                    a->todo, a->seen,         a->stamps, a->words };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    *a = (automaton){ 0 };
}

size_t automaton_bytes(const automaton *a)
{
    return intern_bytes(&a->stacks) + intern_bytes(&a->kernels) + intern_bytes(&a->states) +
           a->cap_kernels * sizeof *a->kernel_state +
           a->cap_states * (a->n_classes + 1) * sizeof *a->next;
}

void automaton_trim(automaton *a)
{
    if (automaton_bytes(a) <= a->limit && a->status == PESC_OK)
        return;
    a->status = PESC_OK;
    intern_free(&a->stacks);
    intern_free(&a->kernels);
    intern_free(&a->states);
    void **all[] = { (void **)&a->kernel_state, (void **)&a->next, (void **)&a->plain };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        mem_free(*all[i]);
        *all[i] = NULL;
    }
    a->cap_kernels = a->cap_states = 0;
    a->first = STATE_UNKNOWN;
    a->generation++;
}

/* ---- positions that a set of positions reaches without a byte ---- */

static void broken(automaton *a, pesc_status s)
{
    if (a->status == PESC_OK)
        a->status = s;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

static size_t slot_of(const automaton *a, uint64_t key)
{
    size_t at = mix(key) & (a->n_slots - 1);
    while (a->stamps[at] == a->stamp && a->seen[at] != key)
        at = (at + 1) & (a->n_slots - 1);
    return at;
}

static bool grow_seen(automaton *a)
{
    size_t n = a->n_slots, bigger = n ? 2 * n : 256;
    uint64_t *seen = a->seen, *more = mem_alloc(bigger, sizeof *more);
    uint32_t *stamps = a->stamps, *fresh = mem_zalloc(bigger, sizeof *fresh);
    if (!more || !fresh) {
        mem_free(more);
        mem_free(fresh);
        return false;
    }
    a->seen = more;
    a->stamps = fresh;
    a->n_slots = bigger;
    for (size_t i = 0; i < n; i++)
        if (stamps[i] == a->stamp) {
            size_t at = slot_of(a, seen[i]);
            a->seen[at] = seen[i];
            a->stamps[at] = a->stamp;
        }
    mem_free(seen);
    mem_free(stamps);
    return true;
}

/* Adds a position to those to be looked at, once. */
static void visit(automaton *a, uint32_t node, uint32_t stack)
{
    uint64_t key = (uint64_t)node << 32 | stack;
    if (a->status != PESC_OK)
        return;
    if (2 * (a->n_seen + 1) > a->n_slots && !grow_seen(a)) {
        broken(a, fail_nomem("a grammar", a->n_slots));
        return;
    }
    size_t at = slot_of(a, key);
    if (a->stamps[at] == a->stamp)
        return;
    a->seen[at] = key;
    a->stamps[at] = a->stamp;
    if (++a->n_seen > AUTOMATON_MAX_POSITIONS)
        broken(a, fail(PESC_UNSUPPORTED,
                       "the grammar is too ambiguous: a text is in more than %d places of it at "
                       "the same time",
                       AUTOMATON_MAX_POSITIONS));
    else if (!mem_room((void **)&a->todo, &a->cap_todo, a->n_todo, sizeof *a->todo))
        broken(a, fail_nomem("a grammar", a->n_todo));
    else
        a->todo[a->n_todo++] = key;
}

static void clear_seen(automaton *a)
{
    if (++a->stamp == 0) { /* after 2^32 steps */
        memset(a->stamps, 0, a->n_slots * sizeof *a->stamps);
        a->stamp = 1;
    }
    a->n_seen = a->n_todo = 0;
}

static uint32_t push(automaton *a, uint32_t node, uint32_t below)
{
    uint32_t pair[] = { node, below };
    if (a->ends[node]) /* it would return from there at once */
        return below;
    uint32_t number = intern_add(&a->stacks, pair, 2);
    if (number == INTERN_NONE) {
        broken(a, fail_nomem("a grammar", sizeof pair));
        return 0;
    }
    return number + 1;
}

static int by_key(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static bool room_for_words(automaton *a, size_t n)
{
    if (n <= a->cap_words)
        return true;
    uint32_t *more = mem_grow(a->words, 2 * n, sizeof *more);
    if (!more) {
        broken(a, fail_nomem("a grammar", n * sizeof *more));
        return false;
    }
    a->words = more;
    a->cap_words = 2 * n;
    return true;
}

/* todo[0, n) as words[from...], sorted. */
static void write_words(automaton *a, size_t from, size_t n)
{
    qsort(a->todo, n, sizeof *a->todo, by_key);
    for (size_t i = 0; i < n; i++) {
        a->words[from + 2 * i] = (uint32_t)(a->todo[i] >> 32);
        a->words[from + 2 * i + 1] = (uint32_t)a->todo[i];
    }
}

/* Goes on from one position; true: it takes bytes itself. */
static bool expand(automaton *a, uint32_t node, uint32_t stack, bool *accepts)
{
    bool takes = false;
    const rules *r = &a->r;
    if (a->ends[node]) {
        size_t n;
        if (stack == 0)
            *accepts = true;
        else {
            const uint32_t *pair = intern_get(&a->stacks, stack - 1, &n);
            visit(a, pair[0], pair[1]);
        }
    }
    for (uint32_t e = r->first[node]; e < r->first[node + 1]; e++) {
        const rule_edge *x = &r->edges[e];
        if (x->rule == RULE_NONE)
            takes = true;
        else if (x->rule == RULE_EMPTY)
            visit(a, x->to, stack);
        else
            visit(a, r->rules[x->rule].start, push(a, x->to, stack));
    }
    return takes;
}

static bool add_state_row(automaton *a)
{
    size_t n = a->states.n;
    if (n > a->cap_states) {
        size_t cap = 2 * n;
        uint32_t *next = mem_grow(a->next, cap * a->n_classes, sizeof *next);
        if (next)
            a->next = next;
        uint32_t *plain = mem_grow(a->plain, cap, sizeof *plain);
        if (plain)
            a->plain = plain;
        if (!next || !plain)
            return false;
        a->cap_states = cap;
    }
    for (size_t i = 0; i < a->n_classes; i++)
        a->next[(n - 1) * a->n_classes + i] = STATE_UNKNOWN;
    a->plain[n - 1] = STATE_UNKNOWN;
    return true;
}

/* The state of the positions in `todo`. */
static uint32_t close_positions(automaton *a)
{
    bool accepts = false;
    size_t kept = 0;
    for (size_t i = 0; i < a->n_todo && a->status == PESC_OK; i++) {
        uint64_t key = a->todo[i];
        if (expand(a, (uint32_t)(key >> 32), (uint32_t)key, &accepts))
            a->todo[kept++] = key;
    }
    if (a->status != PESC_OK || !room_for_words(a, 2 * kept + 1))
        return STATE_DEAD;
    a->words[0] = accepts;
    write_words(a, 1, kept);
    size_t before = a->states.n;
    uint32_t state = intern_add(&a->states, a->words, 2 * kept + 1);
    if (state == INTERN_NONE || (a->states.n > before && !add_state_row(a)))
        broken(a, fail_nomem("a grammar", kept));
    else if (automaton_bytes(a) > TABLES_MOST)
        broken(a, fail(PESC_UNSUPPORTED, "the grammar is too ambiguous: one token of it needs more "
                                         "than 192 MiB"));
    return a->status == PESC_OK ? state : STATE_DEAD;
}

/* The state of the positions in `todo`, which are what a byte leads to. */
static uint32_t state_of_kernel(automaton *a)
{
    size_t n = a->n_todo, before = a->kernels.n;
    if (a->status != PESC_OK || n == 0 || !room_for_words(a, 2 * n + 1))
        return STATE_DEAD;
    write_words(a, 0, n);
    uint32_t k = intern_add(&a->kernels, a->words, 2 * n);
    if (k == INTERN_NONE ||
        !mem_room((void **)&a->kernel_state, &a->cap_kernels, k, sizeof *a->kernel_state)) {
        broken(a, fail_nomem("a grammar", n));
        return STATE_DEAD;
    }
    if (a->kernels.n > before)
        a->kernel_state[k] = close_positions(a);
    return a->kernel_state[k];
}

/* ---- use ---- */

uint32_t automaton_first(automaton *a)
{
    if (a->first == STATE_UNKNOWN) {
        clear_seen(a);
        visit(a, a->r.rules[a->root].start, 0);
        a->first = state_of_kernel(a);
    }
    return a->first;
}

static uint32_t compute_step(automaton *a, uint32_t state, unsigned char byte)
{
    size_t n;
    const uint32_t *words = intern_get(&a->states, state, &n);
    clear_seen(a);
    for (size_t i = 1; i < n; i += 2)
        for (uint32_t e = a->r.first[words[i]]; e < a->r.first[words[i] + 1]; e++) {
            const rule_edge *x = &a->r.edges[e];
            if (x->rule == RULE_NONE && byte >= x->lo && byte <= x->hi)
                visit(a, x->to, words[i + 1]);
        }
    return state_of_kernel(a);
}

uint32_t automaton_step(automaton *a, uint32_t state, unsigned char byte)
{
    size_t at = (size_t)state * a->n_classes + a->class_of[byte];
    uint32_t to = a->next[at];
    if (to == STATE_UNKNOWN) {
        to = compute_step(a, state, byte);
        a->next[at] = to;
    }
    return to;
}

bool automaton_accepts(const automaton *a, uint32_t state)
{
    size_t n;
    return state != STATE_DEAD && intern_get(&a->states, state, &n)[0];
}

/* Where every way to complete a character leads; `memo` remembers the last answer for each place in
 * a character. */
typedef struct plain_memo {
    uint32_t from[8], to[8];
} plain_memo;

static uint32_t all_lead_to(automaton *a, uint32_t state, int at, plain_memo *memo)
{
    uint32_t to = STATE_UNKNOWN;
    if (at && memo->from[at] == state)
        return memo->to[at];
    for (int b = 0x20; b < 0xf5 && to != STATE_DEAD; b++) {
        int then = pieces_utf8_step(at, (unsigned char)b);
        if (then < 0 || (at == 0 && !pieces_plain((unsigned char)b)))
            continue;
        uint32_t next = automaton_step(a, state, (unsigned char)b);
        if (next != STATE_DEAD && then)
            next = all_lead_to(a, next, then, memo);
        to = to == STATE_UNKNOWN || to == next ? next : STATE_DEAD;
    }
    memo->from[at] = state;
    memo->to[at] = to;
    return to;
}

uint32_t automaton_plain(automaton *a, uint32_t state)
{
    if (a->plain[state] == STATE_UNKNOWN) {
        plain_memo memo;
        memset(&memo, 0xff, sizeof memo);
        uint32_t to = all_lead_to(a, state, 0, &memo);
        a->plain[state] = to;
    }
    return a->plain[state];
}
