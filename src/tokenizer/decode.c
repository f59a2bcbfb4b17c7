#include "tokenizer/decode.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "tokenizer/bytetoken.h"
#include "tokenizer/chain.h"
#include "tokenizer/pattern.h"
#include "tokenizer/pipeline.h"

#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"
#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's blank */

typedef struct step step;

/* `take` gets a whole token or, after a step that fuses, a part of the one token; `end` passes on
 * what is still held. Both pass on with give(). */
typedef struct kind {
    const char *type;
    pesc_status (*read)(step *s, const json_t *v, const char *where); /* NULL: no options */
    pesc_status (*take)(decode_stream *d, size_t i, const char *p, size_t n);
    pesc_status (*end)(decode_stream *d, size_t i); /* NULL: nothing is ever held */
    bool fuses;                                     /* gives one token, in parts */
    bool takes_parts;                               /* may come after a step that fuses */
} kind;

struct step {
    const kind *kind;
    bool fused; /* comes after a step that fuses */
    pattern pattern;
    char *content; /* Replace: what to write; Strip, Metaspace: the character meant */
    size_t content_n;
    int64_t start, stop; /* Strip: how many at most */
    bool drop, drop_all; /* marks at the start of the text */
};

struct decoder {
    step step[CHAIN_MAX];
    size_t n;
};

typedef struct state {
    str held; /* what may still change */
    str work; /* what is being given */
    int64_t cut;
    bool started;
    bool broken; /* the run of byte tokens is not UTF-8 */
} state;

struct decode_stream {
    const tokenizer *t;
    const decoder *dec; /* NULL: tokens are joined with blanks */
    unsigned flags;
    bool started;
    regex_scratch *rs; /* its stack is large; NULL until a regular expression runs */
    budget work;       /* of all tokens so far */
    str out;
    size_t skip; /* bytes that are not returned: see decode_open_after() */
    state state[CHAIN_MAX];
};

static pesc_status give(decode_stream *d, size_t i, const char *p, size_t n)
{
    if (i + 1 < d->dec->n)
        return d->dec->step[i + 1].kind->take(d, i + 1, p, n);
    str_add(&d->out, p, n);
    return PESC_OK;
}

/* Gives what a step has written into its buffer. */
static pesc_status give_str(decode_stream *d, size_t i, const str *b)
{
    TRY(budget_take_text(&d->work, b, "the decoder"));
    return give(d, i, b->n ? b->p : "", b->n);
}

static void drop_front(str *s, size_t n)
{
    if (n == 0)
        return;
    memmove(s->p, s->p + n, s->n - n);
    s->n -= n;
}

/* ---- Replace ---- */

static pesc_status open_replace(step *s, const json_t *v, const char *where)
{
    TRY(pattern_open_json(&s->pattern, v, "pattern", where));
    if (s->fused && s->pattern.re)
        return fail(PESC_UNSUPPORTED, "%s: a regular expression after Fuse is not supported",
                    where);
    return pattern_get_text(v, "content", where, &s->content, &s->content_n);
}

/* Replaces in p into `to`; returns where the unreplaced rest of p begins. */
static pesc_status replace_all(decode_stream *d, const step *s, const char *p, size_t n, str *to,
                               size_t *rest)
{
    bool found;
    if (s->pattern.re && !d->rs)
        TRY(regex_scratch_open(&d->rs));
    regex_walk w = { .scratch = d->rs, .work = &d->work, .text = p, .n = n };
    *rest = 0;
    while (str_ok(to)) {
        TRY(pattern_next(&s->pattern, &w, &found));
        if (!found)
            break;
        str_add(to, p + *rest, w.start - *rest);
        str_add(to, s->content, s->content_n);
        *rest = w.end;
    }
    return PESC_OK;
}

/* How many bytes at the end of p could be the beginning of the pattern. */
static size_t begun(const pattern *q, const char *p, size_t n)
{
    size_t k = q->n - 1 < n ? q->n - 1 : n;
    while (k > 0 && memcmp(p + n - k, q->text, k) != 0)
        k--;
    return k;
}

