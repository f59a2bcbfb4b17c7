#include "tokenizer/added.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/trie.h"
#include "base/unicode.h"

#include <string.h>

struct added {
    trie *t;            /* of the reversed keys; values index `token` */
    added_token *token; /* [n], texts not copied */
    size_t *key_bytes;  /* [n] */
    uint32_t *fall;     /* [nodes]: the longest proper suffix of a node that is a node too */
    int32_t *longest;   /* [nodes]: the longest key that is a suffix of the node; -1: none */
    bool ends[256];     /* bytes a key may end with: all others are passed over */
};

/* Where the automaton goes from `node` with `byte`. */
static uint32_t advance(const added *a, uint32_t node, unsigned char byte)
{
    for (;;) {
        uint32_t next = trie_step(a->t, node, byte);
        if (next != TRIE_NONE)
            return next;
        if (node == TRIE_ROOT)
            return TRIE_ROOT;
        node = a->fall[node];
    }
}

/* Nodes are numbered breadth first, so a parent and all shorter nodes come before a node: one pass
 * in that order, with `parent` and `label` found by walking the keys. */
typedef struct link {
    uint32_t parent;
    unsigned char label;
} link;

static void link_nodes(added *a, const link *links, size_t nodes)
{
    a->fall[0] = TRIE_ROOT;
    a->longest[0] = -1;
    for (size_t i = 1; i < nodes; i++) {
        uint32_t parent = links[i].parent;
        a->fall[i] = parent == TRIE_ROOT ? TRIE_ROOT : advance(a, a->fall[parent], links[i].label);
        int32_t own = trie_value(a->t, (uint32_t)i);
        a->longest[i] = own >= 0 ? own : a->longest[a->fall[i]];
    }
}

static pesc_status build(added *a, trie_key *reversed, size_t n, size_t bytes)
{
    link *links = mem_alloc(bytes + 1, sizeof *links);
    size_t nodes = 1;
    pesc_status s = links ? trie_build(&a->t, reversed, n) : fail_nomem("added tokens", bytes);
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        uint32_t node = TRIE_ROOT;
        for (size_t k = 0; k < reversed[i].n; k++) {
            unsigned char label = (unsigned char)reversed[i].text[k];
            uint32_t next = trie_step(a->t, node, label);
            links[next] = (link){ node, label };
            node = next;
            if (node >= nodes)
                nodes = (size_t)node + 1;
        }
    }
    if (s == PESC_OK) {
        a->fall = mem_alloc(nodes, sizeof *a->fall);
        a->longest = mem_alloc(nodes, sizeof *a->longest);
        if (a->fall && a->longest)
            link_nodes(a, links, nodes);
        else
            s = fail_nomem("added tokens", nodes);
    }
    mem_free(links);
    return s;
}

pesc_status added_read_flags(json_where w, added_token *a)
{
    TRY(json_get_bool(w, "special", false, &a->special));
    a->normalized = !a->special;
    TRY(json_get_bool(w, "normalized", false, &a->normalized));
    TRY(json_get_bool(w, "single_word", false, &a->single_word));
    TRY(json_get_bool(w, "lstrip", false, &a->lstrip));
    return json_get_bool(w, "rstrip", false, &a->rstrip);
}

