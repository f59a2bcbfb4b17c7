#include "data/unpack.h"

#include "base/log.h"
#include "base/mem.h"

#include <lzma.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define XZ_MEMORY_MAX ((uint64_t)256 << 20)
enum { CHUNK = 256 << 10, GIVE = 1 << 20 };

/* A file that is being unpacked: `in` is what is left of it. */
typedef struct unpacking {
    const io_map *map;
    const unsigned char *in, *end;
    unsigned char *chunk; /* [CHUNK] */
    int fd;
    uint64_t done, most; /* bytes that were made */
} unpacking;

static pesc_status put(unpacking *u, size_t n)
{
    if (n > u->most - u->done)
        return fail(PESC_FORMAT,
                    "%s: unpacks to more than %llu bytes, of %zu packed ones; --unpack-ratio N "
                    "allows N times as many",
                    u->map->path, (unsigned long long)u->most, u->map->size);
    TRY(io_spool_write(u->fd, u->done, u->chunk, n));
    u->done += n;
    log_progress("unpacking data", (uint64_t)(u->in - u->map->data), u->map->size);
    return PESC_OK;
}

static pesc_status ended(const unpacking *u, bool whole, bool memory, const char *kind)
{
    if (whole)
        return PESC_OK;
    if (memory)
        return fail_nomem("unpacking a file", (size_t)XZ_MEMORY_MAX);
    return fail(PESC_FORMAT, "%s: the %s data is cut or damaged after %llu unpacked bytes",
                u->map->path, kind, (unsigned long long)u->done);
}

static size_t next_part(const unpacking *u)
{
    return u->end - u->in < GIVE ? (size_t)(u->end - u->in) : GIVE;
}

static pesc_status unpack_xz(unpacking *u)
{
    lzma_stream z = LZMA_STREAM_INIT;
    lzma_ret rc = lzma_stream_decoder(&z, XZ_MEMORY_MAX, LZMA_CONCATENATED);
    pesc_status s = PESC_OK;
    while (s == PESC_OK && rc == LZMA_OK) {
        z.next_in = u->in;
        z.avail_in = next_part(u);
        z.next_out = u->chunk;
        z.avail_out = CHUNK;
        rc = lzma_code(&z, u->in + z.avail_in == u->end ? LZMA_FINISH : LZMA_RUN);
        u->in = z.next_in;
        s = put(u, CHUNK - z.avail_out);
    }
    lzma_end(&z);
    TRY(s);
    return ended(u, rc == LZMA_STREAM_END, rc == LZMA_MEM_ERROR || rc == LZMA_MEMLIMIT_ERROR, "xz");
}

/* Several members after one another are one file. */
static pesc_status unpack_gzip(unpacking *u)
{
    z_stream z = { 0 };
    int rc = inflateInit2(&z, 15 + 16);
    pesc_status s = PESC_OK;
    while (s == PESC_OK && rc == Z_OK) {
        z.next_in = (unsigned char *)(uintptr_t)u->in;
        z.avail_in = (unsigned)next_part(u);
        z.next_out = u->chunk;
        z.avail_out = CHUNK;
        rc = inflate(&z, Z_NO_FLUSH);
        u->in = z.next_in;
        s = put(u, CHUNK - z.avail_out);
        if (rc == Z_STREAM_END && u->in < u->end)
            rc = inflateReset(&z);
    }
    inflateEnd(&z);
    TRY(s);
    return ended(u, rc == Z_STREAM_END, rc == Z_MEM_ERROR, "gzip");
}

static pesc_status unpack_zstd(unpacking *u)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    pesc_status s = z ? PESC_OK : fail_nomem("unpacking a file", CHUNK);
    size_t rc = 1;
    bool more = true; /* input, or output that had no room */
    while (s == PESC_OK && more && !ZSTD_isError(rc)) {
        ZSTD_inBuffer in = { u->in, next_part(u), 0 };
        ZSTD_outBuffer out = { u->chunk, CHUNK, 0 };
        rc = ZSTD_decompressStream(z, &out, &in);
        u->in += in.pos;
        more = u->in < u->end || (rc > 0 && out.pos == CHUNK);
        s = put(u, out.pos);
    }
    ZSTD_freeDStream(z);
    TRY(s);
    return ended(u, rc == 0, false, "zstd");
}

static const struct {
    const char *magic;
    pesc_status (*unpack)(unpacking *u);
} kinds[] = {
    { "\x1F\x8B", unpack_gzip },
    { "\xFD\x37zXZ", unpack_xz },
    { "\x28\xB5\x2F\xFD", unpack_zstd },
};

pesc_status unpack_map(io_map **map, int64_t ratio)
{
    io_map *packed = *map, *made = NULL;
    size_t kind = 0, n_kinds = sizeof kinds / sizeof *kinds;
    for (; kind < n_kinds; kind++) {
        size_t n = strlen(kinds[kind].magic);
        if (packed->size >= n && memcmp(packed->data, kinds[kind].magic, n) == 0)
            break;
    }
    if (kind == n_kinds)
        return PESC_OK;
    unpacking u = { .map = packed,
                    .in = packed->data,
                    .end = packed->data + packed->size,
                    .chunk = mem_alloc(CHUNK, 1),
                    .most = unpack_most(packed->size, ratio),
                    .fd = -1 };
    pesc_status s = u.chunk ? io_spool_open(&u.fd) : fail_nomem("unpacking a file", CHUNK);
    if (s == PESC_OK)
        s = kinds[kind].unpack(&u);
    if (s == PESC_OK)
        s = io_map_check(packed);
    if (s == PESC_OK)
        s = io_map_spool(&made, u.fd, packed->path);
    if (u.fd >= 0)
        close(u.fd);
    mem_free(u.chunk);
    TRY(s);
    io_map_close(packed);
    *map = made;
    return PESC_OK;
}
