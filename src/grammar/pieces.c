#include "grammar/pieces.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIECE = 1024 }; /* bytes; a longer token is never allowed */

/* ---- the text of tokens ---- */

/* Inside a text, after the first token that has one: a SentencePiece token keeps its blank there.
 * Padding has no text, nor has a token with a byte that is kept for control tokens. */
static pesc_status read_texts(piece_trie *p, const tokenizer *t, str *all)
{
    decode_stream *d;
    const char *text;
    size_t n;
    TRY(decode_open(&d, t, PESC_SKIP_SPECIAL | DECODE_RAW));
    pesc_status st = PESC_OK;
    n = 0;
    for (int32_t id = 0; st == PESC_OK && id < p->vocab && n == 0; id++)
        st = decode_feed(d, id, &text, &n);
    for (int32_t id = 0; st == PESC_OK && id < p->vocab; id++) {
        p->first[id] = all->n;
        if (!tokenizer_token(t, id, &n))
            continue;
        st = decode_feed(d, id, &text, &n);
        if (tokenizer_is_special(t, id))
            str_printf(all, PIECES_CONTROL, (int)id);
        else if (st == PESC_OK && n <= MAX_PIECE && !memchr(text, PIECES_CONTROL[0], n))
            str_add(all, text, n);
    }
    p->first[p->vocab] = all->n;
    decode_close(d);
    return st == PESC_OK && !str_ok(all) ? fail_nomem("token texts", all->n) : st;
}

/* ---- the trie ---- */

static int by_bytes(const void *x, const void *y, void *ud)
{
    const piece_trie *p = ud;
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    size_t na = pieces_length(p, a), nb = pieces_length(p, b), n = na < nb ? na : nb;
    int c = memcmp(p->text + p->first[a], p->text + p->first[b], n);
    return c ? c : na != nb ? (na < nb ? -1 : 1) : (a > b) - (a < b);
}

static size_t common(const char *a, size_t na, const char *b, size_t nb)
{
    size_t n = 0;
    while (n < na && n < nb && a[n] == b[n])
        n++;
    return n;
}

/* The nodes of tokens ids[0, n) in their order; with byte NULL they are only counted. */
static void lay_nodes(piece_trie *p, size_t n)
{
    const char *last = "";
    size_t n_last = 0;
    uint32_t open[MAX_PIECE];
    p->n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = p->text + p->first[p->ids[i]];
        size_t len = pieces_length(p, p->ids[i]), same = common(last, n_last, text, len);
        for (size_t k = same; p->byte && k < n_last; k++)
            p->end[open[k]] = p->n_nodes;
        for (size_t k = same; k < len; k++, p->n_nodes++) {
            open[k] = p->n_nodes;
            if (!p->byte)
                continue;
            p->byte[p->n_nodes] = (unsigned char)text[k];
            p->depth[p->n_nodes] = (uint16_t)(k + 1);
            p->token[p->n_nodes] = (uint32_t)i;
        }
        p->max_depth = len > p->max_depth ? (uint32_t)len : p->max_depth;
        last = text;
        n_last = len;
    }
    for (size_t k = 0; p->byte && k < n_last; k++)
        p->end[open[k]] = p->n_nodes;
    if (p->byte)
        p->token[p->n_nodes] = (uint32_t)n;
}

static pesc_status build_trie(piece_trie *p)
{
    size_t n = 0;
    p->ids = mem_alloc((size_t)p->vocab + 1, sizeof *p->ids);
    if (!p->ids)
        return fail_nomem("token texts", (size_t)p->vocab * sizeof *p->ids);
    for (int32_t id = 0; id < p->vocab; id++)
        if (pieces_length(p, id))
            p->ids[n++] = id;
    qsort_r(p->ids, n, sizeof *p->ids, by_bytes, p);
    lay_nodes(p, n);
    size_t nodes = p->n_nodes + 1;
    unsigned char *byte = mem_alloc(nodes, 1);
    p->end = mem_alloc(nodes, sizeof *p->end);
    p->token = mem_alloc(nodes, sizeof *p->token);
    p->depth = mem_alloc(nodes, sizeof *p->depth);
    p->byte = byte;
    if (!byte || !p->end || !p->token || !p->depth)
        return fail_nomem("token texts", nodes * sizeof *p->end);
    lay_nodes(p, n);
    return PESC_OK;
}

