/* chat: see chat.h.
 *
 * A conversation is laid out as pieces, literals and message texts in turn, and encoded in one go
 * by tokenizer_encode_pieces(), so that words merge over the seams as they do in one string. */
#include "chat/chat.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "chat/chat_rows.h"
#include "chat/chat_template.h"
#include "jinja/jinja_python.h"

#include <string.h>

static const char *const role_names[ROLES] = { "system", "user", "assistant", "tool", "function" };

const chat_format *chat_find(const char *name)
{
    for (const chat_format *f = chat_rows; f->name; f++)
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
    return chat_row_names;
}

const char *const *chat_stops(const chat_format *f, size_t *n)
{
    size_t max = sizeof f->stops / sizeof *f->stops;
    for (*n = 0; *n < max && f->stops[*n];)
        ++*n;
    return f->stops;
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
    const chat_format *named = jinja ? chat_jinja_named(jinja) : NULL;
    if (named)
        return named;
    for (const chat_format *f = chat_rows; jinja && f->name; f++)
        if (has_marks(f, jinja))
            return f;
    return NULL;
}

pesc_status chat_unknown(const char *why)
{
    str list = { 0 };
    for (const char *const *name = chat_names(); *name; name++)
        str_printf(&list, "%s%s", list.n ? ", " : "", *name);
    pesc_status s = fail(PESC_USAGE, "%s; name one of: %s", why, list.p ? list.p : "");
    str_free(&list);
    return s;
}

/* ---- laying out ---- */

typedef struct text {
    const char *p;
    size_t n;
} text;

static text strip_left(text t)
{
    uint32_t c;
    for (int k; t.n > 0 && (k = utf8_decode(t.p, t.n, &c)) > 0 && jpython_is_space(c);
         t.n -= (size_t)k)
        t.p += k;
    return t;
}

static text strip_right(text t)
{
    while (t.n > 0) {
        size_t k = 1;
        uint32_t c;
        while (k < 4 && k < t.n && ((unsigned char)t.p[t.n - k] & 0xc0) == 0x80)
            k++;
        if (utf8_decode(t.p + t.n - k, k, &c) != (int)k || !jpython_is_space(c))
            break;
        t.n -= k;
    }
    return t;
}

static text strip_newlines_left(text t)
{
    for (; t.n > 0 && t.p[0] == '\n'; t.n--)
        t.p++;
    return t;
}

static text strip_newlines_right(text t)
{
    while (t.n > 0 && t.p[t.n - 1] == '\n')
        t.n--;
    return t;
}

/* A format's literals with BOS and EOS written out for one tokenizer. */
typedef struct literals {
    str begin, open[ROLES], close[ROLES];
} literals;

typedef struct layout {
    const chat_format *f;
    const pesc_message *messages;
    size_t n_messages;
    const unsigned char *masked; /* [n_messages]: answers that are not trained; NULL: none */
    literals lit;
    text folded;      /* the system message that goes inside a user turn; p NULL: none */
    size_t last_user; /* index; n_messages - 1 where no user speaks */
    tok_piece *pieces;
    size_t n, cap;
    bool failed; /* for want of memory */
} layout;

static void add(layout *l, text t, bool control, bool trained)
{
    if (t.n == 0 || l->failed)
        return;
    l->failed = !mem_room((void **)&l->pieces, &l->cap, l->n, sizeof *l->pieces);
    if (!l->failed)
        l->pieces[l->n++] = (tok_piece){ t.p, t.n, control, trained };
}

static text of(const char *s)
{
    return (text){ s, s ? strlen(s) : 0 };
}
static text of_str(const str *s)
{
    return (text){ s->p, s->n };
}
static void add_literal(layout *l, const str *s)
{
    add(l, of_str(s), true, false);
}

static void add_turn(layout *l, chat_role role, text content)
{
    add_literal(l, &l->lit.open[role]);
    add(l, content, false, false);
    add_literal(l, &l->lit.close[role]);
}

static bool is_trained(const layout *l, size_t i)
{
    return !l->masked || !l->masked[i];
}

/* Reasoning is left out of answers to all but the last question; there it is set apart, and the
 * last message has its place for reasoning even when it holds none. */
static text add_thought(layout *l, text content, size_t i)
{
    const char *end = NULL, *begin = NULL;
    const char *first_end = strstr(content.p, "</think>");
    for (const char *p = first_end; p; p = strstr(p + 1, "</think>"))
        end = p;
    text thought = { 0 };
    if (end) {
        thought = strip_newlines_right((text){ content.p, (size_t)(first_end - content.p) });
        for (const char *p = strstr(content.p, "<think>"); p && p < first_end;
             p = strstr(p + 1, "<think>"))
            begin = p + strlen("<think>");
        if (begin && begin <= thought.p + thought.n)
            thought = (text){ begin, thought.n - (size_t)(begin - thought.p) };
        content = strip_newlines_left(of(end + strlen("</think>")));
    }
    if (i <= l->last_user || (i + 1 < l->n_messages && thought.n == 0))
        return content;
    bool trained = is_trained(l, i);
    add(l, of("<think>\n"), true, trained);
    add(l, strip_newlines_right(strip_newlines_left(thought)), false, trained);
    add(l, of("\n</think>\n\n"), true, trained);
    return strip_newlines_left(content);
}

