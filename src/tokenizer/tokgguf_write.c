/* tokgguf_write: tokenizer.json and tokenizer_config.json of a GGUF vocabulary.
 *
 * A byte-level vocabulary is written with the same components that tokenizer_from_gguf() runs. One
 * of SentencePiece becomes what Hugging Face makes of a Llama model: a BPE with byte fallback whose
 * merges follow from the scores, and a normalizer that writes U+2581 for blanks. Two things cannot
 * be expressed: equal scores, between which the leftmost pair goes first, and characters that only
 * occur inside pieces. So the files are read back, and the text of every token is encoded both
 * ways. */
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/spbpe.h"
#include "tokenizer/tokgguf.h"

#include <stdlib.h>
#include <string.h>

#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's blank */

typedef struct writer {
    const gguf_vocab *v;
    tokenizer *t; /* built from v */
    str json;
} writer;

static void put_string(str *out, const char *text, size_t n)
{
    json_t *s = json_stringn(text, n);
    json_put(out, s, 0);
    json_decref(s);
}

static void put_bool(str *out, const char *key, bool value)
{
    str_printf(out, "\"%s\":%s", key, value ? "true" : "false");
}

static const char *token_of(const writer *w, int64_t id, size_t *n)
{
    return id >= 0 ? tokenizer_token(w->t, (int32_t)id, n) : NULL;
}

/* ---- components ---- */

/* A user-defined piece of SentencePiece is found in normalised text. Where the normalizer puts a
 * mark in front, only one without marks can be found, and in the text as given. */
static bool is_written(const writer *w, const added_token *a)
{
    return !a->normalized || !w->v->add_space_prefix || !memmem(a->text, a->n, MARK, strlen(MARK));
}

static void put_added(writer *w)
{
    const tokenizer *t = w->t;
    bool any = false;
    str_puts(&w->json, "\"added_tokens\":[");
    for (size_t i = 0; i < t->n_added; i++) {
        const added_token *a = &t->added[i];
        if (!is_written(w, a))
            continue;
        str_printf(&w->json, "%s{\"id\":%d,\"content\":", any ? ",\n" : "\n", a->id);
        put_string(&w->json, a->text, a->n);
        str_puts(&w->json, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,");
        put_bool(&w->json, "normalized", a->normalized && !w->v->add_space_prefix);
        str_putc(&w->json, ',');
        put_bool(&w->json, "special", a->special);
        str_putc(&w->json, '}');
        any = true;
    }
    str_puts(&w->json, "],\n");
}

/* What PESC_ADD_SPECIAL puts around a text. */
static void put_frame_part(writer *w, const id_list *ids, bool before)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *text = token_of(w, ids->ids[i], &n);
        str_puts(&w->json, before ? "{\"SpecialToken\":{\"id\":" : ",{\"SpecialToken\":{\"id\":");
        put_string(&w->json, text, n);
        str_puts(&w->json, before ? ",\"type_id\":0}}," : ",\"type_id\":0}}");
    }
}

static void put_frame_tokens(writer *w, const id_list *ids, bool *any)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = 0;
        const char *text = token_of(w, ids->ids[i], &n);
        str_puts(&w->json, *any ? "," : "");
        put_string(&w->json, text, n);
        str_puts(&w->json, ":{\"id\":");
        put_string(&w->json, text, n);
        str_printf(&w->json, ",\"ids\":[%d],\"tokens\":[", ids->ids[i]);
        put_string(&w->json, text, n);
        str_puts(&w->json, "]}");
        *any = true;
    }
}

