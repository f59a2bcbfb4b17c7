/* encoder: runs the pipeline over a text. It owns the buffers of one encoding, so that after the
 * first text little is allocated. */
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/pipeline.h"

#include <string.h>

#define KEEP_BYTES (1u << 20) /* a buffer that grew beyond this is given back */

/* Where the pieces of a joined text end. */
typedef struct seams {
    const tok_piece *piece;
    size_t *end; /* [n] in the joined text */
    size_t n;
} seams;

struct encoder {
    const tokenizer *t;
    id_list *out;
    added_allow allow, allow_normal; /* which tokens count in the text as given, and normalised */
    seams seams;                     /* n 0: the text is one piece */
    str clean;                       /* the text, where it had to be copied */
    str normal;                      /* as SentencePiece normalises it */
    normalize_scratch norm;
    added_matches raw, inner;
    pretok_run pre;
    regex_scratch *rs;
    bpe_scratch bpe;
    budget work; /* of the call */
};

pesc_status encoder_open(encoder **out)
{
    *out = NULL;
    encoder *e = mem_zalloc(1, sizeof *e);
    if (!e)
        return fail_nomem("encoding a text", sizeof *e);
    pesc_status s = regex_scratch_open(&e->rs);
    if (s == PESC_OK)
        *out = e;
    else
        encoder_close(e);
    return s;
}

static void free_matches(added_matches *m)
{
    mem_free(m->at);
    *m = (added_matches){ 0 };
}

void encoder_close(encoder *e)
{
    if (!e)
        return;
    str_free(&e->clean);
    str_free(&e->normal);
    normalize_scratch_free(&e->norm);
    free_matches(&e->raw);
    free_matches(&e->inner);
    pretok_run_free(&e->pre);
    regex_scratch_close(e->rs);
    bpe_scratch_free(&e->bpe);
    mem_free(e);
}

static void trim_str(str *s)
{
    if (s->cap > KEEP_BYTES)
        str_free(s);
}

/* After a large text: back to a size worth keeping. */
static void trim(encoder *e)
{
    trim_str(&e->clean);
    trim_str(&e->normal);
    if (e->norm.a.cap > KEEP_BYTES || e->norm.b.cap > KEEP_BYTES ||
        e->norm.forms.cap > KEEP_BYTES / sizeof(int32_t))
        normalize_scratch_free(&e->norm);
    for (size_t i = 0; i < CHAIN_MAX; i++)
        trim_str(&e->pre.buffer[i]);
    if (e->raw.cap > KEEP_BYTES / sizeof *e->raw.at)
        free_matches(&e->raw);
    if (e->inner.cap > KEEP_BYTES / sizeof *e->inner.at)
        free_matches(&e->inner);
    bpe_scratch_trim(&e->bpe);
}

/* ---- which added tokens count ---- */

static bool allow_all(void *ctx, const added_token *token, size_t start, size_t end)
{
    (void)ctx, (void)token, (void)start, (void)end;
    return true;
}

