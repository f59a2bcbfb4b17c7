/* chat_jinja: a chat format as a Jinja template, for model directories that other programs read.
 *
 * The first line names the format, by which chat_recognise() finds the row again. Formats whose
 * rules a plain loop over the messages does not express (a system message inside the last user
 * turn, system messages gathered in front, reasoning that is removed from old answers) get a
 * template that raises an exception with a sentence: a wrong prompt would go unnoticed. */
#include "chat/chat.h"

#include "base/str.h"
#include "chat/chat_rows.h"

#include <string.h>

#define MARK "{#- pesc chat format: "

/* A literal of a row as a Jinja expression: 'text' + bos_token + 'text'. */
static void put_literal(str *out, const char *text)
{
    bool open = false, first = true;
    if (!text || !*text) {
        str_puts(out, "''");
        return;
    }
    for (const char *p = text; *p; p++) {
        bool token = *p == CHAT_BOS[0] || *p == CHAT_EOS[0];
        if (token || !open) {
            str_puts(out, open ? "'" : "");
            str_puts(out, first ? "" : " + ");
            str_puts(out, token ? (*p == CHAT_BOS[0] ? "bos_token" : "eos_token") : "'");
            open = !token;
        }
        first = false;
        if (token)
            continue;
        if (*p == '\n')
            str_puts(out, "\\n");
        else if (*p == '\'' || *p == '\\')
            str_printf(out, "\\%c", *p);
        else
            str_putc(out, *p);
    }
    str_puts(out, open ? "'" : "");
}

/* One turn: open, what stands before the text, the text, close, what follows the turn. */
typedef struct turn_parts {
    const char *open, *before, *close, *after;
} turn_parts;

static void put_turn(str *out, const chat_format *f, chat_role role, turn_parts t)
{
    str_puts(out, "{{- ");
    put_literal(out, t.open);
    str_puts(out, " + ");
    str_puts(out, t.before ? t.before : "''");
    str_puts(out, f->trim & TRIM(role) ? " + (message['content'] | trim) + "
                                       : " + message['content'] + ");
    put_literal(out, t.close);
    str_puts(out, " + ");
    put_literal(out, t.after);
    str_puts(out, " -}}\n");
}

static void put_role(str *out, const char *keyword, const char *role)
{
    str_printf(out, "{%%- %s message['role'] == '%s' -%%}\n", keyword, role);
}

static void put_system(str *out, const chat_format *f)
{
    const chat_turn *t = &f->turn[ROLE_SYSTEM];
    put_role(out, "if", "system");
    if (f->system == SYSTEM_NEVER)
        str_puts(out, "{{- raise_exception('this format has no system message') -}}\n");
    if (f->system == SYSTEM_FIRST || f->system == SYSTEM_FIRST_USER)
        str_puts(out, "{%- if not loop.first -%}{{- raise_exception('a system message is only "
                      "possible as the first one') -}}{%- endif -%}\n");
    if (f->skip_empty_system)
        str_puts(out, "{%- if message['content'] -%}\n");
    if (f->system == SYSTEM_ANYWHERE || f->system == SYSTEM_FIRST)
        put_turn(out, f, ROLE_SYSTEM, (turn_parts){ .open = t->open, .close = t->close });
    if (f->skip_empty_system)
        str_puts(out, "{%- endif -%}\n");
    if (f->system == SYSTEM_FIRST_USER) {
        str_puts(out, "{%- set ns.system = ");
        put_literal(out, t->open);
        str_puts(out, " + message['content'] + ");
        put_literal(out, t->close);
        str_puts(out, " -%}\n");
    }
}

static void put_turns(str *out, const chat_format *f)
{
    const chat_turn *user = &f->turn[ROLE_USER], *answer = &f->turn[ROLE_ASSISTANT];
    str lead = { 0 };
    put_literal(&lead, f->lead);
    put_role(out, "elif", "user");
    put_turn(out, f, ROLE_USER, (turn_parts){ user->open, "ns.system", user->close, NULL });
    str_puts(out, "{%- set ns.system = '' -%}\n");
    put_role(out, "elif", "assistant");
    put_turn(out, f, ROLE_ASSISTANT,
             (turn_parts){ answer->open, str_ok(&lead) ? lead.p : NULL, answer->close, f->after });
    str_free(&lead);
}

static bool is_plain(const chat_format *f)
{
    return f->system != SYSTEM_GATHERED && f->system != SYSTEM_LAST_USER && !f->think;
}

void chat_jinja(const chat_format *f, str *out)
{
    str_printf(out, MARK "%s -#}\n", f->name);
    if (!is_plain(f)) {
        str_printf(out,
                   "{{- raise_exception('the chat format %s of pesc has no plain Jinja template') "
                   "-}}\n",
                   f->name);
        return;
    }
    str_puts(out, "{%- set ns = namespace(system='') -%}\n{{- ");
    put_literal(out, f->begin);
    str_puts(out, " -}}\n");
    if (f->default_system) {
        str_puts(out, "{%- if messages[0]['role'] != 'system' -%}\n{{- ");
        put_literal(out, f->turn[ROLE_SYSTEM].open);
        str_puts(out, " + ");
        put_literal(out, f->default_system);
        str_puts(out, " + ");
        put_literal(out, f->turn[ROLE_SYSTEM].close);
        str_puts(out, " -}}\n{%- endif -%}\n");
    }
    str_puts(out, "{%- for message in messages -%}\n");
    put_system(out, f);
    put_turns(out, f);
    str_puts(out,
             "{%- else -%}\n{{- raise_exception('the role ' + message['role'] + ' has no place "
             "in this format') -}}\n{%- endif -%}\n{%- endfor -%}\n"
             "{%- if add_generation_prompt -%}{{- ");
    put_literal(out, f->turn[ROLE_ASSISTANT].open);
    str_puts(out, " -}}{%- endif -%}\n");
}

const chat_format *chat_jinja_named(const char *jinja)
{
    char name[64];
    if (!str_starts(jinja, MARK))
        return NULL;
    size_t n = strcspn(jinja + sizeof MARK - 1, " ");
    if (n >= sizeof name)
        return NULL;
    memcpy(name, jinja + sizeof MARK - 1, n);
    name[n] = '\0';
    return chat_find(name);
}
