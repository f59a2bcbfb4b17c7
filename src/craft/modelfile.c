#include "craft/modelfile.h"

#include "base/io.h"
#include "base/log.h"
#include "base/str.h"
#include "chat/chat.h"

#include <string.h>

#define CHATML                                                                                     \
    "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n"                    \
    "{{ end }}<|im_start|>assistant\n"
#define LLAMA3                                                                                     \
    "{{- range .Messages }}<|start_header_id|>{{ .Role }}<|end_header_id|>\n\n"                    \
    "{{ .Content }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>\n\n"
#define INST(open, close, lead)                                                                    \
    "{{- range .Messages }}{{ if eq .Role \"user\" }}" open "{{ .Content }}" close                 \
    "{{ else if eq .Role \"assistant\" }}" lead "{{ .Content }}</s>{{ end }}{{ end }}"

/* Go templates of the formats, by the names of chat.h. Ollama writes BOS by itself. */
static const struct {
    const char *format, *text;
} templates[] = {
    { "chatml", CHATML },
    { "qwen1.5", CHATML },
    { "qwen2", CHATML },
    { "qwen2.5", CHATML },
    { "qwen3", CHATML },
    { "smollm2", CHATML },
    { "llama3", LLAMA3 },
    { "llama3.1", LLAMA3 },
    { "llama2", "{{- if .System }}[INST] <<SYS>>\n{{ .System }}\n<</SYS>>\n\n{{ .Prompt }} [/INST]"
                "{{ else }}[INST] {{ .Prompt }} [/INST]{{ end }} {{ .Response }}" },
    { "mistral", INST(" [INST] ", " [/INST]", " ") },
    { "mistral-v1", INST("[INST] ", " [/INST]", "") },
    { "mistral-v3", INST("[INST] ", "[/INST]", " ") },
    { "mistral-nemo", INST("[INST]", "[/INST]", "") },
    { "camelidae", "{{- range .Messages }}{{ if eq .Role \"system\" }}### System:\n{{ .Content }}\n"
                   "{{ else if eq .Role \"user\" }}### Human:\n{{ .Content }}\n"
                   "{{ else }}### Assistant:\n{{ .Content }}</s>{{ end }}{{ end }}"
                   "### Assistant:\n" },
    { "alpaca", "{{ if .System }}{{ .System }}\n\n{{ end }}### Instruction:\n{{ .Prompt }}\n\n"
                "### Response:\n{{ .Response }}" },
    { "vicuna", "{{ if .System }}{{ .System }} {{ end }}USER: {{ .Prompt }} ASSISTANT: "
                "{{ .Response }}" },
    { "zephyr", "{{- range .Messages }}<|{{ .Role }}|>\n{{ .Content }}</s>\n{{ end }}"
                "<|assistant|>\n" },
};

/* Ollama's strings end at three quotes; a stop has one line and one quote around it. */
static void put_stop(str *out, const char *text, size_t n)
{
    if (memchr(text, '"', n) || memchr(text, '\n', n))
        return;
    str_puts(out, "PARAMETER stop \"");
    str_add(out, text, n);
    str_puts(out, "\"\n");
}

static void put_chat(str *out, const tokenizer *t, const char *jinja)
{
    const chat_format *f = chat_recognise(jinja);
    size_t n = 0, n_stops = 0;
    const char *eos = tokenizer_token(t, tokenizer_eos(t), &n);
    for (size_t i = 0; f && i < sizeof templates / sizeof *templates; i++)
        if (strcmp(templates[i].format, chat_name(f)) == 0)
            str_printf(out, "TEMPLATE \"\"\"%s\"\"\"\n", templates[i].text);
    const char *const *stops = f ? chat_stops(f, &n_stops) : NULL;
    bool listed = false;
    for (size_t i = 0; i < n_stops; i++) {
        put_stop(out, stops[i], strlen(stops[i]));
        listed |= eos && strlen(stops[i]) == n && memcmp(stops[i], eos, n) == 0;
    }
    if (eos && !listed)
        put_stop(out, eos, n);
}

/* ---- the system message that a template puts where none is given ---- */

#define MARK "the-system-message-of-a-conversation"

static pesc_status render(const chat_writer *w, const pesc_message *list, size_t n, str *text)
{
    chat_request r = { .list = list, .n = n, .end = CHAT_PROMPT };
    return chat_write(w, &r, text, NULL, NULL);
}

/* What stands in `without` where `with` has MARK, if they are the same around it. */
static bool between(const str *with, const str *without, const char **text, size_t *n)
{
    const char *mark = with->p ? strstr(with->p, MARK) : NULL;
    if (!mark || !without->p)
        return false;
    size_t before = (size_t)(mark - with->p), after = with->n - before - strlen(MARK);
    if (before + after >= without->n || memcmp(with->p, without->p, before) != 0 ||
        memcmp(mark + strlen(MARK), without->p + without->n - after, after) != 0)
        return false;
    *text = without->p + before;
    *n = without->n - before - after;
    return true;
}

/* A template that refuses one of the two conversations has no such message. */
static void put_system(str *out, const tokenizer *t)
{
    static const pesc_message list[] = { { "system", MARK }, { "user", "?" } };
    chat_writer *w = NULL;
    str with = { 0 }, without = { 0 };
    const char *text;
    size_t n;
    if (chat_open(&w, t, NULL, NULL) == PESC_OK && chat_is_own(w) &&
        render(w, list, 2, &with) == PESC_OK && render(w, list + 1, 1, &without) == PESC_OK &&
        between(&with, &without, &text, &n)) {
        if (memmem(text, n, "\"\"\"", 3))
            log_notice("the system message of the chat template has three quotes, which a "
                       "Modelfile has no place for: its SYSTEM is left out");
        else
            str_printf(out, "SYSTEM \"\"\"%.*s\"\"\"\n", (int)n, text);
    }
    str_free(&with);
    str_free(&without);
    chat_close(w);
}

/* ---- how to sample ---- */

/* What generation_config.json recommends, where Ollama has a name for it. */
static void put_sampling(str *out, const json_t *generation)
{
    static const char *const rows[][2] = { { "temperature", "temperature" },
                                           { "top_k", "top_k" },
                                           { "top_p", "top_p" },
                                           { "min_p", "min_p" },
                                           { "repetition_penalty", "repeat_penalty" } };
    const json_t *sampled = json_value(generation, "do_sample");
    if (sampled && json_is_false(sampled)) {
        str_puts(out, "PARAMETER temperature 0\n");
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = json_value(generation, rows[i][0]);
        if (v && json_is_number(v))
            str_printf(out, "PARAMETER %s %.9g\n", rows[i][1], json_number_value(v));
    }
}

pesc_status modelfile_write(const char *path, const modelfile *m)
{
    str out = { 0 };
    str_printf(&out, "FROM ./%s\n", m->gguf);
    if (m->tok) {
        put_chat(&out, m->tok, m->jinja);
        put_system(&out, m->tok);
    }
    put_sampling(&out, m->generation);
    pesc_status s = str_ok(&out) ? io_write_file(path, out.p, out.n) : fail_nomem(path, out.n);
    str_free(&out);
    return s;
}
