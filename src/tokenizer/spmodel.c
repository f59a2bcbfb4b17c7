/* spmodel: see spmodel.h.
 *
 * The wire reader knows one thing: a message is a row of fields, a field is a tag (number, wire
 * type) and a value. Three small tables say what the fields mean; a table's fields go to
 * slots, the last of a kind winning as protobuf has it. Positions are offsets into the whole file,
 * so every sentence can name the byte. */
#include "tokenizer/spmodel.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bytetoken.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/trie.h"

#include <math.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

typedef struct wire {
    const char *file;
    const unsigned char *bytes; /* of the whole file */
    size_t at, end;             /* what is left of this message */
} wire;

typedef struct field {
    uint64_t number, value; /* value of VARINT and FIXED32 */
    unsigned type;
    size_t at;      /* of the tag */
    size_t from, n; /* the bytes of LENGTH */
    bool there;
} field;

static pesc_status cut_off(const wire *w, size_t at, const char *what)
{
    return fail(PESC_FORMAT, "%s: byte %zu: %s ends at byte %zu, the end of its message", w->file,
                at, what, w->end);
}

static pesc_status read_varint(wire *w, uint64_t *out)
{
    size_t start = w->at;
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (w->at >= w->end)
            return cut_off(w, start, "a number");
        uint64_t b = w->bytes[w->at++];
        if (shift == 63 && b > 1)
            break;
        v |= (b & 0x7f) << shift;
        if (b < 0x80) {
            *out = v;
            return PESC_OK;
        }
    }
    return fail(PESC_FORMAT, "%s: byte %zu: found a number of more than 64 bits", w->file, start);
}

/* The next field; its value is not interpreted. Call only while at < end. */
static pesc_status read_field(wire *w, field *f)
{
    uint64_t tag;
    *f = (field){ .at = w->at, .there = true };
    TRY(read_varint(w, &tag));
    f->number = tag >> 3;
    f->type = tag & 7;
    if (f->number == 0 || f->number >= 1u << 29)
        return fail(PESC_FORMAT, "%s: byte %zu: found field number %llu, expected 1 to 2^29 - 1",
                    w->file, f->at, (unsigned long long)f->number);
    uint64_t n = 0;
    switch (f->type) {
    case VARINT:
        return read_varint(w, &f->value);
    case FIXED64:
        n = 8;
        break;
    case FIXED32:
        n = 4;
        break;
    case LENGTH:
        TRY(read_varint(w, &n));
        break;
    default:
        return fail(PESC_FORMAT,
                    "%s: byte %zu: found wire type %u, expected 0, 1, 2 or 5 (groups are not used "
                    "in SentencePiece models)",
                    w->file, f->at, f->type);
    }
    if (n > w->end - w->at)
        return fail(
            PESC_FORMAT, "%s: byte %zu: field %llu has %llu bytes, but its message ends after %zu",
            w->file, f->at, (unsigned long long)f->number, (unsigned long long)n, w->end - w->at);
    f->from = w->at;
    f->n = (size_t)n;
    w->at += f->n;
    for (size_t i = 4; f->type == FIXED32 && i-- > 0;)
        f->value = f->value << 8 | w->bytes[f->from + i];
    return PESC_OK;
}

static wire inside(const wire *w, const field *f)
{
    return (wire){ w->file, w->bytes, f->from, f->from + f->n };
}

typedef struct row {
    unsigned number, type, slot;
    const char *name;
} row;

enum { PIECE_TEXT, PIECE_SCORE, PIECE_TYPE, PIECE_SLOTS };
static const row piece_rows[] = {
    { 1, LENGTH, PIECE_TEXT, "piece" },
    { 2, FIXED32, PIECE_SCORE, "score" },
    { 3, VARINT, PIECE_TYPE, "type" },
    { 0 },
};

