/* pesc: turn a dense language model into a sparse mixture of experts, tune it, test it, run it.
 *
 *     #include <pesc/pesc.h>
 *     #include <stdio.h>
 *     static bool emit(void *ud, const char *text, size_t n)
 *     {
 *         return fwrite(text, 1, n, (FILE *)ud) == n;
 *     }
 *     int main(int argc, char **argv)
 *     {
 *         pesc_device *dev = NULL; pesc_model *m = NULL; pesc_session *s = NULL;
 *         pesc_sample_options opt = pesc_sample_defaults();
 *         pesc_status st = argc == 2 ? pesc_device_open(&dev, "cpu") : PESC_USAGE;
 *         if (!st) st = pesc_model_open(&m, dev, argv[1], NULL);
 *         if (!st) st = pesc_session_open(&s, m, 0);
 *         if (!st) st = pesc_session_generate(s, "Once upon a time", &opt, emit, stdout);
 *         if (st) fprintf(stderr, "%s\n", pesc_last_error());
 *         pesc_session_close(s); pesc_model_close(m); pesc_device_close(dev);
 *         return pesc_status_exit_code(st);
 *     }
 *
 * Every call that can fail returns a pesc_status; pesc_last_error() then holds one sentence for
 * this thread. The library never prints and never exits. Handles are not shared between threads at
 * the same time. Close children before parents; closing NULL is allowed. Strings are UTF-8. */
#ifndef PESC_H
#define PESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pesc/options.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define PESC_VERSION "0.1.0"    /* of this header */
const char *pesc_version(void); /* of the library, which a program may find newer at run time */

/* name, value, exit code of the command, text */
#define PESC_STATUS_MAP(X)                                                                         \
    X(OK, 0, 0, "done")                                                                            \
    X(USAGE, 1, 2, "the request is not valid")                                                     \
    X(IO, 2, 3, "a file cannot be read")                                                           \
    X(FORMAT, 3, 3, "a file is malformed or truncated")                                            \
    X(SHAPE, 4, 3, "a model's tensors do not fit its configuration")                               \
    X(UNSUPPORTED, 5, 3, "a file holds something pesc does not support")                           \
    X(DISK, 6, 4, "a file cannot be written")                                                      \
    X(NOMEM, 7, 4, "not enough memory")                                                            \
    X(DEVICE, 8, 4, "a device or library is missing or failed")                                    \
    X(NUMERIC, 9, 5, "the numbers are not finite")                                                 \
    X(STOPPED, 10, 75, "stopped on request after saving")

typedef enum pesc_status {
#define PESC_STATUS_ENUM(name, value, code, text) PESC_##name = value,
    PESC_STATUS_MAP(PESC_STATUS_ENUM)
#undef PESC_STATUS_ENUM
} pesc_status;

const char *pesc_status_text(pesc_status s);
int pesc_status_exit_code(pesc_status s);
const char *pesc_last_error(void); /* this thread's last failure, in full; "" if none */

/* ---- structs that may grow ----
 *
 * Options, reports and the other structs below that begin with `size` gain fields at their end in
 * later versions. The caller states how many bytes of the struct it knows, so a program and a
 * library of different versions work together:
 *
 *     pesc_model_info info = PESC_INIT(pesc_model_info);
 *
 * sets `size` and zeroes the rest. The library writes no byte beyond `size` and sets fields it does
 * not know to 0; given a longer struct than it knows, it refuses one whose further fields are not
 * 0. Structs without `size` never change. */
#ifdef __cplusplus
#define PESC_INIT(type)                                                                            \
    ([] {                                                                                          \
        type pesc_value = {};                                                                      \
        pesc_value.size = sizeof pesc_value;                                                       \
        return pesc_value;                                                                         \
    }())
#else
#define PESC_INIT(type) ((type){ .size = sizeof(type) })
#endif

/* ---- events ---- */

/* What a call reports while it runs. The callbacks run on the thread that made the call, before it
 * returns; a callback may call pesc, but gets no events from such a call. Set on a device
 * (pesc_device_events), they serve every call that uses the device or a model, session or trainer
 * opened with it. Calls without a device take a `const pesc_events *`; NULL: no events. */
