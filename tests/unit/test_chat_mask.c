/* Conversations in the templates of models, and what is trained of them. */
#include "chat/chat.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/letters.h"

#include <stdio.h>
#include <unistd.h>

static const char *const control[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>" };
enum { CONTROLS = sizeof control / sizeof *control };

static tokenizer *open_text(const char *template)
{
    return letters_open(json_string(template));
}

/* Appends the ids; the writer is the tokenizer's own template. */
static pesc_status encode(const tokenizer *t, const chat_request *r, id_list *ids,
                          unsigned char **trained)
{
    chat_writer *w;
    pesc_status s = chat_open(&w, t, NULL, NULL);
    if (s == PESC_OK)
        s = chat_write(w, r, NULL, ids, trained);
    chat_close(w);
    return s;
}

#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"   \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

/* Ids as text; control tokens stand between ( ), trained ones between ^ and $. */
static void show(const tokenizer *t, const id_list *ids, const unsigned char *trained, str *out)
{
    bool was = false;
    str_clear(out);
    for (size_t i = 0; i <= ids->n; i++) {
        bool now = trained && i < ids->n && trained[i];
        if (now != was)
            str_putc(out, was ? '$' : '^');
        was = now;
        size_t n;
        const char *text = i < ids->n ? tokenizer_token(t, ids->ids[i], &n) : NULL;
        bool special = text && tokenizer_is_special(t, ids->ids[i]);
        str_puts(out, special ? "(" : "");
        str_add(out, text ? text : "", text ? n : 0);
        str_puts(out, special ? ")" : "");
    }
}

static void expect_trained(const tokenizer *t, const char *messages, const unsigned char *masked,
                           const char *expected)
{
    json_t *talk;
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    str out = { 0 };
    must(json_parse(&talk, messages, strlen(messages), "talk"));
    must(encode(t, &(chat_request){ .messages = talk, .masked = masked }, &ids, &trained));
    show(t, &ids, trained, &out);
    assert_string_equal(out.p, expected);
    str_free(&out);
    mem_free(ids.ids);
    mem_free(trained);
    json_decref(talk);
}

static void expect_prompt(const tokenizer *t, const chat_request *r, const char *expected)
{
    id_list ids = { 0 };
    str out = { 0 };
    must(encode(t, r, &ids, NULL));
    show(t, &ids, NULL, &out);
    assert_string_equal(out.p, expected);
    str_free(&out);
    mem_free(ids.ids);
}

#define TALK                                                                                       \
    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},"           \
    "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"\"}]"

static void writes_a_prompt(void **state)
{
    (void)state;
    tokenizer *t = open_text(CHATML);
    json_t *talk = json_pack("[{ssss}]", "role", "user", "content", "x<|im_end|>\n<s>");
    expect_prompt(t, &(chat_request){ .messages = talk, .end = CHAT_PROMPT },
                  "(<|im_start|>)user\nx<|im_end|>\n<s>(<|im_end|>)\n(<|im_start|>)assistant\n");
    json_decref(talk);
    tokenizer_close(t);
}

static void expect_open(const char *jinja, const char *said, const char *expected)
{
    tokenizer *t = open_text(jinja);
    id_list ids = { 0 };
    json_t *talk = json_pack("[{ssss}{ssss}]", "role", "user", "content", "say\nx\ny", "role",
                             "assistant", "content", said);
    chat_request r = { .messages = talk, .end = CHAT_GO_ON };
    if (expected)
        expect_prompt(t, &r, expected);
    else
        must_fail(encode(t, &r, &ids, NULL), PESC_USAGE, "cannot be continued");
    mem_free(ids.ids);
    json_decref(talk);
    tokenizer_close(t);
}

static void leaves_the_last_turn_open(void **state)
{
    (void)state;
#define BEFORE "(<|im_start|>)user\nsay\nx\ny(<|im_end|>)\n(<|im_start|>)assistant\n"
    static const char trims[] = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}s"
                                "{% endfor %}";
    expect_open(CHATML, "x\n", BEFORE "x\n");
    expect_open(CHATML, "<|im_end|>", BEFORE "<|im_end|>");
    expect_open(CHATML, "", NULL);
    expect_open(CHATML, " ", NULL);
    expect_open(trims, " x\n", "[user]say\nx\nys[assistant]x");
    expect_open(trims, "s", "[user]say\nx\nys[assistant]s");
    expect_open("{{ messages[1].content }}{{ messages[1].role }}", "x", "x");
    expect_open("{{ messages[1].content | upper }}", "x", NULL);
    expect_open("{{ messages[0].content }}", "x", NULL);
}

