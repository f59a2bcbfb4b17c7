/* api: the body of a request, checked and typed. Knows nothing of HTTP, of models or of threads. */
#ifndef PESC_SERVE_API_API_H
#define PESC_SERVE_API_API_H

#include "base/json.h"
#include "chat/chat_callgrammar.h"
#include "infer/sampler.h"
#include "serve/api/constraint.h"
#include "serve/api/dialect.h"
#include "serve/apierror.h"

enum {
    API_MAX_TEXT = 1 << 20, /* bytes of a string */
    API_MAX_DEPTH = 64,     /* nesting of JSON */
    API_MAX_MESSAGES = 10000,
    API_MAX_PROMPTS = 2048,
    API_MAX_STOPS = 16,
    API_MAX_STOP_BYTES = 256,
    API_MAX_CHOICES = 128,
    API_MAX_TOP = 20,
    API_MAX_TOOLS = 1024,
};

typedef enum api_endpoint {
    API_COMPLETION = 1,
    API_CHAT = 2,
    API_TOKENIZE = 4,
    API_DETOKENIZE = 8,
    API_TEMPLATE = 16,
    API_NATIVE = 32, /* llama.cpp's own completions */
    /* These are read as API_CHAT, in another dialect: */
    API_MESSAGES = 64,
    API_COUNT = 128, /* the tokens of a message */
    API_RESPONSES = 256,
    API_EMBEDDINGS = 512,
} api_endpoint;

/* Fields that the request does not have are at their defaults. Texts and values are borrowed from
 * `body`. */
typedef struct api_request {
    json_t *body;     /* of a chat, whatever the dialect */
    json_t *original; /* the body of another dialect; NULL: it is a chat's own */
    api_endpoint endpoint;
    api_dialect dialect;
    const char *model; /* NULL: the one that is loaded */
    const json_t *prompt, *messages, *tokens;
    const json_t *tools; /* an array of functions; NULL: none */
    json_t *callable;    /* an array of those that may be called; NULL: there are no tools */
    call_choice choice;
    bool explicit_choice; /* tool_choice is given */
    bool one_function;    /* it names one */
    bool one_call;
    const json_t *variables;     /* chat_template_kwargs, an object; NULL: none */
    json_t *own_variables;       /* of other fields; NULL: none */
    const json_t *all_variables; /* both; NULL: none */
    int64_t thought_tokens;      /* of a thought at most; below 0: any number */
    bool thoughts;               /* they are told from the content */
    bool shows_thoughts;         /* and are part of the answer */
    int64_t max_tokens;          /* -1: none given */
    int64_t n;
    pesc_sample_options sample; /* of it the sampler's options count */
    bool has_seed;
    sampler_terms terms;   /* but for `ends`; its bias is the request's */
    constraint constraint; /* of the answer */
    const char *stop[API_MAX_STOPS];
    size_t n_stop;
    int32_t *stop_ids;
    size_t n_stop_ids;
    int64_t top;        /* most likely tokens to report at each place; -1: no log-probabilities */
    int64_t prompt_top; /* the same of the prompt, as vLLM reports it; -1: not wanted */
    int64_t dimensions; /* of an embedding; 0: all */
    bool base64;        /* an embedding is written so */
    bool logprobs, echo, ignore_eos, include_stop, return_token_ids, tokens_as_ids, return_routes,
        timings;
    bool stream, include_usage, continuous_usage;
    bool add_special; /* to what is tokenized: by default to a `prompt`, not to `content` or
                         `messages` */
    bool parse_special, add_generation_prompt, continue_final_message, with_pieces, with_strings;
    bool lenient; /* of the rules */
    const char *cache_salt;
    bool cache_prompt; /* what is cached of the prompt may be used */
    str ignored;       /* fields that were accepted without a use, separated by commas */
} api_request;

typedef struct api_rules {
    int64_t vocab;                /* ids are below it */
    bool lenient;                 /* unknown fields are accepted */
    pesc_sample_options sampling; /* where a request says nothing: see pesc_model_sampling() */
} api_rules;

/* A request without fields. */
void api_defaults(api_request *r, api_endpoint endpoint, const api_rules *rules);
/* False: *e says why. Close it in any case. */
bool api_parse(api_request *r, api_endpoint endpoint, const char *text, size_t n,
               const api_rules *rules, api_error *e);
void api_close(api_request *r); /* also one that is all zeros */

/* Reads an array of token ids below `vocab` into new memory, for mem_free(). */
bool api_ids(const json_t *v, const char *param, int64_t vocab, int32_t **ids, size_t *n,
             api_error *e);
/* Whether every element of the array is an integer. */
bool api_is_ids(const json_t *v);

/* ---- speechfields.c: calls of tools, and thoughts ---- */

bool speech_tools(api_request *r, const json_t *v, api_error *e);
bool speech_effort(api_request *r, const char *field, const json_t *v, api_error *e);
bool speech_thinking(api_request *r, bool thinks, api_error *e);
bool speech_format(api_request *r, const json_t *v, api_error *e);
/* When all fields are read: */
bool speech_choose(api_request *r, api_error *e);
bool speech_variables(api_request *r, api_error *e);

/* ---- bodytext.c: what must be known of a body's JSON text before it is parsed ----
 *
 * jansson's parser is recursive and has no limit of nesting of its own, its integers have 64 bits
 * with a sign, and of a number that is out of range it does not say in which field it is. */

/* Whether nesting and numbers are within limits. The text has n bytes and a NUL. A `seed` from 2^63
 * to 2^64 - 1 is taken out of it: *seed has its bits, *large is true and the text has a 0. */
bool bodytext_check(char *text, size_t n, int64_t *seed, bool *large, api_error *e);

#endif
