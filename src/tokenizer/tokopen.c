/* tokopen: finds and opens the tokenizer of a file or a directory. */
#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokopen.h"

#define FILE_MAX (256u << 20)

static pesc_status open_json(tokenizer **out, char *bytes, size_t n, const char *path)
{
    pesc_status s = tokjson_build(out, bytes, n, path);
    mem_free(bytes);
    return s;
}

static pesc_status open_sp(tokenizer **out, char *bytes, size_t n, const char *path)
{
    spmodel *m;
    pesc_status s = spmodel_open(&m, (const unsigned char *)bytes, n, path);
    mem_free(bytes);
    return s == PESC_OK ? sptok_build(out, m, path) : s;
}

pesc_status tokenizer_open_file(tokenizer **out, const char *path)
{
    char *bytes;
    size_t n;
    *out = NULL;
    TRY(io_read_file(path, FILE_MAX, &bytes, &n));
    return spmodel_is((const unsigned char *)bytes, n) ? open_sp(out, bytes, n, path)
                                                       : open_json(out, bytes, n, path);
}

/* The first of the names that is a file in the directory, for mem_free(); NULL: none. */
static pesc_status find_file(const char *dir, const char *const *names, char **path)
{
    *path = NULL;
    for (; *names; names++) {
        char *p = io_join(dir, *names);
        if (!p)
            return fail_nomem(dir, 0);
        if (io_kind_of(p) != IO_NONE) {
            *path = p;
            return PESC_OK;
        }
        mem_free(p);
    }
    return PESC_OK;
}

pesc_status tokenizer_open_dir(tokenizer **out, const char *dir)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer.model", NULL };
    char *path;
    *out = NULL;
    TRY(find_file(dir, names, &path));
    if (!path)
        return PESC_OK;
    tokenizer *t;
    pesc_status s = tokenizer_open_file(&t, path);
    mem_free(path);
    if (s != PESC_OK)
        return s;
    s = tokconfig_read(t, dir);
    if (s == PESC_OK)
        *out = t;
    else
        tokenizer_close(t);
    return s;
}
