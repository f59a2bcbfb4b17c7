/* libFuzzer: any bytes as an HTTP request: its head through head_check(), whole and cut at a place
 * that the input chooses, and its body through api_parse() of every endpoint. A head that is good
 * must be partial at every byte before its end; a request that is accepted must be within limits,
 * and an error must be an object of JSON with a message. */
#include "serve/head.h"

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

/* Returns where the body begins. */
static size_t check_head(const char *text, size_t n)
{
    static const char *const hosts[] = { "localhost" };
    head_rules rules = { n % 2 ? hosts : NULL, 1 };
    api_error e;
    head_state s = head_check(text, n, &rules, &e);
    const char *end = memmem(text, n, "\r\n\r\n", 4);
    if (s == HEAD_BAD)
        check_error(&e);
    if (s != HEAD_GOOD)
        return 0;
    ASSERT(end);
    size_t head = (size_t)(end - text) + 4, cut = n > 0 ? (unsigned char)text[n - 1] % head : 0;
    ASSERT(head_check(text, cut, &rules, &e) == HEAD_PARTIAL);
    return head;
}

static void check_body(const char *text, size_t n)
{
    static const api_endpoint endpoints[] = { API_COMPLETION, API_CHAT, API_TOKENIZE,
                                              API_DETOKENIZE, API_TEMPLATE };
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        api_rules rules = { 300, n % 2 };
        api_request r;
        api_error e;
        if (api_parse(&r, endpoints[i], text, n, &rules, &e))
            ASSERT(r.n >= 1 && r.n <= API_MAX_CHOICES && r.temperature >= 0 && r.top_p > 0 &&
                   r.n_stop <= API_MAX_STOPS && r.top <= API_MAX_TOP && r.top_k >= 0);
        else
            check_error(&e);
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
