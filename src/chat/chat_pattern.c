/* Reads calls by the patterns of a format, one character after another. */
#include "chat/chat_turn_parts.h"

#include "base/mem.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Of names that tools may have. */
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* ---- patterns ---- */

void pattern_read(pattern *p, const char *text)
{
    static const char letters[] = "niOAPL";
    static const step_kind kinds[] = { STEP_NAME,      STEP_ID,         STEP_OBJECT,
                                       STEP_ARGUMENTS, STEP_PARAMETERS, STEP_LITERALS };
    p->n = 0;
    for (const char *at = text; *at && p->n < MAX_STEPS;) {
        pattern_step *s = &p->all[p->n++];
        s->text = at;
        if (*at == '%') {
            s->kind = kinds[strchr(letters, at[1]) - letters];
            s->n = 2;
        } else {
            bool blank = is_blank(*at);
            s->kind = blank ? STEP_BLANK : STEP_TEXT;
            for (s->n = 1; at[s->n] && at[s->n] != '%' && is_blank(at[s->n]) == blank; s->n++)
                ;
        }
        at += s->n;
    }
}

void pattern_read_param(param_pattern *p, const char *text)
{
    const char *key = strstr(text, "%k"), *value = strstr(text, "%v");
    *p = (param_pattern){ text, "", "", 0, 0, 0 };
    if (!key || !value)
        return;
    p->n_open = (size_t)(key - text);
    p->middle = key + 2;
    p->n_middle = (size_t)(value - p->middle);
    p->close = value + 2;
    p->n_close = strlen(p->close);
    while (p->n_close && is_blank(p->close[p->n_close - 1]))
        p->n_close--;
}

void call_reader_open(call_reader *r, const chat_speech *s)
{
    pattern_read(&r->open, s->begin);
    pattern_read(&r->call, s->call);
    pattern_read_param(&r->param, s->param);
}

static void begin_call(call_reader *r)
{
    str *const texts[] = { &r->name, &r->id, &r->key, &r->value, &r->buffer, &r->stored };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        str_clear(texts[i]);
    r->phase = PHASE_CALL;
    r->step = r->at = 0;
    r->scan = (json_scan){ 0 };
    r->wants_key = r->in_key = r->in_value = r->live = r->complete = r->as_json = false;
    r->params = PARAM_OPEN;
    json_decref(r->arguments);
    r->arguments = NULL;
}

void call_reader_restart(call_reader *r)
{
    begin_call(r);
    r->phase = r->open.n ? PHASE_OPEN : PHASE_CALL;
}

void call_reader_close(call_reader *r)
{
    begin_call(r);
    str *const texts[] = { &r->name, &r->id, &r->key, &r->value, &r->buffer, &r->stored };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        str_free(texts[i]);
}

/* ---- calls ---- */

bool call_begin(chat_turn *t)
{
    bool known;
    str_puts(&t->r.name, "");
    tool_parameters(t->rules.tools, t->r.name.p ? t->r.name.p : "", &known);
    turn_part *p = known ? turn_add(t, TURN_CALL) : NULL;
    if (p && !(p->name = mem_strdup(t->r.name.p)))
        t->status = fail_nomem("a call", t->r.name.n);
    return p != NULL;
}

/* The call that is read; NULL: its name is not known yet. */
static turn_part *current(chat_turn *t)
{
    return t->n > t->first_hidden && !t->parts[t->n - 1].whole ? &t->parts[t->n - 1] : NULL;
}

static const json_t *parameters_of(const chat_turn *t)
{
    bool known;
    return tool_parameters(t->rules.tools, t->r.name.p, &known);
}

/* What was collected becomes the arguments, and the id the call's. */
static bool end_call(chat_turn *t)
{
    call_reader *r = &t->r;
    turn_part *p = current(t);
    if (!p)
        return false;
    str_add(&p->text, r->stored.p, r->stored.n);
    if (t->rules.sure && *t->rules.speech->param && p->text.n)
        str_putc(&p->text, '}');
    if (r->arguments)
        json_put(&p->text, r->arguments, 0);
    if (p->text.n == 0)
        str_puts(&p->text, "{}");
    str_puts(&r->id, "");
    if (t->rules.speech->calls->ids == CALL_IDS_COUNTED) {
        str id = { 0 };
        str_printf(&id, "functions.%s:%s", p->name, r->id.p);
        p->id = id.p;
    } else if (r->id.n) {
        p->id = mem_strdup(r->id.p);
    }
    p->whole = true;
    return str_ok(&p->text);
}