enum {
    MODEL_TYPE,
    SUFFIX,
    BYTE_FALLBACK,
    BOS,
    EOS,
    PAD,
    CHARSMAP,
    DUMMY,
    EXTRA,
    ESCAPE,
    SPEC_SLOTS
};
static const row trainer_rows[] = {
    { 3, VARINT, MODEL_TYPE, "model_type" },
    { 24, VARINT, SUFFIX, "treat_whitespace_as_suffix" },
    { 35, VARINT, BYTE_FALLBACK, "byte_fallback" },
    { 46, LENGTH, BOS, "bos_piece" },
    { 47, LENGTH, EOS, "eos_piece" },
    { 48, LENGTH, PAD, "pad_piece" },
    { 0 },
};
static const row normalizer_rows[] = {
    { 2, LENGTH, CHARSMAP, "precompiled_charsmap" },
    { 3, VARINT, DUMMY, "add_dummy_prefix" },
    { 4, VARINT, EXTRA, "remove_extra_whitespaces" },
    { 5, VARINT, ESCAPE, "escape_whitespaces" },
    { 0 },
};

static pesc_status expect_type(const wire *w, const field *f, unsigned type, const char *name)
{
    if (f->type == type)
        return PESC_OK;
    return fail(PESC_FORMAT, "%s: byte %zu: %s has wire type %u, expected %u", w->file, f->at, name,
                f->type, type);
}

/* Fills the slots of a message; fields without a row are passed over. */
static pesc_status read_rows(wire w, const row *rows, field *slots)
{
    while (w.at < w.end) {
        field f;
        TRY(read_field(&w, &f));
        for (const row *r = rows; r->number; r++) {
            if (r->number != f.number)
                continue;
            TRY(expect_type(&w, &f, r->type, r->name));
            slots[r->slot] = f;
        }
    }
    return PESC_OK;
}

static pesc_status read_piece(spmodel *m, wire w, size_t id, char **text)
{
    field slot[PIECE_SLOTS] = { 0 };
    size_t at = w.at;
    TRY(read_rows(w, piece_rows, slot));
    const char *s = (const char *)w.bytes + slot[PIECE_TEXT].from;
    size_t n = slot[PIECE_TEXT].n;
    if (n == 0)
        return fail(PESC_FORMAT, "%s: byte %zu: piece %zu has no text", w.file, at, id);
    if (n > SP_PIECE_MAX)
        return fail(PESC_FORMAT, "%s: byte %zu: piece %zu has %zu bytes, expected at most %d",
                    w.file, at, id, n, SP_PIECE_MAX);
    if (!utf8_valid(s, n) || memchr(s, '\0', n))
        return fail(PESC_FORMAT, "%s: byte %zu: piece %zu is not UTF-8 text without NUL", w.file,
                    slot[PIECE_TEXT].from, id);
    uint32_t bits = (uint32_t)slot[PIECE_SCORE].value;
    float score;
    memcpy(&score, &bits, sizeof score);
    if (!isfinite(score))
        return fail(PESC_FORMAT, "%s: byte %zu: the score of piece %zu is %s, expected a number",
                    w.file, slot[PIECE_SCORE].at, id, isnan(score) ? "not a number" : "infinite");
    uint64_t type = slot[PIECE_TYPE].there ? slot[PIECE_TYPE].value : SP_NORMAL;
    if (type < SP_NORMAL || type > SP_BYTE)
        return fail(PESC_FORMAT, "%s: byte %zu: piece %zu has type %llu, expected 1 to 6", w.file,
                    slot[PIECE_TYPE].at, id, (unsigned long long)type);
    memcpy(*text, s, n);
    (*text)[n] = '\0';
    m->pieces[id] = (sp_piece){ *text, (uint32_t)n, score, (sp_type)type };
    *text += n + 1;
    return PESC_OK;
}

enum { FIELD_PIECE = 1, FIELD_TRAINER = 2, FIELD_NORMALIZER = 3 };

/* First pass over the file: how many pieces, and room for their texts. */
static pesc_status measure(wire w, size_t *n_pieces, size_t *text_bytes)
{
    while (w.at < w.end) {
        field f;
        TRY(read_field(&w, &f));
        if (f.number != FIELD_PIECE)
            continue;
        TRY(expect_type(&w, &f, LENGTH, "a piece"));
        ++*n_pieces;
        *text_bytes += f.n + 1;
    }
    return PESC_OK;
}

