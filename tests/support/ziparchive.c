#include "support/ziparchive.h"

#include <stdlib.h>
#include <string.h>

static size_t little(unsigned char *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> (8 * i));
    return (size_t)bytes;
}

static void put(ziparchive *z, const void *bytes, size_t n)
{
    z->p = realloc(z->p, z->n + n + 1);
    if (n)
        memcpy(z->p + z->n, bytes, n);
    z->n += n;
}

/* The 26 bytes that local and central headers share, from "version needed" on. */
static size_t shared(unsigned char *p, size_t n, size_t n_name, size_t n_extra, bool zip64)
{
    unsigned char *at = p;
    at += little(at, zip64 ? 45 : 20, 2);
    at += little(at, 0, 2); /* flags */
    at += little(at, 0, 2); /* method: stored */
    at += little(at, 0, 4); /* time */
    at += little(at, 0, 4); /* CRC, which the reader does not look at */
    at += little(at, zip64 ? 0xFFFFFFFF : n, 4);
    at += little(at, zip64 ? 0xFFFFFFFF : n, 4);
    at += little(at, n_name, 2);
    at += little(at, n_extra, 2);
    return (size_t)(at - p);
}

void ziparchive_add(ziparchive *z, const char *name, const void *bytes, size_t n)
{
    unsigned char head[64] = "PK\3\4", *c = z->directory + z->n_directory;
    size_t n_name = strlen(name), at = z->n, n_extra = z->zip64 ? 28 : 0;
    put(z, head, 4 + shared(head + 4, n, n_name, 0, z->zip64));
    put(z, name, n_name);
    put(z, bytes, n);
    memcpy(c, "PK\1\2\0\0", 6);
    c += 6;
    c += shared(c, n, n_name, n_extra, z->zip64);
    c += little(c, 0, 2); /* comment */
    c += little(c, 0, 2); /* disk */
    c += little(c, 0, 2); /* attributes */
    c += little(c, 0, 4);
    c += little(c, z->zip64 ? 0xFFFFFFFF : at, 4);
    memcpy(c, name, n_name);
    c += n_name;
    if (z->zip64) {
        c += little(c, 1, 2);
        c += little(c, 24, 2);
        c += little(c, n, 8);
        c += little(c, n, 8);
        c += little(c, at, 8);
    }
    z->n_directory = (size_t)(c - z->directory);
    z->entries++;
}

void ziparchive_end(ziparchive *z)
{
    unsigned char tail[128], *t = tail;
    size_t at = z->n, end64;
    put(z, z->directory, z->n_directory);
    end64 = z->n;
    if (z->zip64) {
        memcpy(t, "PK\6\6", 4);
        t += 4;
        t += little(t, 44, 8);
        t += little(t, 45, 2);
        t += little(t, 45, 2);
        t += little(t, 0, 8);
        t += little(t, z->entries, 8);
        t += little(t, z->entries, 8);
        t += little(t, z->n_directory, 8);
        t += little(t, at, 8);
        memcpy(t, "PK\6\7", 4);
        t += 4;
        t += little(t, 0, 4);
        t += little(t, end64, 8);
        t += little(t, 1, 4);
    }
    memcpy(t, "PK\5\6\0\0\0\0", 8);
    t += 8;
    t += little(t, z->zip64 ? 0xFFFF : z->entries, 2);
    t += little(t, z->zip64 ? 0xFFFF : z->entries, 2);
    t += little(t, z->zip64 ? 0xFFFFFFFF : z->n_directory, 4);
    t += little(t, z->zip64 ? 0xFFFFFFFF : at, 4);
    t += little(t, 0, 2);
    put(z, tail, (size_t)(t - tail));
}
