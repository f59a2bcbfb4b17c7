#include "craft/modelfile.h"

#include "base/io.h"
#include "base/str.h"
#include "chat/chat_formats.h"

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

static void put_chat(str *out, const tokenizer *t)
{
    const chat_format *f = chat_recognise(tokenizer_chat_template(t));
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

pesc_status modelfile_write(const char *path, const char *gguf, const tokenizer *t)
{
    str out = { 0 };
    str_printf(&out, "FROM ./%s\n", gguf);
    if (t)
        put_chat(&out, t);
    pesc_status s = str_ok(&out) ? io_write_file(path, out.p, out.n) : fail_nomem(path, out.n);
    str_free(&out);
    return s;
}
