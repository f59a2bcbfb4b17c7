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
 * Failures. Every call that can fail returns a pesc_status; pesc_last_error() then holds one
 * sentence for this thread. A missing argument is PESC_USAGE, not a crash. The library never prints
 * and never exits.
 *
 * Handles. Close each handle once, and not while a call uses it; NULL is allowed. The order does
 * not matter: a device stays until its models are closed, a model until its sessions and trainers
 * are; after its own close a handle must not be passed to any call. Strings are UTF-8; a string or
 * array that a call returns belongs to the handle it came from, unless a pesc_X_free() is named.
 *
 * Threads. A device, a model and a tokenizer may be used by several threads at once. A session, a
 * trainer, a pesc_data and a report may move between threads, but only one may use it at a time.
 * Calls that compute on one device wait for each other, so two sessions of one model give the same
 * tokens on two threads as on one; a session holds the device for one forward pass at a time, all
 * other calls until they return. Calls on different devices, and calls that compute nothing
 * (tokenizing, descriptions), run in parallel. Two things need the model alone: a trainer, from
 * pesc_trainer_open() to pesc_trainer_close(), and pesc_model_patch() and pesc_model_unpatch(). A
 * trainer of a model with open sessions, a second trainer, or a patch while there is one, is
 * PESC_USAGE.
 *
 * Versions. Structs that begin with `size` may gain fields at their end; all others, all enum
 * values and all functions stay as they are. See PESC_INIT. */
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

#define PESC_VERSION "0.2.0"
const char *pesc_version(void); /* of the library, which may be newer than this header */

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
    X(STOPPED, 10, 75, "stopped on request after saving")                                          \
    X(LOST, 11, 1, "another process of the run has ended or stopped")

typedef enum pesc_status {
#define PESC_STATUS_ENUM(name, value, code, text) PESC_##name = value,
    PESC_STATUS_MAP(PESC_STATUS_ENUM)
#undef PESC_STATUS_ENUM
} pesc_status;

const char *pesc_status_text(pesc_status s);
int pesc_status_exit_code(pesc_status s);
const char *pesc_last_error(void); /* this thread's last failure, in full; "" if none */

/* A struct that begins with `size` states how many bytes of it the caller knows. Options come from
 * pesc_X_defaults(); all others are initialised with
 *
 *     pesc_model_info info = PESC_INIT(pesc_model_info);
 *
 * which sets `size` and zeroes the rest. The library writes no byte after the first `size`, sets
 * fields it does not know to 0, and refuses a struct in which such a field is not 0. */
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

/* Callbacks for what a call reports while it runs. They run on the thread that made the call; a
 * callback may call pesc, but such a call reports nothing. Set on a device, they serve every call
 * that uses the device or a model, session or trainer opened with it. Calls that take no device
 * take a `const pesc_events *ev`; NULL: no events. */
typedef struct pesc_events {
    size_t size;
    void *ud; /* passed to the callbacks */
    /* One sentence that a user should see although nothing failed; NULL: none. */
    void (*notice)(void *ud, const char *sentence);
    /* How far a long call is: `what` names the work ("reading weights"), done of total in any unit.
     * May be called often. NULL: none. */
    void (*progress)(void *ud, const char *what, uint64_t done, uint64_t total);
} pesc_events;

typedef struct pesc_device pesc_device;
typedef struct pesc_model pesc_model;
typedef struct pesc_tokenizer pesc_tokenizer;
typedef struct pesc_session pesc_session;
typedef struct pesc_grammar pesc_grammar;

/* ---- devices ---- */

/* spec: "cpu" (one thread per core), "cpu:4" (4 threads), "cuda", "cuda:1" (the second GPU);
 * "planned:24576": for pesc_plan() alone, a GPU with so many MiB that need not be there. */
pesc_status pesc_device_open(pesc_device **out, const char *spec);
const char *pesc_device_name(const pesc_device *dev);
/* What compute_dtype "auto" is on this device: "bf16" or "f32". */
const char *pesc_device_compute_dtype(const pesc_device *dev);
/* Copies *ev. Set them before other threads use the device. */
pesc_status pesc_device_events(pesc_device *dev, const pesc_events *ev);
void pesc_device_close(pesc_device *dev);

