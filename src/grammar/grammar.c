#include "grammar/grammar.h"

#include "base/args.h"
#include "base/mem.h"
#include "grammar/automaton.h"
#include "grammar/frontends.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MASK_BYTES = 64 << 20 }; /* of all masks of a grammar that are kept */

/* The tokens that a state allows: a list where they are few, else a set. */
typedef struct mask {
    uint32_t *words; /* [n] ids, or [pieces->words] */
    uint32_t n;
    bool list;
} mask;

struct pesc_grammar {
    pthread_mutex_t lock; /* for all but `p` */
    int owners;
    const piece_trie *p; /* borrowed */
    automaton a;
    mask *masks; /* [cap_masks] by state; words NULL: not yet made */
    size_t cap_masks, mask_bytes;
    uint64_t generation; /* of the automaton, whose states the masks are of */
    uint32_t *on_path;   /* [max_depth + 1] states on the way to a node */
    uint32_t *set;       /* [pieces->words] */
};

struct matcher {
    grammar *g;
    str text; /* of the tokens so far */
    size_t n_tokens;
    uint32_t state;
    uint64_t generation;
    uint32_t *set; /* [pieces->words] what may follow */
    pesc_status status;
    char why[400];
};

/* ---- grammars ---- */

static pesc_status write_schema_text(rules *r, const grammar_source *from, uint32_t *root)
{
    json_t *schema = NULL;
    TRY(json_parse(&schema, from->text, from->n, "the schema"));
    pesc_status st = schema_write(r, schema, from->ignored, root);
    json_decref(schema);
    return st;
}

static pesc_status write_rules(rules *r, const grammar_source *from, uint32_t *root)
{
    if (from->schema)
        return schema_write(r, from->schema, from->ignored, root);
    if (!from->text)
        return choices_write(r, from->choices, from->n, root);
    switch (from->kind) {
    case PESC_GRAMMAR_SCHEMA:
        return write_schema_text(r, from, root);
    case PESC_GRAMMAR_GBNF:
        return gbnf_write(r, from->text, from->n, from->ignored, root);
    case PESC_GRAMMAR_REGEX:
        return regex_write(r, from->text, from->n, root);
    }
    return fail(PESC_USAGE, "a grammar is of no known kind (%d)", (int)from->kind);
}

pesc_status grammar_open(grammar **out, const piece_trie *p, const grammar_source *from)
{
    rules r = { 0 };
    uint32_t root = 0;
    *out = NULL;
    grammar *g = mem_zalloc(1, sizeof *g);
    if (!g)
        return fail_nomem("a grammar", sizeof *g);
    g->p = p;
    g->owners = 1;
    pthread_mutex_init(&g->lock, NULL);
    pesc_status st = write_rules(&r, from, &root);
    if (st == PESC_OK)
        st = automaton_open(&g->a, &r, root);
    rules_free(&r);
    g->on_path = mem_alloc(p->max_depth + 1, sizeof *g->on_path);
    g->set = mem_alloc(p->words + 1, sizeof *g->set);
    if (st == PESC_OK && (!g->on_path || !g->set))
        st = fail_nomem("a grammar", p->words);
    if (st == PESC_OK)
        *out = g;
    else
        grammar_close(g);
    return st;
}

void grammar_keep(grammar *g)
{
    pthread_mutex_lock(&g->lock);
    g->owners++;
    pthread_mutex_unlock(&g->lock);
}

static void drop_masks(grammar *g)
{
    for (size_t i = 0; i < g->cap_masks; i++)
        mem_free(g->masks[i].words);
    mem_free(g->masks);
    g->masks = NULL;
    g->cap_masks = g->mask_bytes = 0;
}

