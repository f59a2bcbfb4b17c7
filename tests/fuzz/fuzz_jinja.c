/* libFuzzer: a chat template, then (after a NUL byte) a JSON object with its variables; without one
 * a conversation with tools. The template is compiled and rendered within small limits; a template
 * that renders once must render to the same text again. */
#include "base/mem.h"
#include "jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *conversation(void)
{
    return json_pack("{s[{ssss}{ssso}]s[{ss s{ssss}}]sbs{sisfsns[iis]}}", "messages", "role",
                     "user", "content", " Hi <b>\n\"é\" ", "role", "assistant", "content",
                     json_null(), "tools", "type", "function", "function", "name", "f",
                     "description", "d", "add_generation_prompt", 1, "d", "i", -3, "f", 2.5, "n",
                     "l", 1, 2, "x");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm now = { .tm_year = 124, .tm_mon = 6, .tm_mday = 26 };
    const char *text = (const char *)data;
    size_t n = size ? strnlen(text, size) : 0;
    json_t *v = n < size ? json_loadb(text + n + 1, size - n - 1, 0, NULL) : conversation();
    json_t *tokens = json_pack("{ssss}", "bos_token", "<s>", "eos_token", "</s>");
    jinja_input in = { .variables = json_is_object(v) ? v : NULL,
                       .trusted = tokens,
                       .now = &now,
                       .limits = { 200000, (size_t)64 << 20, 1 << 20 } };
    jinja_template *t = NULL;
    jinja_text a = { 0 }, b = { 0 };
    if (jinja_compile(&t, size ? text : "", n, "fuzz") == PESC_OK &&
        jinja_render(t, &in, &a) == PESC_OK) {
        if (jinja_render(t, &in, &b) != PESC_OK || a.n != b.n || memcmp(a.text, b.text, a.n) != 0)
            abort();
    }
    jinja_text_free(&a);
    jinja_text_free(&b);
    jinja_free(t);
    json_decref(tokens);
    json_decref(v);
    return 0;
}
