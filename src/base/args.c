#include "base/args.h"

#include <string.h>

/* More than any struct of the interface will ever have: beyond it `size` was never set. */
enum { MAX_SIZE = 1 << 20 };

pesc_status args_missing(const char *function, const char *arg)
{
    return fail(PESC_USAGE, "%s: the argument %s is NULL", function, arg);
}

pesc_status args_check_size(size_t size, const char *function, const char *arg)
{
    if (size >= sizeof size && size <= MAX_SIZE)
        return PESC_OK;
    return fail(PESC_USAGE, "%s: %s->size is %zu; initialise the struct with PESC_INIT", function,
                arg, size);
}

static size_t size_of(const void *p)
{
    size_t size;
    memcpy(&size, p, sizeof size);
    return size;
}

pesc_status args_read(void *to, size_t to_bytes, const void *from, const char *function,
                      const char *arg)
{
    size_t size = size_of(from), known = size < to_bytes ? size : to_bytes;
    const unsigned char *bytes = from;
    TRY(args_check_size(size, function, arg));
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return fail(PESC_USAGE,
                        "%s: %s has a field that this version of pesc (%s) does not know", function,
                        arg, PESC_VERSION);
    memcpy((unsigned char *)to + sizeof size, bytes + sizeof size, known - sizeof size);
    return PESC_OK;
}

void args_write(void *to, const void *from, size_t from_bytes)
{
    size_t size = size_of(to), known = size < from_bytes ? size : from_bytes;
    memset(to, 0, size);
    memcpy(to, from, known);
    memcpy(to, &size, sizeof size);
}

void args_clear(void *p, size_t size)
{
    if (size > sizeof size && size <= MAX_SIZE)
        memset((unsigned char *)p + sizeof size, 0, size - sizeof size);
}
