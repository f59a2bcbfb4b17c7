#include "chat/chat_callgrammar.h"

#include "base/mem.h"
#include "chat/chat_turn_parts.h"

#include <string.h>

static bool has_control(const char *text)
{
    return strchr(text, SPEECH_OPENS) != NULL;
}

void gbnf_text(const char *text, size_t n, str *out)
{
    bool open = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == (char)SPEECH_OPENS) {
            const char *end = memchr(text + i, SPEECH_CLOSES, n - i);
            size_t len = end ? (size_t)(end - text) - i : n - i;
            str_printf(out, "%s<[%.*s]> ", open ? "\" " : "", (int)len - 1, text + i + 1);
            open = false;
            i += len;
            continue;
        }
        if (!open)
            str_putc(out, '"');
        open = true;
        if (text[i] == '"' || text[i] == '\\')
            str_putc(out, '\\');
        if (text[i] == '\n')
            str_puts(out, "\\n");
        else
            str_putc(out, text[i]);
    }
    str_puts(out, open ? "\" " : n == 0 ? "\"\" " : "");
}

static void put_text(const char *text, str *out)
{
    gbnf_text(text, strlen(text), out);
}

/* Any text in which none of the marks occurs. Control tokens occur in no such text. */
static void put_without(const char *const *marks, size_t n, str *out)
{
    str list = { 0 };
    for (size_t i = 0; i < n; i++)
        if (marks[i] && !has_control(marks[i])) {
            str_puts(&list, list.n ? "| " : "");
            put_text(marks[i], &list);
        }
    if (list.n)
        str_printf(out, "%%not ( %s) ", list.p);
    else
        str_puts(out, "[^\\x00]* ");
    str_free(&list);
}

/* ---- one tool ---- */

/* The schema of the arguments, for the tools that have none: no arguments. */
static json_t *schema_of(const json_t *tool)
{
    const json_t *p = json_value(json_object_get(tool, "function"), "parameters");
    if (!p || (json_is_object(p) && json_object_size(p) == 0))
        return json_pack("{s:s, s:{}}", "type", "object", "properties");
    if (!json_is_object(p) || json_object_get(p, "type"))
        return json_deep_copy(p);
    json_t *v = json_deep_copy(p);
    if (v && json_object_set_new(v, "type", json_string("object")) != 0) {
        json_decref(v);
        return NULL;
    }
    return v;
}

static void put_json(json_t *schema, str *out)
{
    str_puts(out, "%json ");
    if (schema)
        json_put(out, schema, JSON_COMPACT | JSON_ENCODE_ANY);
    else
        out->failed = true;
    str_putc(out, ' ');
    json_decref(schema);
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* A value of a parameter as bare text: what is no string as JSON by its schema, a string up to the
 * text that closes it. */
static void put_value(const json_t *parameters, const char *key, const char *close, str *out)
{
    bool text;
    json_t *schema = notation_schema(parameters, key, &text);
    const json_t *values = json_object_get(schema, "enum");
    if (schema && !text) {
        put_json(schema, out);
        return;
    }
    str_puts(out, "( ");
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        str one = { 0 };
        if (json_is_string(v))
            str_puts(&one, json_string_value(v));
        else
            json_put(&one, v, JSON_ENCODE_ANY);
        str_puts(out, i ? "| " : "");
        put_text(one.p ? one.p : "", out);
        str_free(&one);
    }
    if (json_array_size(values) == 0)
        put_without(&close, 1, out);
    str_puts(out, ") ");
    json_decref(schema);
}

