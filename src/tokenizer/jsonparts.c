#include "tokenizer/jsonparts.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define BLOCK (64u << 10) /* bytes of text parsed at a time */

static size_t skip_space(const json_span *s, size_t i)
{
    while (i < s->end && strchr(" \t\n\r", s->text[i]) && s->text[i])
        i++;
    return i;
}

bool json_span_is(const json_span *s, char first)
{
    size_t i = skip_space(s, s->start);
    return i < s->end && s->text[i] == first;
}

/* After the closing quote of the string that begins at i; s->end when there is none. */
static size_t string_end(const json_span *s, size_t i)
{
    for (i++; i < s->end; i++) {
        if (s->text[i] == '\\')
            i++;
        else if (s->text[i] == '"')
            return i + 1;
    }
    return s->end;
}

/* The comma or closing bracket that ends the member or element that begins at i. */
static size_t item_end(const json_span *s, size_t i)
{
    size_t depth = 0;
    while (i < s->end) {
        switch (s->text[i]) {
        case '"':
            i = string_end(s, i);
            continue;
        case '[':
        case '{':
            depth++;
            break;
        case ']':
        case '}':
            if (depth-- == 0)
                return i;
            break;
        case ',':
            if (depth == 0)
                return i;
            break;
        default:
            break;
        }
        i++;
    }
    return s->end;
}

static pesc_status parse(const json_span *s, size_t start, size_t end, char open, json_t **out)
{
    /* Parsed with brackets of its own; the place is named by the byte before it. */
    str copy = { 0 }, where = { 0 };
    str_printf(&where, "%s: after byte %zu", s->file, start);
    str_putc(&copy, open);
    str_add(&copy, s->text + start, end - start);
    str_putc(&copy, open == '[' ? ']' : '}');
    pesc_status st = str_ok(&copy) && str_ok(&where) ? json_parse(out, copy.p, copy.n, where.p)
                                                     : fail_nomem(s->file, end - start);
    str_free(&copy);
    str_free(&where);
    return st;
}

static pesc_status too_long(const json_span *s, size_t start, size_t end)
{
    return fail(PESC_UNSUPPORTED, "%s: byte %zu: a value of %zu bytes; at most %u are read here",
                s->file, start, end - start, JSONPARTS_MAX);
}

pesc_status jsonparts_parse(const json_span *value, json_t **out)
{
    *out = NULL;
    if (value->end - value->start > JSONPARTS_MAX)
        return too_long(value, value->start, value->end);
    json_t *list;
    TRY(parse(value, value->start, value->end, '[', &list));
    *out = json_incref(json_array_get(list, 0));
    json_decref(list);
    return *out ? PESC_OK
                : fail(PESC_FORMAT, "%s: byte %zu: is not JSON: expected a value", value->file,
                       value->start);
}

static pesc_status broken(const json_span *s, size_t at, const char *expected)
{
    return fail(PESC_FORMAT, "%s: byte %zu: is not JSON: expected %s%s", s->file, at, expected,
                at == s->end ? " before the end" : "");
}

/* Between items: the comma (then *i is after it) or the closing bracket (then *last). */
static pesc_status between(const json_span *s, char close, size_t *i, bool *last)
{
    *last = *i < s->end && s->text[*i] == close;
    if (*last) {
        size_t rest = skip_space(s, *i + 1);
        return rest == s->end ? PESC_OK : broken(s, rest, "nothing more");
    }
    if (*i >= s->end || s->text[*i] != ',')
        return broken(s, *i, close == '}' ? "',' or '}'" : "',' or ']'");
    ++*i;
    return PESC_OK;
}

static pesc_status member(const json_span *s, size_t start, size_t end, jsonparts_member_fn fn,
                          void *ctx)
{
    size_t key = skip_space(s, start);
    if (key >= end || s->text[key] != '"')
        return broken(s, key, "a key");
    size_t key_end = string_end(s, key), colon = skip_space(s, key_end);
    if (colon >= end || s->text[colon] != ':')
        return broken(s, colon, "':'");
    if (key_end - key > JSONPARTS_MAX)
        return too_long(s, key, key_end);
    json_t *name;
    TRY(parse(s, key, key_end, '[', &name));
    json_span value = { s->text, skip_space(s, colon + 1), end, s->file };
    pesc_status st = fn(ctx, json_string_value(json_array_get(name, 0)), &value);
    json_decref(name);
    return st;
}

pesc_status jsonparts_members(const json_span *object, jsonparts_member_fn fn, void *ctx)
{
    size_t i = skip_space(object, object->start);
    if (i >= object->end || object->text[i] != '{')
        return broken(object, i, "an object");
    i = skip_space(object, i + 1);
    bool last = i < object->end && object->text[i] == '}';
    if (last)
        return between(object, '}', &i, &last);
    while (!last) {
        size_t end = item_end(object, i);
        TRY(member(object, i, end, fn, ctx));
        i = end;
        TRY(between(object, '}', &i, &last));
    }
    return PESC_OK;
}

size_t jsonparts_count(const json_span *container)
{
    size_t n = 0, i = skip_space(container, container->start) + 1;
    while (i < container->end) {
        size_t end = item_end(container, i);
        n++;
        if (end >= container->end || container->text[end] != ',')
            break;
        i = end + 1;
    }
    return n;
}

pesc_status jsonparts_blocks(const json_span *container, jsonparts_block_fn fn, void *ctx)
{
    const json_span *s = container;
    size_t i = skip_space(s, s->start), first = 0;
    if (i >= s->end || (s->text[i] != '{' && s->text[i] != '['))
        return broken(s, i, "an object or an array");
    char open = s->text[i], close = open == '[' ? ']' : '}';
    i = skip_space(s, i + 1);
    bool last = i < s->end && s->text[i] == close;
    if (last)
        return between(s, close, &i, &last);
    while (!last) {
        size_t start = i, end = i, n = 0;
        while (!last && (n == 0 || end - start < BLOCK)) {
            end = item_end(s, i);
            if (end - i > JSONPARTS_MAX)
                return too_long(s, i, end);
            i = end;
            n++;
            TRY(between(s, close, &i, &last));
        }
        json_t *block;
        TRY(parse(s, start, end, open, &block));
        pesc_status st = fn(ctx, block, first);
        json_decref(block);
        TRY(st);
        first += n;
    }
    return PESC_OK;
}