pesc_status added_open(added **out, const added_key *keys, const added_token *tokens, size_t n)
{
    *out = NULL;
    if (n == 0)
        return PESC_OK;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (!ckd_add_size(&bytes, bytes, keys[i].n) || bytes > INT32_MAX)
            return fail(PESC_UNSUPPORTED, "the added tokens are longer than 2 GiB together");
    added *a = mem_zalloc(1, sizeof *a);
    trie_key *reversed = mem_alloc(n, sizeof *reversed);
    char *text = mem_alloc(bytes, 1), *p = text;
    if (a) {
        a->token = mem_alloc(n, sizeof *a->token);
        a->key_bytes = mem_alloc(n, sizeof *a->key_bytes);
    }
    pesc_status s = PESC_OK;
    if (!a || !reversed || !text || !a->token || !a->key_bytes) {
        s = fail_nomem("added tokens", bytes);
    } else {
        for (size_t i = 0; i < n; i++) {
            a->token[i] = tokens[i];
            a->key_bytes[i] = keys[i].n;
            a->ends[(unsigned char)keys[i].text[keys[i].n - 1]] = true;
            reversed[i] = (trie_key){ p, keys[i].n, (int32_t)i };
            for (size_t k = keys[i].n; k > 0; k--)
                *p++ = keys[i].text[k - 1];
        }
        s = build(a, reversed, n, bytes);
    }
    mem_free(reversed);
    mem_free(text);
    if (s == PESC_OK)
        *out = a;
    else
        added_close(a);
    return s;
}

void added_close(added *a)
{
    if (!a)
        return;
    trie_close(a->t);
    mem_free(a->token);
    mem_free(a->key_bytes);
    mem_free(a->fall);
    mem_free(a->longest);
    mem_free(a);
}

static pesc_status push(added_matches *l, added_match m)
{
    if (!mem_room((void **)&l->at, &l->cap, l->n, sizeof *l->at))
        return fail_nomem("added tokens in a text", l->cap * sizeof *l->at);
    l->at[l->n++] = m;
    return PESC_OK;
}

/* Every position where a key begins, from right to left; `id` is the token's index for now. */
static pesc_status scan(const added *a, const char *text, size_t n, added_matches *out)
{
    uint32_t node = TRIE_ROOT;
    for (size_t p = n; p > 0; p--) {
        unsigned char c = (unsigned char)text[p - 1];
        if (node == TRIE_ROOT && !a->ends[c])
            continue;
        node = advance(a, node, c);
        int32_t token = a->longest[node];
        if (token >= 0)
            TRY(push(out, (added_match){ p - 1, p - 1 + a->key_bytes[token], token }));
    }
    return PESC_OK;
}

static bool stands_alone(const char *text, size_t n, const added_match *m)
{
    size_t len;
    uint32_t cp = 0;
    if (m->start > 0 && unicode_is_word(unicode_last(text, m->start, &len)))
        return false;
    if (m->end < n && utf8_decode(text + m->end, n - m->end, &cp) && unicode_is_word(cp))
        return false;
    return true;
}

/* Widens the match over white space, not beyond what the match before took. */
static void swallow(const added_token *t, const char *text, size_t n, size_t taken, added_match *m)
{
    uint32_t cp;
    size_t len;
    if (t->lstrip)
        while (m->start > taken && unicode_is_space(unicode_last(text, m->start, &len)))
            m->start -= len;
    if (t->rstrip)
        while (m->end < n && (len = (size_t)utf8_decode(text + m->end, n - m->end, &cp)) > 0 &&
               unicode_is_space(cp))
            m->end += len;
}

pesc_status added_find(const added *a, const char *text, size_t n, added_allow allow, void *ctx,
                       added_matches *out)
{
    out->n = 0;
    if (!a)
        return PESC_OK;
    TRY(scan(a, text, n, out));
    /* Turned, the list runs forward, and what is kept can be written over what was read. */
    for (size_t i = 0, j = out->n; i + 1 < j; i++) {
        added_match m = out->at[i];
        out->at[i] = out->at[--j];
        out->at[j] = m;
    }
    size_t kept = 0, searched = 0, taken = 0;
    for (size_t i = 0; i < out->n; i++) {
        added_match m = out->at[i];
        if (m.start < searched)
            continue;
        searched = m.end;
        const added_token *t = &a->token[m.id];
        bool allowed = allow ? allow(ctx, t, m.start, m.end) : !t->special;
        if (m.start < taken || !allowed || (t->single_word && !stands_alone(text, n, &m)))
            continue;
        swallow(t, text, n, taken, &m);
        taken = m.end;
        m.id = t->id;
        out->at[kept++] = m;
    }
    out->n = kept;
    return PESC_OK;
}
