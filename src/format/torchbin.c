#include "format/torchbin.h"

#include "base/mem.h"
#include "base/str.h"
#include "format/pickle.h"
#include "format/zip.h"

#include <string.h>

typedef struct reader {
    weights *ws;
    zip z;
    const char *file;
    str prefix; /* "archive/" */
    str text;   /* names, NUL-terminated */
    bool *seen; /* [entries]: its checksum is noted */
} reader;

/* The number of the entry prefix + name + tail, or -1. */
static pesc_status find(reader *r, const char *name, const char *tail, size_t n_tail, int64_t *out)
{
    str_clear(&r->text);
    str_add(&r->text, r->prefix.p, r->prefix.n);
    str_puts(&r->text, name);
    str_add(&r->text, tail, n_tail);
    if (!str_ok(&r->text))
        return fail_nomem(r->file, r->prefix.n + n_tail);
    *out = strtab_find(&r->z.names, r->text.p, r->text.n);
    return PESC_OK;
}

/* The archive's one folder is the one that holds data.pkl. */
static pesc_status find_prefix(reader *r, size_t *pickle)
{
    static const char tail[] = "/data.pkl";
    const char *found = NULL;
    for (size_t i = 0; i < r->z.names.n; i++) {
        const char *name = r->z.names.names[i], *slash = strchr(name, '/');
        if (!slash || strcmp(slash, tail) != 0)
            continue;
        if (found)
            return fail(PESC_FORMAT, "%s: holds %s and %s, expected one pickle", r->file, found,
                        name);
        found = name;
        *pickle = i;
    }
    if (!found)
        return fail(PESC_FORMAT, "%s: holds no data.pkl; it is not a file of torch.save()",
                    r->file);
    str_add(&r->prefix, found, strlen(found) - sizeof tail + 2);
    return str_ok(&r->prefix) ? PESC_OK : fail_nomem(r->file, strlen(found));
}

static pesc_status check_byte_order(reader *r)
{
    int64_t i = -1;
    const unsigned char *data = NULL;
    size_t n = 0;
    TRY(find(r, "byteorder", "", 0, &i));
    if (i < 0)
        return PESC_OK;
    TRY(zip_data(&r->z, (size_t)i, &data, &n));
    if (n != 6 || memcmp(data, "little", 6) != 0)
        return fail(PESC_UNSUPPORTED, "%s: its numbers are not little-endian", r->file);
    return PESC_OK;
}

/* The elements a tensor covers when they follow each other in row-major order. */
static pesc_status contiguous(const reader *r, const char *name, const pickle_tensor *t,
                              int64_t *elements)
{
    uint64_t product = 1;
    bool empty = false;
    for (int32_t i = 0; i < t->nd; i++)
        empty |= t->ne[i] == 0;
    for (int32_t i = t->nd; i-- > 0;) {
        if (t->ne[i] > 1 && t->stride[i] != (int64_t)product && !empty)
            return fail(PESC_UNSUPPORTED,
                        "%s: tensor %s: its elements are not contiguous (stride %lld in dimension "
                        "%d, expected %llu); save it with .contiguous()",
                        r->file, name, (long long)t->stride[i], (int)i,
                        (unsigned long long)product);
        if (__builtin_mul_overflow(product, (uint64_t)(t->ne[i] ? t->ne[i] : 1), &product) ||
            product > INT64_MAX)
            return fail(PESC_FORMAT,
                        "%s: tensor %s: its shape has more elements than 64 bits can count",
                        r->file, name);
    }
    *elements = empty ? 0 : (int64_t)product;
    return PESC_OK;
}

/* The checksum of an entry's bytes: looked at now, or when all weights have been read. Several
 * tensors may share the bytes. */
static pesc_status check_sum(reader *r, size_t entry, const unsigned char *data, size_t n, bool now)
{
    uint32_t crc = r->z.entries[entry].crc;
    if (r->seen[entry] || crc == 0)
        return PESC_OK;
    r->seen[entry] = true;
    str_clear(&r->text);
    str_printf(&r->text, "%s: entry %s", r->file, r->z.names.names[entry]);
    if (!str_ok(&r->text))
        return fail_nomem(r->file, r->text.n);
    return now ? weights_check_sum(data, n, crc, r->text.p)
               : weights_add_sum(r->ws, data, n, crc, r->text.p);
}