static void put_post_processor(writer *w)
{
    const id_list *front = &w->t->front, *back = &w->t->back;
    bool any = false;
    if (front->n + back->n == 0) {
        str_puts(&w->json, "\"post_processor\":null,\n");
        return;
    }
    str_puts(&w->json, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    put_frame_part(w, front, true);
    str_puts(&w->json, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    put_frame_part(w, back, false);
    str_puts(&w->json, "],\"pair\":[");
    put_frame_part(w, front, true);
    str_puts(&w->json, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
                       "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}");
    put_frame_part(w, back, false);
    str_puts(&w->json, "],\"special_tokens\":{");
    put_frame_tokens(w, front, &any);
    if (!(front->n && back->n && front->ids[0] == back->ids[0]))
        put_frame_tokens(w, back, &any);
    str_puts(&w->json, "}},\n");
}

static void put_sp_components(writer *w)
{
    static const char replace[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                                  "\"content\":\"" MARK "\"}";
    bool prefix = w->v->add_space_prefix;
    str_puts(&w->json, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    if (w->v->remove_extra_whitespaces)
        str_puts(&w->json, "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
                           "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
                           "\"content\":\" \"},");
    if (prefix)
        str_puts(&w->json, "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},");
    str_printf(&w->json, "%s]},\n\"pre_tokenizer\":null,\n", replace);
    put_post_processor(w);
    str_printf(&w->json,
               "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
               "{\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
               "{\"type\":\"Fuse\"}%s]},\n",
               prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
}

static void put_byte_components(writer *w, const ggufpre *row)
{
    str_printf(&w->json,
               "\"normalizer\":%s,\n\"pre_tokenizer\":", row->nfc ? "{\"type\":\"NFC\"}" : "null");
    tokgguf_put_pretokenizer(&w->json, row);
    str_puts(&w->json, ",\n");
    put_post_processor(w);
    str_puts(&w->json, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                       "\"trim_offsets\":true,\"use_regex\":true},\n");
}

/* ---- the model ---- */

static void put_vocab(writer *w)
{
    str_puts(&w->json, "\"vocab\":{");
    for (size_t i = 0; i < w->v->n; i++) {
        str_puts(&w->json, i ? ",\n" : "\n");
        put_string(&w->json, w->v->tokens[i], w->v->token_bytes[i]);
        str_printf(&w->json, ":%zu", i);
    }
    str_puts(&w->json, "},\n");
}

static void put_byte_merges(writer *w)
{
    for (size_t i = 0; i < w->v->n_merges; i++) {
        str_puts(&w->json, i ? ",\n" : "\n");
        put_string(&w->json, w->v->merges[i], strlen(w->v->merges[i]));
    }
}

static int by_rank(const void *pa, const void *pb)
{
    const bpe_merge *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->into != b->into)
        return a->into < b->into ? -1 : 1;
    return (a->left > b->left) - (a->left < b->left);
}

/* Pairs, since a piece may hold a blank. A symbol that is no piece has no place in a vocabulary. */
static pesc_status put_sp_merges(writer *w)
{
    vocab symbols = { 0 };
    bpe_merge *merges = NULL;
    size_t n = 0;
    int64_t pieces = (int64_t)w->t->sp->n;
    pesc_status s = spbpe_merges(w->t->sp, w->v->file, &symbols, &merges, &n);
    if (s == PESC_OK && n)
        qsort(merges, n, sizeof *merges, by_rank);
    bool any = false;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        size_t ln = 0, rn = 0;
        if (merges[i].left >= pieces || merges[i].right >= pieces)
            continue;
        const char *left = vocab_text(&symbols, merges[i].left, &ln);
        const char *right = vocab_text(&symbols, merges[i].right, &rn);
        str_puts(&w->json, any ? ",\n[" : "\n[");
        put_string(&w->json, left, ln);
        str_putc(&w->json, ',');
        put_string(&w->json, right, rn);
        str_putc(&w->json, ']');
        any = true;
    }
    mem_free(merges);
    vocab_free(&symbols);
    return s;
}

static pesc_status put_model(writer *w, const ggufpre *row)
{
    size_t n = 0;
    const char *unk = row ? NULL : token_of(w, w->t->unk, &n);
    str_puts(&w->json, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (unk)
        put_string(&w->json, unk, n);
    else
        str_puts(&w->json, "null");
    str_puts(&w->json, ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,");
    put_bool(&w->json, "fuse_unk", !row);
    str_putc(&w->json, ',');
    put_bool(&w->json, "byte_fallback", !row && w->t->sp->byte_fallback);
    str_putc(&w->json, ',');
    put_bool(&w->json, "ignore_merges", row && row->ignore_merges);
    str_puts(&w->json, ",\n");
    put_vocab(w);
    str_puts(&w->json, "\"merges\":[");
    if (row)
        put_byte_merges(w);
    else
        TRY(put_sp_merges(w));
    str_puts(&w->json, "]}}\n");
    return PESC_OK;
}

static pesc_status put_all(writer *w)
{
    const ggufpre *row = NULL;
    if (!w->t->sp)
        TRY(tokgguf_find_pre(w->v, &row));
    str_puts(&w->json, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
    put_added(w);
    if (row)
        put_byte_components(w, row);
    else
        put_sp_components(w);
    TRY(put_model(w, row));
    return str_ok(&w->json) ? PESC_OK : fail_nomem(w->v->file, w->json.n);
}

/* ---- tokenizer_config.json ---- */

static pesc_status put_config(const writer *w, str *out)
{
    const gguf_vocab *v = w->v;
    const struct {
        const char *key;
        int64_t id;
    } rows[] = { { "bos_token", v->bos },
                 { "eos_token", v->eos },
                 { "pad_token", v->pad },
                 { "unk_token", w->t->unk } };
    /* the class's own names have token_type_ids, which generate() of these models refuses */
    json_t *c = json_pack("{s:s, s:b, s:b, s:b, s:[ss]}", "tokenizer_class",
                          "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0,
                          "add_bos_token", (int)v->add_bos, "add_eos_token", (int)v->add_eos,
                          "model_input_names", "input_ids", "attention_mask");
    bool fine = c != NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        const char *text = token_of(w, rows[i].id, &n);
        if (text)
            fine &= json_object_set_new(c, rows[i].key, json_stringn(text, n)) == 0;
    }
    if (v->chat_template)
        fine &= json_object_set_new(c, "chat_template", json_string(v->chat_template)) == 0;
    json_put(out, c, JSON_INDENT(2) | JSON_SORT_KEYS);
    str_putc(out, '\n');
    json_decref(c);
    return fine && str_ok(out) ? PESC_OK : fail_nomem(v->file, out->n);
}

/* ---- reading back ---- */

static pesc_status encode_token(const writer *w, const tokenizer *back, int32_t id, bool *same)
{
    char text[4096];
    size_t n = 0;
    id_list a = { 0 }, b = { 0 };
    TRY(pesc_detokenize(w->t, &id, 1, 0, text, sizeof text, &n));
    n = n < sizeof text ? n : sizeof text;
    pesc_status s = tokenizer_encode(w->t, text, n, 0, &a);
    if (s == PESC_OK)
        s = tokenizer_encode(back, text, n, 0, &b);
    *same = a.n == b.n && (a.n == 0 || memcmp(a.ids, b.ids, a.n * sizeof *a.ids) == 0);
    mem_free(a.ids);
    mem_free(b.ids);
    return s;
}

static pesc_status compare(const writer *w, const char *dir)
{
    tokenizer *back;
    size_t other = 0, first = 0;
    TRY(tokenizer_open_dir(&back, dir));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < w->v->n; i++) {
        bool same = true;
        s = encode_token(w, back, (int32_t)i, &same);
        if (!same && other++ == 0)
            first = i;
    }
    tokenizer_close(back);
    if (s == PESC_OK && other)
        log_notice("%s: the tokenizer written from it encodes the texts of %zu of its %zu tokens "
                   "otherwise, first that of token %zu",
                   w->v->file, other, w->v->n, first);
    return s;
}

/* ---- the whole ---- */

static pesc_status write_file(const char *dir, const char *name, const str *text)
{
    char *path = io_join(dir, name);
    pesc_status s = path ? io_write_file(path, text->p, text->n) : fail_nomem(dir, strlen(name));
    mem_free(path);
    return s;
}

static pesc_status write_both(writer *w, const char *dir)
{
    str config = { 0 };
    pesc_status s = PESC_OK;
    if (w->v->json)
        str_add(&w->json, w->v->json, w->v->json_bytes);
    else
        s = put_all(w);
    if (s == PESC_OK && !str_ok(&w->json))
        s = fail_nomem(w->v->file, w->v->json_bytes);
    if (s == PESC_OK)
        s = put_config(w, &config);
    if (s == PESC_OK)
        s = write_file(dir, "tokenizer.json", &w->json);
    if (s == PESC_OK)
        s = write_file(dir, "tokenizer_config.json", &config);
    str_free(&config);
    return s == PESC_OK ? compare(w, dir) : s;
}

pesc_status tokenizer_write_gguf(const gguf_vocab *v, const char *dir)
{
    if (!v->json && strcmp(v->model, "gpt2") != 0 && strcmp(v->model, "llama") != 0) {
        log_notice("%s: its tokenizer is of the kind '%s', of which no tokenizer.json is written",
                   v->file, v->model);
        return PESC_OK;
    }
    writer w = { .v = v };
    TRY(tokenizer_from_gguf(&w.t, v));
    pesc_status s = write_both(&w, dir);
    tokenizer_close(w.t);
    str_free(&w.json);
    return s;
}