static bool is_required(const json_t *parameters, const char *key)
{
    const json_t *list = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

/* The text between name and value: %s is whether the value is a string. */
static void put_middle(const param_pattern *p, bool text, str *out)
{
    str middle = { 0 };
    const char *flag = memmem(p->middle, p->n_middle, "%s", 2);
    size_t n = flag ? (size_t)(flag - p->middle) : p->n_middle;
    str_add(&middle, p->middle, n);
    if (flag) {
        str_puts(&middle, text ? "true" : "false");
        str_add(&middle, flag + 2, p->n_middle - n - 2);
    }
    for (size_t i = 0, k; i < middle.n; i = k) { /* a line end inside is optional */
        const char *line = memchr(middle.p + i, '\n', middle.n - i - 1);
        k = line ? (size_t)(line - middle.p) : middle.n;
        gbnf_text(middle.p + i, k - i, out);
        str_puts(out, line ? "blank " : "");
        k += line != NULL;
    }
    str_free(&middle);
}

/* Parameters in the order of the schema; those that are not required may be left out. */
static void put_parameters(const chat_speech *s, const json_t *parameters, str *out)
{
    param_pattern p;
    const char *key;
    json_t *v;
    pattern_read_param(&p, s->param);
    json_object_foreach(json_object_get(parameters, "properties"), key, v)
    {
        bool text;
        json_decref(notation_schema(parameters, key, &text));
        str_puts(out, "( ");
        gbnf_text(p.open, p.n_open, out);
        put_text(key, out);
        put_middle(&p, text, out);
        put_value(parameters, key, p.close, out);
        gbnf_text(p.close, p.n_close, out);
        str_puts(out, is_required(parameters, key) ? "blank ) " : "blank )? ");
    }
}

/* Arguments in a notation of their own: their names are those of the schema, their values any. */
static void put_literals(const chat_speech *s, const json_t *parameters, str *out)
{
    const char assigns[] = { s->calls->notation->assigns, '\0' };
    const char *key;
    json_t *v;
    size_t n = 0;
    str_puts(out, "( ");
    json_object_foreach(json_object_get(parameters, "properties"), key, v)
    {
        if (!is_required(parameters, key))
            continue;
        str_puts(out, n++ ? "\",\" \" \"? " : "");
        put_text(key, out);
        put_text(assigns, out);
        str_puts(out, "literal ");
    }
    size_t required = n;
    json_object_foreach(json_object_get(parameters, "properties"), key, v)
    {
        if (is_required(parameters, key))
            continue;
        str_puts(out, required ? "( \",\" \" \"? " : n++ ? "| ( " : "( ");
        put_text(key, out);
        put_text(assigns, out);
        str_puts(out, required ? "literal )? " : "literal )? ");
    }
    str_puts(out, n ? ") " : "\"\" ) ");
}

/* An object with the name and the arguments. */
static void put_object(const chat_speech *s, const json_t *tool, str *out)
{
    const char *const *keys = s->calls->keys;
    const char *name = name_of(tool);
    str_printf(out,
               "\"{\" blank \"\\\"%s\\\":\" blank \"\\\"%s\\\",\" blank \"\\\"%s\\\":\" blank ",
               keys[0], name, keys[1]);
    put_json(schema_of(tool), out);
    if (keys[2])
        str_printf(out, "\",\" blank \"\\\"%s\\\":\" blank \"\\\"\" id \"\\\"\" ", keys[2]);
    str_puts(out, "blank \"}\" ");
}

static void put_step(const chat_speech *s, const pattern_step *step, const json_t *tool, str *out)
{
    const json_t *parameters = json_value(json_object_get(tool, "function"), "parameters");
    switch (step->kind) {
    case STEP_TEXT:
        gbnf_text(step->text, step->n, out);
        break;
    case STEP_BLANK:
        str_puts(out, step->n == 1 && *step->text == ' ' ? "\" \" " : "blank ");
        break;
    case STEP_NAME:
        put_text(name_of(tool), out);
        break;
    case STEP_ID:
        str_puts(out, "id ");
        break;
    case STEP_OBJECT:
        put_object(s, tool, out);
        break;
    case STEP_ARGUMENTS:
        put_json(schema_of(tool), out);
        break;
    case STEP_PARAMETERS:
        put_parameters(s, parameters, out);
        break;
    case STEP_LITERALS:
        put_literals(s, parameters, out);
        break;
    }
}

static void put_pattern(const chat_speech *s, const char *text, const json_t *tool, str *out)
{
    pattern p;
    pattern_read(&p, text);
    for (size_t i = 0; i < p.n; i++)
        put_step(s, &p.all[i], tool, out);
}

/* ---- rules ---- */

/* Values in the notation of a family: with its quotes, of its words. */
static void put_notation(const chat_speech *s, str *out)
{
    const notation *n = s->calls->notation;
    str_puts(out, "literal ::= string | number | list | object | ");
    for (size_t i = 0; i < 3; i++)
        str_printf(out, "\"%s\" %s", n->words[i], i < 2 ? "| " : "\n");
    str_puts(out, "string ::= ");
    if (s->quote) {
        const char *quote = s->quote;
        put_text(quote, out);
        put_without(&quote, 1, out);
        put_text(quote, out);
    } else {
        str_puts(out, "\"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\/bfnrt])* \"\\\"\"");
    }
    str_puts(out, "\nnumber ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,16})?\n"
                  "list ::= \"[\" (literal (\", \" literal)*)? \"]\"\n"
                  "object ::= \"{\" (pair (\", \" pair)*)? \"}\"\npair ::= ");
    str_puts(out, s->quote ? "[a-zA-Z0-9_-]{1,64} \":\" literal\n" : "string \": \" literal\n");
}

static void put_calls(const turn_limits *l, str *out)
{
    const chat_speech *s = l->speech;
    str_puts(out, "calls ::= ");
    put_pattern(s, s->begin, NULL, out);
    str_puts(out, "call ");
    if (!l->one_call && !s->calls->single) {
        str_puts(out, "( ");
        put_pattern(s, s->between, NULL, out);
        str_puts(out, "call )* ");
    }
    put_pattern(s, s->end, NULL, out);
    str_puts(out, "blank\ncall ::= ");
    for (size_t i = 0; i < json_array_size(l->tools); i++) {
        str_puts(out, i ? "| " : "");
        put_pattern(s, s->call, json_array_get(l->tools, i), out);
    }
    str_puts(out, "\nblank ::= (\" \" | \"\\n\"{1,2} [ \\t]{0,20})?\nid ::= ");
    str_puts(out, s->calls->ids == CALL_IDS_NINE      ? "[a-zA-Z0-9]{9}\n"
                  : s->calls->ids == CALL_IDS_COUNTED ? "[0-9]{1,4}\n"
                                                      : "[0-9]{1,2}\n");
    if (s->calls->notation)
        put_notation(s, out);
}

/* answer: content, calls, or content and then calls. */
static void put_answer(const turn_limits *l, str *out)
{
    const chat_speech *s = l->speech;
    const char *marks[] = { l->tools && !s->calls->plain ? s->lead : NULL,
                            l->thoughts ? s->think_begin : NULL };
    bool calls = l->tools && l->choice != CALLS_NONE;
    str_puts(out, "answer ::= ");
    if (calls && l->choice == CALLS_REQUIRED) {
        str_puts(out, "blank calls\n");
    } else if (l->content) {
        str_printf(out, "%s %s\n", l->content, calls ? "| calls" : "");
    } else {
        put_without(marks, 2, out);
        str_puts(out, calls ? "calls?\n" : "\n");
    }
    if (calls)
        put_calls(l, out);
}

/* With messages that have headers. */
static void put_channels(const turn_limits *l, str *out)
{
    const chat_speech *s = l->speech;
    const char *const ends[] = { s->marks[MARK_END], s->marks[MARK_START], s->marks[MARK_CHANNEL],
                                 s->marks[MARK_MESSAGE] };
    bool calls = l->tools && l->choice != CALLS_NONE;
    str marks[N_CHANNEL_MARKS] = { 0 };
    for (size_t i = 0; i < N_CHANNEL_MARKS; i++)
        put_text(s->marks[i], &marks[i]);
#define MARK(m) marks[MARK_##m].p
    str_printf(out, "root ::= before* ( %s )\ntext ::= ",
               l->choice == CALLS_REQUIRED ? "call"
               : calls                     ? "final | call"
                                           : "final");
    put_without(ends, 4, out);
    str_printf(out, "\nbefore ::= %s(\"analysis\" | \"commentary\") %s text %s %s \"assistant\"\n",
               MARK(CHANNEL), MARK(MESSAGE), MARK(END), MARK(START));
    str_printf(out, "final ::= %s\"final\" (\" \"? %s \"json\")? %s %s\n", MARK(CHANNEL),
               MARK(CONSTRAIN), MARK(MESSAGE), l->content ? l->content : "text");
    for (size_t i = 0; calls && i < json_array_size(l->tools); i++) {
        const json_t *tool = json_array_get(l->tools, i);
        str_printf(out, "%s( %s\"commentary to=functions.%s\" (\" \"? %s \"json\")? |",
                   i ? "| " : "call ::= ", MARK(CHANNEL), name_of(tool), MARK(CONSTRAIN));
        str_printf(out, " \" to=functions.%s\" %s \"commentary\" (\" \"? %s? \"json\")? ) %s",
                   name_of(tool), MARK(CHANNEL), MARK(CONSTRAIN), MARK(MESSAGE));
        put_json(schema_of(tool), out);
    }
#undef MARK
    str_puts(out, "\n");
    for (size_t i = 0; i < N_CHANNEL_MARKS; i++)
        str_free(&marks[i]);
}

turn_rules turn_rules_of(const turn_limits *l)
{
    const call_format *f = l->speech ? l->speech->calls : NULL;
    const json_t *tools = l->choice == CALLS_NONE ? NULL : l->tools;
    return (turn_rules){ .speech = l->speech,
                         .tools = tools,
                         .thoughts = l->thoughts || (f && f->channels),
                         .inside = l->inside,
                         .one_call = l->one_call,
                         .sure = tools && (l->choice == CALLS_REQUIRED || !f->plain) };
}

bool turn_needs_grammar(const turn_limits *l)
{
    bool markers = l->tools && l->speech && l->speech->calls && !l->speech->calls->plain;
    return l->content || l->choice == CALLS_REQUIRED || markers;
}

pesc_status turn_grammar(const turn_limits *l, str *out)
{
    const chat_speech *s = l->speech;
    if (s && s->calls && s->calls->channels) {
        put_channels(l, out);
    } else {
        bool must = l->choice == CALLS_REQUIRED || l->content;
        str_puts(out, "root ::= ");
        if (l->thoughts) {
            str_puts(out, l->inside ? "" : "( space ");
            if (!l->inside)
                put_text(s->think_begin, out);
            const char *end = s->think_end;
            put_without(&end, 1, out);
            str_puts(out, must ? "" : "( ");
            put_text(end, out);
            str_puts(out, must ? "space answer " : "space answer )? ");
            str_puts(out, l->inside ? "\n" : "| answer )\n");
            str_puts(out, "space ::= [ \\n]{0,4}\n");
        } else {
            str_puts(out, "answer\n");
        }
        put_answer(l, out);
        if (!l->tools || l->choice == CALLS_NONE)
            str_puts(out, "blank ::= \" \"?\n");
    }
    return str_ok(out) ? PESC_OK : fail_nomem("a grammar of calls", out->n);
}
