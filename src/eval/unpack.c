#include "eval/unpack.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"

#include <lzma.h>
#include <string.h>
#include <zlib.h>

#define XZ_MEMORY_MAX ((uint64_t)1 << 30)
enum { CHUNK = 1 << 16 };

typedef struct packed {
    const char *path;
    const unsigned char *p;
    size_t n;
    str out; /* `max` bytes at most */
} packed;

static pesc_status too_large_or_nomem(const packed *f)
{
    if (f->out.full)
        return fail(PESC_FORMAT, "%s: unpacked it is larger than %zu bytes", f->path, f->out.max);
    return fail_nomem("unpacking a file", f->out.n);
}

static pesc_status is_damaged(const packed *f, const char *kind)
{
    return fail(PESC_FORMAT, "%s: the %s data is cut or damaged after %zu unpacked bytes", f->path,
                kind, f->out.n);
}

static pesc_status unpack_xz(packed *f)
{
    unsigned char chunk[CHUNK];
    lzma_stream z = LZMA_STREAM_INIT;
    lzma_ret rc = lzma_stream_decoder(&z, XZ_MEMORY_MAX, LZMA_CONCATENATED);
    z.next_in = f->p;
    z.avail_in = f->n;
    while (rc == LZMA_OK && str_ok(&f->out)) {
        z.next_out = chunk;
        z.avail_out = sizeof chunk;
        rc = lzma_code(&z, LZMA_FINISH);
        str_add(&f->out, (const char *)chunk, sizeof chunk - z.avail_out);
    }
    lzma_end(&z);
    if (!str_ok(&f->out) || rc == LZMA_MEM_ERROR || rc == LZMA_MEMLIMIT_ERROR)
        return too_large_or_nomem(f);
    return rc == LZMA_STREAM_END ? PESC_OK : is_damaged(f, "xz");
}

/* Several members after one another are one file. */
static pesc_status unpack_gzip(packed *f)
{
    unsigned char chunk[CHUNK];
    z_stream z = { .next_in = (unsigned char *)(uintptr_t)f->p };
    int rc = inflateInit2(&z, 15 + 16);
    size_t left = f->n;
    while (rc == Z_OK && str_ok(&f->out)) {
        size_t give = z.avail_in ? 0 : left < (1u << 30) ? left : 1u << 30;
        z.avail_in += (unsigned)give;
        left -= give;
        z.next_out = chunk;
        z.avail_out = sizeof chunk;
        rc = inflate(&z, Z_NO_FLUSH);
        str_add(&f->out, (const char *)chunk, sizeof chunk - z.avail_out);
        if (rc == Z_STREAM_END && (z.avail_in || left))
            rc = inflateReset(&z);
    }
    inflateEnd(&z);
    if (!str_ok(&f->out) || rc == Z_MEM_ERROR)
        return too_large_or_nomem(f);
    return rc == Z_STREAM_END ? PESC_OK : is_damaged(f, "gzip");
}

pesc_status unpack_file(const char *path, size_t max, char **out, size_t *n)
{
    static const unsigned char xz[] = { 0xFD, '7', 'z', 'X', 'Z', 0 }, gzip[] = { 0x1F, 0x8B };
    TRY(io_read_file(path, max, out, n));
    packed f = { path, (const unsigned char *)*out, *n, { .max = max } };
    pesc_status s;
    if (*n >= sizeof xz && memcmp(f.p, xz, sizeof xz) == 0)
        s = unpack_xz(&f);
    else if (*n >= sizeof gzip && memcmp(f.p, gzip, sizeof gzip) == 0)
        s = unpack_gzip(&f);
    else
        return PESC_OK;
    mem_free(*out);
    *out = NULL;
    str_puts(&f.out, "");
    if (s == PESC_OK && !str_ok(&f.out))
        s = too_large_or_nomem(&f);
    if (s != PESC_OK) {
        str_free(&f.out);
        return s;
    }
    *out = f.out.p;
    *n = f.out.n;
    return PESC_OK;
}
