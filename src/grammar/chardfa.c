#include "grammar/chardfa.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TABLE = 16 << 20, MAX_WORK = 60 << 20, NONE = -1 };

/* Of the first word of a state: nothing was read, so this is no state after some text. */
#define AT_BEGIN 0x80000000u

/* ---- the nondeterministic automaton of all conditions ---- */

typedef enum step_kind {
    STEP_CHAR,
    STEP_SET,
    STEP_ANY,
    STEP_EMPTY,
    STEP_BEGIN,
    STEP_END
} step_kind;

typedef struct step {
    step_kind kind;
    uint32_t value, to; /* value: the character, or the number of the set among all */
    int32_t next;       /* of the same position; NONE */
} step;

typedef struct nfa {
    step *steps;
    size_t n_steps, cap_steps;
    int32_t *first; /* [n] steps of a position */
    size_t n, cap;
    const charset **sets; /* [n_sets] of all conditions */
    size_t n_sets, cap_sets;
    bool nomem, full;
} nfa;

static uint32_t position(nfa *a)
{
    a->full = a->full || a->n == CHARDFA_MAX_POSITIONS;
    a->nomem = a->nomem || !mem_room((void **)&a->first, &a->cap, a->n, sizeof *a->first);
    if (a->full || a->nomem)
        return 0;
    a->first[a->n] = NONE;
    return (uint32_t)a->n++;
}

static void add_step(nfa *a, uint32_t from, uint32_t to, step_kind kind, uint32_t value)
{
    a->full = a->full || a->n_steps == 4 * CHARDFA_MAX_POSITIONS;
    a->nomem =
        a->nomem || !mem_room((void **)&a->steps, &a->cap_steps, a->n_steps, sizeof *a->steps);
    if (a->full || a->nomem)
        return;
    a->steps[a->n_steps] = (step){ kind, value, to, a->first[from] };
    a->first[from] = (int32_t)a->n_steps++;
}

static void write_expr(nfa *a, const expr_pool *p, uint32_t e, rule_span at, uint32_t sets);

static void write_repeat(nfa *a, const expr_pool *p, const expr *x, rule_span at, uint32_t sets)
{
    uint32_t from = at.start;
    for (int32_t i = 0; i < x->min && !a->full && !a->nomem; i++) {
        uint32_t to = position(a);
        write_expr(a, p, x->first, (rule_span){ from, to }, sets);
        from = to;
    }
    if (x->max == EXPR_ANY_TIMES) {
        uint32_t loop = position(a);
        add_step(a, from, loop, STEP_EMPTY, 0);
        write_expr(a, p, x->first, (rule_span){ loop, loop }, sets);
        from = loop;
    }
    for (int32_t i = x->min; i < x->max && !a->full && !a->nomem; i++) {
        uint32_t to = position(a);
        add_step(a, from, at.end, STEP_EMPTY, 0);
        write_expr(a, p, x->first, (rule_span){ from, to }, sets);
        from = to;
    }
    add_step(a, from, at.end, STEP_EMPTY, 0);
}

/* sets: the number of the pool's first set among all. */
static void write_expr(nfa *a, const expr_pool *p, uint32_t e, rule_span at, uint32_t sets)
{
    const expr *x = &p->all[e];
    uint32_t from = at.start;
    switch (x->kind) {
    case EXPR_CHAR:
        add_step(a, from, at.end, STEP_CHAR, x->value);
        break;
    case EXPR_SET:
        add_step(a, from, at.end, STEP_SET, sets + x->value);
        break;
    case EXPR_BEGIN:
    case EXPR_END:
        add_step(a, from, at.end, x->kind == EXPR_BEGIN ? STEP_BEGIN : STEP_END, 0);
        break;
    case EXPR_CHOICE:
        for (uint32_t c = x->first; c; c = p->all[c].next)
            write_expr(a, p, c, at, sets);
        break;
    case EXPR_SEQUENCE:
        for (uint32_t c = x->first; c; c = p->all[c].next) {
            uint32_t to = position(a);
            write_expr(a, p, c, (rule_span){ from, to }, sets);
            from = to;
        }
        add_step(a, from, at.end, STEP_EMPTY, 0);
        break;
    case EXPR_REPEAT:
        write_repeat(a, p, x, at, sets);
        break;
    case EXPR_RULE:
    case EXPR_TOKEN:
    case EXPR_JSON:
    case EXPR_NOT:
        break; /* not in regular expressions */
    }
}