static void add_assistant(layout *l, size_t i)
{
    const chat_format *f = l->f;
    text content = of(l->messages[i].content);
    bool trained = is_trained(l, i);
    if (f->trim & TRIM(ROLE_ASSISTANT))
        content = strip_right(strip_left(content));
    add_literal(l, &l->lit.open[ROLE_ASSISTANT]);
    add(l, of(f->lead), true, trained);
    if (f->think)
        content = add_thought(l, content, i);
    add(l, content, false, trained);
    add(l, of_str(&l->lit.close[ROLE_ASSISTANT]), true, trained);
    add(l, of(f->after), true, false);
}

static void add_user(layout *l, size_t i, bool first)
{
    const chat_format *f = l->f;
    bool fold = l->folded.p && (f->system == SYSTEM_FIRST_USER ? first : i + 1 == l->n_messages);
    text content = of(l->messages[i].content);
    text close = of_str(&l->lit.close[ROLE_SYSTEM]);
    if (f->trim & TRIM(ROLE_USER)) {
        /* the template strips system and text together */
        content = strip_right(fold ? content : strip_left(content));
        if (content.n == 0)
            close = strip_right(close);
    }
    add_literal(l, &l->lit.open[ROLE_USER]);
    if (fold) {
        add_literal(l, &l->lit.open[ROLE_SYSTEM]);
        add(l, l->folded, false, false);
        add(l, close, true, false);
    }
    add(l, content, false, false);
    add_literal(l, &l->lit.close[ROLE_USER]);
}

static void add_system(layout *l, text content)
{
    if (l->f->trim & TRIM(ROLE_SYSTEM))
        content = strip_right(strip_left(content));
    if (content.n > 0 || !l->f->skip_empty_system)
        add_turn(l, ROLE_SYSTEM, content);
}

static chat_role role_of(const pesc_message *m)
{
    for (int r = 0; m->role && r < ROLES; r++)
        if (strcmp(m->role, role_names[r]) == 0)
            return (chat_role)r;
    return ROLES;
}

static bool is_tool(const layout *l, size_t i)
{
    return i < l->n_messages && role_of(&l->messages[i]) == ROLE_TOOL;
}

/* What a tool returned. Some formats write several results in a row as one turn. */
static void add_tool(layout *l, size_t i, chat_role role)
{
    const chat_format *f = l->f;
    text content = of(l->messages[i].content);
    bool joins = role == ROLE_TOOL && f->tool_between;
    if (f->trim & TRIM(role))
        content = strip_right(strip_left(content));
    if (!joins || i == 0 || !is_tool(l, i - 1))
        add_literal(l, &l->lit.open[role]);
    add(l, content, false, false);
    if (joins && is_tool(l, i + 1))
        add(l, of(f->tool_between), true, false);
    else
        add_literal(l, &l->lit.close[role]);
}

static pesc_status check_message(const chat_format *f, const pesc_message *messages, size_t i)
{
    chat_role role = role_of(&messages[i]);
    if (role == ROLES)
        return fail(PESC_USAGE,
                    "message %zu has the role \"%s\", expected system, user, assistant, tool or "
                    "function",
                    i + 1, messages[i].role ? messages[i].role : "");
    if (!messages[i].content)
        return fail(PESC_USAGE, "message %zu, from the %s, has no content", i + 1,
                    messages[i].role);
    if (role == ROLE_SYSTEM) {
        bool anywhere = f->system == SYSTEM_ANYWHERE || f->system == SYSTEM_GATHERED;
        if (f->system == SYSTEM_NEVER)
            return fail(PESC_USAGE,
                        "message %zu is from the system, which the chat format %s has "
                        "no place for",
                        i + 1, f->name);
        if (i > 0 && !anywhere)
            return fail(PESC_USAGE,
                        "message %zu is from the system, which the chat format %s takes only as "
                        "the first message",
                        i + 1, f->name);
        return PESC_OK;
    }
    if ((role == ROLE_TOOL || role == ROLE_FUNCTION) && !f->turn[role].open)
        return fail(PESC_USAGE,
                    "message %zu is from a %s, which the chat format %s has no place for", i + 1,
                    messages[i].role, f->name);
    size_t turn = i - (i > 0 && role_of(&messages[0]) == ROLE_SYSTEM);
    if (f->alternate && role != (turn % 2 == 0 ? ROLE_USER : ROLE_ASSISTANT))
        return fail(PESC_USAGE,
                    "message %zu is from the %s; in the chat format %s user and assistant speak in "
                    "turn, the user first",
                    i + 1, messages[i].role, f->name);
    return PESC_OK;
}