/* The piece that holds the byte at `at`. */
static size_t piece_at(const seams *s, size_t at)
{
    size_t lo = 0, hi = s->n - 1;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->end[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Only where every byte is in a piece that may hold control tokens. */
static bool all_control(const seams *s, size_t start, size_t end)
{
    for (size_t i = piece_at(s, start); i < s->n; i++) {
        if (!s->piece[i].control && s->end[i] > start)
            return false;
        if (s->end[i] >= end)
            return true;
        start = s->end[i];
    }
    return true;
}

static bool is_control(const added_token *token)
{
    return token->special || token->control_form;
}

/* In a conversation what has the form of a control token counts in the format's own text only, even
 * where the file does not call it one. */
static bool allow_literal(void *ctx, const added_token *token, size_t start, size_t end)
{
    const encoder *e = ctx;
    return !is_control(token) || all_control(&e->seams, start, end);
}

/* Those of the format's own text have been found in the text as given. */
static bool allow_no_control(void *ctx, const added_token *token, size_t start, size_t end)
{
    (void)ctx, (void)start, (void)end;
    return !is_control(token);
}

/* ---- the pipeline ---- */

static pesc_status encode_word(void *ctx, const char *word, size_t n)
{
    encoder *e = ctx;
    return e->t->bpe ? bpe_encode(e->t->bpe, &e->bpe, word, n, e->out)
                     : unigram_encode(e->t->unigram, word, n, e->out);
}

static pesc_status normalise(encoder *e, const char **text, size_t *n, bool first)
{
    const tokenizer *t = e->t;
    if (!t->sp)
        return normalizer_run(t->norm, &e->norm, *text, *n, text, n);
    budget_open_text(&e->work, &e->normal);
    spmodel_normalise(t->sp, *text, *n, t->sp_each || first, &e->normal);
    TRY(budget_take_text(&e->work, &e->normal, "the normaliser of the SentencePiece model"));
    *text = e->normal.n ? e->normal.p : "";
    *n = e->normal.n;
    return PESC_OK;
}

/* The text between two added tokens found in the text as given. The first word is the one that
 * begins where the text does: there is none when a normaliser took the beginning away. */
static pesc_status encode_run(encoder *e, const char *text, size_t start, size_t end)
{
    const tokenizer *t = e->t;
    const char *p = text + start;
    size_t n = end - start, done = 0;
    TRY(normalise(e, &p, &n, start == 0));
    bool first = start == 0 && !e->norm.cut;
    TRY(added_find(t->normal, p, n, e->allow_normal, e, &e->inner));
    for (size_t i = 0; i < e->inner.n; i++) {
        const added_match *m = &e->inner.at[i];
        TRY(pretok_split(&e->pre, p + done, m->start - done, first && done == 0));
        TRY(id_list_add(e->out, m->id));
        done = m->end;
    }
    return pretok_split(&e->pre, p + done, n - done, first && done == 0);
}

static pesc_status add_ids(id_list *out, const id_list *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        TRY(id_list_add(out, ids->ids[i]));
    return PESC_OK;
}

static void prepare(encoder *e, const tokenizer *t, size_t n, id_list *out)
{
    e->work = (budget){ 0 };
    budget_add(&e->work, n);
    e->t = t;
    e->out = out;
    e->pre.p = t->pre;
    e->norm.rs = e->pre.rs = e->rs;
    e->norm.work = e->pre.work = &e->work;
    e->pre.word = encode_word;
    e->pre.ctx = e;
}

/* ---- one text ---- */

static pesc_status run_text(encoder *e, const char *text, size_t n, unsigned flags)
{
    const tokenizer *t = e->t;
    size_t done = 0;
    if (flags & PESC_ADD_SPECIAL)
        TRY(add_ids(e->out, &t->front));
    if (!utf8_valid(text, n)) {
        str_clear(&e->clean);
        str_add_valid(&e->clean, text, n);
        if (!str_ok(&e->clean))
            return fail_nomem("encoding a text", n);
        text = e->clean.p;
        n = e->clean.n;
    }
    TRY(added_find(t->raw, text, n, e->allow, e, &e->raw));
    for (size_t i = 0; i < e->raw.n; i++) {
        const added_match *m = &e->raw.at[i];
        if (m->start > done)
            TRY(encode_run(e, text, done, m->start));
        TRY(id_list_add(e->out, m->id));
        done = m->end;
    }
    if (done < n)
        TRY(encode_run(e, text, done, n));
    return flags & PESC_ADD_SPECIAL ? add_ids(e->out, &t->back) : PESC_OK;
}

pesc_status encoder_text(encoder *e, const tokenizer *t, const char *text, size_t n, unsigned flags,
                         id_list *out)
{
    prepare(e, t, n, out);
    e->allow = e->allow_normal = flags & PESC_PARSE_SPECIAL ? allow_all : NULL;
    size_t before = out->n;
    pesc_status s = run_text(e, text, n, flags);
    if (s != PESC_OK)
        out->n = before;
    trim(e);
    return s;
}

/* ---- joined pieces ---- */

typedef struct flags {
    unsigned char *p; /* one an id */
    size_t n, cap;
} flags;

static pesc_status flag_ids(flags *f, size_t n, bool trained)
{
    if (f->cap - f->n < n) {
        size_t cap = f->cap * 2 + n + 64;
        unsigned char *p = mem_grow(f->p, cap, 1);
        if (!p)
            return fail_nomem("encoding a conversation", cap);
        f->p = p;
        f->cap = cap;
    }
    memset(f->p + f->n, trained, n);
    f->n += n;
    return PESC_OK;
}

/* How many of the ids of a run, from `from` in e->out on, are the ids of its first part alone. */
static pesc_status shared_ids(encoder *e, const char *text, size_t start, size_t seam, size_t from,
                              size_t *shared)
{
    id_list part = { 0 }, *whole = e->out;
    e->out = &part;
    pesc_status s = encode_run(e, text, start, seam);
    e->out = whole;
    size_t n = 0;
    while (n < part.n && from + n < whole->n && part.ids[n] == whole->ids[from + n])
        n++;
    mem_free(part.ids);
    *shared = n;
    return s;
}

/* Encodes a run and flags its ids; where `trained` changes inside it, see tokenizer.h. */
static pesc_status piece_run(encoder *e, const char *text, size_t start, size_t end, flags *f)
{
    const seams *s = &e->seams;
    size_t from = e->out->n, i = piece_at(s, start), flagged = 0;
    TRY(encode_run(e, text, start, end));
    bool trained = s->piece[i].trained;
    for (; s->end[i] < end; i++) {
        if (s->end[i + 1] == s->end[i] || s->piece[i + 1].trained == trained)
            continue;
        size_t shared;
        TRY(shared_ids(e, text, start, s->end[i], from, &shared));
        if (shared > flagged) {
            TRY(flag_ids(f, shared - flagged, trained));
            flagged = shared;
        }
        trained = s->piece[i + 1].trained;
    }
    return flag_ids(f, e->out->n - from - flagged, trained);
}

static pesc_status join(encoder *e)
{
    seams *s = &e->seams;
    str_clear(&e->clean);
    for (size_t i = 0; i < s->n; i++) {
        str_add_valid(&e->clean, s->piece[i].text, s->piece[i].n);
        s->end[i] = e->clean.n;
    }
    return str_ok(&e->clean) ? PESC_OK : fail_nomem("encoding a conversation", e->clean.n);
}

static pesc_status run_pieces(encoder *e, flags *f)
{
    TRY(join(e));
    const char *text = e->clean.p;
    size_t n = e->clean.n, done = 0;
    TRY(added_find(e->t->literal, text, n, e->allow, e, &e->raw));
    for (size_t i = 0; i < e->raw.n; i++) {
        const added_match *m = &e->raw.at[i];
        if (m->start > done)
            TRY(piece_run(e, text, done, m->start, f));
        TRY(id_list_add(e->out, m->id));
        TRY(flag_ids(f, 1, e->seams.piece[piece_at(&e->seams, m->end - 1)].trained));
        done = m->end;
    }
    return done < n ? piece_run(e, text, done, n, f) : PESC_OK;
}

pesc_status encoder_pieces(encoder *e, const tokenizer *t, const tok_piece *pieces, size_t n,
                           id_list *out, unsigned char **trained)
{
    flags f = { 0 };
    size_t before = out->n, bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += pieces[i].n;
    prepare(e, t, bytes, out);
    e->allow = allow_literal;
    e->allow_normal = allow_no_control;
    e->seams = (seams){ pieces, mem_alloc(n + 1, sizeof *e->seams.end), n };
    pesc_status s = e->seams.end ? PESC_OK : fail_nomem("encoding a conversation", n);
    if (s == PESC_OK && n > 0)
        s = run_pieces(e, &f);
    if (s != PESC_OK)
        out->n = before;
    mem_free(e->seams.end);
    e->seams = (seams){ 0 };
    if (trained)
        *trained = s == PESC_OK ? f.p : NULL;
    if (!trained || s != PESC_OK)
        mem_free(f.p);
    trim(e);
    return s;
}