static pesc_status fill_model(spmodel *m, wire w, field *spec)
{
    size_t id = 0;
    char *text = m->text_;
    while (w.at < w.end) {
        field f;
        TRY(read_field(&w, &f));
        if (f.number == FIELD_PIECE) {
            TRY(read_piece(m, inside(&w, &f), id++, &text));
        } else if (f.number == FIELD_TRAINER || f.number == FIELD_NORMALIZER) {
            bool trainer = f.number == FIELD_TRAINER;
            TRY(expect_type(&w, &f, LENGTH, trainer ? "trainer_spec" : "normalizer_spec"));
            TRY(read_rows(inside(&w, &f), trainer ? trainer_rows : normalizer_rows, spec));
        }
    }
    return PESC_OK;
}

/* Builds a trie of the pieces of one type (0: of all). NULL when there are none. */
static pesc_status index_pieces(const spmodel *m, sp_type type, trie **out)
{
    *out = NULL;
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++)
        n += type == 0 || m->pieces[i].type == type;
    if (n == 0)
        return PESC_OK;
    trie_key *keys = mem_alloc(n, sizeof *keys);
    if (!keys)
        return fail_nomem("indexing a vocabulary", n * sizeof *keys);
    n = 0;
    for (size_t i = 0; i < m->n; i++)
        if (type == 0 || m->pieces[i].type == type)
            keys[n++] = (trie_key){ m->pieces[i].text, m->pieces[i].n, (int32_t)i };
    pesc_status s = trie_build(out, keys, n);
    mem_free(keys);
    return s;
}

/* One <unk>, no piece twice, byte pieces where byte_fallback promises them and nowhere else. */
static pesc_status check_pieces(spmodel *m, const trie *all, const char *file)
{
    for (size_t i = 0; i < m->n; i++) {
        const sp_piece *p = &m->pieces[i];
        int32_t last = trie_find(all, p->text, p->n);
        if ((size_t)last != i)
            return fail(PESC_FORMAT, "%s: pieces %zu and %d are both \"%.64s\"", file, i, last,
                        p->text);
        if (p->type == SP_UNKNOWN) {
            if (m->unk >= 0)
                return fail(PESC_FORMAT, "%s: pieces %d and %zu are both marked as unknown", file,
                            m->unk, i);
            m->unk = (int32_t)i;
        }
        if (p->type != SP_BYTE)
            continue;
        int byte = bytetoken_value(p->text, p->n);
        if (byte < 0 || !m->byte_fallback)
            return fail(PESC_FORMAT, "%s: piece %zu, \"%.64s\", is a byte piece, but %s", file, i,
                        p->text, byte < 0 ? "not of the form <0xNN>" : "byte_fallback is off");
        m->bytes[byte] = (int32_t)i;
    }
    if (m->unk < 0)
        return fail(PESC_FORMAT, "%s: none of its %zu pieces is marked as unknown (<unk>)", file,
                    m->n);
    for (int b = 0; m->byte_fallback && b < 256; b++)
        if (m->bytes[b] < 0)
            return fail(PESC_FORMAT, "%s: byte_fallback is on, but there is no piece <0x%02X>",
                        file, (unsigned)b);
    return PESC_OK;
}

/* The id of a control piece by its name; -1 where the file has no such control piece. */
static int32_t control_id(const spmodel *m, const trie *all, const field *name,
                          const unsigned char *bytes, const char *usual)
{
    bool named = name->there && name->n > 0;
    int32_t id = named ? trie_find(all, (const char *)bytes + name->from, name->n)
                       : trie_find(all, usual, strlen(usual));
    return id >= 0 && m->pieces[id].type == SP_CONTROL ? id : -1;
}

static pesc_status read_charsmap(spmodel *m, const wire *w, const field *f)
{
    str where = { 0 };
    str_printf(&where, "%s: precompiled_charsmap at byte %zu", w->file, f->from);
    pesc_status s = str_ok(&where) ? charsmap_open(&m->map, w->bytes + f->from, f->n, where.p)
                                   : fail_nomem("reading a tokenizer", where.n);
    str_free(&where);
    return s;
}

