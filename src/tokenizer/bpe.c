#include "tokenizer/bpe.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NO_PAIR UINT64_MAX
#define NO_RANK UINT32_MAX
#define SHORT 48           /* symbols up to which scanning beats the queue */
#define CUT_OVER 32        /* bytes above which a byte-level word is worth cutting */
#define JOIN_BITS 20       /* pairs of neighbours are hashed to so many bits */
#define SCRATCH_KEEP 65536 /* symbols worth of scratch kept between texts */

typedef struct pair_slot {
    uint64_t pair; /* left << 32 | right; NO_PAIR: empty */
    uint32_t rank; /* NO_RANK in an empty slot */
    int32_t into;
} pair_slot;

enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

/* The merge of the lowest rank that makes a token. */
typedef struct bpe_parts {
    int32_t left, right; /* -1: no merge makes it */
    uint32_t rank;
} bpe_parts;

struct bpe {
    bpe_spec spec;
    pair_slot *slot; /* [mask + 1] */
    size_t mask;
    int32_t single[256];          /* id of the symbol that is this one byte; -1: none */
    bool cuts;                    /* cutting is exact: see note_joins */
    uint64_t *joins;              /* a bit for each pair of neighbours that some merge joins */
    _Atomic unsigned char *whole; /* [vocab->n] WHOLE_*: whether a token's text gives the token */
    const unsigned char *never;   /* by id: text never gives it; NULL: any id may come */
    bpe_parts *parts;             /* [vocab->n], of tokens that never come; NULL: no merge is */
};

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static pair_slot *find_pair(const bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right);
    size_t i = (size_t)((pair * 0x9E3779B97F4A7C15u) >> 24) & b->mask;
    while (b->slot[i].pair != pair && b->slot[i].pair != NO_PAIR)
        i = (i + 1) & b->mask;
    return &b->slot[i];
}

/* ---- opening ---- */

static pesc_status add_pairs(bpe *b, const bpe_merge *merges, size_t n)
{
    size_t slots = 64;
    while (slots / 3 * 2 < n)
        slots *= 2;
    b->slot = mem_alloc(slots, sizeof *b->slot);
    if (!b->slot)
        return fail_nomem("merges", slots * sizeof *b->slot);
    b->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        b->slot[i] = (pair_slot){ NO_PAIR, NO_RANK, -1 };
    for (size_t i = 0; i < n; i++) {
        const bpe_merge *m = &merges[i];
        *find_pair(b, m->left, m->right) =
            (pair_slot){ pair_of(m->left, m->right), m->rank, m->into };
    }
    return PESC_OK;
}

static size_t join_bit(uint32_t left, uint32_t right)
{
    return ((left * 0x9E3779B1u ^ right * 0x85EBCA77u) * 0xC2B2AE35u) >> (32 - JOIN_BITS);
}

static bool joined(const bpe *b, uint32_t left, uint32_t right)
{
    size_t bit = join_bit(left, right);
    return b->joins[bit / 64] >> bit % 64 & 1;
}

/* The character (byte, in byte mode) at the start of s, and its length. */
static size_t char_at(const bpe *b, const char *s, size_t n, uint32_t *cp)
{
    *cp = (unsigned char)*s;
    return b->spec.bytes || *cp < 0x80 ? 1 : (size_t)utf8_decode(s, n, cp);
}

static uint32_t last_char(const bpe *b, const char *s, size_t n)
{
    size_t k = 1;
    while (!b->spec.bytes && k < n && k < 4 && ((unsigned char)s[n - k] & 0xC0) == 0x80)
        k++;
    uint32_t cp;
    char_at(b, s + n - k, k, &cp);
    return cp;
}

/* Marks the pairs of characters that some merge joins. A token that stands for an unknown
 * character or a byte does not show in its text what it joins: if such a one takes part in a merge,
 * words are never cut. */