/* Positions first and last of each condition: spans[n]. */
static void write_conditions(nfa *a, const char_condition *c, size_t n, rule_span *spans)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sets = (uint32_t)a->n_sets;
        for (size_t k = 0; k < c[i].pool->n_sets; k++) {
            a->nomem =
                a->nomem || !mem_room((void **)&a->sets, &a->cap_sets, a->n_sets, sizeof *a->sets);
            if (!a->nomem)
                a->sets[a->n_sets++] = &c[i].pool->sets[k];
        }
        spans[i] = (rule_span){ position(a), position(a) };
        if (a->full || a->nomem)
            return;
        if (c[i].anywhere) {
            add_step(a, spans[i].start, spans[i].start, STEP_ANY, 0);
            add_step(a, spans[i].end, spans[i].end, STEP_ANY, 0);
        }
        write_expr(a, c[i].pool, c[i].root, spans[i], sets);
    }
}

/* ---- classes of characters ---- */

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return (a > b) - (a < b);
}

/* Where a range that conditions tell apart begins: sorted, each once. */
static uint32_t *find_borders(const nfa *a, size_t *n)
{
    size_t most = 4 + 2 * a->n_steps;
    for (size_t i = 0; i < a->n_sets; i++)
        most += 2 * a->sets[i]->n;
    uint32_t *b = mem_alloc(most, sizeof *b);
    if (!b)
        return NULL;
    size_t k = 0;
    b[k++] = 0;
    b[k++] = SURROGATE_FIRST;
    b[k++] = SURROGATE_LAST + 1;
    for (size_t i = 0; i < a->n_steps; i++)
        if (a->steps[i].kind == STEP_CHAR) {
            b[k++] = a->steps[i].value;
            b[k++] = a->steps[i].value + 1;
        }
    for (size_t i = 0; i < a->n_sets; i++)
        for (size_t j = 0; j < a->sets[i]->n; j++) {
            b[k++] = a->sets[i]->r[j].lo;
            b[k++] = a->sets[i]->r[j].hi + 1;
        }
    qsort(b, k, sizeof *b, by_number);
    *n = 0;
    for (size_t i = 0; i < k; i++)
        if (b[i] <= CHAR_LAST && (*n == 0 || b[i] != b[*n - 1]))
            b[(*n)++] = b[i];
    return b;
}

/* A class for each range, the same for ranges that are in the same sets and are no character of
 * their own. */
static bool number_classes(chardfa *d, const nfa *a, const unsigned char *single)
{
    intern signatures = { 0 };
    uint32_t *key = mem_alloc(a->n_sets + 1, sizeof *key);
    bool good = key != NULL;
    for (size_t i = 0; good && i < d->n_ranges; i++) {
        size_t n = 0;
        key[n++] = single[i] ? d->ranges[i].lo : CHAR_LAST + 1;
        for (uint32_t s = 0; s < a->n_sets; s++)
            if (charset_has(a->sets[s], d->ranges[i].lo))
                key[n++] = s;
        d->class_of[i] = intern_add(&signatures, key, n);
        good = d->class_of[i] != INTERN_NONE;
    }
    d->n_classes = (uint32_t)signatures.n;
    mem_free(key);
    intern_free(&signatures);
    return good;
}