static pesc_status take_replace(decode_stream *d, size_t i, const char *p, size_t n)
{
    const step *s = &d->dec->step[i];
    state *st = &d->state[i];
    size_t rest, keep = 0;
    budget_open_text(&d->work, &st->work);
    if (s->fused) {
        str_add(&st->held, p, n);
        if (!str_ok(&st->held))
            return fail_nomem("decoding", n);
        p = st->held.n ? st->held.p : "";
        n = st->held.n;
    }
    TRY(replace_all(d, s, p, n, &st->work, &rest));
    if (s->fused)
        keep = begun(&s->pattern, p + rest, n - rest);
    str_add(&st->work, p + rest, n - rest - keep);
    if (s->fused)
        drop_front(&st->held, n - keep);
    return give_str(d, i, &st->work);
}

static pesc_status end_held(decode_stream *d, size_t i)
{
    state *st = &d->state[i];
    pesc_status s = st->held.n ? give_str(d, i, &st->held) : PESC_OK;
    str_clear(&st->held);
    return s;
}

/* ---- Fuse ---- */

static pesc_status take_fuse(decode_stream *d, size_t i, const char *p, size_t n)
{
    return give(d, i, p, n);
}

/* ---- Strip ---- */

static pesc_status open_strip(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    TRY(pattern_get_text(v, "content", where, &s->content, &s->content_n));
    if (s->content_n == 0 || (size_t)utf8_decode(s->content, s->content_n, NULL) != s->content_n)
        return fail(PESC_FORMAT, "%s: content: found '%s', expected one character", where,
                    s->content);
    TRY(json_get_i64(w, "start", true, 0, INT32_MAX, &s->start));
    return json_get_i64(w, "stop", true, 0, INT32_MAX, &s->stop);
}

static bool starts_with(const step *s, const char *p, size_t n)
{
    return n >= s->content_n && memcmp(p, s->content, s->content_n) == 0;
}

/* Bytes of the run of the character at the end of p, of at most s->stop. */
static size_t trailing(const step *s, const char *p, size_t n)
{
    size_t k = 0;
    for (int64_t c = 0; c < s->stop && n - k >= s->content_n &&
                        memcmp(p + n - k - s->content_n, s->content, s->content_n) == 0;
         c++)
        k += s->content_n;
    return k;
}

static pesc_status take_strip(decode_stream *d, size_t i, const char *p, size_t n)
{
    const step *s = &d->dec->step[i];
    state *st = &d->state[i];
    if (!s->fused || !st->started)
        st->cut = s->start;
    st->started = true;
    for (; st->cut > 0 && starts_with(s, p, n); st->cut--) {
        p += s->content_n;
        n -= s->content_n;
    }
    if (!s->fused)
        return give(d, i, p, n - trailing(s, p, n));
    if (n == 0)
        return PESC_OK;
    st->cut = 0;
    str_add(&st->held, p, n);
    if (!str_ok(&st->held))
        return fail_nomem("decoding", n);
    size_t keep = trailing(s, st->held.p, st->held.n), now = st->held.n - keep;
    budget_open_text(&d->work, &st->work);
    str_add(&st->work, st->held.p, now);
    drop_front(&st->held, now);
    return give_str(d, i, &st->work);
}

static pesc_status end_strip(decode_stream *d, size_t i)
{
    str_clear(&d->state[i].held); /* the trailing ones: that is what `stop` strips */
    return PESC_OK;
}

/* ---- bytes ---- */

/* Moves what is certain from `held` to `work`: characters, and U+FFFD for each maximal part that is
 * none; at the end of the text also for a part that more bytes could have completed. */
static void settle_bytes(state *st, bool last)
{
    size_t n = st->held.n;
    if (!last && n)
        n -= utf8_partial_tail(st->held.p, n);
    str_add_valid(&st->work, st->held.p, n);
    drop_front(&st->held, n);
}