typedef struct pesc_events {
    size_t size;
    void *ud; /* passed to both */
    /* One sentence that a user should see although nothing failed; NULL: none wanted. */
    void (*notice)(void *ud, const char *sentence);
    /* How far a long call is: `what` names the work ("reading weights"), done of total in any unit.
     * May be called often. NULL: none wanted. */
    void (*progress)(void *ud, const char *what, uint64_t done, uint64_t total);
} pesc_events;

typedef struct pesc_device pesc_device;
typedef struct pesc_model pesc_model;
typedef struct pesc_tokenizer pesc_tokenizer;
typedef struct pesc_session pesc_session;

/* ---- devices ---- */

/* "cpu" (a thread a core), "cpu:4" (4 threads). */
pesc_status pesc_device_open(pesc_device **out, const char *spec);
const char *pesc_device_name(const pesc_device *dev);
/* Copies ev; NULL: no events. Not while another call uses the device. */
pesc_status pesc_device_events(pesc_device *dev, const pesc_events *ev);
void pesc_device_close(pesc_device *dev);

/* ---- models ---- */

typedef struct pesc_load_options {
    size_t size;
    PESC_LOAD_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_load_options;

/* path: a Hugging Face directory or a .gguf file. opt NULL: defaults. The model keeps dev. */
pesc_status pesc_model_open(pesc_model **out, pesc_device *dev, const char *path,
                            const pesc_load_options *opt);
void pesc_model_close(pesc_model *m);

/* Puts an expert patch into a loaded model, in the place of one that is in; takes it out, and the
 * model is bit for bit what it was. dir: a directory with expert_cfg.json and safetensors, or a run
 * of method esft or a checkpoint of one. PESC_SHAPE when it does not belong to this model; then,
 * and on any other failure, the model is without a patch, or as it was. Sessions must be reset; not
 * while the model is trained. */
pesc_status pesc_model_patch(pesc_model *m, const char *dir);
pesc_status pesc_model_unpatch(pesc_model *m);

typedef struct pesc_model_info {
    char family[32]; /* "llama", "camelidae", ... */
    char format[32]; /* "safetensors", "gguf", "torch" */
    char dtype[16];  /* of most weights, as stored */
    int64_t dim, layers, heads, kv_heads, head_dim, ffn_dim, vocab, context;
    int64_t experts, top_k, adapter_dim, shared_experts, expert_dim; /* 0 where it has none */
    double adapter_scale;
    uint64_t params_total, params_activated, params_trainable; /* trainable: adapters and routers */
    uint64_t n_tensors, n_files, bytes;                        /* bytes: of the weights on disk */
    char chat[32];      /* chat format, "" when none is known */
    char tokenizer[32]; /* "bpe", "unigram", "" when there is none */
} pesc_model_info;

/* What a path holds, from headers and configuration alone: reads no weight. */
pesc_status pesc_info(const char *path, const pesc_events *ev, pesc_model_info *out);
pesc_status pesc_model_describe(const pesc_model *m, pesc_model_info *out);

/* A randomly initialised model of a config.json, written as a Hugging Face directory. `tokenizer`
 * (may be NULL): a directory or file whose tokenizer files are copied. dtype "f32" or "bf16". */
pesc_status pesc_new(const char *config, const char *out_dir, const char *tokenizer,
                     const char *dtype, uint64_t seed, const pesc_events *ev);

/* ---- crafting: models made from models ---- */

/* How the logits of a model that was written compare with those of what it was made from: both are
 * opened and run in f32 on a fixed set of token ids. Where a function takes a pesc_logit_check, it
 * may be NULL. */
typedef struct pesc_logit_check {
    uint64_t logits, differ; /* compared; not equal bit for bit. logits 0: nothing was compared */
    double max_diff;         /* the largest |a - b| */
    double max_logit;        /* the largest |a| of what it was made from */
    double error;            /* median over positions of |a - b| / |a|, both around their mean */
    double kl;               /* mean KL divergence of a position, in nats */
    uint64_t positions;      /* token ids that were run */
    uint64_t greedy_same;    /* positions whose most likely token is the same */
    uint64_t
        beyond_rounding; /* positions that differ by more than rounding to the stored dtype
                            explains; in a mixture an expert may have been chosen differently */
} pesc_logit_check;

typedef struct pesc_craft_options {
    size_t size;
    PESC_CRAFT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_craft_options;

/* A sparse model from a dense one (a Hugging Face directory or a .gguf file), streamed in bounded
 * memory to a directory that is empty or not there. "pesc" writes the layout of Camelidae: the
 * dense tensors bit for bit, routers and adapter_down random, adapter_up zero, so the logits are
 * the dense model's bit for bit. "upcycle" writes Mixtral (Llama, Mistral and Yi parents),
 * Qwen2-MoE or Qwen3-MoE, whose experts are equal and whose gates sum to 1: the same logits up to
 * rounding. PESC_NUMERIC when they are not. */
pesc_status pesc_craft(const char *dense_dir, const char *out_dir, const pesc_craft_options *opt,
                       pesc_logit_check *check);

typedef struct pesc_export_options {
    size_t size;
    PESC_EXPORT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_export_options;

/* Folds a LoRA into the weights it stands on: W + scale B A, computed in f32, written in the dtype
 * they are stored in. Adapters of PESC are no linear map and stay. */
pesc_status pesc_merge(const char *model, const char *out_dir, const pesc_export_options *opt,
                       pesc_logit_check *check);

/* Writes a model for other programs. to: "hf", its family's own directory; "camelidae", the
 * published layout of models with adapters; "peft", the LoRA alone. The first two fold a LoRA in,
 * as pesc_merge() does. What a target cannot hold is refused. */
pesc_status pesc_export(const char *model, const char *to, const char *out_dir,
                        const pesc_export_options *opt, pesc_logit_check *check);

/* Every model directory that pesc writes lists its files in .pesc-files.json. The first call says
 * whether `dir` may be replaced: PESC_USAGE when pesc did not write it, when it is a run, or when
 * one of the n inputs (NULL entries are skipped) is in it or stands on it. The second puts `fresh`,
 * a directory of the same file system that pesc wrote, in its place: files on the old list go,
 * others stay, and at every moment one of the two models is complete. `fresh` is gone afterwards.
 */
pesc_status pesc_model_check_replace(const char *dir, const char *const *inputs, size_t n);
pesc_status pesc_model_replace(const char *fresh, const char *dir);

/* ---- text ---- */

/* A model directory, tokenizer.json, tokenizer.model or .gguf. */
pesc_status pesc_tokenizer_open(pesc_tokenizer **out, const char *path, const pesc_events *ev);
void pesc_tokenizer_close(pesc_tokenizer *t);
const pesc_tokenizer *pesc_model_tokenizer(const pesc_model *m); /* NULL when it has none */

enum {
    PESC_ADD_SPECIAL = 1,   /* BOS/EOS as the tokenizer's post-processor says */
    PESC_PARSE_SPECIAL = 2, /* control tokens written in the text become control tokens */
    PESC_SKIP_SPECIAL = 4   /* decode: leave control tokens out */
};

/* *count is what the text needs, even when cap is short (then ids holds the first cap). Invalid
 * UTF-8 is read as U+FFFD, as Python's errors="replace" does. */
pesc_status pesc_tokenize(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                          int32_t *ids, size_t cap, size_t *count);
/* *len bytes are needed, even when cap is short; not NUL-terminated. */
pesc_status pesc_detokenize(const pesc_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                            char *text, size_t cap, size_t *len);
int64_t pesc_vocab_size(const pesc_tokenizer *t);

/* ---- running ---- */

/* One timeline over a model: its KV cache and what was fed so far. n_ctx 0: the model's context,
 * at most 4096. */
pesc_status pesc_session_open(pesc_session **out, pesc_model *m, int32_t n_ctx);
void pesc_session_close(pesc_session *s);
void pesc_session_reset(pesc_session *s); /* back to an empty timeline */

/* Appends ids; *logits: those of the last one [vocab], valid until the next call. */
pesc_status pesc_session_feed(pesc_session *s, const int32_t *ids, size_t n, const float **logits);

/* Float32 logits [n, vocab] of every position of one sequence, in one pass, into `out`. */
pesc_status pesc_logits(pesc_model *m, const int32_t *ids, size_t n, float *out);

typedef struct pesc_sample_options {
    size_t size;
    PESC_SAMPLE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_sample_options;

/* Receives text as it comes, whole characters only; false stops the generation. */
typedef bool (*pesc_text_fn)(void *ud, const char *text, size_t n);

typedef struct pesc_generation {
    int32_t *ids; /* the new tokens, end token included; freed by pesc_generation_free */
    size_t n_ids;
    char *text; /* without control tokens, up to the stop string */
    size_t n_text, n_prompt;
    char finish[16]; /* "stop", "length", "stopped" */
    double prefill_seconds, decode_seconds;
} pesc_generation;
void pesc_generation_free(pesc_generation *g);

/* Brings the timeline to exactly these ids (a prefix it already holds is not computed again), then
 * lets the model go on. emit and out may be NULL. */
pesc_status pesc_session_complete(pesc_session *s, const int32_t *ids, size_t n,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud,
                                  pesc_generation *out);
pesc_status pesc_session_generate(pesc_session *s, const char *prompt,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud);

typedef struct pesc_perplexity_report {
    uint64_t tokens; /* predicted */
    double loss, perplexity;
    double seconds;
} pesc_perplexity_report;
/* The text is cut into windows of n_ctx tokens (0: the model's context, at most 2048), each
 * predicted from its own start. */
pesc_status pesc_perplexity(pesc_model *m, const char *text, size_t n, int32_t n_ctx,
                            pesc_perplexity_report *out);

/* ---- conversation ---- */

typedef struct pesc_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} pesc_message;

/* Names of the chat formats pesc knows; NULL behind the last. */
const char *const *pesc_chat_formats(void);
/* The model's own format, "" when its template is unknown or absent (see pesc_last_error). */
const char *pesc_model_chat_format(const pesc_model *m);
/* Ids of a conversation that ends where the assistant is to speak. format NULL: the model's. The
 * text of messages never becomes a control token. *count as in pesc_tokenize. */
pesc_status pesc_chat_tokenize(const pesc_model *m, const char *format,
                               const pesc_message *messages, size_t n, int32_t *ids, size_t cap,
                               size_t *count);
/* Strings at which the assistant's turn ends, besides the model's end tokens. */
const char *const *pesc_chat_stops(const char *format, size_t *n);

/* ---- data ---- */

typedef struct pesc_data_options {
    size_t size;
    PESC_DATA_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_data_options;

typedef struct pesc_data pesc_data;
/* Records as training sees them. path: a model, or anything that has a tokenizer. The events are
 * those of every call on the data. */
pesc_status pesc_data_open(pesc_data **out, const char *path, const pesc_data_options *opt,
                           const pesc_events *ev);
void pesc_data_close(pesc_data *d);
uint64_t pesc_data_records(const pesc_data *d);
const char *pesc_data_format(const pesc_data *d, size_t file);
const char *pesc_data_template(const pesc_data *d);
const pesc_tokenizer *pesc_data_tokenizer(const pesc_data *d); /* NULL where there is none */

/* A record whole, by its number from 0: labels[i] is ids[i] where it is trained, else -100.
 * Borrowed until the next call. */
pesc_status pesc_data_record(pesc_data *d, uint64_t index, const int32_t **ids,
                             const int32_t **labels, size_t *n);
/* What a record is about: its field "domain", or the name of its file. Domains are numbered as they
 * are met; the name is borrowed until close. More than PESC_DATA_DOMAINS are refused. */
enum { PESC_DATA_DOMAINS = 64 };
pesc_status pesc_data_domain(pesc_data *d, uint64_t index, size_t *number, const char **name);

enum { PESC_DATA_BUCKETS = 64 };
typedef struct pesc_data_report {
    uint64_t records;             /* all, bad ones too */
    uint64_t bad, without_target; /* cannot be read; nothing to train on */
    uint64_t over_length;         /* longer than seq_len */
    uint64_t unused;              /* good ones that give nothing to train on within seq_len */
    uint64_t tokens, trained;     /* of the records that can be read */
    int64_t shortest, longest;    /* tokens */
    int64_t median, p90, p99;     /* that so many records do not exceed */
    char first[1024];             /* the sentence of the first record that fails; "" if none */
    size_t n_buckets;             /* of the histogram of lengths, from the shortest up */
    struct {
        int64_t from, to; /* tokens, to included */
        uint64_t records;
    } buckets[PESC_DATA_BUCKETS];
} pesc_data_report;
/* Reads every record. Bad ones are counted, not failures. */
pesc_status pesc_data_survey(pesc_data *d, pesc_data_report *out);

/* One part of a mixture: what is wanted of some files, and what was found in them. */
typedef struct pesc_mix_part {
    const char *domain;
    const char *const *files;
    size_t n_files;
    uint64_t records;                         /* wanted */
    uint64_t available, duplicates, unusable; /* filled in; the last two: met and left out */
} pesc_mix_part;
/* Draws the wanted records without replacement in the order of the seed, leaves out records whose
 * turns were there already and those without a prompt or an answer, and writes them in one mixed
 * order as lines {"messages": [...], "domain": ...}. out_path.mix.json tells how it was made. */
pesc_status pesc_data_mix(pesc_mix_part *parts, size_t n, uint64_t seed, const char *out_path,
                          const pesc_events *ev);

/* ---- training ---- */

typedef struct pesc_train_options {
    size_t size;
    /* Checked between forwards; not 0: finish the step, save, return PESC_STOPPED. NULL: none. */
    volatile const int *stop;
    PESC_TRAIN_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_train_options;

/* "paper", which is also the default, or "published" (as the authors' checkpoints were made);
 * "esft": the settings of that paper for opt->method, which may be esft or one of those it is
 * compared with, full and lora. */
pesc_status pesc_train_preset(pesc_train_options *opt, const char *name);
/* How a model must be opened to be trained with these options: sets fields of *out, which comes
 * from pesc_load_defaults(). */
pesc_status pesc_train_load(const pesc_train_options *opt, pesc_load_options *out);

typedef struct pesc_trainer pesc_trainer;

/* One optimiser step, as metrics.jsonl has it; see docs for each. */
typedef struct pesc_step {
    int64_t step, steps; /* from 1; of the whole run */
    double epoch;
    int64_t tokens; /* since the start of the run */
    double loss, ce, aux, grad_norm, lr;
    double tok_s, utilisation; /* of the device's matrix product speed, 0..1 */
    uint64_t mem_bytes, mem_total;
    double expert_entropy; /* 1: balanced; NaN for a model without experts */
    int64_t dead_experts;
    double eval_loss; /* NaN when this step had none */
    bool skipped;     /* something was not finite: nothing was changed */
    bool saved;
    double seconds_left;
} pesc_step;

/* The model is changed by training and must outlive the trainer. */
pesc_status pesc_trainer_open(pesc_trainer **out, pesc_model *m, const pesc_train_options *opt);
void pesc_trainer_close(pesc_trainer *t);
bool pesc_trainer_done(const pesc_trainer *t);
/* One step, with its validation and its saving where they are due. PESC_STOPPED: saved, and asked
 * to stop (opt->stop, or a file STOP in the run directory). PESC_NUMERIC: three steps in a row
 * were not finite. */
pesc_status pesc_trainer_step(pesc_trainer *t, pesc_step *out);
/* Saves now: atomic, with everything needed to go on bit for bit. */
pesc_status pesc_trainer_save(pesc_trainer *t);

typedef struct pesc_train_info {
    char method[16], optimizer[16];
    uint64_t params_trained, params_total;
    uint64_t records, first_step; /* first_step: 0, or where a resumed run goes on */
    int64_t steps, micro_tokens, kept_layers;
    uint64_t bytes_model, bytes_trained,
        bytes_activations; /* trained: weights, gradients, moments */
    uint64_t bytes_total;  /* of the device */
    uint64_t over_length;  /* records longer than seq_len; see over_length of the options */
    char checkpoint[32];   /* of a resumed run */
    uint64_t bytes_paged;  /* moments in the host's memory, not counted above */
} pesc_train_info;
void pesc_trainer_describe(const pesc_trainer *t, pesc_train_info *out);

/* Bytes unless said otherwise. */
typedef struct pesc_plan_report {
    uint64_t params_total, params_trained;
    uint64_t model, trained, optimizer, activations; /* trained: weights and gradients */
    uint64_t total, available;
    bool fits;
    int64_t micro_tokens, largest_micro_tokens; /* of a forward; the largest that would fit */
    int64_t kept_layers, layers;
    uint64_t checkpoint_bytes, run_bytes; /* on disk */
    bool paged; /* the optimiser's moments are in the host's memory, and not in the total */
} pesc_plan_report;
/* The memory of a run, from configuration and file headers alone. */
pesc_status pesc_plan(pesc_device *dev, const char *model, const pesc_train_options *opt,
                      pesc_plan_report *out);

/* ---- benchmarks ---- */

/* One question of a task as it was answered. Strings are borrowed for the call. */
typedef struct pesc_eval_sample {
    uint64_t record; /* from 0 */
    const char *domain, *prompt, *expected, *answer;
    bool correct;
} pesc_eval_sample;
typedef void (*pesc_eval_fn)(void *ud, const pesc_eval_sample *sample);

typedef struct pesc_eval_options {
    size_t size;
    pesc_eval_fn each; /* receives every sample; NULL: none */
    void *ud;
    PESC_EVAL_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_eval_options;

typedef struct pesc_eval_score {
    char *domain;                           /* NULL: all of them */
    uint64_t records;                       /* scored */
    uint64_t tokens;                        /* of their answers */
    double loss;                            /* mean over these, in nats; NaN when there are none */
    uint64_t asked, correct;                /* a record without a prompt cannot be asked */
    double exact_match, exact_match_stderr; /* correct / asked; NaN when nothing was asked */
} pesc_eval_score;
typedef struct pesc_eval_report {
    pesc_eval_score all, *domains;
    size_t n_domains;
    uint64_t too_long;  /* records that do not fit the session: left out */
    uint64_t generated; /* tokens */
    double seconds;
} pesc_eval_report;
/* Scores a task: a file of instruction records (JSON lines or a JSON array, as for training). The
 * loss is that of the trained tokens; a question is answered correctly when the greedy answer is
 * the record's last answer, but for space around it. Domains as in pesc_routes(). The session gives
 * the model and the longest record; its timeline is not touched. For pesc_eval_free() even after a
 * failure. */
pesc_status pesc_eval(pesc_session *s, const char *task, const pesc_eval_options *opt,
                      pesc_eval_report *out);
void pesc_eval_free(pesc_eval_report *r);

/* Whether a model's text is the expected answer of ESFT's intent benchmark: the same intent and the
 * same slots, by the rules of its reference code. PESC_FORMAT: `expected` is no such answer. */
pesc_status pesc_eval_intent(const char *prediction, size_t n, const char *expected,
                             size_t n_expected, bool *match);

/* ---- what routers do ---- */

typedef struct pesc_routes_options {
    size_t size;
    PESC_ROUTES_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_routes_options;

typedef struct pesc_routes_domain {
    char *name;
    uint64_t records, tokens;
} pesc_routes_domain;
typedef struct pesc_routes_report {
    pesc_routes_domain *domains;
    int64_t *layers; /* numbers of the layers that have a router */
    size_t n_domains, n_layers, experts, top_k;
    double *share;      /* [n_domains, n_layers, experts]: of the domain's choices in the layer */
    double *difference; /* [n_layers]: 0 when all domains choose alike, 1 when no two domains have
                           an expert in common; NaN with one domain */
} pesc_routes_report;
/* Which experts the tokens of each domain choose. The domain of a record is its field "domain", or
 * where it has none the name of its file. For pesc_routes_free() even after a failure. */
pesc_status pesc_routes(pesc_model *m, const pesc_routes_options *opt, pesc_routes_report *out);
void pesc_routes_free(pesc_routes_report *r);

/* ---- ESFT: the experts a task uses ---- */

typedef struct pesc_esft_score_options {
    size_t size;
    PESC_ESFT_SCORE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_esft_score_options;

typedef struct pesc_esft_score_report {
    uint64_t tokens, records; /* records: 0 where they are not known */
    int64_t layers, experts, top_k;
    double gate_sum; /* the gates of a token added up: mean over tokens and layers */
    double seconds;  /* of the forwards */
} pesc_esft_score_report;

/* How much each expert is used by a task: one forward over its records, which ends at the last
 * router. Writes out_dir/summary.json: with n tokens and k experts a token, an expert's token score
 * is its choices / (n k), its gate score the sum of its gates / n, rounded to 4 decimals. */
pesc_status pesc_esft_score(pesc_model *m, pesc_data *d, const char *out_dir,
                            const pesc_esft_score_options *opt, pesc_esft_score_report *out);
/* The same from what the reference code logs: expert_weights_<layer>.txt in log_dir. */
pesc_status pesc_esft_score_logs(const char *log_dir, const char *out_dir,
                                 const pesc_esft_score_options *opt, const pesc_events *ev,
                                 pesc_esft_score_report *out);

typedef struct pesc_esft_select_options {
    size_t size;
    PESC_ESFT_SELECT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_esft_select_options;

/* Experts chosen by their scores. Layers are in the order of the summary. */
typedef struct pesc_esft_choice {
    size_t n_layers, n_experts; /* layers that have experts; experts of a layer */
    int32_t *layers;            /* [n_layers]: their numbers in the model, from 0 */
    double *scores;             /* [n_layers, n_experts] */
    bool *chosen;               /* [n_layers, n_experts] */
    int32_t *order;             /* [n_layers, n_experts]: the chosen, best first */
    int32_t *counts;            /* [n_layers]: of the chosen */
    int64_t total;
    bool shared_experts, non_expert_modules; /* false; see pesc_train_options */
} pesc_esft_choice;
void pesc_esft_choice_free(pesc_esft_choice *c);

/* summary: a summary.json, or the directory it is in. */
pesc_status pesc_esft_select(const char *summary, const pesc_esft_select_options *opt,
                             const pesc_events *ev, pesc_esft_choice *out);
/* What any of n choices over the same layers has: each layer's experts in the order of the
 * choices. The scores are the largest. */
pesc_status pesc_esft_unite(const pesc_esft_choice *choices, size_t n, pesc_esft_choice *out);
pesc_status pesc_esft_write(const pesc_esft_choice *c, const char *path); /* expert_cfg.json */

typedef struct pesc_esft_counts {
    uint64_t trainable, total; /* parameters */
    uint64_t bytes;            /* of the trainable ones, in the model's dtype */
} pesc_esft_counts;
/* What of a model a choice trains; fails when they do not fit. Reads no weight. */
pesc_status pesc_esft_count(const char *model, const pesc_esft_choice *c, const pesc_events *ev,
                            pesc_esft_counts *out);

/* Writes base with the patch in it as a model directory: patched tensors in the dtype the base
 * stores them in, all others the base's bit for bit. patch_dir as in pesc_model_patch(). Where dev
 * is given, both are run on it and compared; out_dir NULL: only sees whether the patch belongs to
 * the base. */
pesc_status pesc_esft_apply(pesc_device *dev, const char *base_dir, const char *patch_dir,
                            const char *out_dir);

/* ---- pictures ---- */

/* Written as .svg, .png or .pdf, as the path ends; the same values give the same bytes. Numbers
 * that are not finite leave a gap. Names are UTF-8; NULL is "". */

typedef struct pesc_series {
    const char *name;
    const double *x, *y; /* n points, x ascending */
    size_t n;
    bool faint; /* a backdrop: thin, and in the colour of the series behind it in the list */
    bool dots;  /* a dot at each point */
} pesc_series;
typedef struct pesc_lines {
    const char *title, *note; /* note: a smaller line under the title */
    const char *x_label, *y_label;
    const pesc_series *series;
    size_t n_series;
} pesc_lines;
pesc_status pesc_plot_lines(const char *path, const pesc_lines *p);

/* Matrices as coloured cells, with their values where there is room. */
typedef struct pesc_heat {
    const char *title, *note;
    const char *x_label, *y_label;
    const char *const *panels; /* names of n_panels matrices that share one scale; NULL: none */
    size_t n_panels, rows, cols;
    const char *const *row_names, *const *col_names; /* NULL: numbered from 0 */
    const double *cells;                             /* [n_panels, rows, cols], 0 and more */
    const bool *marked;                              /* cells with a frame; NULL: none */
    double max;                                      /* the darkest value; 0: the largest cell */
} pesc_heat;
pesc_status pesc_plot_heat(const char *path, const pesc_heat *p);

/* Draws a run from what it logged (metrics.jsonl, eval.jsonl, routing.jsonl): loss.svg, loss.png
 * and, where it has experts, experts.svg and experts.png, in run_dir/plots. */
pesc_status pesc_plot_run(const char *run_dir);
/* Which experts each domain chooses: a panel a domain. */
pesc_status pesc_plot_routes(const char *path, const pesc_routes_report *r);

/* ---- options ---- */

/* The options of the command that belong to no function of this library. */
typedef struct pesc_command_options {
    size_t size;
    PESC_COMMAND_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
    PESC_COMMON_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_command_options;

/* The structs of options: NAME, name, the last field they had in the first release. */
#define PESC_OPTION_STRUCTS(X)                                                                     \
    X(LOAD, load, whole_experts)                                                                   \
    X(CRAFT, craft, device)                                                                        \
    X(EXPORT, export, device)                                                                      \
    X(SAMPLE, sample, parse_special)                                                               \
    X(DATA, data, seq_len)                                                                         \
    X(TRAIN, train, lora)                                                                          \
    X(EVAL, eval, chat_template)                                                                   \
    X(ROUTES, routes, seq_len)                                                                     \
    X(ESFT_SCORE, esft_score, model)                                                               \
    X(ESFT_SELECT, esft_select, budget)                                                            \
    X(COMMAND, command, help)

typedef enum pesc_option_struct {
#define PESC_OPTION_STRUCT_ENUM(NAME, name, last) PESC_OPTIONS_##NAME,
    PESC_OPTION_STRUCTS(PESC_OPTION_STRUCT_ENUM)
#undef PESC_OPTION_STRUCT_ENUM
} pesc_option_struct;

/* Sets all of a struct that lies in its first `size` bytes to the defaults, and its size. */
void pesc_options_fill(pesc_option_struct which, void *options, size_t size);

/* pesc_load_options pesc_load_defaults(void), and so on for every struct of options. Start from it,
 * then assign fields. It stores the size of the struct that the caller was compiled with, so the
 * program keeps working with a later library: that uses the defaults for fields the caller does not
 * have. Functions that take options accept NULL for the defaults, check every field against its row
 * in options.h (PESC_USAGE: "lr: found -1, expected a number from 0 to 1e30"), and keep no pointer
 * to the struct. */
#define PESC_OPTION_STRUCT_DEFAULTS(NAME, name, last)                                              \
    static inline pesc_##name##_options pesc_##name##_defaults(void)                               \
    {                                                                                              \
        pesc_##name##_options o;                                                                   \
        pesc_options_fill(PESC_OPTIONS_##NAME, &o, sizeof o);                                      \
        return o;                                                                                  \
    }
PESC_OPTION_STRUCTS(PESC_OPTION_STRUCT_DEFAULTS)
#undef PESC_OPTION_STRUCT_DEFAULTS

/* The rows of options.h as data, for programs that read options from text. */
typedef enum pesc_option_kind {
    PESC_OPTION_TEXT,
    PESC_OPTION_CHAT,
    PESC_OPTION_CHOICE,
    PESC_OPTION_WORDS,
    PESC_OPTION_INT,
    PESC_OPTION_REAL,
    PESC_OPTION_AUTO_INT,
    PESC_OPTION_AUTO_REAL,
    PESC_OPTION_BOOL,
    PESC_OPTION_LIST
} pesc_option_kind;

enum {
    PESC_OPTION_DECIDES = 1,
    PESC_OPTION_LENGTH = 2,
    PESC_OPTION_PATH = 4,
    PESC_OPTION_UNSAVED = 8
};

typedef struct pesc_option {
    const char *key;
    pesc_option_kind kind;
    pesc_option_struct of;
    size_t at, count_at;  /* offsets in the struct: of the field; of a list, of its count */
    const char *fallback; /* the default as text; NULL: none */
    unsigned flags;
    const char *commands; /* "train plan init", "*" or "" */
    const char *help;
    const char *values; /* of CHOICE: "a|b"; else what the help calls the value, NULL for BOOL */
    double min, max;    /* of numbers */
} pesc_option;

/* All rows, in the order of options.h but with those of PESC_LOAD_OPTIONS and PESC_COMMON_OPTIONS
 * at the end. Valid as long as the library. */
const pesc_option *pesc_option_rows(size_t *n);

/* Sets the row's field in its struct from what a user wrote. A text is borrowed, not copied.
 * `where` begins the sentence of a failure ("run.yaml:3: lr"); NULL: the key. Not for lists: their
 * array belongs to the caller. PESC_USAGE: not a value of this row; the field is unchanged. */
pesc_status pesc_option_set(const pesc_option *row, void *options, const char *text,
                            const char *where);

/* Writes the row's value as a user would, with a NUL, into text[cap]; nothing for an absent text
 * and for lists. Returns the length that the whole value needs. */
size_t pesc_option_get(const pesc_option *row, const void *options, char *text, size_t cap);

/* ---- this build ---- */

typedef struct pesc_doctor_row {
    char name[32], state[16], detail[256]; /* state: "ok", "missing", "note" */
} pesc_doctor_row;
size_t pesc_doctor(pesc_doctor_row *rows, size_t cap); /* returns how many there are */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