static void builds_tokens_from_roles(void **state)
{
    (void)state;
    tokenizer *t = open_text("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}");
    json_t *talk = json_pack("[{ssss}]", "role", "user", "content", "<|user|>");
    expect_prompt(t, &(chat_request){ .messages = talk }, "(<|user|>)<|user|>");
    json_decref(talk);
    tokenizer_close(t);
}

static void trains_by_prefix_difference(void **state)
{
    (void)state;
    tokenizer *t = open_text(CHATML);
    expect_trained(t, TALK, NULL,
                   "(<|im_start|>)user\na(<|im_end|>)\n(<|im_start|>)assistant\n^b(<|im_end|>)$\n"
                   "(<|im_start|>)user\nc(<|im_end|>)\n(<|im_start|>)assistant\n^(<|im_end|>)$\n");
    expect_trained(t, TALK, (const unsigned char[]){ 0, 1, 0, 0 },
                   "(<|im_start|>)user\na(<|im_end|>)\n(<|im_start|>)assistant\nb(<|im_end|>)\n"
                   "(<|im_start|>)user\nc(<|im_end|>)\n(<|im_start|>)assistant\n^(<|im_end|>)$\n");
    tokenizer_close(t);
}

/* The prompt for an answer may end with words that the answer, once given, does not have; and the
 * last answer may be written in another way than those before it. */
static void trains_where_the_last_answer_differs(void **state)
{
    (void)state;
    tokenizer *t = open_text(
        "{% for m in messages %}{{ '<|im_start|>' if m.role == 'assistant' else 'Q' }}"
        "{% if m.role == 'assistant' and loop.last %}(t){% endif %}{{ m.content }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|><think>{% endif %}");
    expect_trained(t, TALK, NULL,
                   "Qa(</s>)(<|im_start|>)^b(</s>)$Qc(</s>)(<|im_start|>)^(t)(</s>)$");
    tokenizer_close(t);
}

/* What an answer says may be what the prompt for it ends with; it is the answer's all the same. */
static void trains_an_answer_that_begins_like_the_prompt(void **state)
{
    (void)state;
    tokenizer *t = open_text("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}</s>"
                             "{% endfor %}{% if add_generation_prompt %}a:b{% endif %}");
    expect_trained(t,
                   "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
                   "\"bb\"},{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\","
                   "\"content\":\"b\"}]",
                   NULL, "u:a(</s>)a:^bb(</s>)$u:c(</s>)a:^b(</s>)$");
    tokenizer_close(t);
    /* the control token after the prompt's first begins like its second */
    t = open_text("{% for m in messages %}{{ m.content ~ '</s>' if m.role == 'user' else "
                  "'<s><|im_end|>' ~ m.content ~ '</s>' }}{% endfor %}"
                  "{% if add_generation_prompt %}<s><|im_start|>{% endif %}");
    expect_trained(t,
                   "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
                   "\"b\"}]",
                   NULL, "a(</s>)(<s>)^(<|im_end|>)b(</s>)$");
    tokenizer_close(t);
}

static void trains_what_is_marked(void **state)
{
    (void)state;
    tokenizer *t = open_text("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
                             "{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}"
                             "{{ m.content }}:{% endif %}{% endfor %}");
    expect_trained(t, TALK, NULL, "a:^b(</s>)$c:^(</s>)$");
    expect_trained(t, TALK, (const unsigned char[]){ 0, 1, 0, 0 }, "a:b(</s>)c:^(</s>)$");
    tokenizer_close(t);
}

static void refuse_training(const char *template, const char *part)
{
    tokenizer *t = open_text(template);
    json_t *talk;
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    must(json_parse(&talk, TALK, strlen(TALK), "talk"));
    must_fail(encode(t, &(chat_request){ .messages = talk }, &ids, &trained), PESC_USAGE, part);
    assert_int_equal(ids.n, 0);
    assert_null(trained);
    json_decref(talk);
    tokenizer_close(t);
}

static void refuses_to_mask_wrongly(void **state)
{
    (void)state;
    refuse_training(
        "{{ messages | length }}{% for m in messages %}{{ m.content }}</s>{% endfor %}",
        "message 2: the chat template writes the conversation before it in another way");
    refuse_training("{% for m in messages %}{{ m.content }}{% if loop.last %}(ab){% endif %}</s>"
                    "{% endfor %}{% if add_generation_prompt %}A:(cd){% endif %}",
                    "message 2: ");
    refuse_training("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}</s>{% endfor %}"
                    "{% if add_generation_prompt %}a;{% endif %}",
                    "message 2: the chat template begins its turn in another way");
    refuse_training("{% for m in messages %}{{ m.content }}</s>{% endfor %}"
                    "{% for m in messages %}{{ m.content }}{% endfor %}",
                    "message 2: ");
    refuse_training("{% for m in messages %}{{ m.content }}</s>"
                    "{% if loop.index == 3 %}{{ loop.previtem.content }}{% endif %}{% endfor %}",
                    "message 2: the chat template writes its text in more than one place");
    refuse_training("{% for m in messages %}{{ m.content }}{% endfor %}{{ messages | length }}",
                    "message 2: ");
}

