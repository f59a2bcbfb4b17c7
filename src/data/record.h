/* record: what one record of a data set says, whatever names its fields have.
 *
 * Formats are rows: the fields that make a prompt, the field that answers, or one of the few shapes
 * that need code (messages, sharegpt, camelidae, token ids). The row is chosen by the fields of a
 * file's first record; every other record of that file must fit the same row. Preferences have rows
 * of their own, whose records pair.h turns into ordinary ones. */
#ifndef PESC_DATA_RECORD_H
#define PESC_DATA_RECORD_H

#include "data/pair.h"
#include "data/source.h"

typedef struct record_format record_format;

typedef enum record_kind {
    RECORD_CHAT,       /* messages in the model's chat format; assistants' turns are trained */
    RECORD_COMPLETION, /* messages[0] the prompt, messages[1] the completion, as plain text */
    RECORD_TEXT,       /* messages[0]: all of it is trained */
    RECORD_IDS         /* token ids and labels as they are */
} record_kind;

/* What a reader of records is looking for. */
typedef enum record_class {
    RECORD_INSTRUCTION, /* one conversation or text */
    RECORD_PAIR,        /* a chosen and a rejected answer */
    RECORD_LABELLED,    /* an answer with a label: desirable or not */
    RECORD_ANY          /* any of these: pairs before instructions, which they may hold too */
} record_class;

typedef struct record {
    record_kind kind;
    json_t *messages;      /* [n] objects of the record's own: as chat_request has them */
    unsigned char *masked; /* [n]: an answer that is not trained */
    size_t n, cap;
    json_t *tools;         /* an array, for the template; NULL: none */
    unsigned n_calls;      /* of functions that came without an id and were given one */
    int32_t *ids, *labels; /* RECORD_IDS; labels -100: not trained */
    size_t n_ids;
} record;

const record_format *record_format_find(const char *name); /* NULL: unknown */
const char *record_format_name(const record_format *f);
record_kind record_format_kind(const record_format *f);
record_class record_format_class(const record_format *f);

/* The row of each file of a source, for mem_free(): the row `name`, or where that is NULL the one
 * of the class that its first record fits. */
pesc_status record_formats(source *src, const char *name, record_class wanted,
                           const record_format ***out);

/* The row of a class that a first record fits; NULL when none (see pesc_last_error for what was
 * found). */
const record_format *record_format_detect(const json_t *v, record_class wanted);

/* The answers of a record of preferences, as records that record_read() reads with the row *as.
 * Fails like it. Free *out even after a failure. */
pesc_status record_answers(pair_answers *out, const record_format *f, const json_t *v,
                           const record_format **as);

/* For a row of class RECORD_INSTRUCTION. Fails with a sentence that begins with the field
 * ("output: is missing; found ..."); the caller puts the place before it. Free it with
 * record_free() even after a failure. */
pesc_status record_read(record *r, const record_format *f, const json_t *v);
void record_free(record *r);

/* Appends a message, which it takes, also where it fails. */
pesc_status record_add(record *r, json_t *message, bool masked);
/* The text of a message of one; "" where it has none, or parts. */
const char *record_text(const record *r, size_t i);
/* Whether a message is an answer: what the assistant says. */
bool record_is_answer(const record *r, size_t i);

#endif
