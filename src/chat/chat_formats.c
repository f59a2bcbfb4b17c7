/* The order matters for recognition: the first row whose marks fit wins, so the row of a template
 * that only adds a default system message stands before the row without one. */
#include "chat/chat_formats.h"

#include "base/embed.h"

#include <stdio.h>
#include <string.h>

#define CHATML .stops = { "<|im_end|>", "<|endoftext|>" }, .needs = { "<|im_start|>", "<|im_end|>" }
#define LLAMA3                                                                                     \
    .stops = { "<|eot_id|>" }, .needs = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" }

static const chat_format formats[] = {
    { .name = "camelidae", .stops = { "### Human:", "### System:" } },
    { .name = "qwen1.5",
      CHATML,
      .marks = { "<|im_start|>", "You are a helpful assistant<|im_end|>" },
      .absent = { "bos_token", "strftime_now", "reasoning_content" } },
    { .name = "qwen2",
      CHATML,
      .marks = { "<|im_start|>", "You are a helpful assistant.<|im_end|>" },
      .absent = { "Alibaba Cloud", "bos_token", "strftime_now", "reasoning_content" } },
    { .name = "qwen2.5",
      CHATML,
      .marks = { "<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful "
                                 "assistant.<|im_end|>" },
      .absent = { "bos_token", "strftime_now", "reasoning_content" } },
    { .name = "qwen3",
      CHATML,
      .marks = { "<|im_start|>", "reasoning_content", "last_query_index",
                 "enable_thinking is false" },
      .absent = { "bos_token", "strftime_now", "<|im_start|>system\\nYou",
                  "assistant\\n<think>\\n' }}" } },
    { .name = "smollm2",
      CHATML,
      .marks = { "<|im_start|>", "named SmolLM, trained by Hugging Face<|im_end|>" },
      .absent = { "bos_token", "strftime_now" } },
    { .name = "chatml",
      CHATML,
      .marks = { "<|im_start|>", "<|im_end|>" },
      .absent = { "bos_token", "strftime_now", "<think>", "system\\nYou", "system\nYou",
                  "default_system" } },
    { .name = "llama2",
      .stops = { "[INST]" },
      .marks = { "<<SYS>>", "bos_token + '[INST] ' + content.strip() + ' [/INST]'" },
      .absent = { "respectful and honest" } },
    { .name = "llama3",
      LLAMA3,
      .marks = { "<|start_header_id|>", "<|eot_id|>", "| trim", "bos_token" },
      .absent = { "Cutting Knowledge", "strftime_now", "tools", "<think>" } },
    { .name = "llama3.1",
      LLAMA3,
      .marks = { "<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date: December 2023",
                 "26 Jul 2024" },
      .absent = { "strftime_now", "<think>" } },
    { .name = "mistral",
      .stops = { "[INST]" },
      .marks = { "\" [INST] \" + system_message + \"\\n\\n\"", "loop.first and system_message",
                 "\" \" + message[\"content\"] + eos_token" } },
    { .name = "mistral-v1",
      .stops = { "[INST]" },
      .marks = { "bos_token", "'[INST] ' + message['content'] + ' [/INST]'",
                 "{{ message['content'] + eos_token" },
      .absent = { "<<SYS>>", "system_message", "eos_token + ' '" } },
    { .name = "mistral-v3",
      .stops = { "[INST]" },
      .marks = { "\"[INST] \" + system_message + \"\\n\\n\"", "loop.last and system_message",
                 "\" \" + message[\"content\"]|trim + eos_token" } },
    { .name = "mistral-nemo",
      .stops = { "[INST]" },
      .needs = { "[INST]", "[/INST]" },
      .marks = { "\"[INST]\" + system_message + \"\\n\\n\"", "loop.last and system_message",
                 "{{- message[\"content\"] + eos_token" } },
    { .name = "alpaca", .stops = { "### Instruction:" } },
    { .name = "vicuna", .stops = { "USER:" } },
    { .name = "zephyr",
      .stops = { "<|user|>" },
      .marks = { "'<|user|>", "'<|system|>", "message['content'] + eos_token",
                 "'<|assistant|>' }}" },
      .absent = { "<|end|>", "bos_token", "strftime_now" } },
    { .name = "deepseek",
      .stops = { "User:" },
      .marks = { "'User: ' + message['content'] + '", "'Assistant: ' + message['content'] + eos",
                 "{{ 'Assistant:' }}", "{{ bos_token }}" } },
    { .name = "deepseek-v3",
      .stops = { "<｜User｜>" },
      .needs = { "<｜User｜>", "<｜Assistant｜>" },
      .marks = { "'<｜User｜>' + message['content']", "'<｜Assistant｜>'", "ns.system_prompt",
                 "{{bos_token}}" },
      .absent = { "</think>", "strftime_now" } },
    { 0 },
};

