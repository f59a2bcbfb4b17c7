/* chat_turn: what models say, taken apart: each format of calls in its own words, in pieces of any
 * size; what only looks like a call; thoughts; and grammars that allow what is read, and only that.
 */
#include "base/mem.h"
#include "chat/chat_callgrammar.h"
#include "chat/chat_turn.h"
#include "grammar/grammar.h"
#include "support/check.h"
#include "support/files.h"
#include "support/letters.h"

#include <stdlib.h>

static const char *const control[] = {
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "｜DSML｜",
    "<|tool_call>",
    "<tool_call|>",
    "<|\\\"|>", /* as JSON has it */
    "<|tool_call|>",
    "<|python_start|>",
    "<|python_end|>",
    "<|python_tag|>",
    "<|im_end|>",
};
enum { CONTROLS = sizeof control / sizeof *control };

static tokenizer *tok;
static piece_trie *pieces;
static json_t *tools;

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"deep\":{\"type\":\"boolean\"}},\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static int set_up(void **state)
{
    (void)state;
    letters_put(control, CONTROLS);
    files_text("tokenizer_config.json", "{}");
    must(tokenizer_open_dir(&tok, files_path("")));
    must(pieces_open(&pieces, tok, (int32_t)tokenizer_size(tok)));
    must(json_parse(&tools, tools_text, sizeof tools_text - 1, "tools"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(tools);
    pieces_close(pieces);
    tokenizer_close(tok);
    return 0;
}

/* The parts as a text: thought as T{..}, content as it is, a call as name(arguments)#id. */
static char *shown(const chat_turn *t)
{
    size_t n;
    str out = { 0 };
    const turn_part *p = chat_turn_parts(t, &n);
    for (size_t i = 0; i < n; i++) {
        const char *text = p[i].text.p ? p[i].text.p : "";
        if (p[i].kind == TURN_THOUGHT)
            str_printf(&out, "T{%s}", text);
        else if (p[i].kind == TURN_CONTENT)
            str_puts(&out, text);
        else
            str_printf(&out, "|%s(%s)%s%s%s", p[i].name, text, p[i].id ? "#" : "",
                       p[i].id ? p[i].id : "", p[i].whole ? "" : "...");
    }
    str_puts(&out, "");
    return out.p;
}

/* Gives the text in pieces of `step` bytes, control tokens as such, and checks that what was shown
 * is only added to. 0: all at once. */
static char *read_turn(const turn_rules *rules, const char *text, size_t step)
{
    chat_turn *t;
    size_t n = strlen(text), begin = 0, end = 0;
    must(chat_turn_open(&t, rules));
    while (n > 0) {
        bool found;
        must(tokenizer_find_control(tok, text, n, &begin, &end, &found));
        begin = found ? begin : n;
        for (size_t i = 0, k; i < begin; i += k) {
            k = step && step < begin - i ? step : begin - i;
            char *before = shown(t);
            must(chat_turn_text(t, text + i, k));
            char *after = shown(t);
            size_t same = strcspn(before, ".})"); /* a call that grows is not closed */
            assert_memory_equal(before, after, same < strlen(before) ? same : strlen(before));
            mem_free(before);
            mem_free(after);
        }
        if (found) {
            char *name = mem_strndup(text + begin, end - begin);
            must(chat_turn_control(t, tokenizer_added_id(tok, name)));
            mem_free(name);
        }
        text += found ? end : n;
        n -= found ? end : n;
    }
    must(chat_turn_finish(t));
    char *all = shown(t);
    chat_turn_close(t);
    return all;
}

typedef struct sample {
    const char *format, *text, *parts;
} sample;

#define WEATHER "{\"city\": \"Rom{e\", \"days\": 2}"
#define READ "|get_weather(" WEATHER ")"
static const sample samples[] = {
    { "hermes",
      "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " WEATHER
      "}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
      "Let me look." READ "|now({})" },
    { "mistral",
      "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " WEATHER
      ", \"id\": \"abcdefgh1\"}, {\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefgh2\"}]",
      READ "#abcdefgh1|now({})#abcdefgh2" },
    { "mistral-args", "Yes [TOOL_CALLS]get_weather[ARGS]" WEATHER "[TOOL_CALLS]now[ARGS]{}",
      "Yes" READ "|now({})" },
    { "mistral-call-id", "[TOOL_CALLS]get_weather[CALL_ID]abcdefgh1[ARGS]" WEATHER,
      READ "#abcdefgh1" },
    { "kimi-k2",
      "Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
      "<|tool_call_argument_begin|>" WEATHER "<|tool_call_end|><|tool_call_begin|>functions.now:1"
      "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
      "Hm" READ "#functions.get_weather:0|now({})#functions.now:1" },
    { "command",
      "<|START_ACTION|>[\n{\"tool_name\": \"get_weather\", \"parameters\": " WEATHER
      ",\"tool_call_id\": \"0\"},\n{\"tool_name\": \"now\", \"parameters\": {},"
      "\"tool_call_id\": \"1\"}\n]<|END_ACTION|>",
      READ "#0|now({})#1" },
    { "deepseek-v3",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```"
      "json\n" WEATHER
      "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      READ "|now({})" },
    { "deepseek-v3.1",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>" WEATHER
      "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>",
      READ "|now({})" },
    { "deepseek-v3.2",
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Rom{e</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n<｜DSML｜invoke "
      "name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
      READ "|now({})" },
    { "gemma-4",
      "<|tool_call>call:get_weather{city:<|\"|>Rom{e<|\"|>,days:2}<tool_call|>"
      "<|tool_call>call:now{}<tool_call|>",
      READ "|now({})" },
    { "minimax-m2",
      "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rom{e"
      "</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n"
      "</invoke>\n</minimax:tool_call>",
      READ "|now({})" },
    { "qwen3-coder",
      "I see.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRom{e\n</parameter>\n"
      "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
      "</function>\n</tool_call>",
      "I see." READ "|now({})" },
    { "qwen3-coder",
      "<tool_call>\n<function=get_weather>\n<parameter=city>\n2134\n</parameter>\n"
      "<parameter=deep>\ntrue\n</parameter>\n</function>\n</tool_call>",
      "|get_weather({\"city\": \"2134\", \"deep\": true})" },
    { "qwen3-coder",
      "<tool_call>\n<function=get_weather>\n<parameter=city>\na</parameter> </tool_call>\n\n"
      "</parameter>\n</function>\n</tool_call>",
      "|get_weather({\"city\": \"a</parameter> </tool_call>\\n\"})" },
    { "glm-4.5",
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rom{e</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n"
      "</tool_call>",
      READ "|now({})" },
    { "glm-4.5",
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rom{e</arg_value>"
      "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>",
      READ },
    { "functionary", "<function=get_weather>" WEATHER "</function><function=now>{}</function>",
      READ "|now({})" },
    { "granite",
      "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": " WEATHER
      "}, {\"name\": \"now\", \"arguments\": {}}]",
      READ "|now({})" },
    { "phi-4-mini", "functools[{\"name\": \"get_weather\", \"arguments\": " WEATHER "}]", READ },
    { "llama-4", "<|python_start|>[get_weather(city=\"Rom{e\", days=2), now()]<|python_end|>",
      READ "|now({})" },
    { "pythonic", "[get_weather(city=\"Rom{e\", days=2), now()]", READ "|now({})" },
    { "llama-3", "{\"name\": \"get_weather\", \"parameters\": " WEATHER "}", READ },
    { "json", "[{\"name\": \"get_weather\", \"arguments\": " WEATHER "}]", READ },
    { "gpt-oss",
      "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get_weather <|constrain|>json<|message|>" WEATHER,
      "T{I think.}" READ },
    { "gpt-oss",
      "<|channel|>commentary<|message|>Looking.<|end|><|start|>assistant to=functions.now"
      "<|channel|>commentary json<|message|>{}<|call|>",
      "Looking.|now({})" },
    { "gpt-oss",
      "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>final"
      "<|message|>Rome.",
      "T{I think.}Rome." },
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void calls_are_read_in_every_format(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        chat_speech *s;
        must(chat_speech_open(&s, tok, NULL, samples[i].format));
        for (int sure = 0; sure < 2; sure++) {
            turn_rules rules = { .speech = s, .tools = tools, .thoughts = true, .sure = sure != 0 };
            for (size_t step = 0; step < 8; step++) {
                char *parts = read_turn(&rules, samples[i].text, step);
                if (strcmp(parts, samples[i].parts) != 0)
                    fail_msg("%s in pieces of %zu: %s\nexpected %s", samples[i].format, step, parts,
                             samples[i].parts);
                mem_free(parts);
            }
        }
        chat_speech_close(s);
    }
}

/* The text with control tokens as grammars spell them. */
static void spelled(const char *text, str *out)
{
    size_t n = strlen(text), begin, end;
    for (bool found = true; found;) {
        must(tokenizer_find_control(tok, text, n, &begin, &end, &found));
        str_add(out, text, found ? begin : n);
        if (!found)
            break;
        char *name = mem_strndup(text + begin, end - begin);
        str_printf(out, PIECES_CONTROL, tokenizer_added_id(tok, name));
        mem_free(name);
        text += end;
        n -= end;
    }
}

static grammar *open_grammar(const turn_limits *l)
{
    str text = { 0 };
    grammar *g;
    must(turn_grammar(l, &text));
    grammar_source from = { .kind = PESC_GRAMMAR_GBNF, .text = text.p, .n = text.n };
    pesc_status s = grammar_open(&g, pieces, &from);
    if (s != PESC_OK)
        fail_msg("%s\n%s", pesc_last_error(), text.p);
    str_free(&text);
    return g;
}

static bool allowed(const turn_limits *l, const char *text, bool *begins)
{
    str all = { 0 };
    bool whole;
    spelled(text, &all);
    grammar *g = open_grammar(l);
    must(grammar_matches(g, all.p ? all.p : "", all.n, &whole, begins));
    grammar_close(g);
    str_free(&all);
    return whole;
}

static void grammars_allow_what_is_read(void **state)
{
    (void)state;
    bool begins;
    for (size_t i = 0; i < SAMPLES; i++) {
        chat_speech *s;
        must(chat_speech_open(&s, tok, NULL, samples[i].format));
        turn_limits l = { .speech = s, .tools = tools, .choice = CALLS_AUTO };
        if (!s->calls->plain && !allowed(&l, samples[i].text, &begins) &&
            !strstr(samples[i].text, "<|call|>"))
            fail_msg("%s: %s is not allowed", samples[i].format, samples[i].text);
        l.choice = CALLS_REQUIRED;
        bool only = *samples[i].parts == '|';
        if (only && !allowed(&l, samples[i].text, &begins))
            fail_msg("%s: %s is not allowed as the only thing", samples[i].format, samples[i].text);
        l.choice = CALLS_NONE;
        if (strchr(samples[i].parts, '|') && !s->calls->plain)
            assert_false(allowed(&l, samples[i].text, &begins));
        chat_speech_close(s);
    }
}

static void a_choice_of_tools_is_kept(void **state)
{
    (void)state;
    bool begins;
    chat_speech *s;
    must(chat_speech_open(&s, tok, NULL, "hermes"));
    turn_limits l = { .speech = s, .tools = tools, .choice = CALLS_REQUIRED, .one_call = true };
    static const char one[] = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    assert_true(allowed(&l, one, &begins));
    assert_false(allowed(&l, "Hello", &begins) || begins);
    assert_false(allowed(&l, "", &begins));
    assert_false(allowed(&l,
                         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
                         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
                         &begins) ||
                 begins);
    assert_false(allowed(&l, "<tool_call>\n{\"name\": \"then\"", &begins) || begins);
    l.choice = CALLS_AUTO;
    assert_true(allowed(&l, "Hello", &begins));
    assert_false(allowed(&l, "Hello <tool_call>", &begins));
    assert_true(begins);
    assert_false(allowed(&l, "Hello <tool_call> and", &begins) || begins);
    l.content = "%json {\"type\": \"integer\"}";
    assert_true(allowed(&l, "12", &begins));
    assert_true(allowed(&l, one, &begins));
    assert_false(allowed(&l, "Hello", &begins) || begins);
    chat_speech_close(s);
}

static void thoughts_are_told_from_content(void **state)
{
    (void)state;
    static const struct {
        bool inside;
        const char *text, *parts;
    } all[] = {
        { false, "<think>\nA b.\n</think>\n\nYes.\n", "T{A b.}Yes.\n" },
        { true, "A <tool_call> b\n</think>\n\nYes.", "T{A <tool_call> b}Yes." },
        { true, "never closed", "T{never closed}" },
        { false, "<think>never closed", "T{never closed}" },
        { false, "outside </think> it", "outside </think> it" },
        { false, "<think></think>x</think>y", "x</think>y" },
        { false, "<thin", "<thin" },
        { true, "a</thin", "T{a</thin}" },
        { false, "No <think>no</think>", "No <think>no</think>" },
        { true, "a</think>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "T{a}|now({})" },
        { false, "", "" },
    };
    chat_speech *s;
    must(chat_speech_open(&s, tok, "x <tool_call> </think>", NULL));
    assert_string_equal(s->calls->name, "hermes");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t step = 0; step < 5; step++) {
            turn_rules rules = {
                .speech = s, .tools = tools, .thoughts = true, .inside = all[i].inside
            };
            char *parts = read_turn(&rules, all[i].text, step);
            assert_string_equal(parts, all[i].parts);
            mem_free(parts);
        }
    bool begins;
    turn_limits l = { .speech = s, .thoughts = true, .inside = true, .content = "\"{}\"" };
    assert_true(allowed(&l, "thinking {} <think> </think>\n\n{}", &begins));
    assert_false(allowed(&l, "{}", &begins));
    assert_false(allowed(&l, "a</think>Yes", &begins) || begins);
    l.inside = false;
    assert_true(allowed(&l, "{}", &begins));
    assert_true(allowed(&l, "<think>a</think>{}", &begins));
    chat_speech_close(s);
}

static void what_is_no_call_stays_text(void **state)
{
    (void)state;
    static const struct {
        const char *format, *text;
    } all[] = {
        { "hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {" },
        { "hermes", "<tool_call>\n{\"name\": \"then\", \"arguments\": {}}\n</tool_call>" },
        { "hermes", "<tool_call> <tool_call> <tool_call>" },
        { "hermes", "<tool_cal" },
        { "hermes", "a <tool_call>\nfunction\n</tool_call> b" },
        { "llama-3", "{\"name\": \"then\", \"parameters\": {}}" },
        { "llama-3", "{\"name\": \"now\", \"parameters\": {}} is how one asks." },
        { "llama-3", "{\"name\": \"now\", \"parameters\": {}" },
        { "llama-3", "{\"a\": [1, 2, {}]}" },
        { "json", "[{\"name\": \"now\", \"arguments\": {}}" },
        { "json", "[1, 2]" },
        { "pythonic", "[now(), then()]" },
        { "pythonic", "[now(), 1]" },
        { "pythonic", "[x for x in now()]" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        chat_speech *s;
        must(chat_speech_open(&s, tok, NULL, all[i].format));
        turn_rules rules = { .speech = s, .tools = tools };
        for (size_t step = 0; step < 5; step++) {
            char *parts = read_turn(&rules, all[i].text, step);
            assert_string_equal(parts, all[i].text);
            mem_free(parts);
        }
        chat_speech_close(s);
    }
}

/* A marker that is a control token is one only as such. */
static void spelled_out_markers_are_text(void **state)
{
    (void)state;
    chat_speech *s;
    chat_turn *t;
    static const char text[] = "[TOOL_CALLS]now[ARGS]{}";
    must(chat_speech_open(&s, tok, NULL, "mistral-args"));
    must(chat_turn_open(&t, &(turn_rules){ .speech = s, .tools = tools }));
    must(chat_turn_text(t, text, sizeof text - 1));
    must(chat_turn_finish(t));
    char *parts = shown(t);
    assert_string_equal(parts, text);
    mem_free(parts);
    chat_turn_close(t);
    chat_speech_close(s);
}

/* Of a grammar's making a call is shown while it grows, and stays where the answer is cut. */
static void sure_calls_are_shown_at_once(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci";
    chat_speech *s;
    must(chat_speech_open(&s, tok, NULL, "hermes"));
    turn_rules rules = { .speech = s, .tools = tools, .sure = true };
    char *parts = read_turn(&rules, text, 1);
    assert_string_equal(parts, "|get_weather({\"ci)...");
    mem_free(parts);
    chat_speech *coder;
    must(chat_speech_open(&coder, tok, NULL, "qwen3-coder"));
    rules.speech = coder;
    parts = read_turn(&rules,
                      "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n"
                      "<parameter=da",
                      1);
    assert_string_equal(parts, "|get_weather({\"city\": \"Rome\")...");
    mem_free(parts);
    chat_speech_close(coder);
    rules.speech = s;
    rules.one_call = true;
    parts = read_turn(&rules, samples[0].text, 3);
    assert_string_equal(parts, "Let me look." READ);
    mem_free(parts);
    chat_speech_close(s);
}

/* Many openers without an end take time in proportion to the text. */
static void openers_are_read_in_linear_time(void **state)
{
    (void)state;
    enum { N = 50000 };
    str text = { 0 };
    for (int i = 0; i < N; i++)
        str_puts(&text, i % 2 ? "<tool_call>" : "<tool_call>\n{\"name\": \"now\", ");
    chat_speech *s;
    must(chat_speech_open(&s, tok, NULL, "hermes"));
    chat_turn *t;
    must(chat_turn_open(&t, &(turn_rules){ .speech = s, .tools = tools }));
    must(chat_turn_text(t, text.p, text.n));
    must(chat_turn_finish(t));
    size_t n;
    const turn_part *p = chat_turn_parts(t, &n);
    assert_int_equal(n, 1);
    assert_string_equal(p->text.p, text.p);
    chat_turn_close(t);
    chat_speech_close(s);
    str_free(&text);
}

static void formats_are_known_by_name(void **state)
{
    (void)state;
    chat_speech *s;
    must_fail(chat_speech_open(&s, tok, NULL, "herms"), PESC_USAGE, "hermes");
    for (const char *const *name = call_format_names(); *name; name++) {
        must(chat_speech_open(&s, NULL, NULL, *name));
        assert_string_equal(s->calls->name, *name);
        chat_speech_close(s);
    }
    must(chat_speech_open(&s, tok, "nothing", NULL));
    assert_null(s->calls);
    assert_null(s->think_end);
    chat_speech_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_read_in_every_format),
        cmocka_unit_test(grammars_allow_what_is_read),
        cmocka_unit_test(a_choice_of_tools_is_kept),
        cmocka_unit_test(thoughts_are_told_from_content),
        cmocka_unit_test(what_is_no_call_stays_text),
        cmocka_unit_test(spelled_out_markers_are_text),
        cmocka_unit_test(sure_calls_are_shown_at_once),
        cmocka_unit_test(openers_are_read_in_linear_time),
        cmocka_unit_test(formats_are_known_by_name),
    };
    return cmocka_run_group_tests_name("chat_turn", tests, set_up, tear_down);
}