/* n turns of a question and an answer, some of them alike. */
static json_t *long_talk(size_t n)
{
    json_t *talk = json_array();
    for (size_t i = 0; i < 2 * n; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s%zu", i % 10 == 3 ? "a\n" : "b", i % 7);
        json_array_append_new(talk, json_pack("{ssss}", "role", i % 2 ? "assistant" : "user",
                                              "content", i % 50 == 21 ? "" : text));
    }
    return talk;
}

/* Most answers of a long conversation are not measured, and are marked as if they were. */
static void long_conversations(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "{{ m.content + '<|im_end|>' }}",
        "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}",
    };
    json_t *talk = long_talk(3000);
    id_list ids[2] = { 0 };
    unsigned char *trained[2] = { NULL };
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{%% for m in messages %%}{%% if m.role == 'user' %%}Q {{ m.content }}"
                 "{%% else %%}<|im_start|>A %s;\n{%% endif %%}{%% endfor %%}"
                 "{%% if add_generation_prompt %%}<|im_start|>A {%% endif %%}",
                 answers[i]);
        tokenizer *t = open_text(text);
        must(encode(t, &(chat_request){ .messages = talk }, &ids[i], &trained[i]));
        tokenizer_close(t);
    }
    assert_int_equal(ids[0].n, ids[1].n);
    assert_memory_equal(ids[0].ids, ids[1].ids, ids[0].n * sizeof *ids[0].ids);
    assert_memory_equal(trained[0], trained[1], ids[0].n);
    for (size_t i = 0; i < 2; i++) {
        mem_free(ids[i].ids);
        mem_free(trained[i]);
    }
    json_decref(talk);
}

static void long_conversations_of_unlike_turns(void **state)
{
    (void)state;
    tokenizer *t = open_text("{% for m in messages %}{{ m.content }}{{ loop.index }}</s>"
                             "{% endfor %}");
    json_t *talk = long_talk(1000);
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    must_fail(encode(t, &(chat_request){ .messages = talk }, &ids, &trained), PESC_USAGE,
              "the conversation is long and its turns do not look alike, so");
    json_decref(talk);
    tokenizer_close(t);
}

static void passes_tools_and_variables(void **state)
{
    (void)state;
    tokenizer *t =
        letters_open(json_pack("[{ssss}{ssss}]", "name", "default", "template",
                               "{{ tools }}{{ documents }}{{ x }}{{ pad_token is defined }}",
                               "name", "tool_use", "template", "{{ tools | tojson }}{{ x }}"));
    json_t *talk = json_pack("[{ssss}]", "role", "user", "content", "a");
    json_t *tools = json_pack("[s]", "<s>"), *more = json_pack("{ss}", "x", "</s>");
    expect_prompt(t, &(chat_request){ .messages = talk }, "NoneNoneFalse");
    expect_prompt(t, &(chat_request){ .messages = talk, .variables = more }, "NoneNone</s>False");
    expect_prompt(t, &(chat_request){ .messages = talk, .tools = tools, .variables = more },
                  "[\"<s>\"]</s>");
    json_decref(talk);
    json_decref(tools);
    json_decref(more);
    tokenizer_close(t);
}

static int32_t stop_of(const char *template, int32_t *wanted)
{
    int32_t id;
    chat_writer *w;
    tokenizer *t = open_text(template);
    must(chat_open(&w, t, NULL, NULL));
    must(chat_stop_token(w, &id));
    *wanted = tokenizer_id(t, "<|im_end|>");
    chat_close(w);
    tokenizer_close(t);
    return id;
}

static void finds_the_end_of_an_answer(void **state)
{
    (void)state;
    int32_t wanted, id = stop_of(CHATML, &wanted);
    assert_int_equal(id, wanted);
    assert_int_equal(stop_of("{{ raise_exception('no') }}", &wanted), -1);
}