static pesc_status note_joins(bpe *b, const bpe_merge *merges, size_t n)
{
    const bpe_spec *spec = &b->spec;
    b->joins = mem_zalloc(((size_t)1 << JOIN_BITS) / 64, sizeof *b->joins);
    bool *opaque = mem_zalloc(spec->vocab->n + 1, sizeof *opaque);
    if (!b->joins || !opaque) {
        mem_free(opaque);
        return fail_nomem("merges", (size_t)1 << JOIN_BITS);
    }
    for (int c = 0; spec->byte_fallback && c < 256; c++)
        if (spec->byte_ids[c] >= 0 && (size_t)spec->byte_ids[c] < spec->vocab->n)
            opaque[spec->byte_ids[c]] = true;
    if (spec->unk >= 0 && (size_t)spec->unk < spec->vocab->n)
        opaque[spec->unk] = true;
    b->cuts = true;
    for (size_t i = 0; i < n && b->cuts; i++) {
        size_t ln = 0, rn = 0;
        const char *l = vocab_text(spec->vocab, merges[i].left, &ln);
        const char *r = vocab_text(spec->vocab, merges[i].right, &rn);
        b->cuts = ln > 0 && rn > 0 && !opaque[merges[i].left] && !opaque[merges[i].right];
        if (!b->cuts)
            break;
        uint32_t first;
        char_at(b, r, rn, &first);
        size_t bit = join_bit(last_char(b, l, ln), first);
        b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    mem_free(opaque);
    return PESC_OK;
}

pesc_status bpe_open(bpe **out, const bpe_spec *spec, const bpe_merge *merges, size_t n)
{
    *out = NULL;
    bpe *b = mem_zalloc(1, sizeof *b);
    if (!b)
        return fail_nomem("merges", sizeof *b);
    b->spec = *spec;
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        b->single[c] = spec->bytes || c < 0x80 ? vocab_find(spec->vocab, &byte, 1) : -1;
    }
    b->whole = mem_zalloc(spec->vocab->n + 1, 1);
    pesc_status s = b->whole ? PESC_OK : fail_nomem("merges", spec->vocab->n);
    if (s == PESC_OK)
        s = add_pairs(b, merges, n);
    if (s == PESC_OK)
        s = note_joins(b, merges, n);
    if (s == PESC_OK)
        *out = b;
    else
        bpe_close(b);
    return s;
}

const bpe_spec *bpe_facts(const bpe *b)
{
    return &b->spec;
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const bpe_merge *)a)->rank, y = ((const bpe_merge *)b)->rank;
    return (x > y) - (x < y);
}

pesc_status bpe_merges(const bpe *b, bpe_merge **out, size_t *n)
{
    *n = 0;
    *out = mem_alloc(b->mask + 1, sizeof **out);
    if (!*out)
        return fail_nomem("merges", (b->mask + 1) * sizeof **out);
    for (size_t i = 0; i <= b->mask; i++)
        if (b->slot[i].pair != NO_PAIR)
            (*out)[(*n)++] = (bpe_merge){ .left = (int32_t)(b->slot[i].pair >> 32),
                                          .right = (int32_t)(b->slot[i].pair & UINT32_MAX),
                                          .into = b->slot[i].into,
                                          .rank = b->slot[i].rank };
    qsort(*out, *n, sizeof **out, by_rank);
    return PESC_OK;
}

void bpe_close(bpe *b)
{
    if (!b)
        return;
    mem_free(b->slot);
    mem_free(b->joins);
    mem_free((void *)b->whole);
    mem_free(b->parts);
    mem_free(b);
}

static bool forbidden(const bpe *b, int32_t id)
{
    return b->never && id < b->spec.n_tokens && b->never[id];
}

/* Keeps the merge if it is the first by rank, then by its left side, that makes its token. */
static void note_parts(bpe *b, int32_t left, int32_t right, const pair_slot *merge)
{
    bpe_parts *p = &b->parts[merge->into];
    size_t ln = 0, rn = 0;
    vocab_text(b->spec.vocab, left, &ln);
    vocab_text(b->spec.vocab, right, &rn);
    if (ln == 0 || rn == 0)
        return;
    if (p->left < 0 || merge->rank < p->rank || (merge->rank == p->rank && left < p->left))
        *p = (bpe_parts){ left, right, merge->rank };
}