/* ---- models ---- */

typedef struct pesc_load_options {
    size_t size;
    PESC_LOAD_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_load_options;

/* path: a Hugging Face directory, a run, a checkpoint in it, or a .gguf file. */
pesc_status pesc_model_open(pesc_model **out, pesc_device *dev, const char *path,
                            const pesc_load_options *opt);
void pesc_model_close(pesc_model *m);

/* Applies an expert patch (ESFT), replacing the one that is applied; unpatch restores the weights
 * bit for bit. dir: a directory with expert_cfg.json and safetensors, or a run of method esft or
 * one of its checkpoints. PESC_SHAPE: the patch is for another model. PESC_USAGE: the model was
 * opened with merge_lora and compute_dtype bf16, and its LoRA is in the weights. After a failure it
 * has no patch or the one it had. Sessions of the model must be reset. */
pesc_status pesc_model_patch(pesc_model *m, const char *dir);
pesc_status pesc_model_unpatch(pesc_model *m);

typedef struct pesc_model_info {
    size_t size;
    char family[32]; /* "llama", "camelidae", ... */
    char format[32]; /* "safetensors", "gguf", "torch" */
    char dtype[16];  /* of most weights, as stored */
    int64_t dim, layers, heads, kv_heads, head_dim, ffn_dim, vocab, context;
    int64_t experts, top_k, adapter_dim, shared_experts, expert_dim; /* 0 if there are none */
    double adapter_scale;
    uint64_t params_total, params_activated, params_trainable; /* trainable: adapters and routers */
    uint64_t n_tensors, n_files, bytes;                        /* bytes: of the weights on disk */
    char chat[32];                                             /* chat format; "": none is known */
    char tokenizer[32];    /* "bpe", "unigram"; "": there is none */
    int64_t sparse_layers; /* layers that have experts */
    char adapter_act[24];  /* activation of the adapters: "gelu", ...; "": there are none */
    char router[16]; /* "softmax-after" (gates sum to 1), "softmax-before", "sigmoid"; or "" */
    int64_t ffn_experts, ffn_top_k; /* of the mixture that adapters are beside; 0: a plain FFN */
} pesc_model_info;

/* Writes to out where the base of a run is now: at the recorded path, at the same place relative to
 * the run, or beside the run under the same name. PESC_IO when it is at none of them. */
pesc_status pesc_run_base(const char *run, const pesc_events *ev, char *out, size_t n);

/* Describes the model at `path` from its configuration and file headers; reads no weights. base: as
 * in pesc_load_options; may be NULL. */
pesc_status pesc_info(const char *path, const char *base, const pesc_events *ev,
                      pesc_model_info *out);
/* A training run, or one checkpoint of it. */
typedef struct pesc_run_info {
    size_t size;
    char checkpoint[1024]; /* the newest good one of a run; "": the path is not a run */
    char base[1024];       /* where the base was when the run was made */
    char method[16], base_dtype[16], compute_dtype[16]; /* base_dtype "": as stored */
    char chat[32];   /* chat template that the run was trained with */
    char data[1024]; /* the data files as a JSON array; cut where it is longer */
    int64_t step, steps, tokens, lora_r;
    double lr, loss;                  /* of the step; loss NAN: not recorded */
    double eval_loss, best_eval_loss; /* last and best; NAN: none, or best by another measure */
    int64_t best_step;
    char metric_for_best_model[24];  /* "loss", "rewards/margins", ... */
    double eval_metric, best_metric; /* that measure of the last validation and of the best */
} pesc_run_info;

/* Describes the run at `path`. A path that is not a run is not an error: see `checkpoint`. */
pesc_status pesc_run_describe(const char *path, const pesc_events *ev, pesc_run_info *out);

pesc_status pesc_model_describe(const pesc_model *m, pesc_model_info *out);

/* Writes a randomly initialised model with the given config.json as a Hugging Face directory.
 * tokenizer_path: a directory or file whose tokenizer files are copied; NULL: none. dtype: "f32" or
 * "bf16". */
pesc_status pesc_new(const char *config_path, const char *out_dir, const char *tokenizer_path,
                     const char *dtype, uint64_t seed, const pesc_events *ev);

/* ---- crafting and export: models made from models ----
 *
 * These write to a directory that is empty or absent. If opt->check is true, they then open both
 * models on `dev`, compare their logits in f32 over a fixed set of token ids, store the result in
 * *check (NULL: not wanted), and return PESC_NUMERIC if the logits differ more than they may. */

typedef struct pesc_logit_check {
    size_t size;
    uint64_t logits, differ; /* compared; not equal bit for bit. logits 0: nothing was compared */
    double max_diff;         /* the largest |a - b| */
    double max_logit;        /* the largest |a| of the model it was made from */
    double error;            /* median over positions of |a - b| / |a|, both around their mean */
    double kl;               /* mean KL divergence of a position, in nats */
    uint64_t positions;      /* token ids that were run */
    uint64_t greedy_same;    /* positions with the same most likely token, to 0.1 nats */
    uint64_t
        beyond_rounding; /* positions that differ by more than rounding to the stored dtype
                            explains; in a mixture an expert may have been chosen differently */
} pesc_logit_check;

typedef struct pesc_craft_options {
    size_t size;
    PESC_CRAFT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_craft_options;

/* Makes a sparse model from a dense one (a Hugging Face directory or a .gguf file) in bounded
 * memory. Kind "pesc" writes the layout of Camelidae: the dense tensors bit for bit, routers and
 * adapter_down random, adapter_up zero, so the logits equal the dense model's bit for bit. Kind
 * "upcycle" writes Mixtral (Llama, Mistral and Yi parents), Qwen2-MoE or Qwen3-MoE with equal
 * experts and gates that sum to 1: the same logits up to rounding. */
pesc_status pesc_craft(pesc_device *dev, const char *dense_dir, const char *out_dir,
                       const pesc_craft_options *opt, pesc_logit_check *check);

typedef struct pesc_export_options {
    size_t size;
    PESC_EXPORT_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_export_options;

/* Merges a LoRA into its base: W + scale B A, computed in f32 and written in the stored dtype.
 * The adapters of PESC are not linear and stay as they are. */
pesc_status pesc_merge(pesc_device *dev, const char *model, const char *out_dir,
                       const pesc_export_options *opt, pesc_logit_check *check);

/* Writes a model for other programs. to: "hf", a Hugging Face directory of its family;
 * "camelidae", the published layout of models with adapters; "peft", the LoRA alone. The first two
 * merge a LoRA as pesc_merge() does. PESC_USAGE: the target cannot hold this model. */
pesc_status pesc_export(pesc_device *dev, const char *model, const char *to, const char *out_dir,
                        const pesc_export_options *opt, pesc_logit_check *check);

/* Every model directory that pesc writes lists its files in .pesc-files.json. The first call tells
 * whether `dir` may be replaced: PESC_USAGE if pesc did not write it, if it is a run, or if one of
 * the n inputs (NULL entries are skipped) is in it or depends on it; it also removes what killed
 * processes left beside it, and takes a file for `dir` for that alone. The second puts `fresh`, a
 * directory of the same file system that pesc wrote, in its place: files on the old list are
 * removed, others stay, and at every moment one of the two models is complete. `fresh` no longer
 * exists afterwards. */
pesc_status pesc_model_check_replace(const char *dir, const char *const *inputs, size_t n);
pesc_status pesc_model_replace(const char *fresh, const char *dir);

/* ---- text ---- */

/* path: a model directory, tokenizer.json, tokenizer.model or .gguf. */
pesc_status pesc_tokenizer_open(pesc_tokenizer **out, const char *path, const pesc_events *ev);
void pesc_tokenizer_close(pesc_tokenizer *t);
const pesc_tokenizer *pesc_model_tokenizer(const pesc_model *m); /* NULL: it has none */

enum {
    PESC_ADD_SPECIAL = 1,   /* encode: add BOS and EOS as the tokenizer defines */
    PESC_PARSE_SPECIAL = 2, /* encode: control tokens written in the text become such */
    PESC_SKIP_SPECIAL = 4   /* decode: leave control tokens out */
};

/* Writes at most cap ids and sets *count to the number that the text has. Invalid UTF-8 is read as
 * U+FFFD, as by Python's errors="replace". */
pesc_status pesc_tokenize(const pesc_tokenizer *t, const char *text, size_t n, unsigned flags,
                          int32_t *ids, size_t cap, size_t *count);
/* Writes at most cap bytes, without a NUL, and sets *len to the number that the text has. */
pesc_status pesc_detokenize(const pesc_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                            char *text, size_t cap, size_t *len);
int64_t pesc_vocab_size(const pesc_tokenizer *t);

/* ---- sessions and generation ---- */

/* A session is one sequence of tokens and its KV cache. n_ctx: tokens it can hold; 0: the context
 * of the model, at most 4096. */
pesc_status pesc_session_open(pesc_session **out, pesc_model *m, int32_t n_ctx);
void pesc_session_close(pesc_session *s);
void pesc_session_reset(pesc_session *s); /* empties the sequence */

/* Appends ids. *logits: those after the last one [vocab], valid until the next call. */
pesc_status pesc_session_feed(pesc_session *s, const int32_t *ids, size_t n, const float **logits);

/* Writes the logits [n, vocab] of every position of one sequence to `out`. */
pesc_status pesc_logits(pesc_model *m, const int32_t *ids, size_t n, float *out);

typedef struct pesc_sample_options {
    size_t size;
    PESC_SAMPLE_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_sample_options;

/* Replaces temperature, top_k, top_p, min_p and repetition_penalty by the values that the model's
 * generation_config.json recommends; those that it does not name stay. As with transformers,
 * do_sample false is temperature 0, and do_sample without a temperature 1. */
pesc_status pesc_model_sampling(const pesc_model *m, pesc_sample_options *opt);

/* Lets a smaller model with the same vocabulary guess tokens where the text so far gives no guess
 * (draft_tokens of pesc_sample_options). Answers are the same, and come sooner if it is often
 * right. Keeps the draft; NULL: none from now on. PESC_USAGE: another vocabulary. On a CPU. */
pesc_status pesc_session_draft(pesc_session *s, pesc_model *draft);
/* The same for sessions, evaluations and servers of the model that are opened from now on. */
pesc_status pesc_model_draft(pesc_model *m, pesc_model *draft);

/* Receives text as it is generated, in whole characters; false stops the generation. */
typedef bool (*pesc_text_fn)(void *ud, const char *text, size_t n);

typedef struct pesc_generation {
    size_t size;
    int32_t *ids; /* the new tokens, with the end token */
    size_t n_ids;
    char *text; /* without control tokens, up to the stop string; with a NUL */
    size_t n_text, n_prompt;
    char finish[16]; /* "stop", "length", or "stopped" by the callback */
    double prefill_seconds, decode_seconds;
    size_t n_guessed, n_guesses_kept; /* tokens that were guessed and checked; that were right */
    char *message; /* of pesc_session_answer(): the turn as a message, JSON; else NULL */
} pesc_generation;
void pesc_generation_free(pesc_generation *g); /* clears *g; also after a failure */

/* Makes the sequence of the session exactly these ids, of which a prefix it already holds is not
 * computed again, then generates. emit and out may be NULL. */
pesc_status pesc_session_complete(pesc_session *s, const int32_t *ids, size_t n,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud,
                                  pesc_generation *out);
pesc_status pesc_session_generate(pesc_session *s, const char *prompt,
                                  const pesc_sample_options *opt, pesc_text_fn emit, void *ud);

/* ---- structured output ---- */

#include <pesc/grammar.h>

/* ---- perplexity ---- */

typedef struct pesc_perplexity_report {
    size_t size;
    uint64_t tokens; /* predicted */
    double loss, perplexity;
    double seconds;
} pesc_perplexity_report;
/* Divides the text into windows of n_ctx tokens (0: the context of the model, at most 2048) and
 * predicts each window from its own first token. */
pesc_status pesc_perplexity(pesc_model *m, const char *text, size_t n, int32_t n_ctx,
                            pesc_perplexity_report *out);

/* ---- conversation ---- */

typedef struct pesc_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} pesc_message;

/* Names of the chat formats that pesc knows; NULL after the last. */
const char *const *pesc_chat_formats(void);
/* Name of the format that the model's chat template writes, "own" when no built-in format is like
 * it; "": it has none, or one that cannot be run. */
const char *pesc_model_chat_format(const pesc_model *m);
/* Encodes a conversation up to where the assistant's answer begins. format NULL or "own": as the
 * model's own chat template writes it, and without one in the format of its family. Text of a
 * message never becomes a control token. ids, cap and *count are as in pesc_tokenize(). */
pesc_status pesc_chat_tokenize(const pesc_model *m, const char *format,
                               const pesc_message *messages, size_t n, int32_t *ids, size_t cap,
                               size_t *count);
/* Texts that end the assistant's turn, besides the model's end tokens; *n is their number. The
 * second is for format NULL: those of the model's own template. Both may return NULL with *n 0. */
const char *const *pesc_chat_stops(const char *format, size_t *n);
const char *const *pesc_model_chat_stops(const pesc_model *m, size_t *n);

#include <pesc/conversation.h>

/* ---- data ---- */

typedef struct pesc_data_options {
    size_t size;
    PESC_DATA_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_data_options;

typedef struct pesc_data pesc_data;
/* Opens records as training reads them. path: a model, or anything that has a tokenizer. The events
 * serve every call on the data. */
pesc_status pesc_data_open(pesc_data **out, const char *path, const pesc_data_options *opt,
                           const pesc_events *ev);
void pesc_data_close(pesc_data *d);
uint64_t pesc_data_records(const pesc_data *d);
const char *pesc_data_format(const pesc_data *d, size_t file);
const char *pesc_data_template(const pesc_data *d);
const pesc_tokenizer *pesc_data_tokenizer(const pesc_data *d); /* NULL: there is none */

/* Record number `index`, from 0, without truncation. labels[i] is ids[i] if the token is a target
 * of training, else -100. The arrays are valid until the next call. */
pesc_status pesc_data_record(pesc_data *d, uint64_t index, const int32_t **ids,
                             const int32_t **labels, size_t *n);
/* The domain of a record: its field "domain", or the name of its file. Domains are numbered in the
 * order in which records are asked for; there may be PESC_DATA_DOMAINS of them. */
enum { PESC_DATA_DOMAINS = 64 };
pesc_status pesc_data_domain(pesc_data *d, uint64_t index, size_t *number, const char **name);

enum { PESC_DATA_BUCKETS = 64 };
typedef struct pesc_data_report {
    size_t size;
    uint64_t records;             /* all, with the bad ones */
    uint64_t bad, without_target; /* cannot be read; have no token to train on */
    uint64_t over_length;         /* longer than seq_len */
    uint64_t unused;              /* have no token to train on within seq_len */
    uint64_t tokens, trained;     /* of the records that can be read */
    int64_t shortest, longest;    /* lengths, in tokens */
    int64_t median, p90, p99;     /* quantiles of the lengths */
    char first[1024];             /* what is wrong with the first bad record; "": there is none */
    size_t n_buckets;             /* of the histogram of lengths, in ascending order */
    struct {
        int64_t from, to; /* both included */
        uint64_t records;
    } buckets[PESC_DATA_BUCKETS];
    uint64_t
        pairs; /* records with a chosen and a rejected answer; lengths above are of the chosen */
    int64_t rejected_shortest, rejected_longest, rejected_median, rejected_p90, rejected_p99;
} pesc_data_report;
/* Reads every record. Bad ones are counted; they are not a failure of the call. */
pesc_status pesc_data_survey(pesc_data *d, pesc_data_report *out);

/* One part of a mixture: how many records of which files. */
typedef struct pesc_mix_part {
    const char *domain;
    const char *const *files;
    size_t n_files;
    uint64_t records;                         /* to draw */
    uint64_t available, duplicates, unusable; /* set by the call; the last two were left out */
    int64_t unpack_ratio; /* of compressed files, as in pesc_data_options; or 0 */
} pesc_mix_part;
/* Draws records without replacement in an order given by the seed, leaves out those that repeat the
 * turns of another or lack a prompt or an answer, and writes them in one shuffled order as lines
 * {"messages": [...], "domain": ...}. out_path.mix.json records how the file was made. */
pesc_status pesc_data_mix(pesc_mix_part *parts, size_t n, uint64_t seed, const char *out_path,
                          const pesc_events *ev);

#include <pesc/preferences.h>

/* ---- training ---- */

typedef struct pesc_train_options {
    size_t size;
    /* Read between forward passes. Not 0: finish the step, save, return PESC_STOPPED. NULL: none.
     */
    volatile const int *stop;
    PESC_TRAIN_OPTIONS(PESC_FIELD, PESC_NO_FIELD)
} pesc_train_options;

/* Sets options to a recipe for opt->method: "paper" (the defaults, but method pesc trains on NF4
 * weights, as in the paper), "published" (that of the authors' code) or "esft" (that of the ESFT
 * paper: method esft, full or lora). */
pesc_status pesc_train_preset(pesc_train_options *opt, const char *name);
/* Sets the fields of *out, which comes from pesc_load_defaults(), as a model must be opened to be
 * trained with these options. */
pesc_status pesc_train_load(const pesc_train_options *opt, pesc_load_options *out);

typedef struct pesc_trainer pesc_trainer;

/* One optimiser step, as in metrics.jsonl (docs/formats.md). */
typedef struct pesc_step {
    size_t size;
    int64_t step, steps; /* from 1; of the whole run */
    double epoch;
    int64_t tokens; /* since the start of the run */
    double loss, ce, aux, grad_norm, lr;
    double tok_s, utilisation; /* fraction of the device's rate in large products */
    uint64_t mem_bytes, mem_total;
    double expert_entropy; /* 1: balanced; NaN: the model has no experts */
    int64_t dead_experts;
    double eval_loss; /* NaN: not evaluated at this step */
    bool skipped;     /* the loss or its gradient is not finite; no weight was changed */
    bool saved;       /* a checkpoint, begun in this call or an earlier one, is on the disk now */
    double seconds_left;
    double worst_entropy; /* of the layer with the lowest; NaN: the model has no experts */
    int64_t worst_layer;
    double comm_seconds; /* of the exchange of gradients; 0: one process */
    double comm_hidden;  /* the part of it that passed while backward still ran, 0 to 1 */
    double step_seconds; /* of this call: the step itself, */
    double eval_seconds; /* validation, */
    double save_seconds; /* and what a checkpoint kept the run from going on */
    pesc_preference preference, eval_preference;
} pesc_step;

/* Training changes the weights of the model, which keeps them when the trainer is closed: it then
 * computes what the run computes. A model is trained once: another trainer, also after one that
 * failed to open when it had prepared the model, and a patch are PESC_USAGE; open it again. */
pesc_status pesc_trainer_open(pesc_trainer **out, pesc_model *m, const pesc_train_options *opt);
void pesc_trainer_close(pesc_trainer *t);
bool pesc_trainer_done(const pesc_trainer *t);
/* One step, with validation and a checkpoint if they are due. PESC_STOPPED: saved because a stop
 * was requested (opt->stop, or a file STOP in the run directory). PESC_NUMERIC: three steps in a
 * row were not finite. */
pesc_status pesc_trainer_step(pesc_trainer *t, pesc_step *out);
/* Writes a checkpoint, atomically, from which training continues bit for bit. */
pesc_status pesc_trainer_save(pesc_trainer *t);

typedef struct pesc_train_info {
    size_t size;
    char method[16], optimizer[16];
    uint64_t params_trained, params_total;
    uint64_t records, first_step; /* first_step: 0, or that of the checkpoint */
    int64_t steps, micro_tokens, kept_layers;
    uint64_t bytes_model, bytes_activations;
    uint64_t bytes_trained, bytes_total; /* weights, gradients, moments; of the device */
    uint64_t over_length;                /* records longer than seq_len */
    char checkpoint[32];                 /* that the run resumed from; "": none */
    uint64_t bytes_paged;                /* moments in the host's memory, not counted above */
    uint64_t bytes_sharded, bytes_shard; /* matrices of the layers, and what of them this process
                                            keeps; 0: the base is whole */
    char routers[16];                    /* "train" or "frozen"; "": the model has none */
    uint64_t bytes_streamed;             /* matrices of the layers that are in the host's memory */
} pesc_train_info;
pesc_status pesc_trainer_describe(const pesc_trainer *t, pesc_train_info *out);

typedef struct pesc_plan_report {
    size_t size;
    uint64_t params_total, params_trained;
    uint64_t model, trained, optimizer, activations; /* bytes; trained: weights and gradients */
    uint64_t total, available;                       /* bytes */
    bool fits;
    int64_t micro_tokens, largest_micro_tokens; /* of a forward pass; the largest that fits */
    int64_t kept_layers, layers;
    uint64_t checkpoint_bytes; /* on disk */
    uint64_t run_bytes; /* the same of all checkpoints; 0: keep_checkpoints is 0 and so is steps */
    bool paged;         /* the optimiser's moments are in the host's memory and not in `total` */
    uint64_t sharded;   /* bytes of the layers' matrices, of which each process keeps a part; 0: the
                           base is whole */
    uint64_t exchanged; /* bytes of gradients and updated weights of a step: each of N processes
                           sends and receives (N - 1) / N of them */
    char routers[16];   /* "train" or "frozen"; "": the model has none */
    double flop;        /* of training a token in sequences of seq_len, as pesc_cost() counts them;
                           0: more than can be counted */
    uint64_t streamed;  /* bytes of the layers' matrices, which are in the host's memory and not in
                           `total`; 0: they are on the device */
} pesc_plan_report;
/* Computes the memory of a run from the configuration and file headers of the model. */
pesc_status pesc_plan(pesc_device *dev, const char *path, const pesc_train_options *opt,
                      pesc_plan_report *out);

#include <pesc/compare.h>
#include <pesc/cost.h>
#include <pesc/esft.h>
#include <pesc/eval.h>
#include <pesc/routes.h>
#include <pesc/serve.h>
#include <pesc/option_table.h>
#include <pesc/plot.h>

/* ---- this build ---- */

typedef struct pesc_doctor_row {
    char name[32], state[16], detail[256]; /* state: "ok", "missing", "note" */
} pesc_doctor_row;
/* Writes at most cap rows about this build and machine, and returns how many there are. */
size_t pesc_doctor(pesc_doctor_row *rows, size_t cap);

#include <pesc/comm.h>

/* A kernel of matrix products, and what it serves. Of two that serve the same product the one
 * listed first computes it. */
typedef struct pesc_kernel_row {
    char device[8];    /* "cpu", "cuda" */
    char op[16];       /* "matmul", "grouped_matmul" */
    char name[32];     /* "nf4_gemv" */
    char rows[16];     /* of activations: "1-8", "256-", "any" */
    char layouts[16];  /* "NT NN TN": forward, gradient of the input, gradient of the weights */
    char types[80];    /* "bf16 x nf4 -> f32|bf16": activations, weights, result */
    char hardware[24]; /* "sm_90", "sm_80+", "avx512_bf16" */
    char detail[256];  /* how it computes, and what it needs of sizes and alignment */
} pesc_kernel_row;
/* Writes at most cap rows about the kernels of this version, and returns how many there are. They
 * are listed whether or not this machine has the hardware, or this build the CUDA part. */
size_t pesc_kernels(pesc_kernel_row *rows, size_t cap);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
