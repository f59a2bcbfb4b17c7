/* tokenizer: text <-> ids.
 *
 * The pipeline is Hugging Face's: added tokens are cut out of the text, the rest is normalised,
 * split by the pre-tokeniser, encoded by the model (BPE or Unigram), framed by the post-processor;
 * decoding runs the decoder chain. Encoding is linear in the text. Every tokenizer file is mapped
 * to this one pipeline at load: what cannot be mapped exactly is refused by name, never ignored. */
#ifndef PESC_TOKENIZER_TOKENIZER_H
#define PESC_TOKENIZER_TOKENIZER_H

#include "base/json.h"
#include "base/status.h"
#include "base/str.h"

typedef struct pesc_tokenizer tokenizer;

/* One file: tokenizer.json, or a SentencePiece tokenizer.model (found by looking at its bytes). */
pesc_status tokenizer_open_file(tokenizer **out, const char *path);

/* A directory: tokenizer.json, else tokenizer.model; with tokenizer_config.json and
 * chat_template.jinja or chat_template.json where present. *out NULL with PESC_OK when there is no
 * tokenizer. */
pesc_status tokenizer_open_dir(tokenizer **out, const char *dir);

/* The vocabulary inside a GGUF file, as its metadata gives it. Arrays have n entries and are
 * borrowed for the call. */
typedef struct gguf_vocab {
    const char *file; /* for messages */
    /* "llama" (SentencePiece BPE), "gpt2" (byte-level BPE), "t5" (Unigram), or "no_vocab": then
     * `json` says all */
    const char *model;
    const char *pre; /* which split pattern: "llama-bpe", "qwen2", "deepseek-llm", ... */
    size_t n;
    const char *const *tokens;
    const size_t *token_bytes;
    const float *scores;  /* NULL where absent */
    const int32_t *types; /* 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte; or NULL */
    size_t n_merges;
    const char *const *merges;  /* "left right" */
    int64_t bos, eos, pad, unk; /* -1 where absent */
    bool add_bos, add_eos, add_space_prefix;
    const char *chat_template;     /* NULL where absent */
    const unsigned char *charsmap; /* "t5": precompiled_charsmap; NULL where absent */
    size_t charsmap_bytes;
    bool remove_extra_whitespaces;
    const char *json; /* a whole tokenizer.json; NULL where absent */
    size_t json_bytes;
    void *own; /* memory of tokenizer_to_gguf(); NULL: all is borrowed */
} gguf_vocab;
pesc_status tokenizer_from_gguf(tokenizer **out, const gguf_vocab *v);

/* Writes tokenizer.json and tokenizer_config.json (special tokens, chat template) of a "gpt2" or
 * "llama" vocabulary into a directory, reads them back and notes where they encode otherwise. Of
 * any other kind nothing is written, with a notice. */
pesc_status tokenizer_write_gguf(const gguf_vocab *v, const char *dir);

/* The inverse of tokenizer_from_gguf(): the vocabulary as GGUF has it, filled up to n_rows tokens.
 * Candidates for the way text is split are tried until one encodes a set of texts and every token
 * as `t` does. Where GGUF has no name for it, `json` holds the file instead, with a notice.
 * tokenizer_gguf_free() takes what was filled in, also after a failure. */
pesc_status tokenizer_to_gguf(gguf_vocab *out, const tokenizer *t, int64_t n_rows);
void tokenizer_gguf_free(gguf_vocab *v);

void tokenizer_close(tokenizer *t); /* NULL is allowed */

/* flags: PESC_ADD_SPECIAL, PESC_PARSE_SPECIAL. The ids array grows as needed. Without
 * PESC_PARSE_SPECIAL no text gives the id of a control token, whether the text spells it or the
 * model's merges and pieces lead to it; only unk comes, for text the vocabulary does not cover. */
typedef struct id_list {
    int32_t *ids; /* for mem_free() */
    size_t n, cap;
} id_list;
pesc_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags,
                             id_list *out); /* appends */
pesc_status id_list_add(id_list *l, int32_t id);

/* A piece of a text made of several: literal ones (control) may hold control tokens, the text of a
 * person never does. */
typedef struct tok_piece {
    const char *text;
    size_t n;
    bool control, trained;
} tok_piece;