/* What each token that never comes is made of, unless no merge makes one. */
static pesc_status note_all_parts(bpe *b)
{
    size_t n = b->spec.vocab->n;
    mem_free(b->parts);
    b->parts = mem_alloc(n + 1, sizeof *b->parts);
    if (!b->parts)
        return fail_nomem("merges", n * sizeof *b->parts);
    for (size_t i = 0; i < n; i++)
        b->parts[i].left = -1;
    for (size_t i = 0; i <= b->mask; i++) {
        const pair_slot *s = &b->slot[i];
        if (s->rank != NO_RANK && forbidden(b, s->into))
            note_parts(b, (int32_t)(s->pair >> 32), (int32_t)(uint32_t)s->pair, s);
    }
    return PESC_OK;
}

pesc_status bpe_forbid(bpe *b, const unsigned char *never)
{
    const bpe_spec *spec = &b->spec;
    bool merged = false;
    b->never = never;
    for (int c = 0; c < 256; c++)
        if (spec->byte_ids[c] >= 0 && never[spec->byte_ids[c]])
            b->spec.byte_ids[c] = -1;
    for (size_t i = 0; i < spec->vocab->n; i++)
        atomic_store_explicit(&b->whole[i], WHOLE_UNKNOWN, memory_order_relaxed);
    for (size_t i = 0; i <= b->mask; i++) {
        pair_slot *s = &b->slot[i];
        if (s->rank == NO_RANK || !forbidden(b, s->into))
            continue;
        if (s->into == spec->unk)
            s->rank = NO_RANK; /* as if there were no such merge */
        else
            merged = true;
    }
    return merged ? note_all_parts(b) : PESC_OK;
}

void bpe_scratch_free(bpe_scratch *s)
{
    mem_free(s->cell);
    pairqueue_free(&s->queue);
    *s = (bpe_scratch){ 0 };
}

void bpe_scratch_trim(bpe_scratch *s)
{
    if (s->cap > SCRATCH_KEEP)
        bpe_scratch_free(s);
}

/* ---- a piece becomes symbols ---- */

/* n: of one character, at most 4. */
static bool byte_tokens(const bpe_spec *spec, const char *s, size_t n, int32_t ids[4])
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = spec->byte_ids[(unsigned char)s[i]];
        if (ids[i] < 0)
            return false;
    }
    return true;
}

/* Fills s->cell with the ids of the piece's characters. A pending unk is written only when a known
 * character follows or the piece ends: byte tokens pass it, as in Hugging Face's merge_word. */
static size_t split_symbols(const bpe *b, bpe_scratch *s, const char *p, size_t n)
{
    const bpe_spec *spec = &b->spec;
    size_t count = 0, len;
    bool pending = false;
    for (size_t i = 0; i < n; i += len) {
        uint32_t cp;
        len = char_at(b, p + i, n - i, &cp);
        int32_t id = len == 1 ? b->single[cp] : vocab_find(spec->vocab, p + i, len);
        if (id >= 0) {
            if (pending)
                s->cell[count++] = spec->unk;
            pending = false;
            s->cell[count++] = id;
        } else if (spec->byte_fallback && byte_tokens(spec, p + i, len, s->cell + count)) {
            count += len;
        } else if (spec->unk >= 0) {
            if (pending && !spec->fuse_unk)
                s->cell[count++] = spec->unk;
            pending = true;
        }
    }
    if (pending)
        s->cell[count++] = spec->unk;
    return count;
}

/* ---- merging ---- */

static size_t merge_short(const bpe *b, int32_t *id, size_t n)
{
    const pair_slot *pair[SHORT];
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_pair(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pair[i]->rank < pair[best]->rank)
                best = i;
        if (pair[best]->rank == NO_RANK)
            break;
        id[best] = pair[best]->into;
        n--;
        memmove(&id[best + 1], &id[best + 2], (n - best - 1) * sizeof *id);
        if (best + 1 < n) {
            memmove(&pair[best + 1], &pair[best + 2], (n - best - 2) * sizeof *pair);
            pair[best] = find_pair(b, id[best], id[best + 1]);
        }
        if (best > 0)
            pair[best - 1] = find_pair(b, id[best - 1], id[best]);
    }
    return n;
}