static pesc_status take_byte_level(decode_stream *d, size_t i, const char *p, size_t n)
{
    state *st = &d->state[i];
    if (!bytelevel_bytes(p, n, &st->held))
        str_add(&st->held, p, n);
    if (!str_ok(&st->held))
        return fail_nomem("decoding", n);
    if (d->flags & DECODE_RAW)
        return end_held(d, i);
    budget_open_text(&d->work, &st->work);
    settle_bytes(st, false);
    return st->work.n ? give_str(d, i, &st->work) : PESC_OK;
}

static pesc_status end_byte_level(decode_stream *d, size_t i)
{
    state *st = &d->state[i];
    budget_open_text(&d->work, &st->work);
    settle_bytes(st, true);
    return st->work.n ? give_str(d, i, &st->work) : PESC_OK;
}

/* Hugging Face: a run of byte tokens is text as a whole, or each of them is one U+FFFD. */
static pesc_status end_byte_fallback(decode_stream *d, size_t i)
{
    state *st = &d->state[i];
    size_t n = st->held.n;
    st->broken = false;
    if (n == 0)
        return PESC_OK;
    if (utf8_valid(st->held.p, n))
        return end_held(d, i);
    str_clear(&st->held);
    for (size_t k = 0; k < n; k++)
        TRY(give(d, i, REPLACEMENT, strlen(REPLACEMENT)));
    return PESC_OK;
}

/* SentencePiece: characters where there are some, U+FFFD for each other byte. */
static pesc_status end_sp_bytes(decode_stream *d, size_t i)
{
    state *st = &d->state[i];
    budget_open_text(&d->work, &st->work);
    for (size_t k = 0; k < st->held.n; k++)
        str_puts(&st->work, REPLACEMENT);
    str_clear(&st->held);
    return st->work.n ? give_str(d, i, &st->work) : PESC_OK;
}

/* Gives what the bytes of a run say for certain; what may become a character stays. `whole`: after
 * a byte that is no part of a character, no later one of the run is text either. */
static pesc_status settle_run(decode_stream *d, size_t i, bool whole)
{
    state *st = &d->state[i];
    size_t at = 0;
    budget_open_text(&d->work, &st->work);
    while (at < st->held.n) {
        const char *p = st->held.p + at;
        size_t n = st->held.n - at;
        int len = st->broken ? 0 : utf8_decode(p, n, NULL);
        if (len == 0 && !st->broken && utf8_partial_tail(p, n) == n)
            break;
        if (len > 0)
            str_add(&st->work, p, (size_t)len);
        else
            str_puts(&st->work, REPLACEMENT);
        st->broken = whole && len == 0;
        at += len > 0 ? (size_t)len : 1;
    }
    drop_front(&st->held, at);
    return st->work.n ? give_str(d, i, &st->work) : PESC_OK;
}

static pesc_status take_bytes(decode_stream *d, size_t i, const char *p, size_t n)
{
    state *st = &d->state[i];
    int byte = bytetoken_value(p, n);
    if (byte < 0) {
        TRY(d->dec->step[i].kind->end(d, i));
        return give(d, i, p, n);
    }
    str_putc(&st->held, (char)byte);
    if (!str_ok(&st->held))
        return fail_nomem("decoding", n);
    if (d->flags & DECODE_RAW)
        return end_held(d, i);
    bool whole = d->dec->step[i].kind->end == end_byte_fallback;
    return whole && !(d->flags & DECODE_AT_ONCE) ? PESC_OK : settle_run(d, i, whole);
}

/* ---- marks for blanks ---- */

static pesc_status open_metaspace(step *s, const json_t *v, const char *where)
{
    json_where w = { v, where };
    const char *scheme = NULL;
    bool prefix = true;
    TRY(pattern_get_text(v, "replacement", where, &s->content, &s->content_n));
    TRY(json_get_bool(w, "add_prefix_space", false, &prefix));
    TRY(json_get_str(w, "prepend_scheme", false, &scheme));
    s->drop = s->drop_all = scheme ? strcmp(scheme, "never") != 0 : prefix;
    return pattern_open_text(&s->pattern, s->content, s->content_n, where);
}

