/* samples: what is known of the documents of one task, in memory and in samples_<task>.jsonl.
 *
 * A document has one line for each filter. Lines are appended as soon as a document is judged, so
 * that an interrupted evaluation goes on where it was; at the end the file is written again in the
 * order of the documents, so that it does not depend on the order in which they were judged. */
#ifndef PESC_EVAL_SAMPLES_H
#define PESC_EVAL_SAMPLES_H

#include "base/io.h"
#include "backend/peers.h"
#include "eval/task.h"

typedef struct samples {
    const eval_task *task; /* borrowed */
    const task_about *about;
    bool whole;
    /* Of a document: the metrics of each filter; for a generated text then once more those of the
     * text as the reference decodes it. */
    size_t n_values;
    double *values; /* [n_values, n_docs] */
    char **lines;   /* [n_docs]: in the file; NULL: not judged yet */
    size_t n_done;
    char *path;  /* NULL: nothing is written */
    io_log *log; /* NULL: closed */
} samples;

/* The name of the file. */
enum { SAMPLES_NAME = 256 };
void samples_name(char out[SAMPLES_NAME], const char *task);

/* Reads what the file in dir (NULL: none is kept) holds already; a part of a line at its end is
 * dropped. whole: lines also hold the document and its requests, for a judge outside. */
pesc_status samples_open(samples *s, const eval_task *task, const char *dir, bool whole);
void samples_close(samples *s); /* also one that is all zeros */

/* Whether the document is judged, and its line has the document's hashes. */
bool samples_has(const samples *s, const task_doc *doc);

/* The responses of a document and their verdicts, n_filters each; reference NULL: a choice. */
typedef struct samples_verdicts {
    json_t *responses; /* borrowed: what the lines hold as "resps" */
    const task_verdict *text, *reference;
    json_t *judged; /* borrowed: what a model says that judges; NULL: nothing */
} samples_verdicts;
pesc_status samples_add(samples *s, const task_doc *doc, const samples_verdicts *v);

/* Afterwards every process has what any of them has; all call it. */
pesc_status samples_share(samples *s, peers *p);

/* Writes the file in the order of the documents, all of which are judged. */
pesc_status samples_finish(samples *s);

/* Documents with a verdict that only an algebra system could decide; they count as wrong. */
size_t samples_undecided(const samples *s);
/* Documents with a verdict of a judge that could not be read; it counts 0. */
size_t samples_unreadable(const samples *s);

size_t samples_value(const samples *s, bool reference, size_t filter, size_t metric);
metric_score samples_score(const samples *s, size_t value);

#endif