/* A template that cannot be compiled does not keep the tokenizer from opening. */
static void keeps_the_problem(void **state)
{
    (void)state;
    chat_writer *w;
    id_list ids = { 0 };
    static const pesc_message talk[] = { { "user", "a" } };
    tokenizer *t = open_text("\n{{ x | wordwrap }}");
    must(chat_open(&w, t, CHAT_OWN, NULL));
    assert_false(chat_is_own(w));
    assert_string_equal(chat_problem(w), "the model's chat template: line 2: the filter "
                                         "\"wordwrap\" is not supported");
    must_fail(chat_write(w, &(chat_request){ .list = talk, .n = 1 }, NULL, &ids, NULL), PESC_USAGE,
              "the model's chat template: line 2: ");
    chat_close(w);
    must(chat_open(&w, t, NULL, chat_find("camelidae")));
    assert_ptr_equal(chat_built_in(w), chat_find("camelidae"));
    chat_close(w);
    must_fail(chat_open(&w, t, "chat-ml", NULL), PESC_USAGE, "that chat format is not known");
    assert_null(w);
    tokenizer_close(t);
    t = open_text("{#- pesc chat format: chatml -#}");
    must(chat_open(&w, t, NULL, NULL));
    assert_false(chat_is_own(w));
    assert_null(chat_problem(w));
    chat_close(w);
    tokenizer_close(t);
}

static void reads_the_files_beside_it(void **state)
{
    (void)state;
    json_t *talk = json_pack("[{ssss}]", "role", "user", "content", "a");
    const chat_request r = { .messages = talk };
    files_text("chat_template.json", "{\"chat_template\": \"from json\"}");
    tokenizer *t = open_text("from the configuration");
    expect_prompt(t, &r, "from json");
    tokenizer_close(t);
    files_text("chat_template.jinja", "from jinja\n");
    t = open_text("from the configuration");
    expect_prompt(t, &r, "from jinja");
    tokenizer_close(t);
    json_t *tools = json_pack("[{s{ss}}]", "function", "name", "f");
    const chat_request with = { .messages = talk, .tools = tools };
    files_text("additional_chat_templates/tool_use.jinja", "for tools");
    t = open_text("from the configuration");
    expect_prompt(t, &r, "from jinja");
    expect_prompt(t, &with, "for tools");
    tokenizer_close(t);
    json_decref(tools);
    assert_int_equal(unlink(files_path("additional_chat_templates/tool_use.jinja")), 0);
    assert_int_equal(unlink(files_path("chat_template.json")), 0);
    assert_int_equal(unlink(files_path("chat_template.jinja")), 0);
    json_decref(talk);
}

/* The source of a format without its first line, which names it, and without {% generation %}. */
static tokenizer *open_unmarked(const chat_format *f)
{
    const char *source;
    size_t n;
    str text = { 0 };
    chat_source(f, &source, &n);
    const char *end = source + n, *p = memchr(source, '\n', n);
    for (p++; p < end; p++) {
        static const char *const tags[] = { "{%- generation -%}", "{%- endgeneration -%}" };
        for (size_t i = 0; i < 2; i++)
            if (str_starts(p, tags[i]))
                p += strlen(tags[i]);
        str_putc(&text, *p);
    }
    tokenizer *t = open_text(text.p);
    str_free(&text);
    return t;
}

/* What is marked in the formats and what is found by prefix difference check each other. */
static void agrees_with_built_in_formats(void **state)
{
    (void)state;
    static const pesc_message talk[] = {
        { "user", "a" }, { "assistant", "b <|im_end|>" }, { "user", "c\nd" }, { "assistant", "e" }
    };
    static const char *const names[] = { "camelidae",  "chatml",     "qwen1.5", "qwen2",
                                         "qwen2.5",    "smollm2",    "llama2",  "mistral",
                                         "mistral-v1", "mistral-v3", "alpaca",  "vicuna",
                                         "zephyr",     "deepseek" };
    const chat_request r = { .list = talk, .n = 4 };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        str a = { 0 }, b = { 0 };
        tokenizer *t = open_unmarked(chat_find(names[i]));
        id_list built_in = { 0 }, own = { 0 };
        unsigned char *want = NULL, *got = NULL;
        chat_writer *w;
        must(chat_open(&w, t, names[i], NULL));
        must(chat_write(w, &r, NULL, &built_in, &want));
        chat_close(w);
        must(encode(t, &r, &own, &got));
        show(t, &built_in, want, &a);
        show(t, &own, got, &b);
        assert_string_equal(a.p, b.p);
        mem_free(built_in.ids);
        mem_free(own.ids);
        mem_free(want);
        mem_free(got);
        str_free(&a);
        str_free(&b);
        tokenizer_close(t);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const pesc_message talk[] = { { "user", "a" }, { "assistant", "b" } };
    tokenizer *t = open_text(CHATML);
    uint64_t i = 1;
    for (bool fired = true; fired; i++) {
        id_list ids = { 0 };
        unsigned char *trained = NULL;
        mem_fail_at(i);
        pesc_status s = encode(t, &(chat_request){ .list = talk, .n = 2 }, &ids, &trained);
        fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
        mem_free(ids.ids);
        mem_free(trained);
    }
    assert_true(i > 5);
    tokenizer_close(t);
}

