/* What a writer learns of how a template reads messages. */
#include "chat/chat_writer.h"

#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/letters.h"

static const char *const control[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>" };

#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"   \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

static int set_up(void **state)
{
    (void)state;
    letters_put(control, sizeof control / sizeof *control);
    return 0;
}

/* How the template writes parts of a message, and arguments of calls. */
static void learns_what_the_template_reads(void **state)
{
    (void)state;
#define PARTS(joint)                                                                               \
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"                 \
    "{% for p in m.content %}{{ p.text | trim }}" joint "{% endfor %}{% endif %}{% endfor %}"
#define CALLS(arguments)                                                                           \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"                      \
    "{{ c.function.name + ':' }}{{ " arguments " }}{% endfor %}{% endfor %}"
    static const struct {
        const char *template, *joint;
        bool text_arguments, verbatim;
    } rows[] = {
        { PARTS(""), "", false, false },
        { PARTS("{{ '\n\n' if not loop.last }}"), "\n\n", false, false },
        { PARTS("|"), "\n", false, false },
        { CHATML, "\n", false, false },
        { "{{ messages[0].content }}", "\n", false, false },
        { CALLS("c.function.arguments | tojson"), "\n", false, false },
        { CALLS("c.function.arguments"), "\n", true, true },
        { CALLS("c.function.arguments + '.'"), "\n", true, true },
        { CALLS("c.function.arguments if c.function.arguments is string else "
                "c.function.arguments | tojson"),
          "\n", false, true },
        /* a text would stand in a notation that it is no part of */
        { CALLS("c.function.arguments if c.function.arguments is string else "
                "c.function.arguments | items | map('join', '=') | join(',')"),
          "\n", false, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tokenizer *t = letters_open(json_string(rows[i].template));
        chat_writer *w;
        must(chat_open(&w, t, NULL, NULL));
        assert_string_equal(w->joint, rows[i].joint);
        assert_int_equal(w->text_arguments, rows[i].text_arguments);
        assert_int_equal(w->verbatim, rows[i].verbatim);
        chat_close(w);
        tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_what_the_template_reads),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
