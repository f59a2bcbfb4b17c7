#include "format/thrift.h"

static void give_up(thrift *t)
{
    t->failed = true;
    t->p = t->end;
}

static uint64_t varint(thrift *t)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (t->p == t->end)
            break;
        uint64_t byte = *t->p++;
        v |= (byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return v;
    }
    give_up(t);
    return 0;
}

static int64_t zigzag(thrift *t)
{
    uint64_t v = varint(t);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

bool thrift_next(thrift *t, thrift_field *f)
{
    if (t->failed || t->p == t->end) {
        give_up(t);
        return false;
    }
    unsigned byte = *t->p++;
    f->type = byte & 0x0F;
    if (f->type == THRIFT_STOP)
        return false;
    if (f->type > THRIFT_STRUCT)
        give_up(t);
    int64_t id = byte >> 4 ? f->id + (int64_t)(byte >> 4) : zigzag(t);
    if (id < 0 || id > INT16_MAX)
        give_up(t);
    f->id = t->failed ? 0 : (int32_t)id;
    return !t->failed;
}

static bool is(thrift *t, bool fits)
{
    if (!fits)
        give_up(t);
    return !t->failed;
}

int64_t thrift_int(thrift *t, const thrift_field *f)
{
    if (!is(t, f->type >= THRIFT_I8 && f->type <= THRIFT_I64))
        return 0;
    if (f->type != THRIFT_I8)
        return zigzag(t);
    return is(t, t->p < t->end) ? (int8_t)*t->p++ : 0;
}

/* In a field the type is the value. */
bool thrift_bool(thrift *t, const thrift_field *f)
{
    return is(t, f->type == THRIFT_TRUE || f->type == THRIFT_FALSE) && f->type == THRIFT_TRUE;
}

const char *thrift_binary(thrift *t, const thrift_field *f, size_t *n)
{
    *n = 0;
    if (!is(t, f->type == THRIFT_BINARY))
        return "";
    uint64_t bytes = varint(t);
    if (!is(t, bytes <= (size_t)(t->end - t->p)))
        return "";
    const char *at = (const char *)t->p;
    t->p += bytes;
    *n = (size_t)bytes;
    return at;
}

/* Each value of a list takes a byte at least. */
static size_t list_head(thrift *t, unsigned *type)
{
    if (!is(t, t->p < t->end))
        return 0;
    unsigned byte = *t->p++;
    uint64_t n = byte >> 4;
    *type = byte & 0x0F;
    if (n == 15)
        n = varint(t);
    return is(t, n <= (size_t)(t->end - t->p)) ? (size_t)n : 0;
}

size_t thrift_list(thrift *t, const thrift_field *f, thrift_type of)
{
    unsigned type = 0;
    if (!is(t, f->type == THRIFT_LIST))
        return 0;
    size_t n = list_head(t, &type);
    return is(t, type == of || n == 0) ? n : 0;
}

bool thrift_struct(thrift *t, const thrift_field *f)
{
    return is(t, f->type == THRIFT_STRUCT);
}

static void skip(thrift *t, thrift_type type, int depth, bool in_list);

static void skip_map(thrift *t, int depth)
{
    uint64_t n = varint(t);
    if (n == 0 || !is(t, n <= (size_t)(t->end - t->p)))
        return;
    unsigned types = *t->p++;
    for (; n > 0 && !t->failed; n--) {
        skip(t, types >> 4, depth + 1, true);
        skip(t, types & 0x0F, depth + 1, true);
    }
}

static void skip_bytes(thrift *t, uint64_t n)
{
    if (is(t, n <= (size_t)(t->end - t->p)))
        t->p += n;
}

static void skip(thrift *t, thrift_type type, int depth, bool in_list)
{
    thrift_field inner = { 0 };
    unsigned item = 0;
    if (!is(t, depth < THRIFT_MAX_DEPTH))
        return;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: /* a boolean is a byte where no field says it */
        if (in_list)
            skip_bytes(t, 1);
        break;
    case THRIFT_I8:
        skip_bytes(t, 1);
        break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        (void)varint(t);
        break;
    case THRIFT_DOUBLE:
        skip_bytes(t, 8);
        break;
    case THRIFT_BINARY:
        skip_bytes(t, varint(t));
        break;
    case THRIFT_LIST:
    case THRIFT_SET:
        for (size_t n = list_head(t, &item); n > 0 && !t->failed; n--)
            skip(t, item, depth + 1, true);
        break;
    case THRIFT_MAP:
        skip_map(t, depth);
        break;
    case THRIFT_STRUCT:
        while (thrift_next(t, &inner))
            skip(t, inner.type, depth + 1, false);
        break;
    default:
        give_up(t);
    }
}

void thrift_skip(thrift *t, const thrift_field *f)
{
    skip(t, f->type, 0, false);
}
