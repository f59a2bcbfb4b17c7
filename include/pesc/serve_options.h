/* serve_options: the rows of pesc_serve_options. Part of options.h, which explains them. */
#ifndef PESC_SERVE_OPTIONS_H
#define PESC_SERVE_OPTIONS_H

/* clang-format off */

#define PESC_SERVE_OPTIONS(X, ALSO)                                                                \
    X(TEXT, host, "127.0.0.1", NAMED("ADDRESS"), 0, SERVER, "serve runs",                               \
      "address to listen on; one that other machines reach needs --api-key-file")                  \
    X(INT, port, "8080", RANGE(0, 65535), 0, SERVER, "serve",                                      \
      "port to listen on; 0 is any free one")                                                      \
    ALSO(INT, port, "8090", RANGE(0, 65535), 0, SERVER, "runs",                                    \
      "port to listen on; 0 is any free one")                                                      \
    X(TEXT, api_key_file, NONE, NAMED("FILE"), PATH, SERVER, "serve runs",                              \
      "file of keys, one a line, of which a request must carry one; no key is needed if absent")   \
    X(INT, max_streams, "64", RANGE(1, 4096), 0, SERVER, "serve",                                  \
      "answers that are generated at the same time; more requests wait")                           \
    X(INT, context, "0", PESC_ANY_TOKENS, 0, SERVER, "serve",                                      \
      "tokens of the longest prompt with its answer; 0 is the context length of the model, at "    \
      "most 4096")                                                                                 \
    X(INT, max_queue, "128", RANGE(0, 1000000), 0, SERVER, "serve",                                \
      "requests that may wait; further ones are answered 429")                                     \
    X(INT, max_wait, "300", RANGE(1, 86400), 0, SERVER, "serve",                                   \
      "seconds that a request may wait before it is answered 503")                                 \
    X(INT, max_connections, "256", RANGE(1, 100000), 0, SERVER, "serve runs",                           \
      "connections at the same time; from another machine at most 32 of one address")              \
    X(INT, drain, "30", RANGE(0, 86400), 0, SERVER, "serve runs",                                       \
      "seconds that running requests have to end after SIGTERM")                                   \
    X(TEXT, served_name, NONE, NAMED("NAME"), 0, SERVER, "serve",                                  \
      "name of the model in requests and answers; the last part of its path if absent")            \
    X(LIST, lora, NONE, NAMED("NAME=DIR"), 0, MODEL, "serve",                                      \
      "a PEFT adapter that is a model of its own under that name, beside MODEL itself; may be "    \
      "given several times")                                                                       \
    X(TEXT, chat_format, NONE, NAMED("NAME"), 0, SERVER, "serve",                                  \
      "the chat format; that of the model's template if absent")                                   \
    X(BOOL, lenient, "false", YES_NO, 0, SERVER, "serve",                                          \
      "accept unknown fields in requests; the header x-pesc-ignored of the answer names them")     \
    X(LIST, cors_origin, NONE, NAMED("ORIGIN"), 0, SERVER, "serve",                                \
      "origin of web pages that may use the server, exactly as a browser sends it; may be given "  \
      "several times")                                                                             \
    X(LIST, allow_host, NONE, NAMED("NAME"), 0, SERVER, "serve runs",                                   \
      "further name in the Host header that is accepted on a loopback address; may be given "      \
      "several times")                                                                             \
    X(CHOICE, metrics_alias, NONE, ONE_OF("vllm"), 0, SERVER, "serve",                             \
      "/metrics repeats figures under the names of another server")                                \
    X(BOOL, log_json, "false", YES_NO, 0, SERVER, "serve runs",                                         \
      "write the access log as lines of JSON")                                                     \
    X(LIST, patch, NONE, NAMED("NAME=DIR"), 0, MODEL, "serve",                                     \
      "an expert patch that is a model of its own under that name, beside MODEL itself; may be "   \
      "given several times")                                                                       \
    X(BOOL, deterministic, "false", YES_NO, 0, SERVER, "serve",                                    \
      "on a GPU: every forward has the same number of rows, so that a request gets the same "      \
      "tokens alone and among others; slower with few requests. On a CPU this is always so")       \
    X(TEXT, tool_format, NONE, NAMED("NAME"), 0, SERVER, "serve",                                  \
      "how the model writes calls of tools; found from its chat template if absent")               \
    X(BOOL, store, "false", YES_NO, 0, SERVER, "serve",                                            \
      "keep the conversations of /v1/responses in memory, so that requests may go on with one by " \
      "previous_response_id; the oldest are forgotten")

/* clang-format on */
#endif
