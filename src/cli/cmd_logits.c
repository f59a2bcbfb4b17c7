/* cmd_logits: float32 logits of every position, for comparing with other programs. */
#include "cli/command.h"
#include "cli/opt/ids.h"
#include "cli/opt/input.h"
#include "cli/opt/open.h"
#include "cli/show/progress.h"

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

/* A NumPy array file of float32, written piece by piece, under a temporary name in the same
 * directory until it is complete; an existing path that is not a regular file (a pipe, /dev/stdout)
 * is written directly. */
typedef struct npy {
    FILE *f;
    char *path, *temporary; /* temporary NULL: written directly */
} npy;

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

/* shape: n_dims lengths, row-major. */
static pesc_status npy_open(npy **out, const char *path, const int64_t *shape, int n_dims)
{
    npy *f = *out = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path)))
        return out_nomem(path);
    TRY(open_file(f));
    return write_header(f, shape, n_dims);
}

static pesc_status npy_write(npy *f, const float *values, size_t n)
{
    return fwrite(values, sizeof *values, n, f->f) == n ? PESC_OK : fail_write(f);
}

/* Removes what was written; NULL is allowed. */
static void npy_abort(npy *f)
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

/* Also closes, whatever happens. */
static pesc_status npy_publish(npy *f)
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

/* ---- the command ---- */

static pesc_status read_ids(const options *o, ids_table *t)
{
    TRY(ids_read_json(o->ids, t));
    if (t->n_seqs * t->n_each > 0)
        return PESC_OK;
    free(t->ids);
    return out_fail(PESC_FORMAT, "%s: found no ids, expected at least one", input_name(o->ids));
}

/* One sequence after another, through one buffer [n_each, vocab]. */
static pesc_status write_logits(const open_model *m, const ids_table *t, npy *file)
{
    size_t n;
    float *logits = NULL;
    if (!__builtin_mul_overflow(t->n_each, (size_t)m->info.vocab, &n))
        logits = calloc(n, sizeof *logits);
    pesc_status st = logits ? PESC_OK : out_nomem("the logits");
    for (size_t i = 0; i < t->n_seqs && st == PESC_OK; i++) {
        progress_show("sequences", i, t->n_seqs);
        st = pesc_logits(m->model, t->ids + i * t->n_each, t->n_each, logits);
        if (st == PESC_OK)
            st = npy_write(file, logits, n);
    }
    free(logits);
    return st;
}

/* Positions beyond the context length have logits too, but the model was not trained on them. */
static void note_length(const options *o, const ids_table *t, const pesc_model_info *info)
{
    if (o->quiet || info->context <= 0 || t->n_each <= (size_t)info->context)
        return;
    progress_clear();
    fprintf(stderr,
            "pesc: note: %s: a sequence has %zu ids, the model's context is %lld: it was not "
            "trained on later positions\n",
            input_name(o->ids), t->n_each, (long long)info->context);
}

/* Logits are compared with other programs, so nothing is rounded that need not be. */
static pesc_status open_exact(const options *o, open_model *m)
{
    options exact = *o;
    pesc_run_info r = PESC_INIT(pesc_run_info);
    TRY(pesc_run_describe(o->model, NULL, &r));
    if (!exact.load.base_dtype && !r.checkpoint[0])
        exact.load.base_dtype = "stored";
    if (!exact.load.compute_dtype && !r.checkpoint[0])
        exact.load.compute_dtype = "f32";
    return open_from(m, &exact);
}

static pesc_status run_logits(const options *o, const ids_table *t, open_model *m)
{
    TRY(open_exact(o, m));
    note_length(o, t, &m->info);
    const int64_t shape[] = { (int64_t)t->n_seqs, (int64_t)t->n_each, m->info.vocab };
    npy *file = NULL;
    pesc_status st = npy_open(&file, o->output, shape + !t->nested, t->nested ? 3 : 2);
    if (st == PESC_OK)
        st = write_logits(m, t, file);
    if (st != PESC_OK) {
        npy_abort(file);
        return st;
    }
    TRY(npy_publish(file));
    if (o->json) {
        out_begin(NULL, '{');
        out_text("path", o->output);
        out_begin("shape", '[');
        for (int i = !t->nested; i < 3; i++)
            out_int(NULL, shape[i]);
        out_end();
        out_end();
    }
    return PESC_OK;
}

pesc_status cmd_logits(const options *o)
{
    if (!o->ids || !o->output)
        return opt_missing(o, o->ids ? "-o OUT.npy" : "--ids FILE.json");
    ids_table t;
    open_model m = { 0 };
    TRY(read_ids(o, &t));
    pesc_status st = run_logits(o, &t, &m);
    open_free(&m);
    free(t.ids);
    return st;
}