static bool find_classes(chardfa *d, const nfa *a)
{
    size_t n = 0;
    uint32_t *b = find_borders(a, &n);
    unsigned char *single = mem_zalloc(n + 1, 1);
    d->ranges = mem_alloc(n + 1, sizeof *d->ranges);
    d->class_of = mem_alloc(n + 1, sizeof *d->class_of);
    bool good = b && single && d->ranges && d->class_of;
    for (size_t i = 0; good && i < n; i++)
        if (b[i] != SURROGATE_FIRST)
            d->ranges[d->n_ranges++] =
                (char_range){ b[i], i + 1 < n ? b[i + 1] - 1 : (uint32_t)CHAR_LAST };
    for (size_t i = 0; good && i < a->n_steps; i++)
        for (size_t lo = 0, hi = d->n_ranges; a->steps[i].kind == STEP_CHAR && lo < hi;) {
            size_t mid = (lo + hi) / 2;
            if (d->ranges[mid].lo == a->steps[i].value)
                single[mid] = 1;
            if (d->ranges[mid].lo <= a->steps[i].value)
                lo = mid + 1;
            else
                hi = mid;
        }
    good = good && number_classes(d, a, single);
    mem_free(b);
    mem_free(single);
    return good;
}

/* ---- subsets ---- */

typedef struct search {
    const nfa *a;
    const char_condition *conditions;
    rule_span *spans;
    size_t n_conditions;
    char_length length;
    chardfa *d;
    uint32_t *representative; /* [n_classes] a character of each */
    intern states;            /* the length, then positions, sorted */
    uint32_t *set;            /* [n + 1] the state at hand, as in `states` */
    size_t n_set;
    uint32_t *stack;
    uint32_t *seen; /* [n] the number of the closure that has the position */
    uint32_t stamp;
    uint64_t work;
} search;

static void visit(search *s, uint32_t to, size_t *n)
{
    if (s->seen[to] != s->stamp) {
        s->seen[to] = s->stamp;
        s->stack[(*n)++] = to;
    }
}

/* Adds the positions that are reached from the stack without a character. */
static void close_set(search *s, size_t n, bool begin, bool end)
{
    while (n > 0) {
        uint32_t at = s->stack[--n];
        s->set[1 + s->n_set++] = at;
        for (int32_t i = s->a->first[at]; i >= 0; i = s->a->steps[i].next) {
            const step *x = &s->a->steps[i];
            s->work++;
            if (x->kind == STEP_EMPTY || (x->kind == STEP_BEGIN && begin) ||
                (x->kind == STEP_END && end))
                visit(s, x->to, &n);
        }
    }
}

static bool takes(const search *s, const step *x, uint32_t c)
{
    return x->kind == STEP_ANY || (x->kind == STEP_CHAR && x->value == c) ||
           (x->kind == STEP_SET && charset_has(s->a->sets[x->value], c));
}

/* The number of the state in s->set; a new one is added. */
static uint32_t number_set(search *s, uint32_t length)
{
    s->set[0] = length;
    qsort(s->set + 1, s->n_set, sizeof *s->set, by_number);
    return intern_add(&s->states, s->set, s->n_set + 1);
}

/* Whether the text may end in this state. */
static bool accepts(search *s, uint32_t state)
{
    size_t n, todo = 0;
    const uint32_t *words = intern_get(&s->states, state, &n);
    if ((int64_t)(words[0] & ~AT_BEGIN) < s->length.min)
        return false;
    s->stamp++;
    s->n_set = 0;
    for (size_t i = 1; i < n; i++)
        visit(s, words[i], &todo);
    close_set(s, todo, state == 0, true);
    for (size_t i = 0; i < s->n_conditions; i++)
        if ((s->seen[s->spans[i].end] == s->stamp) == s->conditions[i].negated)
            return false;
    return true;
}