/* ---- JSON ---- */

/* Follows strings and nesting. Returns whether the character is outside of strings. */
static bool scan(json_scan *s, char c)
{
    if (s->text) {
        s->text = s->escape || c != '"';
        s->escape = !s->escape && c == '\\';
        return false;
    }
    s->text = c == '"';
    s->depth += c == '{' || c == '[';
    s->depth -= c == '}' || c == ']';
    return true;
}

bool json_scan_object(json_scan *s, char c, bool *ends)
{
    if (!s->begun && c != '{')
        return false;
    s->begun = true;
    *ends = scan(s, c) && s->depth == 0;
    return true;
}

/* The next step of the pattern. */
static void next_step(call_reader *r)
{
    r->step++;
    r->at = 0;
}

static bool take_arguments(chat_turn *t, char c)
{
    turn_part *p = current(t);
    bool ends = false;
    if (!t->r.scan.begun && is_blank(c))
        return true;
    if (!p || !json_scan_object(&t->r.scan, c, &ends))
        return false;
    str_putc(&p->text, c);
    t->r.complete = ends;
    if (ends)
        next_step(&t->r);
    return true;
}

/* The value of a key of the object is complete. */
static bool take_value(chat_turn *t)
{
    call_reader *r = &t->r;
    const char *const *keys = t->rules.speech->calls->keys;
    r->in_value = false;
    json_t *v = r->value.n ? notation_json(r->value.p, r->value.n) : NULL;
    bool good = true;
    str_puts(&r->key, "");
    if (strcmp(r->key.p, keys[0]) == 0) {
        str_clear(&r->name);
        str_puts(&r->name, json_is_string(v) ? json_string_value(v) : "");
        good = !current(t) && call_begin(t);
    } else if (strcmp(r->key.p, keys[1]) == 0 && !r->live) {
        str_clear(&r->stored);
        if (json_is_string(v))
            str_add(&r->stored, json_string_value(v), json_string_length(v));
        else if (json_is_object(v))
            str_add(&r->stored, r->value.p, r->value.n);
        else
            good = json_is_null(v);
    } else if (keys[2] && strcmp(r->key.p, keys[2]) == 0) {
        str_clear(&r->id);
        if (json_is_integer(v))
            str_printf(&r->id, "%lld", (long long)json_integer_value(v));
        else
            str_puts(&r->id, json_is_string(v) ? json_string_value(v) : "");
    }
    r->live = false;
    json_decref(v);
    return good;
}

/* A character of the value of a key; arguments of a call that is known are shown at once. */
static void add_to_value(chat_turn *t, char c)
{
    call_reader *r = &t->r;
    turn_part *p = current(t);
    str_puts(&r->key, "");
    if (r->value.n == 0 && !r->live && is_blank(c))
        return;
    if (r->value.n == 0 && !r->live)
        r->live = p && c == '{' && strcmp(r->key.p, t->rules.speech->calls->keys[1]) == 0;
    if (!r->live)
        str_putc(&r->value, c);
    else if (r->scan.depth > 1 || c == '}')
        str_putc(&p->text, c);
}

static bool take_object(chat_turn *t, char c)
{
    call_reader *r = &t->r;
    bool ends = false, was_text = r->scan.text;
    if (!r->scan.begun && is_blank(c))
        return true;
    r->wants_key = r->wants_key || !r->scan.begun;
    if (!json_scan_object(&r->scan, c, &ends))
        return false;
    bool outside = !was_text && !r->scan.text, top = r->scan.depth == 1;
    if (ends) {
        if (r->in_value && !take_value(t))
            return false;
        r->complete = current(t) != NULL;
        next_step(r);
        return r->complete;
    }
    if (r->in_key) {
        if (r->scan.text)
            str_putc(&r->key, c);
        r->in_key = r->scan.text;
    } else if (r->wants_key && top && r->scan.text) {
        str_clear(&r->key);
        r->in_key = true;
        r->wants_key = false;
    } else if (outside && top && c == ':' && !r->in_value) {
        str_clear(&r->value);
        r->in_value = true;
    } else if (outside && top && c == ',') {
        r->wants_key = true;
        return !r->in_value || take_value(t);
    } else if (r->in_value) {
        add_to_value(t, c);
    }
    return true;
}

/* ---- parameters ---- */