/* A long word is a list in one array, without links. A symbol made of k of the first symbols owns k
 * cells: the first holds its id; if k > 1 the second and the last hold -k. So the neighbours of a
 * symbol are found from the cells beside it. A cell inside that once began a symbol is negative
 * too, by which a stale entry of the queue is known. */
static size_t symbol_cells(const int32_t *cell, size_t i, size_t n)
{
    return i + 1 < n && cell[i + 1] < 0 ? (size_t)-cell[i + 1] : 1;
}

static size_t symbol_before(const int32_t *cell, size_t i)
{
    return cell[i - 1] < 0 ? i - (size_t)-cell[i - 1] : i - 1;
}

static bool offer(const bpe *b, bpe_scratch *s, size_t i, size_t next)
{
    uint32_t rank = find_pair(b, s->cell[i], s->cell[next])->rank;
    return rank == NO_RANK || pairqueue_push(&s->queue, (uint64_t)rank << 32 | i);
}

static bool merge_long(const bpe *b, bpe_scratch *s, size_t n)
{
    int32_t *cell = s->cell;
    pairqueue_clear(&s->queue);
    for (size_t i = 0; i + 1 < n; i++)
        if (!offer(b, s, i, i + 1))
            return false;
    uint64_t key;
    while (pairqueue_pop(&s->queue, &key)) {
        size_t i = key & UINT32_MAX;
        if (cell[i] < 0)
            continue;
        size_t k = symbol_cells(cell, i, n), right = i + k;
        if (right == n)
            continue;
        const pair_slot *pair = find_pair(b, cell[i], cell[right]);
        if (pair->rank != key >> 32)
            continue;
        k += symbol_cells(cell, right, n);
        cell[right] = -1;
        cell[i] = pair->into;
        cell[i + 1] = cell[i + k - 1] = -(int32_t)k;
        if ((i + k < n && !offer(b, s, i, i + k)) ||
            (i > 0 && !offer(b, s, symbol_before(cell, i), i)))
            return false;
    }
    return true;
}

static size_t close_ranks(int32_t *cell, size_t n)
{
    size_t count = 0;
    for (size_t i = 0, k; i < n; i += k) {
        k = symbol_cells(cell, i, n);
        cell[count++] = cell[i];
    }
    return count;
}

/* ---- a piece, a word ---- */

static pesc_status reserve_cells(bpe_scratch *s, size_t n)
{
    /* Four more: byte_tokens may write a whole character before it finds one missing. */
    size_t need = n + 4;
    if (need <= s->cap)
        return PESC_OK;
    if (need > INT32_MAX)
        return fail(PESC_UNSUPPORTED, "a word of the text is longer than 2 GiB");
    int32_t *cell = mem_grow(s->cell, need * 2, sizeof *cell);
    if (!cell)
        return fail_nomem("encoding a text", need * 2 * sizeof *cell);
    s->cell = cell;
    s->cap = need * 2;
    return PESC_OK;
}

/* A symbol that is no token, or none that text may give: the unknown text it is, of any length,
 * since a merge may name a part that no merge makes. */
static pesc_status emit_unknown(const bpe *b, int32_t symbol, id_list *out)
{
    const bpe_spec *spec = &b->spec;
    size_t n = 0, known = 0;
    const char *text = vocab_text(spec->vocab, symbol, &n);
    while (known < n && spec->byte_ids[(unsigned char)text[known]] >= 0)
        known++;
    if (spec->byte_fallback && known == n) {
        for (size_t i = 0; i < n; i++)
            TRY(id_list_add(out, spec->byte_ids[(unsigned char)text[i]]));
        return PESC_OK;
    }
    bool again = spec->fuse_unk && out->n > 0 && out->ids[out->n - 1] == spec->unk;
    return spec->unk < 0 || again ? PESC_OK : id_list_add(out, spec->unk);
}

/* Whether text may give this symbol as it is. */
static bool gives(const bpe *b, int32_t symbol)
{
    return symbol < b->spec.n_tokens && (symbol == b->spec.unk || !forbidden(b, symbol));
}