/* The state after a character of the class; INTERN_NONE: none, or no memory (*nomem). */
static uint32_t advance(search *s, uint32_t state, uint32_t class, bool *nomem)
{
    size_t n, todo = 0;
    const uint32_t *words = intern_get(&s->states, state, &n);
    int64_t most = s->length.max >= 0 ? s->length.max : s->length.min;
    int64_t length = (int64_t)(words[0] & ~AT_BEGIN) + 1;
    if (s->length.max >= 0 && length > most)
        return INTERN_NONE;
    s->stamp++;
    s->n_set = 0;
    for (size_t i = 1; i < n; i++)
        for (int32_t k = s->a->first[words[i]]; k >= 0; k = s->a->steps[k].next) {
            s->work++;
            if (takes(s, &s->a->steps[k], s->representative[class]))
                visit(s, s->a->steps[k].to, &todo);
        }
    close_set(s, todo, false, false);
    bool alive = s->n_set > 0;
    for (size_t i = 0; i < s->n_conditions; i++)
        alive |= s->conditions[i].negated;
    if (!alive && s->n_conditions > 0)
        return INTERN_NONE;
    uint32_t to = number_set(s, (uint32_t)(length < most ? length : most));
    *nomem = to == INTERN_NONE;
    return to;
}

static bool room_for_states(chardfa *d, size_t *cap, size_t n)
{
    if (n <= *cap)
        return true;
    size_t bigger = 2 * n;
    uint32_t *next = mem_grow(d->next, bigger * d->n_classes, sizeof *next);
    if (next)
        d->next = next;
    unsigned char *more = mem_grow(d->accepts, bigger, 1);
    if (more)
        d->accepts = more;
    if (next && more)
        *cap = bigger;
    return next && more;
}

static pesc_status too_large(void)
{
    return fail(PESC_UNSUPPORTED,
                "the regular expressions and lengths of a text need too large an automaton; use "
                "fewer or shorter repetitions");
}

/* Breadth first; states are numbered in the order in which they are found. */
static pesc_status explore(search *s)
{
    chardfa *d = s->d;
    size_t cap = 0, todo = 0;
    s->stamp = 1;
    for (size_t i = 0; i < s->n_conditions; i++)
        visit(s, s->spans[i].start, &todo);
    close_set(s, todo, true, false);
    bool nomem = number_set(s, AT_BEGIN) == INTERN_NONE;
    for (uint32_t state = 0; !nomem && state < s->states.n; state++) {
        if (s->states.n > CHARDFA_MAX_STATES || s->states.n * d->n_classes > MAX_TABLE ||
            s->work > MAX_WORK)
            return too_large();
        nomem = !room_for_states(d, &cap, state + 1);
        for (uint32_t c = 0; !nomem && c < d->n_classes; c++)
            d->next[(size_t)state * d->n_classes + c] = advance(s, state, c, &nomem);
        if (!nomem)
            d->accepts[state] = accepts(s, state);
    }
    d->n_states = (uint32_t)s->states.n;
    return nomem ? fail_nomem("a regular expression", s->states.n) : PESC_OK;
}

static pesc_status determinise(search *s)
{
    size_t n = s->a->n + 1;
    chardfa *d = s->d;
    s->set = mem_alloc(n + 1, sizeof *s->set);
    s->stack = mem_alloc(n, sizeof *s->stack);
    s->seen = mem_zalloc(n, sizeof *s->seen);
    s->representative = mem_alloc(d->n_classes + 1, sizeof *s->representative);
    pesc_status st = PESC_OK;
    if (!s->set || !s->stack || !s->seen || !s->representative)
        st = fail_nomem("a regular expression", n * sizeof *s->set);
    for (size_t i = d->n_ranges; st == PESC_OK && i-- > 0;)
        s->representative[d->class_of[i]] = d->ranges[i].lo;
    if (st == PESC_OK)
        st = explore(s);
    mem_free(s->set);
    mem_free(s->stack);
    mem_free(s->seen);
    mem_free(s->representative);
    intern_free(&s->states);
    return st;
}