/* Appends the ids of the pieces joined to one text, framed by nothing. It is encoded as
 * tokenizer_encode() does with PESC_PARSE_SPECIAL alone, so words merge over the seams, but a
 * control token is recognised only where every byte of it belongs to pieces with `control`. That
 * holds too for an added token that looks like a control token and is not marked as one.
 *
 * `trained` (may be NULL) gets one byte an id added, for mem_free(): the piece's `trained` flag. An
 * id that stretches over a seam has the flag of the later piece; inside a run between two added
 * tokens the seam is placed after the ids that the run up to there, encoded alone, has in common
 * with the whole run. `trained` changes at most twice in such a run, so this stays linear. */
pesc_status tokenizer_encode_pieces(const tokenizer *t, const tok_piece *pieces, size_t n,
                                    id_list *out, unsigned char **trained);

/* Streaming decode. Feed ids one by one; text comes out as soon as it is certain: half a UTF-8
 * character is held back, and so is what a decoder of the chain still may change. */
typedef struct decode_stream decode_stream;

/* A flag beside PESC_SKIP_SPECIAL, for a text that is read while it grows. Hugging Face's byte
 * fallback takes a run of byte tokens for text as a whole, or for none: that is known after the
 * last of them. With this flag a character comes out with its last byte, whatever follows it.
 * DECODE_RAW: each token's bytes come out at once, also half characters. */
enum { DECODE_AT_ONCE = 1 << 16, DECODE_RAW = 1 << 17 };
pesc_status decode_open(decode_stream **out, const tokenizer *t, unsigned flags);
/* A stream that goes on after the text of n ids: only what the tokens that follow add comes out. A
 * SentencePiece word that begins a text loses its space; one that follows a text keeps it. */
pesc_status decode_open_after(decode_stream **out, const tokenizer *t, unsigned flags,
                              const int32_t *ids, size_t n);
/* The same of a stream that is open, whatever it was fed. */
pesc_status decode_restart_after(decode_stream *d, const int32_t *ids, size_t n);
pesc_status decode_feed(decode_stream *d, int32_t id, const char **text, size_t *n);
pesc_status decode_finish(decode_stream *d, const char **text, size_t *n); /* what was held back */
/* The same, added to out. Ids beyond the tokenizer are padding of the vocabulary and have no text.
 * decode_end also reports whether out had the memory for all of it. */
pesc_status decode_add(decode_stream *d, const tokenizer *t, int32_t id, str *out);
pesc_status decode_end(decode_stream *d, str *out);
/* The text of n ids, added to out. */
pesc_status decode_text(const tokenizer *t, const int32_t *ids, size_t n, unsigned flags, str *out);
void decode_close(decode_stream *d);

/* The first control token spelled in n bytes of valid UTF-8: text[*begin..*end). */
pesc_status tokenizer_find_control(const tokenizer *t, const char *text, size_t n, size_t *begin,
                                   size_t *end, bool *found);

/* Facts. Ids are -1 where the tokenizer does not say. */
int64_t tokenizer_size(const tokenizer *t);     /* largest id + 1, added tokens included */
const char *tokenizer_kind(const tokenizer *t); /* "bpe", "unigram" */
int32_t tokenizer_id(const tokenizer *t,
                     const char *token); /* exact token string, added ones too; -1 */
int32_t tokenizer_added_id(const tokenizer *t, const char *token);      /* of an added token; -1 */
const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *n); /* raw token; NULL: none */
bool tokenizer_is_special(const tokenizer *t, int32_t id);
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
const char *tokenizer_chat_template(const tokenizer *t); /* Jinja source, NULL: none */
const char *tokenizer_tool_template(const tokenizer *t); /* used where tools are given, or NULL */
/* The tokens that a template may name: {"bos_token": "<s>", ...}; borrowed, NULL: none. */
const json_t *tokenizer_named_tokens(const tokenizer *t);
/* The folder of transformers' named chat templates; of these pesc reads tool_use.jinja. */
#define TOKENIZER_MORE_TEMPLATES "additional_chat_templates"
/* Takes dir/chat_template.jinja with what the folder above has beside it, else
 * dir/chat_template.json, in the place of the chat template; fine when there is none. */
pesc_status tokenizer_take_template(tokenizer *t, const char *dir);

#endif