void grammar_close(grammar *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    bool last = --g->owners == 0;
    pthread_mutex_unlock(&g->lock);
    if (!last)
        return;
    drop_masks(g);
    automaton_close(&g->a);
    mem_free(g->on_path);
    mem_free(g->set);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

bool grammar_is_of(const grammar *g, const piece_trie *p)
{
    return g->p == p;
}

size_t grammar_bytes(grammar *g)
{
    pthread_mutex_lock(&g->lock);
    size_t n = sizeof *g + automaton_bytes(&g->a) + g->mask_bytes +
               g->a.r.n_edges * sizeof *g->a.r.edges + g->a.r.n_nodes * sizeof *g->a.r.first;
    pthread_mutex_unlock(&g->lock);
    return n;
}

/* ---- masks ---- */

static void add_token(uint32_t *set, int32_t id)
{
    set[id / 32] |= 1u << (id % 32);
}

/* Adds the tokens of nodes [node, end) that may follow; `state`: before the first node. */
static void walk(grammar *g, uint32_t node, uint32_t end, uint32_t state)
{
    const piece_trie *p = g->p;
    if (node == end)
        return;
    uint32_t *on_path = g->on_path;
    on_path[p->depth[node] - 1] = state;
    while (node < end) {
        uint32_t depth = p->depth[node];
        uint32_t to = automaton_step(&g->a, on_path[depth - 1], p->byte[node]);
        if (to == STATE_DEAD) {
            node = p->end[node];
            continue;
        }
        on_path[depth] = to;
        for (uint32_t k = p->token[node]; k < p->token[node + 1]; k++)
            add_token(g->set, p->ids[k]);
        node++;
    }
}

/* The states after 0, 1, ... plain characters, as long as these all lead to the same state. *loops:
 * the last state leads to itself. */
static uint32_t plain_run(grammar *g, uint32_t *run, bool *loops)
{
    uint32_t n = 0;
    *loops = false;
    while (n < PIECES_PLAIN && !*loops) {
        uint32_t to = automaton_plain(&g->a, run[n]);
        if (to == STATE_DEAD)
            break;
        *loops = to == run[n];
        run[++n] = to;
    }
    return n;
}

static uint32_t after_token(grammar *g, uint32_t state, int32_t id)
{
    const piece_trie *p = g->p;
    for (size_t i = p->first[id]; i < p->first[id + 1] && state != STATE_DEAD; i++)
        state = automaton_step(&g->a, state, (unsigned char)p->text[i]);
    return state;
}

/* Finds the tokens that may follow in a state, into g->set. */
static void find_tokens(grammar *g, uint32_t state)
{
    const piece_trie *p = g->p;
    uint32_t run[PIECES_PLAIN + 1] = { state };
    bool loops;
    uint32_t n = plain_run(g, run, &loops);
    if (n == 0) {
        memset(g->set, 0, p->words * sizeof *g->set);
        walk(g, 0, p->n_nodes, state);
        return;
    }
    memcpy(g->set, p->plain + (loops ? 0 : n) * p->words, p->words * sizeof *g->set);
    for (size_t i = 0; !loops && n == PIECES_PLAIN && i < p->n_longer; i++)
        if (after_token(g, state, p->longer[i]) != STATE_DEAD)
            add_token(g->set, p->longer[i]);
    for (size_t i = 0; i < p->n_exits; i++) {
        piece_exit e = p->exits[i];
        if (loops || e.chars <= n)
            walk(g, e.node, p->end[e.node], run[e.chars < n ? e.chars : n]);
    }
}

static bool room_for_mask(grammar *g, uint32_t state)
{
    if (g->generation != g->a.generation || g->mask_bytes > MASK_BYTES)
        drop_masks(g);
    g->generation = g->a.generation;
    if (state < g->cap_masks)
        return true;
    size_t cap = 2 * (size_t)state + 64;
    mask *more = mem_grow(g->masks, cap, sizeof *more);
    if (!more)
        return false;
    memset(more + g->cap_masks, 0, (cap - g->cap_masks) * sizeof *more);
    g->masks = more;
    g->cap_masks = cap;
    return true;
}

/* Keeps g->set as the mask of a state. */
static bool keep_mask(grammar *g, mask *m)
{
    uint32_t n = 0, k = 0;
    for (size_t i = 0; i < g->p->words; i++)
        n += (uint32_t)__builtin_popcount(g->set[i]);
    m->list = n < g->p->words;
    m->n = n;
    size_t words = m->list ? n : g->p->words;
    if (!(m->words = mem_alloc(words + 1, sizeof *m->words)))
        return false;
    g->mask_bytes += (words + 1) * sizeof *m->words;
    if (!m->list)
        memcpy(m->words, g->set, words * sizeof *m->words);
    for (uint32_t i = 0; m->list && i < g->p->words; i++)
        for (uint32_t bits = g->set[i]; bits; bits &= bits - 1)
            m->words[k++] = 32 * i + (uint32_t)__builtin_ctz(bits);
    return true;
}

/* Copies the mask of a state, which is made if it has none. */
static pesc_status get_mask(grammar *g, uint32_t state, uint32_t *set)
{
    size_t bytes = g->p->words * sizeof *set;
    if (!room_for_mask(g, state))
        return fail_nomem("a mask", bytes);
    mask *m = &g->masks[state];
    if (!m->words) {
        find_tokens(g, state);
        TRY(g->a.status);
        if (!keep_mask(g, m))
            return fail_nomem("a mask", bytes);
    }
    if (!m->list) {
        memcpy(set, m->words, bytes);
        return PESC_OK;
    }
    memset(set, 0, bytes);
    for (uint32_t i = 0; i < m->n; i++)
        add_token(set, (int32_t)m->words[i]);
    return PESC_OK;
}

pesc_status grammar_matches(grammar *g, const char *text, size_t n, bool *matches, bool *begins)
{
    pthread_mutex_lock(&g->lock);
    automaton_trim(&g->a);
    uint32_t state = automaton_first(&g->a);
    for (size_t i = 0; i < n && state != STATE_DEAD; i++)
        state = automaton_step(&g->a, state, (unsigned char)text[i]);
    *matches = automaton_accepts(&g->a, state);
    *begins = state != STATE_DEAD;
    pesc_status st = g->a.status;
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* ---- matchers ---- */

pesc_status matcher_open(matcher **out, grammar *g)
{
    *out = NULL;
    matcher *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem("a matcher", sizeof *m);
    m->set = mem_alloc(g->p->words + 1, sizeof *m->set);
    if (!m->set) {
        mem_free(m);
        return fail_nomem("a matcher", g->p->words);
    }
    m->g = g;
    m->generation = UINT64_MAX;
    grammar_keep(g);
    *out = m;
    return PESC_OK;
}

void matcher_close(matcher *m)
{
    if (!m)
        return;
    grammar_close(m->g);
    str_free(&m->text);
    mem_free(m->set);
    mem_free(m);
}

pesc_status matcher_status(const matcher *m)
{
    return m->status == PESC_OK ? PESC_OK : fail(m->status, "%s", m->why);
}

/* Brings the state to the text of n tokens. Where the automaton was emptied it begins anew. */
static pesc_status follow(matcher *m, const int32_t *ids, size_t n)
{
    grammar *g = m->g;
    const piece_trie *p = g->p;
    automaton_trim(&g->a);
    size_t from = m->text.n;
    for (; m->n_tokens < n; m->n_tokens++)
        str_add(&m->text, p->text + p->first[ids[m->n_tokens]], pieces_length(p, ids[m->n_tokens]));
    if (!str_ok(&m->text))
        return fail_nomem("an answer", m->text.n);
    if (m->generation != g->a.generation) {
        m->state = automaton_first(&g->a);
        m->generation = g->a.generation;
        from = 0;
    }
    for (size_t i = from; i < m->text.n && m->state != STATE_DEAD; i++)
        m->state = automaton_step(&g->a, m->state, (unsigned char)m->text.p[i]);
    TRY(g->a.status);
    return m->state == STATE_DEAD
               ? fail(PESC_UNSUPPORTED, "the answer has a token that its grammar does not allow")
               : PESC_OK;
}

/* Locks the grammar and brings the state to the text of n tokens; false: it cannot be. */
static bool enter(matcher *m, const int32_t *ids, size_t n)
{
    pthread_mutex_lock(&m->g->lock);
    if (m->status == PESC_OK)
        m->status = follow(m, ids, n);
    return m->status == PESC_OK;
}

static void leave(matcher *m)
{
    pthread_mutex_unlock(&m->g->lock);
    if (m->status != PESC_OK)
        snprintf(m->why, sizeof m->why, "%s", pesc_last_error());
}

const uint32_t *matcher_allowed(matcher *m, const int32_t *ids, size_t n, bool *accepts)
{
    grammar *g = m->g;
    *accepts = false;
    if (m->status != PESC_OK)
        return NULL;
    if (enter(m, ids, n))
        m->status = get_mask(g, m->state, m->set);
    if (m->status == PESC_OK)
        *accepts = automaton_accepts(&g->a, m->state);
    leave(m);
    return m->status == PESC_OK ? m->set : NULL;
}

/* Of 32 tokens those that are not in the set: mostly none or all. */
static void exclude_word(float *restrict logits, uint32_t allowed)
{
    if (allowed == 0)
        for (int k = 0; k < 32; k++)
            logits[k] = -INFINITY;
    for (uint32_t out = allowed ? ~allowed : 0; out; out &= out - 1)
        logits[__builtin_ctz(out)] = -INFINITY;
}

bool matcher_exclude(matcher *m, const int32_t *ids, size_t n, const int32_t *ends, size_t n_ends,
                     float *logits)
{
    bool accepts;
    uint32_t any = 0;
    const piece_trie *p = m->g->p;
    if (!matcher_allowed(m, ids, n, &accepts))
        return false;
    for (size_t i = 0; i < n_ends; i++) {
        if (ends[i] < 0 || ends[i] >= p->vocab)
            continue;
        uint32_t bit = 1u << (ends[i] % 32);
        uint32_t *word = &m->set[ends[i] / 32];
        *word = accepts ? *word | bit : *word & ~bit;
    }
    size_t whole = (size_t)p->vocab / 32;
    for (size_t i = 0; i < whole; i++) {
        any |= m->set[i];
        exclude_word(logits + 32 * i, m->set[i]);
    }
    for (int32_t id = (int32_t)(32 * whole); id < p->vocab; id++)
        if (m->set[id / 32] >> (id % 32) & 1)
            any = 1;
        else
            logits[id] = -INFINITY;
    if (!any && !accepts) {
        m->status = PESC_UNSUPPORTED;
        snprintf(
            m->why, sizeof m->why,
            "no token of the vocabulary can continue the answer after %zu bytes as its grammar "
            "asks",
            m->text.n);
    }
    return any != 0;
}

/* ---- what will follow ---- */

static bool is_blank(int byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* The blank that goes on with those at the end of the text as they went on after the byte before
 * them where it was last; 0: none did, or it was not there. */
static int usual_blank(const char *text, size_t n)
{
    size_t blanks = 0;
    while (blanks < n && is_blank(text[n - 1 - blanks]))
        blanks++;
    const size_t before = n - blanks;
    const char *at = before > 1 ? memrchr(text, text[before - 1], before - 1) : NULL;
    for (size_t i = 1; at && i <= blanks; i++)
        if (!is_blank(at[i]))
            return 0;
    return at && is_blank(at[1 + blanks]) ? at[1 + blanks] : 0;
}

/* The byte that follows the text, whose state this is; -1: there are several. */
static int only_byte(automaton *a, uint32_t state, const str *text)
{
    int blank = -1, other = -1, n_blanks = 0;
    for (int b = 0; b < 256; b++) {
        if (automaton_step(a, state, (unsigned char)b) == STATE_DEAD)
            continue;
        if (is_blank(b)) {
            n_blanks++;
            blank = b;
        } else if (other >= 0) {
            return -1;
        } else {
            other = b;
        }
    }
    if (n_blanks == 0 || other < 0)
        return n_blanks > 1 ? -1 : n_blanks == 1 ? blank : other;
    int usual = usual_blank(text->p, text->n);
    bool fits = usual && automaton_step(a, state, (unsigned char)usual) != STATE_DEAD;
    return fits ? usual : other;
}

/* Adds what follows the text, whose state this is, as long as only one text can. */
static void foresee_bytes(automaton *a, uint32_t state, str *text, size_t most)
{
    for (size_t i = 0; i < most && !automaton_accepts(a, state); i++) {
        int byte = only_byte(a, state, text);
        if (byte < 0)
            return;
        str_putc(text, (char)byte);
        state = automaton_step(a, state, (unsigned char)byte);
    }
}

/* The longest token with which the text begins; -1: none. */
static int32_t longest_token(const piece_trie *p, const char *text, size_t n)
{
    int32_t longest = -1;
    uint32_t at = 0, end = p->n_nodes;
    for (size_t i = 0; i < n; i++) {
        while (at < end && p->byte[at] != (unsigned char)text[i])
            at = p->end[at];
        if (at == end)
            break;
        if (p->token[at] < p->token[at + 1]) /* the last one: bytes by their numbers come first */
            longest = p->ids[p->token[at + 1] - 1];
        end = p->end[at++];
    }
    return longest;
}

int32_t matcher_foresee(matcher *m, const int32_t *ids, size_t n, int32_t *out, int32_t most)
{
    enum { BYTES = 128 }; /* more than the guesses of a forward have */
    int32_t found = 0, id;
    if (m->status != PESC_OK)
        return 0;
    if (enter(m, ids, n)) {
        str *text = &m->text;
        const size_t from = text->n;
        foresee_bytes(&m->g->a, m->state, text, BYTES);
        size_t at = from, end = text->n;
        while (end > from && is_blank(text->p[end - 1])) /* it begins the next token */
            end--;
        while (found < most && at < end &&
               (id = longest_token(m->g->p, text->p + at, end - at)) >= 0) {
            out[found++] = id;
            at += pieces_length(m->g->p, id);
        }
        text->n = from;
    }
    leave(m);
    return found;
}

int32_t matcher_permits(matcher *m, const int32_t *ids, size_t n, const int32_t *more,
                        int32_t n_more)
{
    int32_t k = 0;
    if (m->status != PESC_OK)
        return 0;
    uint32_t state = enter(m, ids, n) ? m->state : STATE_DEAD;
    for (; k < n_more && state != STATE_DEAD && pieces_length(m->g->p, more[k]); k++) {
        state = after_token(m->g, state, more[k]);
        if (state == STATE_DEAD)
            break;
    }
    leave(m);
    return k;
}