/* What text gives for any other: the parts of its merge and of theirs, or bytes. The parts still to
 * come wait in the cells from `top` on. */
static pesc_status emit_parts(const bpe *b, bpe_scratch *s, size_t top, int32_t symbol,
                              id_list *out)
{
    const bpe_spec *spec = &b->spec;
    size_t n = 0, depth = top;
    vocab_text(spec->vocab, symbol, &n);
    TRY(reserve_cells(s, top + n));
    s->cell[depth++] = symbol;
    while (depth > top) {
        int32_t next = s->cell[--depth];
        bool never = forbidden(b, next);
        if (never && b->parts && b->parts[next].left >= 0) {
            s->cell[depth++] = b->parts[next].right;
            s->cell[depth++] = b->parts[next].left;
        } else {
            TRY(never || next >= spec->n_tokens ? emit_unknown(b, next, out)
                                                : id_list_add(out, next));
        }
    }
    return PESC_OK;
}

static pesc_status merge_piece(const bpe *b, bpe_scratch *s, const char *p, size_t n, id_list *out)
{
    TRY(reserve_cells(s, n));
    size_t count = split_symbols(b, s, p, n);
    if (count <= SHORT) {
        count = merge_short(b, s->cell, count);
    } else {
        if (!merge_long(b, s, count))
            return fail_nomem("encoding a text", count * sizeof(uint64_t));
        count = close_ranks(s->cell, count);
    }
    size_t before = out->n;
    for (size_t i = 0; i < count; i++) {
        int32_t id = s->cell[i];
        bool again = b->spec.fuse_unk && id == b->spec.unk && out->n > before &&
                     out->ids[out->n - 1] == id; /* after one that emit_parts() gave */
        if (!again)
            TRY(gives(b, id) ? id_list_add(out, id) : emit_parts(b, s, count, id, out));
    }
    return PESC_OK;
}

static pesc_status encode_piece(const bpe *b, bpe_scratch *s, const char *p, size_t n, id_list *out)
{
    int32_t token = vocab_find(b->spec.vocab, p, n);
    if (token < 0 || token >= b->spec.n_tokens)
        return merge_piece(b, s, p, n, out);
    unsigned char known = atomic_load_explicit(&b->whole[token], memory_order_relaxed);
    if (known == WHOLE_YES)
        return id_list_add(out, token);
    size_t before = out->n;
    TRY(merge_piece(b, s, p, n, out));
    if (known == WHOLE_UNKNOWN) {
        bool one = out->n == before + 1 && out->ids[before] == token;
        atomic_store_explicit(&b->whole[token], one ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
    }
    return PESC_OK;
}

static bool is_symbol(const bpe *b, const char *p, size_t len)
{
    return (len == 1 ? b->single[(unsigned char)*p] : vocab_find(b->spec.vocab, p, len)) >= 0;
}

/* Where the piece at the start of the word ends: between two characters that no merge joins. Both
 * must be symbols: an unknown one may vanish and bring its neighbours together, or be one of a run
 * that becomes one unk. */
static size_t piece_end(const bpe *b, const char *word, size_t n)
{
    uint32_t left, right;
    size_t before = char_at(b, word, n, &left), i = before, len;
    for (; i < n; i += len, before = len, left = right) {
        len = char_at(b, word + i, n - i, &right);
        if (!joined(b, left, right) && is_symbol(b, word + i, len) &&
            is_symbol(b, word + i - before, before))
            break;
    }
    return i;
}

pesc_status bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out)
{
    if (b->spec.ignore_merges) {
        int32_t token = vocab_find(b->spec.vocab, word, n);
        if (token >= 0 && !forbidden(b, token))
            return id_list_add(out, token);
    }
    bool cut = b->cuts && (!b->spec.bytes || n > CUT_OVER);
    while (n > 0) {
        size_t len = cut ? piece_end(b, word, n) : n;
        TRY(encode_piece(b, s, word, len, out));
        word += len;
        n -= len;
    }
    return PESC_OK;
}
