#include "chat/chat_calls.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- the formats ----
 *
 * In the order in which they are looked for: markers that others share come later. */

#define OBJECT "%O"
static const call_format formats[] = {
    { .name = "mistral-call-id",
      .find = { "[TOOL_CALLS]", "[CALL_ID]" },
      .call = "[TOOL_CALLS]%n[CALL_ID]%i[ARGS]%A",
      .ids = CALL_IDS_NINE },
    { .name = "mistral-args",
      .find = { "[TOOL_CALLS]", "[ARGS]" },
      .call = "[TOOL_CALLS]%n[ARGS]%A",
      .ids = CALL_IDS_NINE },
    { .name = "mistral",
      .find = { "[TOOL_CALLS]" },
      .begin = "[TOOL_CALLS][",
      .call = OBJECT,
      .between = ", ",
      .end = "]",
      .keys = { "name", "arguments", "id" },
      .ids = CALL_IDS_NINE },
    { .name = "gpt-oss",
      .find = { "<|channel|>" },
      .stops = { "<|call|>", "<|return|>" },
      .channels = true,
      .single = true },
    { .name = "kimi-k2",
      .find = { "<|tool_calls_section_begin|>" },
      .begin = "<|tool_calls_section_begin|>",
      .call = "<|tool_call_begin|>functions.%n:%i<|tool_call_argument_begin|>%A<|tool_call_end|>",
      .end = "<|tool_calls_section_end|>",
      .ids = CALL_IDS_COUNTED },
    { .name = "command",
      .find = { "<|START_ACTION|>" },
      .begin = "<|START_ACTION|>[\n",
      .call = OBJECT,
      .between = ",\n",
      .end = "\n]<|END_ACTION|>",
      .keys = { "tool_name", "parameters", "tool_call_id" } },
    { .name = "deepseek-v3.2",
      .find = { "dsml_token" },
      .begin = "<｜DSML｜function_calls>\n",
      .call = "<｜DSML｜invoke name=\"%n\">\n%P</｜DSML｜invoke>",
      .between = "\n",
      .end = "\n</｜DSML｜function_calls>",
      .param = "<｜DSML｜parameter name=\"%k\" string=\"%s\">%v</｜DSML｜parameter>\n" },
    { .name = "deepseek-v3",
      .find = { "<｜tool▁sep｜>", "```json" },
      .begin = "<｜tool▁calls▁begin｜>",
      .call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%n\n```json\n%A\n```<｜tool▁call▁end｜>",
      .between = "\n",
      .end = "<｜tool▁calls▁end｜>" },
    { .name = "deepseek-v3.1",
      .find = { "<｜tool▁sep｜>" },
      .begin = "<｜tool▁calls▁begin｜>",
      .call = "<｜tool▁call▁begin｜>%n<｜tool▁sep｜>%A<｜tool▁call▁end｜>",
      .end = "<｜tool▁calls▁end｜>" },
    { .name = "gemma-4",
      .find = { "<|tool_call>call:" },
      .call = "<|tool_call>call:%n{%L}<tool_call|>",
      .notation = &notation_gemma4 },
    { .name = "functiongemma",
      .find = { "<start_function_call>" },
      .call = "<start_function_call>call:%n{%L}<end_function_call>",
      .notation = &notation_functiongemma },
    { .name = "minimax-m2",
      .find = { "<minimax:tool_call>" },
      .begin = "<minimax:tool_call>\n",
      .call = "<invoke name=\"%n\">\n%P</invoke>",
      .between = "\n",
      .end = "\n</minimax:tool_call>",
      .param = "<parameter name=\"%k\">%v</parameter>\n" },
    { .name = "qwen3-coder",
      .find = { "<function=", "<parameter=" },
      .call = "<tool_call>\n<function=%n>\n%P</function>\n</tool_call>",
      .between = "\n",
      .param = "<parameter=%k>\n%v\n</parameter>\n" },
    { .name = "glm-4.5",
      .find = { "<arg_key>" },
      .call = "<tool_call>%n\n%P</tool_call>",
      .between = "\n",
      .param = "<arg_key>%k</arg_key>\n<arg_value>%v</arg_value>\n",
      .stops = { "<|observation|>" } },
    { .name = "functionary",
      .find = { "<function=" },
      .call = "<function=%n>%A</function>",
      .stops = { "<|eom_id|>" } },
    { .name = "granite",
      .find = { "<|tool_call|>" },
      .begin = "<|tool_call|>[",
      .call = OBJECT,
      .between = ", ",
      .end = "]",
      .keys = { "name", "arguments" } },
    { .name = "hermes",
      .find = { "<tool_call>" },
      .call = "<tool_call>\n%O\n</tool_call>",
      .between = "\n",
      .keys = { "name", "arguments" } },
    { .name = "phi-4-mini",
      .find = { "functools" },
      .begin = "functools[",
      .call = OBJECT,
      .between = ", ",
      .end = "]",
      .keys = { "name", "arguments" } },
    { .name = "llama-4",
      .find = { "<|python_start|>" },
      .begin = "<|python_start|>[",
      .call = "%n(%L)",
      .between = ", ",
      .end = "]<|python_end|>",
      .notation = &notation_python,
      .stops = { "<|eom|>" } },
    { .name = "pythonic",
      .find = { "python list" },
      .begin = "[",
      .call = "%n(%L)",
      .between = ", ",
      .end = "]",
      .notation = &notation_python,
      .plain = true },
    { .name = "llama-3",
      .find = { "\"parameters\": dictionary" },
      .call = OBJECT,
      .keys = { "name", "parameters", NULL },
      .stops = { "<|eom_id|>" },
      .plain = true,
      .single = true },
    { .name = "json",
      .find = { "JSON array" },
      .begin = "[",
      .call = OBJECT,
      .between = ", ",
      .end = "]",
      .keys = { "name", "arguments" },
      .plain = true },
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static const thought_format thoughts[] = {
    { "[THINK]", "[/THINK]" },
    { "<|START_THINKING|>", "<|END_THINKING|>" },
    { "<|channel>thought\n", "<channel|>" },
    { "<seed:think>", "</seed:think>" },
    { "<think>", "</think>" },
};

static const char *const channel_texts[N_CHANNEL_MARKS] = {
    [MARK_START] = "<|start|>",
    [MARK_CHANNEL] = "<|channel|>",
    [MARK_CONSTRAIN] = "<|constrain|>",
    [MARK_MESSAGE] = "<|message|>",
    [MARK_END] = "<|end|>",
    [MARK_CALL] = "<|call|>",
    [MARK_RETURN] = "<|return|>",
};

const char *const *call_format_names(void)
{
    static const char *names[N_FORMATS + 1];
    for (size_t i = 0; i < N_FORMATS; i++)
        names[i] = formats[i].name;
    return names;
}

static const call_format *recognise(const char *jinja)
{
    for (size_t i = 0; jinja && i < N_FORMATS; i++)
        if (strstr(jinja, formats[i].find[0]) &&
            (!formats[i].find[1] || strstr(jinja, formats[i].find[1])))
            return &formats[i];
    return NULL;
}

static pesc_status named(const char *name, const call_format **out)
{
    str list = { 0 };
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *out = &formats[i];
            str_free(&list);
            return PESC_OK;
        }
        str_printf(&list, "%s%s", i ? ", " : "", formats[i].name);
    }
    pesc_status s = str_ok(&list) ? fail(PESC_USAGE,
                                         "tool_format: there is no format \"%.40s\" of calls, "
                                         "expected one of %s",
                                         name, list.p)
                                  : fail_nomem("formats of calls", list.n);
    str_free(&list);
    return s;
}