pesc_status chardfa_build(chardfa *out, const char_condition *conditions, size_t n,
                          char_length length)
{
    nfa a = { 0 };
    rule_span *spans = mem_alloc(n + 1, sizeof *spans);
    *out = (chardfa){ 0 };
    a.nomem = !spans;
    if (spans)
        write_conditions(&a, conditions, n, spans);
    search s = { .a = &a,
                 .conditions = conditions,
                 .spans = spans,
                 .n_conditions = n,
                 .length = length,
                 .d = out };
    pesc_status st = PESC_OK;
    if (a.full)
        st = too_large();
    else if (a.nomem || !find_classes(out, &a))
        st = fail_nomem("a regular expression", a.n);
    else
        st = determinise(&s);
    mem_free(spans);
    mem_free(a.steps);
    mem_free(a.first);
    mem_free((void *)a.sets);
    if (st != PESC_OK)
        chardfa_free(out);
    return st;
}

void chardfa_free(chardfa *d)
{
    mem_free(d->next);
    mem_free(d->accepts);
    mem_free(d->ranges);
    mem_free(d->class_of);
    *d = (chardfa){ 0 };
}

/* ---- use ---- */

static uint32_t class_of(const chardfa *d, uint32_t c)
{
    size_t lo = 0, hi = d->n_ranges;
    while (lo + 1 < hi) {
        size_t mid = (lo + hi) / 2;
        if (d->ranges[mid].lo <= c)
            lo = mid;
        else
            hi = mid;
    }
    return d->class_of[lo];
}

bool chardfa_matches(const chardfa *d, const char *text, size_t n)
{
    uint32_t state = 0, c;
    for (size_t i = 0; i < n && state != INTERN_NONE;) {
        int len = utf8_decode(text + i, n - i, &c);
        if (len == 0)
            return false;
        i += (size_t)len;
        state = d->next[(size_t)state * d->n_classes + class_of(d, c)];
    }
    return state != INTERN_NONE && d->accepts[state];
}

/* The edges of a state to one of its targets, as one set. */
static void write_target(const chardfa *d, uint32_t state, uint32_t target, charset *set)
{
    const uint32_t *next = d->next + (size_t)state * d->n_classes;
    set->n = 0;
    for (size_t i = 0; i < d->n_ranges; i++)
        if (next[d->class_of[i]] == target)
            charset_add(set, d->ranges[i].lo, d->ranges[i].hi);
    charset_normalise(set);
}

void chardfa_write(const chardfa *d, rules *r, spell_rules *s, rule_span at, spelling how)
{
    charset set = { 0 };
    uint32_t *nodes = mem_alloc(d->n_states, sizeof *nodes);
    uint32_t *done = mem_zalloc(d->n_states, sizeof *done); /* 1 + the last state that led there */
    if (!nodes || !done)
        rules_fail(r, fail_nomem("a grammar", d->n_states * sizeof *nodes));
    for (uint32_t i = 0; r->status == PESC_OK && i < d->n_states; i++)
        nodes[i] = rules_node(r);
    if (r->status == PESC_OK)
        rules_empty(r, at.start, nodes[0]);
    for (uint32_t i = 0; r->status == PESC_OK && i < d->n_states; i++) {
        const uint32_t *next = d->next + (size_t)i * d->n_classes;
        if (d->accepts[i])
            rules_empty(r, nodes[i], at.end);
        for (uint32_t c = 0; c < d->n_classes; c++) {
            if (next[c] == INTERN_NONE || done[next[c]] == i + 1)
                continue;
            done[next[c]] = i + 1;
            write_target(d, i, next[c], &set);
            spell_set(r, s, (rule_span){ nodes[i], nodes[next[c]] }, &set, how);
        }
    }
    charset_free(&set);
    mem_free(nodes);
    mem_free(done);
}