/* In the first token every mark goes, in all others each becomes a blank. */
static pesc_status take_metaspace(decode_stream *d, size_t i, const char *p, size_t n)
{
    const step *s = &d->dec->step[i];
    state *st = &d->state[i];
    bool blank = st->started || !s->drop;
    st->started = true;
    budget_open_text(&d->work, &st->work);
    regex_walk w = { .text = p, .n = n };
    size_t done = 0;
    for (bool found = true; found;) {
        TRY(pattern_next(&s->pattern, &w, &found));
        size_t end = found ? w.start : n;
        str_add(&st->work, p + done, end - done);
        if (found && blank)
            str_putc(&st->work, ' ');
        done = w.end;
    }
    return give_str(d, i, &st->work);
}

/* SentencePiece: one mark at the very start goes (with drop_all, each until text comes). */
static pesc_status take_sp_start(decode_stream *d, size_t i, const char *p, size_t n)
{
    const step *s = &d->dec->step[i];
    state *st = &d->state[i];
    if (s->drop && !st->started) {
        size_t mark = strlen(MARK);
        bool there = n >= mark && memcmp(p, MARK, mark) == 0;
        st->started = !there || !s->drop_all || n > mark;
        p += there ? mark : 0;
        n -= there ? mark : 0;
    }
    return give(d, i, p, n);
}

/* ---- the chain ---- */

static const kind kinds[] = {
    { "Replace", open_replace, take_replace, end_held, false, true },
    { "ByteFallback", NULL, take_bytes, end_byte_fallback, false, false },
    { "Fuse", NULL, take_fuse, NULL, true, true },
    { "Strip", open_strip, take_strip, end_strip, false, true },
    { "ByteLevel", NULL, take_byte_level, end_byte_level, true, false },
    { "Metaspace", open_metaspace, take_metaspace, NULL, false, false },
};
static const kind sp_start = { "start", NULL, take_sp_start, NULL, false, false };
static const kind sp_bytes = { "bytes", NULL, take_bytes, end_sp_bytes, false, false };

static step *add_step(decoder *d, const kind *k)
{
    step *s = &d->step[d->n++];
    s->kind = k;
    s->fused = d->n > 1 && (s[-1].fused || s[-1].kind->fuses);
    return s;
}

static pesc_status open_step(void *component, const json_t *v, const char *type, const char *where)
{
    static const chain_table table = { "decoder", kinds, sizeof kinds / sizeof *kinds,
                                       sizeof *kinds };
    const void *row;
    TRY(chain_find(&row, &table, type, where));
    step *s = add_step(component, row);
    if (s->fused && !s->kind->takes_parts)
        return fail(PESC_UNSUPPORTED, "%s: '%s' after Fuse or ByteLevel is not supported", where,
                    type);
    return s->kind->read ? s->kind->read(s, v, where) : PESC_OK;
}

static void close_any(void *component)
{
    decoder_close(component);
}

pesc_status decoder_open(decoder **out, const json_t *v, const char *file)
{
    static const chain c = { "decoder", "decoders", open_step, sizeof(decoder), close_any };
    return chain_open((void **)out, &c, v, file);
}

pesc_status decoder_open_sp(decoder **out, bool drop, bool drop_all)
{
    *out = NULL;
    decoder *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("a decoder", sizeof *d);
    step *s = add_step(d, &sp_start);
    s->drop = drop || drop_all;
    s->drop_all = drop_all;
    s = add_step(d, &kinds[0]);
    s->content_n = 1;
    s->content = mem_strdup(" ");
    pesc_status st = s->content ? pattern_open_text(&s->pattern, MARK, strlen(MARK), "decoder")
                                : fail_nomem("a decoder", 1);
    add_step(d, &sp_bytes);
    if (st == PESC_OK)
        *out = d;
    else
        decoder_close(d);
    return st;
}

void decoder_close(decoder *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++) {
        pattern_free(&d->step[i].pattern);
        mem_free(d->step[i].content);
    }
    mem_free(d);
}

/* ---- the stream ---- */

pesc_status decode_open(decode_stream **out, const tokenizer *t, unsigned flags)
{
    *out = NULL;
    decode_stream *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return fail_nomem("decoding", sizeof *d);
    d->t = t;
    d->dec = t->dec;
    d->flags = flags;
    *out = d;
    return PESC_OK;
}

