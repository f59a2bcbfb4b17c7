/* dataset: records as token sequences with labels, found by position.
 *
 * Position p of a run is record shuffle(p mod N) of epoch p div N: the place in the data is a
 * number that follows from the step, so resuming costs nothing and loses nothing. A record is one
 * sequence, or two where it is a pair of answers; over-long ones are dropped, cut, split into
 * several (not pairs), or an error, as asked. N counts the records that are used: those of
 * dataset_leave_out() have no position. */
#ifndef PESC_DATA_DATASET_H
#define PESC_DATA_DATASET_H

#include "data/template.h"

typedef enum over_length { OVER_DROP, OVER_TRUNCATE, OVER_SPLIT, OVER_ERROR } over_length;
bool over_length_find(const char *name, over_length *out); /* "drop" "truncate" "split" "error" */

typedef struct dataset_options {
    const char *const *paths;
    size_t n_paths;
    record_class wanted;  /* instructions, unless another is asked for */
    const char *format;   /* NULL or "": found by looking */
    const char *template; /* a chat format; NULL or "": the model's, else camelidae */
    int32_t seq_len;
    over_length over;
    bool shuffle;
    const char *reasoning, *turns; /* names of template_how_find() */
    bool keep_reasoning;           /* false: reasoning is "drop" */
    int64_t unpack_ratio;          /* see unpack.h; 0: its default */
    uint64_t seed;
    const tokenizer *tok;    /* borrowed; NULL: only token ids can be read */
    const chat_format *chat; /* the model's, or NULL */
    int32_t vocab;           /* ids at or above are refused */
} dataset_options;

/* Initialisers of dataset_options, for all who read records with a model: the fields that each
 * struct of public options with records has, and those that come from an open model. */
#define DATASET_RECORDS(o)                                                                         \
    .format = (o)->format, .template = (o)->chat_template, .keep_reasoning = (o)->keep_reasoning,  \
    .reasoning = (o)->reasoning, .turns = (o)->turns, .unpack_ratio = (o)->unpack_ratio
#define DATASET_MODEL(m)                                                                           \
    .tok = (m)->tok, .chat = chat_otherwise((m)->chat), .vocab = (m)->shape.cfg.vocab

typedef struct dataset dataset;
pesc_status dataset_open(dataset **out, const dataset_options *opt);
void dataset_close(dataset *d); /* NULL is allowed */

/* Takes a part (0 < part < 1) of the records out of `d`, at least one and not all, drawn by its
 * seed; the same files and seed give the same records. They become the data set *out, in the order
 * of the files. It reads through `d`: close it first. */
pesc_status dataset_split(dataset *d, double part, dataset **out);

/* Gives the records of these numbers, ascending and below dataset_count(), no position: those of
 * which dataset_check() makes no sequence. Copied; replaces the list before. */
pesc_status dataset_leave_out(dataset *d, const uint64_t *indexes, size_t n);

uint64_t dataset_count(const dataset *d); /* records of the files */
uint64_t dataset_used(const dataset *d);  /* those of an epoch: without what is left out */
uint64_t dataset_hash(const dataset *d);  /* of all files, their formats and the template */
/* Of the (first) file that a path stands for; "" where there are fewer paths. */
const char *dataset_format(const dataset *d, size_t path);
const char *dataset_template(const dataset *d); /* name of the chat format in use */
bool dataset_has_chats(const dataset *d);       /* whether any file holds conversations */
const source *dataset_source(const dataset *d);
const dataset_options *dataset_how(const dataset *d); /* as opened; its strings are the caller's */

/* One training sequence: labels[i] is ids[i] where it is trained, else TEMPLATE_IGNORE. */
typedef struct sequence {
    const int32_t *ids, *labels;
    int32_t n;
    answer_role role;
    uint64_t record; /* its number, below dataset_count() */
} sequence;
int32_t dataset_targets(const sequence *s); /* tokens that are predicted and trained */

/* Whether a record has something to learn: one of its samples, or both answers of a pair. */
bool dataset_trains(const sequence *samples, size_t n);

/* The sequences of a position: 1, 2 of a pair, more when split, and 0 of a record that should have
 * been left out. dataset_used() must not be 0. Borrowed until the next call. A record with nothing
 * to train on is refused and shown. */
pesc_status dataset_at(dataset *d, uint64_t position, const sequence **list, size_t *n);

/* The number of the record of a position. */
uint64_t dataset_record(const dataset *d, uint64_t position);

/* Records by number, below dataset_count(): in the order of the files, not shuffled.
 *
 * dataset_samples() gives what a record says, not cut: one sample, more of a conversation whose
 * answers are trained apart, or the chosen and the rejected answer of a pair, each with its prompt.
 * Nothing to train on is no failure there.
 * dataset_check() gives the same and whether training can use it: *n receives the sequences that
 * they are cut into; PESC_FORMAT, with the place and the bytes, when it can not. *list is NULL
 * where the record cannot be read. */
pesc_status dataset_samples(dataset *d, uint64_t index, const sequence **list, size_t *n);
pesc_status dataset_check(dataset *d, uint64_t index, const sequence **samples, size_t *n_samples,
                          size_t *n);

/* The prompt of a record that is used with the answer of the one before it, cut at seq_len: within
 * each `block` of used records, in the order of the files, the first has the answer of the last.
 * Borrowed until the next call of this function. */
pesc_status dataset_mismatched(dataset *d, uint64_t index, uint64_t block, sequence *out);
/* The domain of a record: its field "domain", or without one the name of its file without directory
 * and ending; control characters in it are written as \x1B, and what is longer than 124 bytes is
 * cut. Domains are numbered in the order of their first record read; the name is borrowed until
 * close. */
pesc_status dataset_domain(dataset *d, uint64_t index, size_t *number, const char **name);

#endif