/* System messages that are moved to the start of the conversation. */
static void add_gathered(layout *l)
{
    bool any = false;
    for (size_t i = 0; i < l->n_messages; i++) {
        if (role_of(&l->messages[i]) != ROLE_SYSTEM)
            continue;
        if (any)
            add_literal(l, &l->lit.close[ROLE_SYSTEM]);
        add(l, of(l->messages[i].content), false, false);
        any = true;
    }
}

static void lay_out(layout *l, bool generation)
{
    const chat_format *f = l->f;
    bool own_turn = f->system == SYSTEM_ANYWHERE || f->system == SYSTEM_FIRST;
    bool opens = role_of(&l->messages[0]) == ROLE_SYSTEM;
    l->last_user = l->n_messages - 1;
    while (l->last_user > 0 && role_of(&l->messages[l->last_user]) != ROLE_USER)
        l->last_user--;
    if (role_of(&l->messages[l->last_user]) != ROLE_USER)
        l->last_user = l->n_messages - 1;
    add_literal(l, &l->lit.begin);
    if (f->system == SYSTEM_GATHERED)
        add_gathered(l);
    else if (opens && !own_turn)
        l->folded = of(l->messages[0].content);
    else if (!opens && f->default_system)
        add_system(l, of(f->default_system));
    for (size_t i = 0; i < l->n_messages; i++) {
        switch (role_of(&l->messages[i])) {
        case ROLE_SYSTEM:
            if (own_turn)
                add_system(l, of(l->messages[i].content));
            break;
        case ROLE_USER:
            add_user(l, i, i == opens);
            break;
        case ROLE_ASSISTANT:
            add_assistant(l, i);
            break;
        default:
            add_tool(l, i, role_of(&l->messages[i]));
        }
    }
    if (generation)
        add_literal(l, &l->lit.open[ROLE_ASSISTANT]);
}

/* ---- literals ---- */

static pesc_status expand(str *out, const char *literal, const chat_format *f, const tokenizer *t)
{
    for (const char *p = literal ? literal : ""; *p; p++) {
        if (*p != CHAT_BOS[0] && *p != CHAT_EOS[0]) {
            str_putc(out, *p);
            continue;
        }
        int32_t id = *p == CHAT_BOS[0] ? tokenizer_bos(t) : tokenizer_eos(t);
        size_t n = 0;
        const char *token = id >= 0 ? tokenizer_token(t, id, &n) : NULL;
        if (token)
            str_add(out, token, n);
        else if (*p == CHAT_EOS[0])
            return fail(PESC_UNSUPPORTED,
                        "the chat format %s ends a turn with the end-of-sequence token, which this "
                        "tokenizer does not name; its tokenizer_config.json would, or choose "
                        "another format",
                        f->name);
    }
    return str_ok(out) ? PESC_OK : fail_nomem("encoding a conversation", out->n);
}

static pesc_status expand_all(literals *lit, const chat_format *f, const tokenizer *t)
{
    TRY(expand(&lit->begin, f->begin, f, t));
    for (int r = 0; r < ROLES; r++) {
        TRY(expand(&lit->open[r], f->turn[r].open, f, t));
        TRY(expand(&lit->close[r], f->turn[r].close, f, t));
    }
    for (size_t i = 0; i < sizeof f->needs / sizeof *f->needs && f->needs[i]; i++)
        if (tokenizer_added_id(t, f->needs[i]) < 0)
            return fail(PESC_UNSUPPORTED,
                        "the chat format %s needs the token %s, which this tokenizer does not have "
                        "as an added token",
                        f->name, f->needs[i]);
    return PESC_OK;
}

static void layout_close(layout *l)
{
    str_free(&l->lit.begin);
    for (int r = 0; r < ROLES; r++) {
        str_free(&l->lit.open[r]);
        str_free(&l->lit.close[r]);
    }
    mem_free(l->pieces);
}

static pesc_status make_pieces(layout *l, const tokenizer *t, bool generation)
{
    if (l->n_messages == 0)
        return fail(PESC_USAGE, "a conversation needs at least one message");
    for (size_t i = 0; i < l->n_messages; i++)
        TRY(check_message(l->f, l->messages, i));
    TRY(expand_all(&l->lit, l->f, t));
    lay_out(l, generation);
    if (l->failed)
        return fail_nomem("encoding a conversation", l->cap * 2 * sizeof *l->pieces);
    return PESC_OK;
}

