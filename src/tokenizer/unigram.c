/* unigram: see unigram.h.
 *
 * `came[p]` says how the best path reaches position p: a piece (its id) or one unknown character
 * (below NONE, its length with it). The way back is turned in place into the way forward, so the
 * ids come out in order without a second array. */
#include "tokenizer/unigram.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bytetoken.h"
#include "tokenizer/trie.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define UNK_PENALTY 10
#define NONE (-1)
#define UNKNOWN(len) (NONE - (int32_t)(len)) /* one unknown character of len bytes */

struct unigram {
    trie *index;      /* texts that take part -> ids */
    double *score;    /* [n] by id */
    uint32_t *length; /* [n] in bytes */
    size_t n, longest;
    double unk_score;
    int64_t unk;        /* -1: none */
    bool byte_fallback; /* for a run of unknowns all of whose bytes have pieces */
    bool sp; /* float sums as in sentencepiece; runs of unknowns are not looked up again */
    int32_t bytes[256];         /* id of "<0xNN>", -1 */
    const unsigned char *never; /* by id: takes no part; NULL: all do */
    char *file;
};

static pesc_status alloc_rows(unigram *u, size_t n, const char *file)
{
    u->n = n;
    u->longest = 4; /* one character */
    u->score = mem_alloc(n, sizeof *u->score);
    u->length = mem_zalloc(n, sizeof *u->length);
    u->file = mem_strdup(file);
    memset(u->bytes, 0xff, sizeof u->bytes);
    if (!u->score || !u->length || !u->file)
        return fail_nomem("reading a tokenizer", n * (sizeof *u->score + sizeof *u->length));
    return PESC_OK;
}

/* Takes the keys' lengths and builds the index. Frees the keys. */
static pesc_status build_index(unigram *u, trie_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        u->length[keys[i].value] = (uint32_t)keys[i].n;
        if (keys[i].n > u->longest)
            u->longest = keys[i].n;
    }
    pesc_status s = trie_build(&u->index, keys, n);
    mem_free(keys);
    return s;
}

static pesc_status load_spec(unigram *u, const unigram_spec *spec)
{
    TRY(alloc_rows(u, spec->n, spec->file));
    if (spec->unk_id < -1 || spec->unk_id >= (int64_t)spec->n)
        return fail(PESC_FORMAT, "%s: model.unk_id: found %lld, expected 0 to %lld", spec->file,
                    (long long)spec->unk_id, (long long)spec->n - 1);
    u->unk = spec->unk_id;
    u->byte_fallback = spec->byte_fallback;
    double least = INFINITY;
    trie_key *keys = mem_alloc(spec->n, sizeof *keys);
    if (!keys)
        return fail_nomem("reading a tokenizer", spec->n * sizeof *keys);
    size_t used = 0;
    for (size_t i = 0; i < spec->n; i++) {
        const unigram_piece *p = &spec->pieces[i];
        if (!isfinite(p->score) || p->n > SP_PIECE_MAX) {
            mem_free(keys);
            return fail(PESC_FORMAT,
                        "%s: model.vocab[%zu]: found a piece of %zu bytes and score %g, expected "
                        "at most %d bytes and a finite score",
                        spec->file, i, p->n, p->score, SP_PIECE_MAX);
        }
        u->score[i] = p->score;
        least = p->score < least ? p->score : least;
        if (p->n > 0)
            keys[used++] = (trie_key){ p->text, p->n, (int32_t)i };
    }
    u->unk_score = least - UNK_PENALTY;
    TRY(build_index(u, keys, used));
    for (int b = 0; u->byte_fallback && b < 256; b++) {
        char name[BYTETOKEN_LENGTH + 1];
        bytetoken_name(name, b);
        u->bytes[b] = trie_find(u->index, name, BYTETOKEN_LENGTH);
    }
    return PESC_OK;
}

static pesc_status load_sp(unigram *u, const spmodel *m)
{
    TRY(alloc_rows(u, m->n, "tokenizer.model"));
    u->sp = true;
    u->unk = m->unk;
    u->byte_fallback = m->byte_fallback;
    memcpy(u->bytes, m->bytes, sizeof u->bytes);
    float least = FLT_MAX;
    for (size_t i = 0; i < m->n; i++)
        if (m->pieces[i].type == SP_NORMAL)
            least = fminf(least, m->pieces[i].score);
    u->unk_score = (double)(least - UNK_PENALTY);
    trie_key *keys = mem_alloc(m->n, sizeof *keys);
    if (!keys)
        return fail_nomem("reading a tokenizer", m->n * sizeof *keys);
    size_t used = 0;
    for (size_t i = 0; i < m->n; i++) {
        const sp_piece *p = &m->pieces[i];
        bool user = p->type == SP_USER_DEFINED;
        /* a reward for each byte, so that a user-defined piece beats any cut of its text */
        u->score[i] = (double)(user ? (float)(p->n - 1) * 0.1f : p->score);
        if (user || p->type == SP_NORMAL)
            keys[used++] = (trie_key){ p->text, p->n, (int32_t)i };
    }
    return build_index(u, keys, used);
}

static pesc_status finish_open(unigram **out, unigram *u, pesc_status s)
{
    if (s == PESC_OK)
        *out = u;
    else
        unigram_close(u);
    return s;
}

pesc_status unigram_open(unigram **out, const unigram_spec *spec)
{
    *out = NULL;
    if (spec->n == 0 || spec->n > INT32_MAX)
        return fail(PESC_FORMAT, "%s: model.vocab: found %zu pieces, expected some", spec->file,
                    spec->n);
    unigram *u = mem_zalloc(1, sizeof *u);
    if (!u)
        return fail_nomem("reading a tokenizer", sizeof *u);
    return finish_open(out, u, load_spec(u, spec));
}

