/* chat_formats: the table of conversation formats.
 *
 * The order matters for recognition: the first row whose marks fit wins, so the row of a template
 * that only adds a default system message stands before the row without one. */
#include "chat/chat_rows.h"

#define BOS CHAT_BOS
#define EOS CHAT_EOS

#define CHATML(tools)                                                                              \
    .turn = { [ROLE_SYSTEM] = { "<|im_start|>system\n", "<|im_end|>\n" },                          \
              [ROLE_USER] = { "<|im_start|>user\n", "<|im_end|>\n" },                              \
              [ROLE_ASSISTANT] = { "<|im_start|>assistant\n", "<|im_end|>" },                      \
              tools },                                                                             \
    .after = "\n", .system = SYSTEM_ANYWHERE, .stops = { "<|im_end|>", "<|endoftext|>" },          \
    .needs = { "<|im_start|>", "<|im_end|>" }
/* Templates that write any role as a turn of that name ... */
#define TOOL_TURN                                                                                  \
    [ROLE_TOOL] = { "<|im_start|>tool\n", "<|im_end|>\n" }, [ROLE_FUNCTION] = {                    \
        "<|im_start|>function\n", "<|im_end|>\n"                                                   \
    }
/* ... and those that write results of tools inside a turn of the user. */
#define TOOL_RESPONSE                                                                              \
    [ROLE_TOOL] = { "<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n" }
#define TOOL_BETWEEN "\n</tool_response>\n<tool_response>\n"

#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3                                                                                     \
    .begin = BOS, .trim = TRIM_ALL, .stops = { "<|eot_id|>" },                                     \
    .needs = { "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>" }