static int set_up(void **state)
{
    (void)state;
    letters_put(control, CONTROLS);
    return 0;
}

/* Calls and thoughts in the manner of Qwen3: thoughts of the last question alone. */
#define THINKS                                                                                     \
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"            \
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"                \
    "{% if m.role != 'tool' %}{{ '<|im_start|>' + m.role + '\n' }}"                                \
    "{% if m.reasoning_content and loop.index0 > ns.last %}{{ '[' + m.reasoning_content + ']' }}"  \
    "{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"                            \
    "{{ c.function.name + c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>\n' }}"        \
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"         \
    "{% endif %}"
#define CALL(name)                                                                                 \
    "{\"role\":\"assistant\",\"content\":null,\"thinking\":\"why\",\"tool_calls\":[{\"type\":"     \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"" name "\",\"arguments\":\"{\\\"a\\\":1}\"}}]}"

static const char *thinks = THINKS;

static void expect_thinking(const char *talk_text, chat_reasoning how, bool apart,
                            const char *expected)
{
    tokenizer *t = open_text(thinks);
    json_t *talk;
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    bool is_apart = false;
    str out = { 0 };
    must(json_parse(&talk, talk_text, strlen(talk_text), "talk"));
    const chat_request r = { .messages = talk, .reasoning = how, .apart = &is_apart };
    pesc_status s = encode(t, &r, &ids, &trained);
    if (s == PESC_OK)
        show(t, &ids, trained, &out);
    else
        str_puts(&out, pesc_last_error());
    assert_non_null(strstr(out.p, expected));
    assert_int_equal(is_apart, apart);
    str_free(&out);
    mem_free(ids.ids);
    mem_free(trained);
    json_decref(talk);
    tokenizer_close(t);
}

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define ASKED "(<|im_start|>)user\nq(<|im_end|>)\n(<|im_start|>)assistant\n"

static void trains_calls_and_reasoning(void **state)
{
    (void)state;
    static const char call[] = "[" SAYS("user", "q") "," CALL("f") "]";
    expect_thinking(call, CHAT_REASONING_TRAINED, false, ASKED "^[why]f{\"a\": 1}(<|im_end|>)$");
    expect_thinking(call, CHAT_REASONING_READ, false, ASKED "^[$why^]f{\"a\": 1}(<|im_end|>)$");
    /* a later question takes the thought away: as given that is the template's affair */
    static const char later[] = "[" SAYS("user", "q") "," CALL("f") "," SAYS("user", "r") "]";
    expect_thinking(later, CHAT_REASONING_GIVEN, false, ASKED "^f{\"a\": 1}(<|im_end|>)$");
    expect_thinking(later, CHAT_REASONING_TRAINED, true,
                    "message 2: the chat template leaves out "
                    "its reasoning");
    /* what is lost is not trained around */
    expect_thinking(
        "[" SAYS("user", "q") "," CALL("f") "," SAYS("tool", "42") "," SAYS("assistant", "x") "]",
        CHAT_REASONING_GIVEN, false,
        "message 3: the chat template writes nothing of a message of the role \"tool\"");
    thinks = CHATML;
    expect_thinking(call, CHAT_REASONING_GIVEN, false,
                    "message 2: tool_calls: the chat template does not write the call of \"f\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_prompt),
        cmocka_unit_test(leaves_the_last_turn_open),
        cmocka_unit_test(builds_tokens_from_roles),
        cmocka_unit_test(trains_by_prefix_difference),
        cmocka_unit_test(trains_where_the_last_answer_differs),
        cmocka_unit_test(trains_an_answer_that_begins_like_the_prompt),
        cmocka_unit_test(trains_what_is_marked),
        cmocka_unit_test(refuses_to_mask_wrongly),
        cmocka_unit_test(long_conversations),
        cmocka_unit_test(long_conversations_of_unlike_turns),
        cmocka_unit_test(passes_tools_and_variables),
        cmocka_unit_test(finds_the_end_of_an_answer),
        cmocka_unit_test(keeps_the_problem),
        cmocka_unit_test(reads_the_files_beside_it),
        cmocka_unit_test(agrees_with_built_in_formats),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(trains_calls_and_reasoning),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