/* Adds a value, which it takes, under the key that is read. A call that is one for sure shows it at
 * once; otherwise of several values of a key the last one counts. */
static bool add_argument(chat_turn *t, json_t *v)
{
    call_reader *r = &t->r;
    turn_part *p = current(t);
    if (!t->rules.sure) {
        r->arguments = r->arguments ? r->arguments : json_object();
        return json_object_set_new(r->arguments, r->key.p, v) == 0;
    }
    json_t *key = json_stringn(r->key.p, r->key.n);
    str_puts(&p->text, p->text.n ? ", " : "{");
    json_put(&p->text, key, JSON_ENCODE_ANY);
    str_puts(&p->text, ": ");
    json_put(&p->text, v, JSON_ENCODE_ANY);
    json_decref(key);
    json_decref(v);
    return str_ok(&p->text);
}

/* A value is complete: `close` has been read. One line end on each side is the format's where its
 * pattern has them there. */
static bool end_value(chat_turn *t)
{
    call_reader *r = &t->r;
    size_t n = r->value.n - r->param.n_close;
    str_puts(&r->key, "");
    json_t *v = r->as_json ? notation_json(r->value.p, n) : NULL;
    if (!v)
        v = notation_typed(parameters_of(t), r->key.p, r->value.p, n);
    bool good = v && add_argument(t, v);
    r->params = PARAM_OPEN;
    str_clear(&r->buffer);
    return good;
}

/* Another parameter, or the text that follows the last one. */
static bool take_param_open(call_reader *r, char c)
{
    const pattern_step *next = &r->call.all[r->step + 1];
    if (r->buffer.n == 0 && is_blank(c))
        return true;
    str_putc(&r->buffer, c);
    size_t n = r->buffer.n;
    if (n <= r->param.n_open && memcmp(r->buffer.p, r->param.open, n) == 0) {
        if (n < r->param.n_open)
            return true;
        r->params = PARAM_KEY;
        str_clear(&r->key);
        return true;
    }
    if (n > next->n || memcmp(r->buffer.p, next->text, n) != 0)
        return false;
    next_step(r);
    r->at = n;
    r->complete = true;
    if (r->at == next->n)
        next_step(r);
    return true;
}

/* The text between the name and the value, in which white space that does not end it is optional.
 */
static bool take_param_middle(call_reader *r, char c)
{
    const param_pattern *p = &r->param;
    for (;;) {
        char want = p->middle[r->at];
        bool last = r->at + 1 == p->n_middle;
        if (want == '%') { /* whether the value is a string: true or false */
            if (c != p->middle[r->at + 2]) {
                r->as_json = r->as_json || c == 'f';
                return true;
            }
            r->at += 2;
            continue;
        }
        if (is_blank(want) && !last) {
            if (is_blank(c))
                return true;
            r->at++;
            continue;
        }
        if (c != want)
            return false;
        if (!last) {
            r->at++;
            return true;
        }
        r->at = 0;
        r->params = PARAM_VALUE;
        str_clear(&r->value);
        return true;
    }
}

static bool take_parameters(chat_turn *t, char c)
{
    call_reader *r = &t->r;
    const param_pattern *p = &r->param;
    switch (r->params) {
    case PARAM_OPEN:
        return take_param_open(r, c);
    case PARAM_KEY:
        if (c != p->middle[0]) {
            str_putc(&r->key, c);
            return true;
        }
        r->params = PARAM_MIDDLE;
        r->at = 0;
        r->as_json = false;
        return take_param_middle(r, c);
    case PARAM_MIDDLE:
        return take_param_middle(r, c);
    case PARAM_VALUE:
        break;
    }
    str_putc(&r->value, c);
    size_t n = r->value.n;
    if (n < p->n_close || c != p->close[p->n_close - 1] ||
        memcmp(r->value.p + n - p->n_close, p->close, p->n_close) != 0)
        return true;
    return end_value(t);
}

/* ---- arguments in a notation of their own ---- */