const struct chat_format chat_rows[] = {
    {
        .name = "camelidae",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "### System:\n", "\n" },
                  [ROLE_USER] = { "### Human:\n", "\n" },
                  [ROLE_ASSISTANT] = { "### Assistant:\n", EOS } },
        .system = SYSTEM_FIRST,
        .skip_empty_system = true,
        .stops = { "### Human:", "### System:" },
    },
    {
        .name = "qwen1.5",
        CHATML(TOOL_TURN),
        .default_system = "You are a helpful assistant",
        .marks = { "<|im_start|>", "You are a helpful assistant<|im_end|>" },
        .absent = { "bos_token", "strftime_now", "reasoning_content" },
    },
    {
        .name = "qwen2",
        CHATML(TOOL_TURN),
        .default_system = "You are a helpful assistant.",
        .marks = { "<|im_start|>", "You are a helpful assistant.<|im_end|>" },
        .absent = { "Alibaba Cloud", "bos_token", "strftime_now", "reasoning_content" },
    },
    {
        .name = "qwen2.5",
        CHATML(TOOL_RESPONSE),
        .tool_between = TOOL_BETWEEN,
        .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        .marks = { "<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful "
                                   "assistant.<|im_end|>" },
        .absent = { "bos_token", "strftime_now", "reasoning_content" },
    },
    {
        .name = "qwen3",
        CHATML(TOOL_RESPONSE),
        .tool_between = TOOL_BETWEEN,
        .think = true,
        .marks = { "<|im_start|>", "reasoning_content", "last_query_index",
                   "enable_thinking is false" },
        .absent = { "bos_token", "strftime_now", "<|im_start|>system\\nYou",
                    "assistant\\n<think>\\n' }}" },
    },
    {
        .name = "smollm2",
        CHATML(TOOL_TURN),
        .default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
        .marks = { "<|im_start|>", "named SmolLM, trained by Hugging Face<|im_end|>" },
        .absent = { "bos_token", "strftime_now" },
    },
    {
        .name = "chatml",
        CHATML(TOOL_TURN),
        .marks = { "<|im_start|>", "<|im_end|>" },
        .absent = { "bos_token", "strftime_now", "<think>", "system\\nYou", "system\nYou",
                    "default_system" },
    },
    {
        .name = "llama2",
        .turn = { [ROLE_SYSTEM] = { "<<SYS>>\n", "\n<</SYS>>\n\n" },
                  [ROLE_USER] = { BOS "[INST] ", " [/INST]" },
                  [ROLE_ASSISTANT] = { "", " " EOS } },
        .lead = " ",
        .system = SYSTEM_FIRST_USER,
        .alternate = true,
        .trim = TRIM(ROLE_USER) | TRIM(ROLE_ASSISTANT),
        .stops = { "[INST]" },
        .marks = { "<<SYS>>", "bos_token + '[INST] ' + content.strip() + ' [/INST]'" },
        .absent = { "respectful and honest" },
    },
    {
        .name = "llama3",
        LLAMA3,
        .turn = { [ROLE_SYSTEM] = { HEADER("system"), "<|eot_id|>" },
                  [ROLE_USER] = { HEADER("user"), "<|eot_id|>" },
                  [ROLE_ASSISTANT] = { HEADER("assistant"), "<|eot_id|>" },
                  [ROLE_TOOL] = { HEADER("tool"), "<|eot_id|>" },
                  [ROLE_FUNCTION] = { HEADER("function"), "<|eot_id|>" } },
        .system = SYSTEM_ANYWHERE,
        .marks = { "<|start_header_id|>", "<|eot_id|>", "| trim", "bos_token" },
        .absent = { "Cutting Knowledge", "strftime_now", "tools", "<think>" },
    },
    {
        .name = "llama3.1",
        LLAMA3,
        .turn = { [ROLE_SYSTEM] = { HEADER("system") "Cutting Knowledge Date: December 2023\n"
                                                     "Today Date: 26 Jul 2024\n\n",
                                    "<|eot_id|>" },
                  [ROLE_USER] = { HEADER("user"), "<|eot_id|>" },
                  [ROLE_ASSISTANT] = { HEADER("assistant"), "<|eot_id|>" } },
        .system = SYSTEM_FIRST,
        .default_system = "",
        .marks = { "<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date: December 2023",
                   "26 Jul 2024" },
        .absent = { "strftime_now", "<think>" },
    },
    {
        .name = "mistral",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { " [INST] ", " [/INST]" },
                  [ROLE_ASSISTANT] = { "", EOS } },
        .lead = " ",
        .system = SYSTEM_FIRST_USER,
        .alternate = true,
        .stops = { "[INST]" },
        .marks = { "\" [INST] \" + system_message + \"\\n\\n\"", "loop.first and system_message",
                   "\" \" + message[\"content\"] + eos_token" },
    },
    {
        .name = "mistral-v1",
        .begin = BOS,
        .turn = { [ROLE_USER] = { "[INST] ", " [/INST]" }, [ROLE_ASSISTANT] = { "", EOS } },
        .system = SYSTEM_NEVER,
        .alternate = true,
        .stops = { "[INST]" },
        .marks = { "bos_token", "'[INST] ' + message['content'] + ' [/INST]'",
                   "{{ message['content'] + eos_token" },
        .absent = { "<<SYS>>", "system_message", "eos_token + ' '" },
    },
    {
        .name = "mistral-v3",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { "[INST] ", "[/INST]" },
                  [ROLE_ASSISTANT] = { "", EOS } },
        .lead = " ",
        .system = SYSTEM_LAST_USER,
        .alternate = true,
        .trim = TRIM(ROLE_ASSISTANT),
        .stops = { "[INST]" },
        .marks = { "\"[INST] \" + system_message + \"\\n\\n\"", "loop.last and system_message",
                   "\" \" + message[\"content\"]|trim + eos_token" },
    },
    {
        .name = "mistral-nemo",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { "[INST]", "[/INST]" },
                  [ROLE_ASSISTANT] = { "", EOS } },
        .system = SYSTEM_LAST_USER,
        .alternate = true,
        .stops = { "[INST]" },
        .needs = { "[INST]", "[/INST]" },
        .marks = { "\"[INST]\" + system_message + \"\\n\\n\"", "loop.last and system_message",
                   "{{- message[\"content\"] + eos_token" },
    },
    {
        .name = "alpaca",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { "### Instruction:\n", "\n\n" },
                  [ROLE_ASSISTANT] = { "### Response:\n", EOS } },
        .after = "\n\n",
        .system = SYSTEM_FIRST,
        .default_system = "Below is an instruction that describes a task. Write a response that "
                          "appropriately completes the request.",
        .stops = { "### Instruction:" },
    },
    {
        .name = "vicuna",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", " " },
                  [ROLE_USER] = { "USER: ", " " },
                  [ROLE_ASSISTANT] = { "ASSISTANT:", EOS } },
        .lead = " ",
        .system = SYSTEM_FIRST,
        .default_system = "A chat between a curious user and an artificial intelligence assistant. "
                          "The assistant gives helpful, detailed, and polite answers to the user's "
                          "questions.",
        .stops = { "USER:" },
    },
    {
        .name = "zephyr",
        .turn = { [ROLE_SYSTEM] = { "<|system|>\n", EOS "\n" },
                  [ROLE_USER] = { "<|user|>\n", EOS "\n" },
                  [ROLE_ASSISTANT] = { "<|assistant|>\n", EOS } },
        .after = "\n",
        .system = SYSTEM_ANYWHERE,
        .stops = { "<|user|>" },
        .marks = { "'<|user|>", "'<|system|>", "message['content'] + eos_token",
                   "'<|assistant|>' }}" },
        .absent = { "<|end|>", "bos_token", "strftime_now" },
    },
    {
        .name = "deepseek",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { "User: ", "\n\n" },
                  [ROLE_ASSISTANT] = { "Assistant:", EOS } },
        .lead = " ",
        .system = SYSTEM_ANYWHERE,
        .stops = { "User:" },
        .marks = { "'User: ' + message['content'] + '", "'Assistant: ' + message['content'] + eos",
                   "{{ 'Assistant:' }}", "{{ bos_token }}" },
    },
    {
        .name = "deepseek-v3",
        .begin = BOS,
        .turn = { [ROLE_SYSTEM] = { "", "\n\n" },
                  [ROLE_USER] = { "<｜User｜>", "" },
                  [ROLE_ASSISTANT] = { "<｜Assistant｜>", EOS } },
        .system = SYSTEM_GATHERED,
        .stops = { "<｜User｜>" },
        .needs = { "<｜User｜>", "<｜Assistant｜>" },
        .marks = { "'<｜User｜>' + message['content']", "'<｜Assistant｜>'", "ns.system_prompt",
                   "{{bos_token}}" },
        .absent = { "</think>", "strftime_now" },
    },
    { .name = NULL },
};

const char *const chat_row_names[] = {
    "camelidae", "qwen1.5", "qwen2",    "qwen2.5",  "qwen3",       "smollm2",    "chatml",
    "llama2",    "llama3",  "llama3.1", "mistral",  "mistral-v1",  "mistral-v3", "mistral-nemo",
    "alpaca",    "vicuna",  "zephyr",   "deepseek", "deepseek-v3", NULL,
};

_Static_assert(sizeof chat_row_names / sizeof *chat_row_names ==
                   sizeof chat_rows / sizeof *chat_rows,
               "every row has its name");
