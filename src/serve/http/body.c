#include "serve/http/head.h"

#include <string.h>

void body_open(body *b, const head *h)
{
    *b = (body){ .expected = h->chunked ? BODY_CHUNK_SIZE : BODY_DATA,
                 .chunked = h->chunked,
                 .left = h->length };
}

static bool bad(api_error *e, const char *why)
{
    return api_refuse(e, 400, "bad_request", NULL, "%s", why);
}

/* The line at the beginning, without its CRLF; false: it is not complete, or *e has an error. */
static bool take_line(const char *bytes, size_t n, head_text *line, size_t *used, api_error *e)
{
    const char *end = memchr(bytes, '\n', n);
    if ((end ? (size_t)(end - bytes) : n) > BODY_MAX_LINE)
        return bad(e, "a line between the chunks of the body is too long");
    if (!end)
        return false;
    if (end == bytes || end[-1] != '\r')
        return bad(e, "the body has a line feed without a carriage return between its chunks");
    *line = (head_text){ bytes, (size_t)(end - bytes) - 1 };
    *used += line->n + 2;
    return true;
}

/* A chunk's size in hex, and perhaps an extension after a semicolon. */
static bool read_size(body *b, head_text line, size_t had, api_error *e)
{
    size_t i = 0;
    uint64_t size = 0;
    for (; i < line.n && str_hex_digit(line.p[i]) >= 0; i++)
        if (size < UINT64_C(1) << 58)
            size = 16 * size + (uint64_t)str_hex_digit(line.p[i]);
    if (i == 0 || (i < line.n && line.p[i] != ';'))
        return bad(e, "the size of a chunk of the body is not a hexadecimal number");
    if (size > BODY_MAX - had)
        return api_refuse(e, 413, "body_too_large", NULL, "the body has more than %d bytes",
                          BODY_MAX);
    b->left = size;
    b->expected = size ? BODY_DATA : BODY_TRAILER;
    return true;
}

static bool read_line(body *b, head_text line, size_t had, api_error *e)
{
    switch (b->expected) {
    case BODY_CHUNK_SIZE:
        return read_size(b, line, had, e);
    case BODY_CHUNK_END:
        b->expected = BODY_CHUNK_SIZE;
        return line.n == 0 || bad(e, "a chunk of the body is longer than its size says");
    case BODY_TRAILER:
        b->trailer += line.n + 2;
        if (b->trailer > HEAD_MAX_FIELDS)
            return api_refuse(e, 431, "headers_too_large", NULL,
                              "the fields after the body are too long: at most %d bytes",
                              HEAD_MAX_FIELDS);
        break;
    case BODY_DATA:
        break;
    }
    return true;
}

body_state body_take(body *b, const char *bytes, size_t n, size_t *used, str *to, api_error *e)
{
    *used = 0;
    *e = (api_error){ 0 };
    for (;;) {
        if (b->expected == BODY_DATA) {
            size_t have = n - *used, take = have < b->left ? have : (size_t)b->left;
            str_add(to, bytes + *used, take);
            *used += take;
            b->left -= take;
            if (b->left)
                return BODY_PARTIAL;
            if (!b->chunked)
                return BODY_WHOLE;
            b->expected = BODY_CHUNK_END;
        }
        head_text line = { 0 };
        bool trailer = b->expected == BODY_TRAILER;
        if (!take_line(bytes + *used, n - *used, &line, used, e) || !read_line(b, line, to->n, e))
            return e->status ? BODY_BAD : BODY_PARTIAL;
        if (trailer && line.n == 0)
            return BODY_WHOLE;
    }
}