pesc_status unigram_open_sp(unigram **out, const spmodel *m)
{
    *out = NULL;
    unigram *u = mem_zalloc(1, sizeof *u);
    if (!u)
        return fail_nomem("reading a tokenizer", sizeof *u);
    return finish_open(out, u, load_sp(u, m));
}

void unigram_close(unigram *u)
{
    if (!u)
        return;
    trie_close(u->index);
    mem_free(u->score);
    mem_free(u->length);
    mem_free(u->file);
    mem_free(u);
}

void unigram_forbid(unigram *u, const unsigned char *never)
{
    u->never = never;
    for (int b = 0; b < 256; b++)
        if (u->bytes[b] >= 0 && never[u->bytes[b]])
            u->bytes[b] = -1;
}

static bool takes_part(const unigram *u, int32_t id)
{
    return id >= 0 && !(u->never && u->never[id]);
}

typedef struct lattice {
    const unigram *u;
    const char *text;
    size_t n;
    int32_t *came; /* [n + 1] */
    double *best;  /* ring of scores, mask + 1 long: position p at p & mask */
    size_t mask;
} lattice;

static void offer(lattice *l, size_t at, double score, int32_t how)
{
    double *best = &l->best[at & l->mask];
    if (l->u->sp)
        score = (double)(float)score;
    if (l->came[at] == NONE || score > *best) {
        *best = score;
        l->came[at] = how;
    }
}

static size_t char_length(const char *s, size_t n)
{
    if ((unsigned char)*s < 0x80)
        return 1;
    int len = utf8_decode(s, n, NULL);
    return len > 0 ? (size_t)len : 1;
}

static pesc_status viterbi(lattice *l)
{
    const unigram *u = l->u;
    l->best[0] = 0;
    for (size_t at = 0, len; at < l->n; at += len) {
        double here = l->best[at & l->mask];
        len = char_length(l->text + at, l->n - at);
        bool covered = false;
        uint32_t node = TRIE_ROOT;
        for (size_t end = at; end < l->n;) {
            node = trie_step(u->index, node, (unsigned char)l->text[end++]);
            if (node == TRIE_NONE)
                break;
            int32_t id = trie_value(u->index, node);
            if (!takes_part(u, id))
                continue;
            offer(l, end, u->score[id] + here, id);
            covered = covered || end == at + len;
        }
        if (covered)
            continue;
        offer(l, at + len, u->unk_score + here, UNKNOWN(len));
        if (u->unk < 0 && l->came[at + len] == UNKNOWN(len))
            return fail(PESC_FORMAT,
                        "%s: the text has a character at byte %zu that no piece covers, and the "
                        "vocabulary names no unk_id",
                        u->file, at);
    }
    return PESC_OK;
}

static size_t step_length(const unigram *u, int32_t how)
{
    return how > NONE ? u->length[how] : (size_t)(NONE - how);
}

/* Afterwards came[p] says how the best path leaves position p. */
static void turn_around(lattice *l)
{
    int32_t how = l->came[l->n];
    for (size_t at = l->n; at > 0;) {
        at -= step_length(l->u, how);
        int32_t before = l->came[at];
        l->came[at] = how;
        how = before;
    }
}

static pesc_status emit_unknown(const unigram *u, const char *text, size_t n, id_list *out)
{
    int32_t id = u->sp ? -1 : trie_find(u->index, text, n);
    if (!takes_part(u, id))
        id = -1;
    bool bytes = id < 0 && u->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++)
        bytes = u->bytes[(unsigned char)text[i]] >= 0;
    if (!bytes)
        return id_list_add(out, id >= 0 ? id : (int32_t)u->unk);
    for (size_t i = 0; i < n; i++)
        TRY(id_list_add(out, u->bytes[(unsigned char)text[i]]));
    return PESC_OK;
}

static pesc_status emit(const lattice *l, id_list *out)
{
    const unigram *u = l->u;
    for (size_t at = 0; at < l->n;) {
        size_t from = at;
        while (at < l->n && (l->came[at] < NONE || l->came[at] == u->unk))
            at += step_length(u, l->came[at]);
        if (at > from) {
            TRY(emit_unknown(u, l->text + from, at - from, out));
        } else {
            TRY(id_list_add(out, l->came[at]));
            at += step_length(u, l->came[at]);
        }
    }
    return PESC_OK;
}

static pesc_status encode_in(lattice *l, id_list *out)
{
    memset(l->came, 0xff, (l->n + 1) * sizeof *l->came); /* NONE */
    TRY(viterbi(l));
    turn_around(l);
    return emit(l, out);
}

#define SMALL 256 /* a word: no allocation */

pesc_status unigram_encode(const unigram *u, const char *text, size_t n, id_list *out)
{
    if (n == 0)
        return PESC_OK;
    size_t ring = 8;
    while (ring <= u->longest && ring <= n)
        ring *= 2;
    lattice l = { .u = u, .text = text, .n = n, .mask = ring - 1 };
    if (n < SMALL) {
        int32_t came[SMALL];
        double best[SMALL];
        l.came = came;
        l.best = best;
        return encode_in(&l, out);
    }
    l.came = mem_alloc(n + 1, sizeof *l.came);
    l.best = mem_alloc(ring, sizeof *l.best);
    pesc_status s =
        l.came && l.best ? encode_in(&l, out) : fail_nomem("encoding text", n * sizeof *l.came);
    mem_free(l.came);
    mem_free(l.best);
    return s;
}