static pesc_status result(decode_stream *d, const char **text, size_t *n)
{
    if (!str_ok(&d->out))
        return fail_nomem("decoding", d->out.n);
    size_t skip = d->out.n < d->skip ? d->out.n : d->skip;
    *text = d->out.n ? d->out.p + skip : "";
    *n = d->out.n - skip;
    d->skip -= skip;
    return PESC_OK;
}

pesc_status decode_feed(decode_stream *d, int32_t id, const char **text, size_t *n)
{
    size_t token_n = 0;
    const char *token = vocab_text(&d->t->shown, id, &token_n);
    if (!token)
        token = tokenizer_token(d->t, id, &token_n);
    str_clear(&d->out);
    budget_add(&d->work, token ? token_n : 0);
    if (token && !((d->flags & PESC_SKIP_SPECIAL) && tokenizer_is_special(d->t, id))) {
        if (d->t->unk_text && id == d->t->unk) {
            token = d->t->unk_text;
            token_n = strlen(token);
        }
        if (d->dec && d->dec->n > 0) {
            TRY(d->dec->step[0].kind->take(d, 0, token, token_n));
        } else {
            if (d->started && !d->dec)
                str_putc(&d->out, ' ');
            str_add(&d->out, token, token_n);
        }
        d->started = true;
    }
    return result(d, text, n);
}

pesc_status decode_finish(decode_stream *d, const char **text, size_t *n)
{
    str_clear(&d->out);
    for (size_t i = 0; d->dec && i < d->dec->n; i++)
        if (d->dec->step[i].kind->end)
            TRY(d->dec->step[i].kind->end(d, i));
    return result(d, text, n);
}

static void restart(decode_stream *d)
{
    for (size_t i = 0; i < CHAIN_MAX; i++) {
        state *st = &d->state[i];
        str_clear(&st->held);
        st->cut = 0;
        st->started = st->broken = false;
    }
    d->work = (budget){ 0 };
    d->started = false;
    d->skip = 0;
}

static pesc_status feed_all(decode_stream *d, const int32_t *ids, size_t n)
{
    const char *text;
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        TRY(decode_feed(d, ids[i], &text, &bytes));
    return PESC_OK;
}

/* What the first ids leave held back, such as a byte token that others may follow, comes out with
 * later tokens. Decoding them to an end first says how much that is. */
pesc_status decode_restart_after(decode_stream *d, const int32_t *ids, size_t n)
{
    const char *text;
    size_t held;
    restart(d);
    TRY(feed_all(d, ids, n));
    TRY(decode_finish(d, &text, &held));
    restart(d);
    TRY(feed_all(d, ids, n));
    d->skip = held;
    return PESC_OK;
}

pesc_status decode_open_after(decode_stream **out, const tokenizer *t, unsigned flags,
                              const int32_t *ids, size_t n)
{
    TRY(decode_open(out, t, flags));
    pesc_status s = decode_restart_after(*out, ids, n);
    if (s != PESC_OK) {
        decode_close(*out);
        *out = NULL;
    }
    return s;
}

pesc_status decode_add(decode_stream *d, const tokenizer *t, int32_t id, str *out)
{
    const char *text;
    size_t n;
    if (!tokenizer_token(t, id, &n))
        return PESC_OK;
    TRY(decode_feed(d, id, &text, &n));
    str_add(out, text, n);
    return PESC_OK;
}

pesc_status decode_end(decode_stream *d, str *out)
{
    const char *text;
    size_t n;
    TRY(decode_finish(d, &text, &n));
    str_add(out, text, n);
    str_puts(out, "");
    return str_ok(out) ? PESC_OK : fail_nomem("a text", out->n);
}

void decode_close(decode_stream *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < CHAIN_MAX; i++) {
        str_free(&d->state[i].held);
        str_free(&d->state[i].work);
    }
    regex_scratch_close(d->rs);
    str_free(&d->out);
    mem_free(d);
}