static pesc_status storage_of(reader *r, const char *name, const pickle_tensor *t,
                              const unsigned char **data)
{
    int64_t entry = -1;
    size_t n = 0, expected;
    TRY(find(r, "data/", t->key, t->key_bytes, &entry));
    if (entry < 0)
        return fail(PESC_FORMAT, "%s: tensor %s: its storage data/%.*s is not in the archive",
                    r->file, name, (int)(t->key_bytes < 100 ? t->key_bytes : 100), t->key);
    TRY(zip_data(&r->z, (size_t)entry, data, &n));
    TRY(check_sum(r, (size_t)entry, *data, n, false));
    if (t->storage_elements < 0 || !dtype_bytes(t->dt, (uint64_t)t->storage_elements, &expected) ||
        n != expected)
        return fail(PESC_FORMAT,
                    "%s: tensor %s: its storage has %zu bytes, expected %lld elements of %s",
                    r->file, name, n, (long long)t->storage_elements, dtype_name(t->dt));
    return PESC_OK;
}

static pesc_status add_tensor(void *ctx, const pickle_tensor *t)
{
    reader *r = ctx;
    char name[WEIGHTS_MAX_NAME + 1];
    if (t->name_bytes > WEIGHTS_MAX_NAME || memchr(t->name, '\0', t->name_bytes))
        return fail(PESC_FORMAT,
                    "%s: tensor %.40s...: its name is longer than %d bytes or holds NUL", r->file,
                    t->name_bytes >= 40 ? t->name : "", WEIGHTS_MAX_NAME);
    memcpy(name, t->name, t->name_bytes);
    name[t->name_bytes] = '\0';
    int64_t elements = 0;
    const unsigned char *data = NULL;
    TRY(contiguous(r, name, t, &elements));
    TRY(storage_of(r, name, t, &data));
    if (t->offset > t->storage_elements || elements > t->storage_elements - t->offset)
        return fail(
            PESC_FORMAT, "%s: tensor %s: elements %lld to %lld are outside its storage of %lld",
            r->file, name, (long long)t->offset,
            (long long)(elements > INT64_MAX - t->offset ? INT64_MAX : t->offset + elements),
            (long long)t->storage_elements);
    size_t size = dtype_block_bytes(t->dt);
    weight w = { .name = name,
                 .dt = t->dt,
                 .nd = t->nd,
                 .data = data + (size_t)t->offset * size,
                 .bytes = (size_t)elements * size,
                 .file = r->file };
    memcpy(w.ne, t->ne, sizeof w.ne);
    return weights_add(r->ws, &w);
}

static pesc_status read_archive(reader *r, const io_map *m)
{
    size_t pickle = 0, n = 0;
    int64_t script = -1;
    const unsigned char *data = NULL;
    TRY(zip_open(&r->z, m));
    r->seen = mem_zalloc(r->z.names.n + 1, sizeof *r->seen);
    if (!r->seen)
        return fail_nomem(r->file, r->z.names.n);
    TRY(find_prefix(r, &pickle));
    TRY(find(r, "constants.pkl", "", 0, &script));
    if (script >= 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: is a TorchScript program; pesc reads dictionaries of tensors", r->file);
    TRY(check_byte_order(r));
    TRY(zip_data(&r->z, pickle, &data, &n));
    TRY(check_sum(r, pickle, data, n, true));
    return pickle_tensors(r->file, data, n, add_tensor, r);
}

pesc_status torchbin_read_map(weights *ws, const io_map *m)
{
    static const unsigned char old_magic[] = { 0x80, 2, 0x8A, 10 };
    if (m->size >= sizeof old_magic && memcmp(m->data, old_magic, sizeof old_magic) == 0)
        return fail(PESC_UNSUPPORTED,
                    "%s: is in torch's format from before 1.6; load it with a newer torch and save "
                    "it again",
                    m->path);
    reader r = { .ws = ws, .file = m->path };
    pesc_status s = read_archive(&r, m);
    zip_close(&r.z);
    str_free(&r.prefix);
    str_free(&r.text);
    mem_free(r.seen);
    return s;
}

pesc_status torchbin_read(weights *ws, const char *path)
{
    io_map *m;
    TRY(io_map_open(&m, path));
    TRY(weights_add_file(ws, m));
    return torchbin_read_map(ws, m);
}