/* What the two specs say, once all of the file has been read. */
static pesc_status settle_options(spmodel *m, const wire *w, const field *spec)
{
    uint64_t type = spec[MODEL_TYPE].there ? spec[MODEL_TYPE].value : SP_UNIGRAM;
    if (type != SP_UNIGRAM && type != SP_BPE)
        return fail(PESC_UNSUPPORTED,
                    "%s: byte %zu: found model_type %llu%s, expected 1 (UNIGRAM) or 2 (BPE)",
                    w->file, spec[MODEL_TYPE].at, (unsigned long long)type,
                    type == 3   ? " (WORD)"
                    : type == 4 ? " (CHAR)"
                                : "");
    m->kind = (sp_kind)type;
    m->byte_fallback = spec[BYTE_FALLBACK].value != 0;
    m->whitespace_suffix = spec[SUFFIX].value != 0;
    m->add_dummy_prefix = !spec[DUMMY].there || spec[DUMMY].value != 0;
    m->remove_extra_whitespaces = !spec[EXTRA].there || spec[EXTRA].value != 0;
    m->escape_whitespaces = !spec[ESCAPE].there || spec[ESCAPE].value != 0;
    if (spec[CHARSMAP].there)
        TRY(read_charsmap(m, w, &spec[CHARSMAP]));
    trie *all;
    TRY(index_pieces(m, 0, &all));
    pesc_status s = check_pieces(m, all, w->file);
    m->bos = control_id(m, all, &spec[BOS], w->bytes, "<s>");
    m->eos = control_id(m, all, &spec[EOS], w->bytes, "</s>");
    m->pad = control_id(m, all, &spec[PAD], w->bytes, "<pad>");
    trie_close(all);
    TRY(s);
    return index_pieces(m, SP_USER_DEFINED, &m->user_defined);
}

static pesc_status load(spmodel *m, wire w)
{
    field spec[SPEC_SLOTS] = { 0 };
    size_t text_bytes = 0;
    TRY(measure(w, &m->n, &text_bytes));
    if (m->n == 0 || m->n > INT32_MAX)
        return fail(PESC_FORMAT, "%s: found %zu pieces, expected a SentencePiece model with some",
                    w.file, m->n);
    m->pieces = mem_alloc(m->n, sizeof *m->pieces);
    m->text_ = mem_alloc(text_bytes, 1);
    if (!m->pieces || !m->text_)
        return fail_nomem("reading a tokenizer", m->n * sizeof *m->pieces + text_bytes);
    TRY(fill_model(m, w, spec));
    return settle_options(m, &w, spec);
}

pesc_status spmodel_open(spmodel **out, const unsigned char *bytes, size_t n, const char *file)
{
    *out = NULL;
    spmodel *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem("reading a tokenizer", sizeof *m);
    m->unk = m->bos = m->eos = m->pad = -1;
    memset(m->bytes, 0xff, sizeof m->bytes);
    pesc_status s = load(m, (wire){ file, bytes, 0, n });
    if (s == PESC_OK)
        *out = m;
    else
        spmodel_close(m);
    return s;
}

void spmodel_close(spmodel *m)
{
    if (!m)
        return;
    mem_free(m->pieces);
    mem_free(m->text_);
    charsmap_close(m->map);
    trie_close(m->user_defined);
    mem_free(m);
}

bool spmodel_is(const unsigned char *bytes, size_t n)
{
    if (n == 0 || (bytes[0] != 0x0a && bytes[0] != 0x12 && bytes[0] != 0x1a))
        return false;
    /* 0x0a, the tag of a first piece, is also a newline: JSON is recognised by {" after blanks. */
    const char *blank = " \t\r\n";
    size_t i = 0;
    while (i < n && bytes[i] != '\0' && strchr(blank, bytes[i]))
        i++;
    if (i >= n || bytes[i] != '{')
        return true;
    for (i++; i < n && bytes[i] != '\0' && strchr(blank, bytes[i]);)
        i++;
    return i < n && bytes[i] != '"' && bytes[i] != '}';
}