/* ---- tools ---- */

enum { MAX_NAME = 128 };

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static pesc_status check_tool(const json_t *all, size_t i, bool apart)
{
    const json_t *tool = json_array_get(all, i);
    const char *type = json_string_value(json_object_get(tool, "type")), *name = tool_name(tool);
    const json_t *parameters = json_value(json_object_get(tool, "function"), "parameters");
    if (!type || strcmp(type, "function") != 0 || !name)
        return fail(PESC_USAGE, "tools: tool %zu is not a function with a name", i + 1);
    size_t n = strlen(name);
    if (n < 1 || n > MAX_NAME ||
        n != strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"))
        return fail(PESC_USAGE,
                    "tools: found the name \"%.80s\", expected 1 to %d letters, digits, _, - and .",
                    name, MAX_NAME);
    if (parameters && !json_is_object(parameters))
        return fail(PESC_USAGE, "tools: the parameters of %.80s: found %s, expected a JSON Schema",
                    name, json_kind(parameters));
    for (size_t k = 0; apart && k < i; k++)
        if (strcmp(tool_name(json_array_get(all, k)), name) == 0)
            return fail(PESC_USAGE, "tools: there are two of the name %.80s", name);
    return PESC_OK;
}

pesc_status tools_check(const json_t *tools, bool apart)
{
    if (!json_is_array(tools))
        return fail(PESC_USAGE, "tools: found %s, expected an array of tools", json_kind(tools));
    for (size_t i = 0; i < json_array_size(tools); i++)
        TRY(check_tool(tools, i, apart));
    return PESC_OK;
}

/* ---- for one tokenizer ---- */

/* A copy of the text in which control tokens of the tokenizer are spelled by their ids. */
static char *spell(const tokenizer *t, const char *text)
{
    str out = { 0 };
    size_t n = strlen(text), begin = 0, end = 0;
    bool found = t != NULL;
    while (found && tokenizer_find_control(t, text, n, &begin, &end, &found) == PESC_OK && found) {
        char token[128];
        snprintf(token, sizeof token, "%.*s", (int)(end - begin), text + begin);
        str_add(&out, text, begin);
        str_printf(&out, SPEECH_CONTROL, tokenizer_added_id(t, token));
        text += end;
        n -= end;
    }
    str_add(&out, text, n);
    str_puts(&out, "");
    if (str_ok(&out))
        return out.p;
    str_free(&out);
    return NULL;
}

/* The beginning of the pattern up to its first part that varies; of one that begins with a control
 * token that alone. */
static char *lead_of(const char *pattern)
{
    size_t n = strcspn(pattern, "% \n");
    const char *close = pattern[0] == SPEECH_OPENS ? strchr(pattern, SPEECH_CLOSES) : NULL;
    return mem_strndup(pattern, close ? (size_t)(close - pattern) + 1 : n);
}

static bool bind_calls(chat_speech *s, const tokenizer *t)
{
    const call_format *f = s->calls;
    if (f->channels) {
        for (size_t i = 0; i < N_CHANNEL_MARKS; i++)
            if (!(s->marks[i] = spell(t, channel_texts[i])))
                return false;
        return true;
    }
    const struct {
        char **to;
        const char *from;
    } rows[] = { { &s->begin, f->begin },
                 { &s->call, f->call },
                 { &s->between, f->between },
                 { &s->end, f->end },
                 { &s->param, f->param } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(*rows[i].to = spell(t, rows[i].from ? rows[i].from : "")))
            return false;
    if (f->notation && f->notation->quote && !(s->quote = spell(t, f->notation->quote)))
        return false;
    s->lead = lead_of(*s->begin ? s->begin : *s->call == '%' ? "{" : s->call);
    return s->lead != NULL;
}

static bool bind_thoughts(chat_speech *s, const tokenizer *t, const char *jinja)
{
    size_t i = 0, n = sizeof thoughts / sizeof *thoughts;
    while (i < n && !strstr(jinja, thoughts[i].end))
        i++;
    if (i == n)
        return true;
    s->thought = &thoughts[i];
    s->think_begin = spell(t, thoughts[i].begin);
    s->think_end = spell(t, thoughts[i].end);
    return s->think_begin && s->think_end;
}

pesc_status chat_speech_open(chat_speech **out, const tokenizer *t, const char *jinja,
                             const char *name)
{
    *out = NULL;
    const call_format *f = NULL;
    if (name && *name)
        TRY(named(name, &f));
    else
        f = recognise(jinja);
    chat_speech *s = mem_zalloc(1, sizeof *s);
    bool good = s != NULL;
    if (good) {
        s->calls = f;
        good = (!f || bind_calls(s, t)) &&
               (!jinja || (f && f->channels) || bind_thoughts(s, t, jinja));
    }
    if (!good) {
        chat_speech_close(s);
        return fail_nomem("a format of calls", 0);
    }
    *out = s;
    return PESC_OK;
}

void chat_speech_close(chat_speech *s)
{
    if (!s)
        return;
    char *texts[] = { s->begin, s->call,        s->between,   s->end,  s->param,
                      s->lead,  s->think_begin, s->think_end, s->quote };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mem_free(texts[i]);
    for (size_t i = 0; i < N_CHANNEL_MARKS; i++)
        mem_free(s->marks[i]);
    mem_free(s);
}
