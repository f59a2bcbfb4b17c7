/* eval: how good a model is: files of instruction records, and benchmarks by name. Part of pesc.h.
 */
#ifndef PESC_EVAL_H
#define PESC_EVAL_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

/* ---- files of records ---- */

/* One question of a task and its answer. Made by the library and valid during the callback. */
typedef struct pesc_eval_sample {
    uint64_t record; /* from 0 */
    const char *domain, *prompt, *expected, *answer;
    bool correct;
} pesc_eval_sample;
typedef void (*pesc_eval_fn)(void *ud, const pesc_eval_sample *sample);

typedef struct pesc_eval_options {
    size_t size;
    pesc_eval_fn each; /* called for every question; NULL: none */
    void *ud;
    PESC_EVAL_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_eval_options;

typedef struct pesc_eval_score {
    char *domain;                           /* NULL: all domains */
    uint64_t records;                       /* scored */
    uint64_t tokens;                        /* of their answers */
    double loss;                            /* their mean, in nats; NaN: there are none */
    uint64_t asked, correct;                /* only records that have a prompt are asked */
    double exact_match, exact_match_stderr; /* correct / asked; NaN: none was asked */
} pesc_eval_score;
typedef struct pesc_eval_report {
    size_t size;
    pesc_eval_score all, *domains;
    size_t n_domains;
    uint64_t too_long;  /* records that are longer than the session and were left out */
    uint64_t generated; /* tokens */
    double seconds;
} pesc_eval_report;
/* Scores a task, a file of instruction records as for training. The loss is that of the target
 * tokens; an answer is correct if the greedy one equals the last answer of the record, apart from
 * space around it. With answer_after, what follows the last mark in both texts is compared: an
 * answer without the mark is wrong, an expected text without it is compared whole. Domains as in
 * pesc_data_domain(). The session determines the model and the longest record; its sequence is not
 * changed. */
pesc_status pesc_eval(pesc_session *s, const char *task, const pesc_eval_options *opt,
                      pesc_eval_report *out);
void pesc_eval_free(pesc_eval_report *r); /* also after a failure */

/* What a model makes of pairs of answers (docs/preferences.md). Without a reference: which answer
 * it finds more likely. */
typedef struct pesc_pairs_report {
    size_t size;
    uint64_t pairs, too_long;          /* scored; longer than the session and left out */
    double accuracy, accuracy_stderr;  /* pairs whose chosen answer is the more likely one */
    double margin;                     /* mean difference of the log-probabilities */
    double accuracy_norm, margin_norm; /* the same of the mean log-probability of a token */
    double logp_chosen, logp_rejected; /* means over the pairs */
    double seconds;
} pesc_pairs_report;
/* Scores a file of pairs. Of the options the format, the template, keep_reasoning, unpack_ratio and
 * limit are read. */
pesc_status pesc_eval_pairs(pesc_session *s, const char *file, const pesc_eval_options *opt,
                            pesc_pairs_report *out);

/* Whether a prediction matches the expected answer of ESFT's intent benchmark: the same intent and
 * the same slots, by the rules of its reference code. PESC_FORMAT: `expected` is malformed. */
pesc_status pesc_eval_intent(const char *prediction, size_t n, const char *expected,
                             size_t n_expected, bool *match_out);

/* ---- benchmarks: named tasks, as lm-evaluation-harness scores them ---- */

typedef struct pesc_benchmark_options {
    size_t size;
    PESC_BENCHMARK_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_benchmark_options;

/* One figure of a task or of a group of tasks. */
typedef struct pesc_benchmark_score {
    const char *task;   /* "mmlu_anatomy"; with "?" where the data is not the published data */
    const char *metric; /* "acc" */
    const char *filter; /* "none", "strict-match" */
    const char *group;  /* the group it belongs to; "": none */
    bool is_group;
    int64_t shots;
    bool reference; /* of a generated text as the reference decodes it: its leading space lost */
    double mean, error; /* error: standard error; NAN where there are too few documents */
    double full;        /* a perfect score: 1, of chrf 100, of judge 10 */
    uint64_t n;         /* documents */
    const double *each; /* [n]: the value of every document */
} pesc_benchmark_score;

typedef struct pesc_benchmark_report {
    size_t size;
    pesc_benchmark_score *scores; /* tasks in order, then groups */
    size_t n_scores;
    char *json;                                 /* results.json, with the counts of tokens */
    uint64_t tokens_requested, tokens_computed; /* 0: everything was known already */
    double seconds;
    void *owner; /* what the texts and values point into */
} pesc_benchmark_report;

/* Whether every name in a list with commas is a benchmark task, a group of them, or a task file. */
bool pesc_benchmark_known(const char *tasks);

/* Evaluates a model on benchmark tasks: docs/eval.md has their rules. An evaluation that was
 * interrupted goes on from what `output` holds. PESC_UNSUPPORTED: the model has no tokenizer. */
pesc_status pesc_benchmark(pesc_model *m, const char *tasks, const pesc_benchmark_options *opt,
                           pesc_benchmark_report *out);
/* The same of the model behind a server with OpenAI's interface, http[s]://HOST[:PORT][/v1]. The
 * key is in the environment's OPENAI_API_KEY. Multiple choice needs a server that gives
 * log-probabilities of prompts, else it is PESC_UNSUPPORTED. */
pesc_status pesc_benchmark_server(const char *url, const char *tasks,
                                  const pesc_benchmark_options *opt, const pesc_events *ev,
                                  pesc_benchmark_report *out);
/* Whether a model is the address of a server. */
bool pesc_benchmark_is_server(const char *model);
void pesc_benchmark_free(pesc_benchmark_report *r); /* also after a failure */

/* Mean and standard error of a[i] - b[i]: two models on the same documents. PESC_USAGE: the scores
 * are not of the same task and number of documents. */
pesc_status pesc_benchmark_difference(const pesc_benchmark_score *a, const pesc_benchmark_score *b,
                                      double *mean, double *error);

/* The built-in tasks and groups; each is given to `row`. */
typedef struct pesc_benchmark_task {
    const char *name, *group; /* group "": none */
    const char *metric;
    bool is_group, present; /* present: the data is there */
    double version;
    int64_t documents, shots;
} pesc_benchmark_task;
pesc_status pesc_benchmark_list(const char *data_dir,
                                void (*row)(void *ud, const pesc_benchmark_task *t), void *ud);

#endif