static const char *const names[] = { "camelidae",  "qwen1.5",      "qwen2",       "qwen2.5",
                                     "qwen3",      "smollm2",      "chatml",      "llama2",
                                     "llama3",     "llama3.1",     "mistral",     "mistral-v1",
                                     "mistral-v3", "mistral-nemo", "alpaca",      "vicuna",
                                     "zephyr",     "deepseek",     "deepseek-v3", NULL };

_Static_assert(sizeof names / sizeof *names == sizeof formats / sizeof *formats,
               "every row has its name");

const chat_format *chat_find(const char *name)
{
    for (const chat_format *f = formats; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

const char *chat_name(const chat_format *f)
{
    return f->name;
}

const char *const *chat_names(void)
{
    return names;
}

const char *const *chat_stops(const chat_format *f, size_t *n)
{
    size_t max = sizeof f->stops / sizeof *f->stops;
    for (*n = 0; *n < max && f->stops[*n];)
        ++*n;
    return f->stops;
}

pesc_status chat_unknown(const char *why)
{
    str list = { 0 };
    for (const char *const *name = names; *name; name++)
        str_printf(&list, "%s%s", list.n ? ", " : "", *name);
    pesc_status s = fail(PESC_USAGE, "%s; name one of: %s", why, list.p ? list.p : "");
    str_free(&list);
    return s;
}

/* ---- as templates ---- */

void chat_source(const chat_format *f, const char **text, size_t *n)
{
    char file[64];
    snprintf(file, sizeof file, "%s.jinja", f->name);
    *text = "";
    *n = 0;
    for (size_t i = 0; i < embedded_chat.n; i++)
        if (strcmp(embedded_chat.v[i].name, file) == 0) {
            *text = embedded_chat.v[i].text;
            *n = embedded_chat.v[i].n;
        }
}

const chat_format *chat_named(const char *jinja)
{
    static const char mark[] = "{#- pesc chat format: ";
    if (!str_starts(jinja, mark))
        return NULL;
    const char *name = jinja + sizeof mark - 1;
    size_t n = strcspn(name, " ");
    for (const chat_format *f = formats; f->name; f++)
        if (strlen(f->name) == n && memcmp(f->name, name, n) == 0)
            return f;
    return NULL;
}

static bool has_marks(const chat_format *f, const char *jinja)
{
    size_t marks = sizeof f->marks / sizeof *f->marks;
    size_t absent = sizeof f->absent / sizeof *f->absent;
    if (!f->marks[0])
        return false;
    for (size_t i = 0; i < marks && f->marks[i]; i++)
        if (!strstr(jinja, f->marks[i]))
            return false;
    for (size_t i = 0; i < absent && f->absent[i]; i++)
        if (strstr(jinja, f->absent[i]))
            return false;
    return true;
}

const chat_format *chat_recognise(const char *jinja)
{
    const chat_format *named = jinja ? chat_named(jinja) : NULL;
    if (named)
        return named;
    for (const chat_format *f = formats; jinja && f->name; f++)
        if (has_marks(f, jinja))
            return f;
    return NULL;
}
