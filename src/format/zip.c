#include "format/zip.h"

#include "base/mem.h"

#include <string.h>

enum {
    END_BYTES = 22,     /* end of central directory, without its comment */
    LOCATOR_BYTES = 20, /* ZIP64 locator, right before it */
    END64_BYTES = 56,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    MAX_NAME = 1024,
    MAX_ENTRIES = 1 << 19,
    FLAG_ENCRYPTED = 1,
    EXTRA_ZIP64 = 1,
};

static uint64_t little(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    while (bytes-- > 0)
        v = v << 8 | p[bytes];
    return v;
}

static bool signed_as(const unsigned char *p, unsigned char c, unsigned char d)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == c && p[3] == d;
}

static pesc_status broken(const zip *z, uint64_t at, const char *reason)
{
    return fail(PESC_FORMAT, "%s: byte %llu: %s", z->map->path, (unsigned long long)at, reason);
}

/* Where the end record begins: the last one whose comment reaches exactly to the file's end. */
static bool find_end(const zip *z, uint64_t *at)
{
    const io_map *m = z->map;
    if (m->size < END_BYTES)
        return false;
    uint64_t last = m->size - END_BYTES, first = last > MAX_COMMENT ? last - MAX_COMMENT : 0;
    for (uint64_t i = last + 1; i-- > first;) {
        const unsigned char *p = m->data + i;
        if (signed_as(p, 5, 6) && little(p + 20, 2) == last - i) {
            *at = i;
            return true;
        }
    }
    return false;
}

typedef struct directory {
    uint64_t entries, bytes, at;
} directory;

static pesc_status find_directory(const zip *z, directory *d)
{
    uint64_t end, limit;
    if (!find_end(z, &end))
        return fail(PESC_FORMAT,
                    "%s: has no ZIP end record; the file is cut short or not an archive of torch",
                    z->map->path);
    const unsigned char *p = z->map->data + end;
    *d = (directory){ little(p + 10, 2), little(p + 12, 4), little(p + 16, 4) };
    limit = end;
    if (end >= LOCATOR_BYTES && signed_as(p - LOCATOR_BYTES, 6, 7)) {
        uint64_t at = little(p - LOCATOR_BYTES + 8, 8);
        if (end - LOCATOR_BYTES < END64_BYTES || at > end - LOCATOR_BYTES - END64_BYTES ||
            !signed_as(z->map->data + at, 6, 6))
            return broken(z, end - LOCATOR_BYTES, "the ZIP64 locator points to no end record");
        p = z->map->data + at;
        *d = (directory){ little(p + 32, 8), little(p + 40, 8), little(p + 48, 8) };
        limit = at;
    }
    if (d->at > limit || d->bytes > limit - d->at || d->entries > d->bytes / CENTRAL_BYTES)
        return broken(z, limit, "the end record describes a directory that is not there");
    if (d->entries > MAX_ENTRIES)
        return fail(PESC_FORMAT, "%s: has %llu entries, expected at most %d", z->map->path,
                    (unsigned long long)d->entries, MAX_ENTRIES);
    return PESC_OK;
}

/* Fields that do not fit 32 bits are in the extra block with id 1, in this order. */
static bool widen(const unsigned char *extra, size_t n, uint64_t *fields[3])
{
    static const uint64_t full = 0xFFFFFFFF;
    if (*fields[0] != full && *fields[1] != full && *fields[2] != full)
        return true;
    while (n >= 4) {
        size_t id = little(extra, 2), bytes = little(extra + 2, 2);
        if (bytes > n - 4)
            return false;
        if (id == EXTRA_ZIP64) {
            size_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != full)
                    continue;
                if (bytes - used < 8)
                    return false;
                *fields[i] = little(extra + 4 + used, 8);
                used += 8;
            }
            return true;
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return false;
}

/* One record of the central directory; *at moves past it. */
static pesc_status read_entry(zip *z, uint64_t *at, uint64_t end)
{
    const unsigned char *p = z->map->data + *at;
    if (end - *at < CENTRAL_BYTES || !signed_as(p, 1, 2))
        return broken(z, *at, "is not a record of the ZIP directory");
    size_t name = little(p + 28, 2), extra = little(p + 30, 2), comment = little(p + 32, 2);
    if (name + extra + comment > end - *at - CENTRAL_BYTES)
        return broken(z, *at, "a record of the ZIP directory runs past its end");
    const char *text = (const char *)p + CENTRAL_BYTES;
    if (name == 0 || name > MAX_NAME || memchr(text, '\0', name))
        return broken(z, *at, "the name of an entry is empty, too long or holds NUL");
    uint64_t packed = little(p + 20, 4), size = little(p + 24, 4), offset = little(p + 42, 4);
    if (!widen(p + CENTRAL_BYTES + name, extra, (uint64_t *[3]){ &size, &packed, &offset }))
        return broken(z, *at, "the ZIP64 fields of an entry are missing");
    if (little(p + 8, 2) & FLAG_ENCRYPTED || little(p + 10, 2) != 0 || packed != size)
        return fail(PESC_UNSUPPORTED,
                    "%s: entry %.*s: is compressed or encrypted; torch stores entries plainly",
                    z->map->path, (int)name, text);
    if (strtab_find(&z->names, text, name) >= 0)
        return fail(PESC_FORMAT, "%s: entry %.*s: is given twice", z->map->path, (int)name, text);
    if (!mem_room((void **)&z->entries, &z->cap, z->names.n, sizeof *z->entries) ||
        strtab_add(&z->names, text, name) < 0)
        return fail_nomem(z->map->path, z->cap * 2 * sizeof *z->entries);
    z->entries[z->names.n - 1] = (zip_entry){ offset, size, (uint32_t)little(p + 16, 4) };
    *at += CENTRAL_BYTES + name + extra + comment;
    return PESC_OK;
}

pesc_status zip_open(zip *z, const io_map *map)
{
    *z = (zip){ .map = map };
    directory d = { 0 };
    TRY(find_directory(z, &d));
    z->directory = d.at;
    uint64_t at = d.at, end = d.at + d.bytes;
    for (uint64_t i = 0; i < d.entries; i++)
        TRY(read_entry(z, &at, end));
    return at == end ? PESC_OK : broken(z, at, "the ZIP directory has more bytes than entries");
}

void zip_close(zip *z)
{
    strtab_free(&z->names);
    mem_free(z->entries);
    *z = (zip){ 0 };
}

pesc_status zip_data(const zip *z, size_t i, const unsigned char **data, size_t *n)
{
    uint64_t at = z->entries[i].offset, size = z->entries[i].bytes;
    const char *name = z->names.names[i];
    bool inside = at <= z->directory && z->directory - at >= LOCAL_BYTES;
    const unsigned char *p = inside ? z->map->data + at : NULL;
    if (!inside || !signed_as(p, 3, 4))
        return broken(z, at, "is not the header of a ZIP entry");
    size_t name_bytes = little(p + 26, 2), extra = little(p + 28, 2);
    uint64_t begin = at + LOCAL_BYTES + name_bytes + extra;
    if (begin > z->directory || size > z->directory - begin)
        return fail(PESC_FORMAT, "%s: entry %s: its %llu bytes run past the archive's data",
                    z->map->path, name, (unsigned long long)size);
    if (name_bytes != strlen(name) || memcmp(p + LOCAL_BYTES, name, name_bytes) != 0)
        return fail(PESC_FORMAT, "%s: entry %s: its own header has another name", z->map->path,
                    name);
    *data = z->map->data + begin;
    *n = (size_t)size;
    return PESC_OK;
}
