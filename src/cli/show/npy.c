#include "cli/show/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the header says little-endian"
#endif

struct npy {
    FILE *f;
    char *path, *temporary; /* temporary NULL: written directly */
};

static pesc_status fail_write(const npy *f)
{
    return out_fail(PESC_DISK, "%s: cannot be written: %s", f->path, strerror(errno));
}

/* Format 1.0: magic, version, u16 header length, a Python dict padded so that data is 64-aligned.
 */
static pesc_status write_header(npy *f, const int64_t *shape, int n_dims)
{
    char header[256] = "\x93NUMPY\x01";
    size_t at = 10;
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < n_dims; i++)
        at += (size_t)snprintf(header + at, sizeof header - at, "%lld, ", (long long)shape[i]);
    at += (size_t)snprintf(header + at, sizeof header - at, "), }");
    size_t end = (at + 1 + 63) / 64 * 64;
    memset(header + at, ' ', end - at - 1);
    header[end - 1] = '\n';
    header[8] = (char)((end - 10) & 0xFF);
    header[9] = (char)((end - 10) >> 8);
    return fwrite(header, 1, end, f->f) == end ? PESC_OK : fail_write(f);
}

/* A device or a pipe is written directly. A link (/dev/stdout is one) is followed first: the rename
 * at the end would replace it. */
static pesc_status open_file(npy *f)
{
    struct stat st;
    bool there = stat(f->path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        f->f = fopen(f->path, "wb");
        return f->f ? PESC_OK : fail_write(f);
    }
    char *real = there ? realpath(f->path, NULL) : NULL;
    if (there && !real)
        return fail_write(f);
    if (real) {
        free(f->path);
        f->path = real;
    }
    size_t n = strlen(f->path) + sizeof ".XXXXXX";
    f->temporary = malloc(n);
    if (!f->temporary)
        return out_nomem(f->path);
    snprintf(f->temporary, n, "%s.XXXXXX", f->path);
    int fd = mkstemp(f->temporary);
    if (fd < 0) {
        pesc_status st_open = fail_write(f);
        free(f->temporary);
        f->temporary = NULL;
        return st_open;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask); /* mkstemp sets 0600; use the mode of any new file */
    f->f = fdopen(fd, "wb");
    if (!f->f)
        close(fd);
    return f->f ? PESC_OK : fail_write(f);
}

pesc_status npy_open(npy **out, const char *path, const int64_t *shape, int n_dims)
{
    npy *f = *out = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path)))
        return out_nomem(path);
    TRY(open_file(f));
    return write_header(f, shape, n_dims);
}

pesc_status npy_write(npy *f, const float *values, size_t n)
{
    return fwrite(values, sizeof *values, n, f->f) == n ? PESC_OK : fail_write(f);
}

pesc_status npy_publish(npy *f)
{
    pesc_status st = PESC_OK;
    if (fflush(f->f) != 0 || (f->temporary && fsync(fileno(f->f)) != 0))
        st = fail_write(f);
    if (fclose(f->f) != 0 && st == PESC_OK)
        st = fail_write(f);
    f->f = NULL;
    if (st == PESC_OK && f->temporary && rename(f->temporary, f->path) != 0)
        st = fail_write(f);
    if (st == PESC_OK) {
        free(f->temporary);
        f->temporary = NULL;
    }
    npy_abort(f);
    return st;
}

void npy_abort(npy *f)
{
    if (!f)
        return;
    if (f->f)
        fclose(f->f);
    if (f->temporary)
        unlink(f->temporary);
    free(f->temporary);
    free(f->path);
    free(f);
}