/* Follows strings and nesting up to the character that closes, which is left. */
static bool take_literals(chat_turn *t, char c, bool *left)
{
    call_reader *r = &t->r;
    const chat_speech *s = t->rules.speech;
    size_t n = s->quote ? strlen(s->quote) : 1;
    const char *quote = r->key.p; /* the character that opened the string */
    *left = false;
    if (r->scan.depth == 0 && !r->scan.text && c == s->calls->notation->closes) {
        str json = { 0 };
        bool good = notation_read(s->calls->notation, s->quote, r->buffer.p ? r->buffer.p : "",
                                  r->buffer.n, &json);
        str_add(&r->stored, json.p, json.n);
        str_free(&json);
        r->complete = *left = good;
        next_step(r);
        return good;
    }
    str_putc(&r->buffer, c);
    bool opens = s->quote ? r->buffer.n - r->at >= n &&
                                memcmp(r->buffer.p + r->buffer.n - n, s->quote, n) == 0
                          : c == '"' || c == '\'';
    if (opens && !r->scan.escape && (!r->scan.text || s->quote || c == *quote)) {
        r->scan.text = !r->scan.text;
        r->at = r->buffer.n;
        str_clear(&r->key);
        str_putc(&r->key, c);
    } else if (!r->scan.text) {
        r->scan.depth += c == '[' || c == '{' || c == '(';
        r->scan.depth -= c == ']' || c == '}' || c == ')';
    }
    r->scan.escape = !s->quote && r->scan.text && !r->scan.escape && c == '\\';
    return true;
}

/* ---- all of it ---- */

/* One step with one character. *again: the character belongs to what follows. */
static bool take_step(chat_turn *t, const pattern_step *s, char c, bool *again)
{
    call_reader *r = &t->r;
    *again = false;
    switch (s->kind) {
    case STEP_TEXT:
        if (c != s->text[r->at])
            return false;
        if (++r->at == s->n)
            next_step(r);
        return true;
    case STEP_BLANK:
        *again = !is_blank(c);
        break;
    case STEP_NAME:
        *again = !is_name(c);
        if (!*again)
            str_putc(&r->name, c);
        else if (!call_begin(t))
            return false;
        break;
    case STEP_ID:
        *again = !is_name(c);
        if (!*again)
            str_putc(&r->id, c);
        break;
    case STEP_OBJECT:
        return take_object(t, c);
    case STEP_ARGUMENTS:
        return take_arguments(t, c);
    case STEP_PARAMETERS:
        return take_parameters(t, c);
    case STEP_LITERALS:
        return take_literals(t, c, again);
    }
    if (*again && (s->kind == STEP_BLANK || s->kind == STEP_NAME || s->kind == STEP_ID))
        next_step(r);
    return true;
}

/* After a call: what closes them all, or what comes before another one. */
static bool take_next(chat_turn *t, char c)
{
    call_reader *r = &t->r;
    const chat_speech *s = t->rules.speech;
    const char *end = s->end + strspn(s->end, " \n");
    const char *between = s->between + strspn(s->between, " \n");
    const pattern_step *first = &r->call.all[0];
    bool separate = *between != '\0';
    const char *other = separate ? between : first->text;
    size_t n_other = separate ? strcspn(between, " \n") : first->n;
    if (r->buffer.n == 0 && is_blank(c))
        return true;
    str_putc(&r->buffer, c);
    size_t n = r->buffer.n;
    if (n <= strlen(end) && memcmp(r->buffer.p, end, n) == 0) {
        if (n == strlen(end))
            r->phase = PHASE_CLOSED;
        return true;
    }
    if (n > n_other || memcmp(r->buffer.p, other, n) != 0)
        return false;
    if (n < n_other)
        return true;
    begin_call(r);
    r->step = separate ? 0 : 1;
    return true;
}

/* The end of a pattern. */
static bool end_phase(chat_turn *t)
{
    call_reader *r = &t->r;
    if (r->phase == PHASE_OPEN) {
        begin_call(r);
        return true;
    }
    if (!end_call(t))
        return false;
    str_clear(&r->buffer);
    r->phase = *t->rules.speech->end ? PHASE_NEXT : PHASE_CLOSED;
    return true;
}

bool call_reader_take(chat_turn *t, char c)
{
    call_reader *r = &t->r;
    bool again = true;
    if (r->phase == PHASE_NEXT)
        return take_next(t, c);
    while (again) {
        const pattern *p = r->phase == PHASE_OPEN ? &r->open : &r->call;
        if (r->phase == PHASE_NEXT)
            return take_next(t, c);
        /* between calls white space is optional, as before the first */
        if (r->step == 0 && r->at == 0 && !r->scan.begun && is_blank(c))
            return true;
        if (!take_step(t, &p->all[r->step], c, &again))
            return false;
        if (r->step == p->n && !end_phase(t))
            return false;
    }
    return true;
}