/* ---- plain tokens ---- */

int pieces_utf8_step(int at, unsigned char b)
{
    /* The second byte of a character, by what its first byte leaves open, then how many follow. */
    static const struct {
        unsigned char lo, hi;
        signed char then;
    } open[] = { { 0, 0, 0 },       { 0x80, 0xbf, 0 }, { 0x80, 0xbf, 1 }, { 0x80, 0xbf, 2 },
                 { 0xa0, 0xbf, 1 }, { 0x80, 0x9f, 1 }, { 0x90, 0xbf, 2 }, { 0x80, 0x8f, 2 } };
    if (at)
        return b >= open[at].lo && b <= open[at].hi ? open[at].then : -1;
    if (b < 0x80)
        return 0;
    if (b < 0xc2 || b > 0xf4)
        return -1;
    if (b < 0xe0)
        return 1;
    if (b < 0xf0)
        return b == 0xe0 ? 4 : b == 0xed ? 5 : 2;
    return b == 0xf0 ? 6 : b == 0xf4 ? 7 : 3;
}

bool pieces_plain(unsigned char b)
{
    return b >= 0x20 && b != '"' && b != '\\' && pieces_utf8_step(0, b) >= 0;
}

static void add_plain(piece_trie *p, int32_t id, uint32_t chars)
{
    uint32_t bit = 1u << (id % 32);
    size_t word = (size_t)id / 32;
    p->plain[word] |= bit;
    for (uint32_t k = chars; k <= PIECES_PLAIN; k++)
        p->plain[k * p->words + word] |= bit;
    if (chars > PIECES_PLAIN)
        p->longer[p->n_longer++] = id;
}

/* A character that a token only begins counts as one. */
static pesc_status find_plain(piece_trie *p)
{
    uint32_t chars[MAX_PIECE + 1] = { 0 };
    int at[MAX_PIECE + 1] = { 0 };
    p->words = ((size_t)p->vocab + 31) / 32;
    p->plain = mem_zalloc((PIECES_PLAIN + 1) * p->words, sizeof *p->plain);
    p->longer = mem_alloc((size_t)p->vocab + 1, sizeof *p->longer);
    if (!p->plain || !p->longer)
        return fail_nomem("sets of tokens", p->words);
    for (uint32_t i = 0; i < p->n_nodes;) {
        uint32_t d = p->depth[i];
        if (at[d - 1] == 0 && !pieces_plain(p->byte[i])) {
            if (!mem_room((void **)&p->exits, &p->cap_exits, p->n_exits, sizeof *p->exits))
                return fail_nomem("sets of tokens", p->n_exits);
            p->exits[p->n_exits++] = (piece_exit){ i, chars[d - 1] };
            i = p->end[i];
            continue;
        }
        at[d] = pieces_utf8_step(at[d - 1], p->byte[i]);
        if (at[d] < 0) { /* no grammar allows what is not UTF-8 */
            i = p->end[i];
            continue;
        }
        chars[d] = chars[d - 1] + (at[d - 1] == 0);
        for (uint32_t k = p->token[i]; k < p->token[i + 1]; k++)
            add_plain(p, p->ids[k], chars[d]);
        i++;
    }
    return PESC_OK;
}

/* ---- the whole ---- */

pesc_status pieces_open(piece_trie **out, const tokenizer *t, int32_t vocab)
{
    *out = NULL;
    str all = { 0 };
    piece_trie *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("token texts", sizeof *p);
    p->vocab = vocab;
    p->first = mem_alloc((size_t)vocab + 1, sizeof *p->first);
    pesc_status st = p->first ? read_texts(p, t, &all) : fail_nomem("token texts", (size_t)vocab);
    p->text = all.p;
    if (st == PESC_OK)
        st = build_trie(p);
    if (st == PESC_OK)
        st = find_plain(p);
    if (st == PESC_OK)
        *out = p;
    else
        pieces_close(p);
    return st;
}

void pieces_close(piece_trie *p)
{
    if (!p)
        return;
    void *all[] = { p->text,  p->first, p->byte,  p->end,    p->token,
                    p->depth, p->ids,   p->plain, p->longer, p->exits };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mem_free(all[i]);
    mem_free(p);
}