static pesc_status encode(layout *l, const tokenizer *t, bool generation, id_list *ids,
                          unsigned char **trained)
{
    TRY(make_pieces(l, t, generation));
    return tokenizer_encode_pieces(t, l->pieces, l->n, ids, trained);
}

/* Messages as the template sees them. */
static pesc_status to_json(const pesc_message *messages, size_t n, json_t **out)
{
    *out = json_array();
    bool fine = *out != NULL;
    for (size_t i = 0; fine && i < n; i++) {
        const char *role = messages[i].role ? messages[i].role : "";
        const char *content = messages[i].content ? messages[i].content : "";
        if (!utf8_valid(role, strlen(role)) || !utf8_valid(content, strlen(content)))
            return fail(PESC_USAGE, "message %zu is not valid UTF-8", i + 1);
        json_t *m = json_pack("{ss ss}", "role", role, "content", content);
        fine = json_array_append_new(*out, m) == 0;
    }
    return fine ? PESC_OK : fail_nomem("a conversation", n);
}

static pesc_status encode_own(const tokenizer *t, const chat_record *talk, bool generation,
                              id_list *ids, unsigned char **trained)
{
    chat_request r = { .generation = generation, .tools = talk->tools };
    json_t *list = NULL;
    if (talk->n == 0)
        return fail(PESC_USAGE, "a conversation needs at least one message");
    pesc_status s = to_json(talk->messages, talk->n, &list);
    r.messages = list;
    if (s == PESC_OK)
        s = trained ? chat_template_train(t, &r, talk->masked, ids, trained)
                    : chat_template_encode(t, &r, ids);
    json_decref(list);
    return s;
}

pesc_status chat_encode(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                        size_t n, bool generation, id_list *ids, unsigned char **trained)
{
    if (!f)
        return encode_own(t, &(chat_record){ .messages = messages, .n = n }, generation, ids,
                          trained);
    layout l = { .f = f, .messages = messages, .n_messages = n };
    pesc_status s = encode(&l, t, generation, ids, trained);
    layout_close(&l);
    return s;
}

pesc_status chat_encode_record(const chat_format *f, const tokenizer *t, const chat_record *r,
                               id_list *ids, unsigned char **trained)
{
    if (!f)
        return encode_own(t, r, false, ids, trained);
    layout l = { .f = f, .messages = r->messages, .n_messages = r->n, .masked = r->masked };
    pesc_status s = encode(&l, t, false, ids, trained);
    layout_close(&l);
    return s;
}

/* Drops what follows the text of the last message. */
static pesc_status open_last_turn(layout *l)
{
    text said = strip_right(of(l->messages[l->n_messages - 1].content));
    for (; said.n > 0 && l->n > 0; l->n--) {
        const tok_piece *last = &l->pieces[l->n - 1];
        text t = strip_right((text){ last->text, last->n });
        if (t.n > 0 && t.p + t.n == said.p + said.n)
            return PESC_OK;
    }
    return fail(PESC_USAGE,
                "the last message cannot be continued: it is empty, or the chat format %s does not "
                "write its end",
                l->f->name);
}

pesc_status chat_encode_open(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                             size_t n, id_list *ids)
{
    layout l = { .f = f, .messages = messages, .n_messages = n };
    pesc_status s = make_pieces(&l, t, false);
    if (s == PESC_OK)
        s = open_last_turn(&l);
    if (s == PESC_OK)
        s = tokenizer_encode_pieces(t, l.pieces, l.n, ids, NULL);
    layout_close(&l);
    return s;
}

static pesc_status text_own(const tokenizer *t, const pesc_message *messages, size_t n, str *out)
{
    json_t *list = NULL;
    jinja_text made = { 0 };
    pesc_status s = to_json(messages, n, &list);
    if (s == PESC_OK)
        s = chat_template_render(t, &(chat_request){ .messages = list, .generation = true }, &made);
    json_decref(list);
    if (s == PESC_OK)
        str_add(out, made.text, made.n);
    jinja_text_free(&made);
    return s == PESC_OK && !str_ok(out) ? fail_nomem("a conversation", out->n) : s;
}

pesc_status chat_text(const chat_format *f, const tokenizer *t, const pesc_message *messages,
                      size_t n, str *out)
{
    if (!f)
        return text_own(t, messages, n, out);
    layout l = { .f = f, .messages = messages, .n_messages = n };
    pesc_status s = make_pieces(&l, t, true);
    for (size_t i = 0; s == PESC_OK && i < l.n; i++)
        str_add(out, l.pieces[i].text, l.pieces[i].n);
    layout_close(&l);
    return s == PESC_OK && !str_ok(out) ? fail_nomem("a conversation", out->n) : s;
}
