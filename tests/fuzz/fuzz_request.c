/* libFuzzer: any bytes as an HTTP request: its head through head_parse(), whole and cut at a place
 * that the input chooses, its body through body_take() as chunks and through api_parse() of every
 * endpoint; a conversation that is accepted then through a built-in chat format and through a
 * template. A head that is good must be partial at every byte before its end; a request that is
 * accepted must be within limits, and an error must be an object of JSON with a message. */
#include "base/mem.h"
#include "serve/api/prompts.h"
#include "serve/http/head.h"
#include "tokenizer/pipeline.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const api_error *e)
{
    str out = { 0 };
    json_t *v = NULL;
    ASSERT(e->status >= 400 && e->message[0]);
    api_error_json(e, &out);
    ASSERT(out.p && json_parse(&v, out.p, out.n, "error") == PESC_OK);
    json_decref(v);
    str_free(&out);
}

/* A body in chunks is the same read whole and in two parts, which the input chooses. */
static void check_chunks(const char *text, size_t n)
{
    static const head chunked = { .chunked = true };
    body b;
    api_error e;
    str whole = { 0 }, parts = { 0 };
    size_t used, first, second = 0, cut = n > 0 ? (unsigned char)text[n - 1] % n : 0;
    body_open(&b, &chunked);
    body_state s = body_take(&b, text, n, &used, &whole, &e);
    ASSERT(used <= n && whole.n <= BODY_MAX);
    if (s == BODY_BAD)
        check_error(&e);
    body_open(&b, &chunked);
    body_state t = body_take(&b, text, cut, &first, &parts, &e);
    if (t == BODY_PARTIAL)
        t = body_take(&b, text + first, n - first, &second, &parts, &e);
    ASSERT(s == t);
    if (s == BODY_WHOLE)
        ASSERT(used == first + second && whole.n == parts.n &&
               (whole.n == 0 || memcmp(whole.p, parts.p, whole.n) == 0));
    str_free(&whole);
    str_free(&parts);
}

/* Returns where the body begins. */
static size_t check_head(const char *text, size_t n)
{
    static const char *const hosts[] = { "localhost" };
    head_rules rules = { n % 2 ? hosts : NULL, 1 };
    api_error e;
    head h, part;
    head_state s = head_parse(&h, text, n, &rules, &e);
    const char *end = memmem(text, n, "\r\n\r\n", 4);
    if (s == HEAD_BAD)
        check_error(&e);
    if (s != HEAD_GOOD)
        return 0;
    ASSERT(end);
    ASSERT(h.size == (size_t)(end - text) + 4);
    size_t cut = (unsigned char)text[n - 1] % h.size;
    ASSERT(head_parse(&part, text, cut, &rules, &e) == HEAD_PARTIAL);
    check_chunks(text + h.size, n - h.size);
    return h.size;
}

/* The tokenizer of the embedded base, with a template that writes all that a message may have. */
static tokenizer *open_tokenizer(void)
{
    static tokenizer *t;
    if (!t) {
        ASSERT(tokenizer_open_dir(&t, "share/base") == PESC_OK);
        t->chat_template =
            mem_strdup("{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.name }}"
                       "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
                       "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
                       "{{ tools | tojson if tools else '' }}{{ extra }}");
    }
    return t;
}

static const chat_writer *open_writer(const char *format)
{
    static chat_writer *own, *built_in;
    chat_writer **w = format ? &built_in : &own;
    if (!*w)
        ASSERT(chat_open(w, open_tokenizer(), format, NULL) == PESC_OK);
    return *w;
}

/* Calls and thoughts between texts that the template does not write. */
static const chat_speech *open_speech(void)
{
    static chat_speech *s;
    if (!s)
        ASSERT(chat_speech_open(&s, open_tokenizer(), "<tool_call> <think> </think>", NULL) ==
               PESC_OK);
    return s;
}

static void check_conversation(const api_request *r)
{
    for (int i = 0; i < 2; i++) {
        const chat_writer *w = open_writer(i ? NULL : "camelidae");
        prompt_maker m = {
            .tok = open_tokenizer(), .chat = w, .speech = open_speech(), .vocab = 300
        };
        prompt p = { 0 };
        api_error e = { 0 };
        if (!conversation_encode(&m, r, &p, &e))
            check_error(&e);
        mem_free(p.ids.ids);
    }
}

static void check_body(const char *text, size_t n)
{
    static const api_endpoint endpoints[] = { API_COMPLETION, API_CHAT,     API_TOKENIZE,
                                              API_DETOKENIZE, API_TEMPLATE, API_NATIVE,
                                              API_MESSAGES,   API_COUNT,    API_RESPONSES,
                                              API_EMBEDDINGS };
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        api_rules rules = { 300, n % 2, pesc_sample_defaults() };
        api_request r;
        api_error e;
        bool good = api_parse(&r, endpoints[i], text, n, &rules, &e);
        if (good)
            ASSERT(r.n >= 1 && r.n <= API_MAX_CHOICES && r.sample.temperature >= 0 &&
                   r.sample.top_p > 0 && r.n_stop <= API_MAX_STOPS && r.top <= API_MAX_TOP &&
                   r.prompt_top <= API_MAX_TOP && r.sample.top_k >= 0);
        else
            check_error(&e);
        if (good && r.messages)
            check_conversation(&r);
        api_close(&r);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t head = check_head(text, size);
    check_body(text + head, size - head);
    return 0;
}
