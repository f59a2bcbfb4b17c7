/* spmodel: a SentencePiece tokenizer.model, read strictly, and its normaliser.
 *
 * The file is one protobuf message. The reader walks the wire format once, checks every length
 * against the bytes that are there, skips fields it does not know, and refuses what could not be
 * encoded exactly: groups, WORD and CHAR models, bad scores, doubled pieces, a missing <unk>. */
#ifndef PESC_TOKENIZER_SPMODEL_H
#define PESC_TOKENIZER_SPMODEL_H

#include "base/status.h"
#include "base/str.h"

typedef enum sp_type {
    SP_NORMAL = 1,
    SP_UNKNOWN = 2,
    SP_CONTROL = 3,      /* <s>, </s>: never matched in text */
    SP_USER_DEFINED = 4, /* matched in text before anything else, never split or normalised */
    SP_UNUSED = 5,       /* has an id, never produced */
    SP_BYTE = 6          /* "<0x0A>" */
} sp_type;

typedef enum sp_kind { SP_UNIGRAM = 1, SP_BPE = 2 } sp_kind;

typedef struct sp_piece {
    const char *text; /* NUL-terminated valid UTF-8 without NUL inside, in the model's own memory */
    uint32_t n;       /* 1..SP_PIECE_MAX */
    float score;      /* finite */
    sp_type type;
} sp_piece;

#define SP_PIECE_MAX 7999 /* bytes, as in sentencepiece; keeps encoding linear */

/* Read-only once open. The index of a piece is its id; no two pieces have the same text. */
typedef struct spmodel {
    sp_kind kind;
    sp_piece *pieces;
    size_t n;
    int32_t unk, bos, eos, pad; /* -1: none; unk is always there */
    bool byte_fallback;         /* then all 256 byte pieces are there: */
    int32_t bytes[256];         /* id of "<0xNN>", -1 where absent */
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
    bool whitespace_suffix;    /* the dummy goes after the text (treat_whitespace_as_suffix) */
    struct charsmap *map;      /* NULL: identity */
    struct trie *user_defined; /* their texts -> ids; NULL: none */
    char *text_;               /* the memory of all piece texts */
} spmodel;

/* `file` names the bytes in messages; nothing of `bytes` is kept. */
pesc_status spmodel_open(spmodel **out, const unsigned char *bytes, size_t n, const char *file);
void spmodel_close(spmodel *m); /* NULL is allowed */

/* Whether the bytes look like a ModelProto rather than JSON: enough to choose a reader. */
bool spmodel_is(const unsigned char *bytes, size_t n);

/* Appends text as sentencepiece's encoder sees it: user-defined pieces verbatim, charsmap, spaces
 * collapsed and trimmed, dummy prefix, space -> U+2581: each as the model says. Bytes that are not
 * UTF-8 become U+FFFD, one for each maximal invalid run. `dummy` false leaves out the dummy prefix:
 * for text that continues something (after a control token). Whether all of it was appended is in
 * `out`. */
void spmodel_normalise(const spmodel *m, const char *text, size_t n, bool dummy, str *out);

#endif
