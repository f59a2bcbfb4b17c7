#include "run/runsums.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/thread.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- one hash ---- */

static pesc_status no_sha(void)
{
    return fail(PESC_DEVICE, "libcrypto cannot compute SHA-256");
}

static void hex_of(const unsigned char digest[32], char out[RUNSUMS_TEXT])
{
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

pesc_status runsums_of_text(const char *text, size_t n, char out[RUNSUMS_TEXT])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(text, n, digest, NULL, EVP_sha256(), NULL))
        return no_sha();
    hex_of(digest, out);
    return PESC_OK;
}

/* Maps a piece at once, which is cheaper than a fault for every few pages; where the system cannot,
 * the faults do it. */
static void fetch(const unsigned char *bytes, size_t n)
{
#ifdef MADV_POPULATE_READ
    (void)madvise((void *)(uintptr_t)bytes, n, MADV_POPULATE_READ);
#else
    (void)bytes, (void)n;
#endif
}

/* Piece by piece, so that a large file does not count as memory in use. */
static bool hash_pieces(EVP_MD_CTX *c, const unsigned char *bytes, size_t n, char out[RUNSUMS_TEXT])
{
    enum { PIECE = 8 << 20 };
    unsigned char digest[EVP_MAX_MD_SIZE];
    bool fine = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL);
    for (size_t at = 0; fine && at < n; at += PIECE) {
        size_t piece = n - at < PIECE ? n - at : PIECE;
        fetch(bytes + at, piece);
        fine = EVP_DigestUpdate(c, bytes + at, piece);
        io_map_drop(bytes + at, piece);
    }
    fine = fine && EVP_DigestFinal_ex(c, digest, NULL);
    if (fine)
        hex_of(digest, out);
    return fine;
}

pesc_status runsums_of_file(const char *path, char out[RUNSUMS_TEXT])
{
    io_map *m = NULL;
    TRY(io_map_open(&m, path));
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    pesc_status s = hash_pieces(c, m->data, m->size, out) ? io_map_check(m) : no_sha();
    EVP_MD_CTX_free(c);
    io_map_close(m);
    return s;
}

/* ---- threads ---- */

enum { THREADS = 3 }; /* a checkpoint has up to three large files */

typedef struct sum {
    thread_job job; /* first: the queue knows the struct by it */
    struct sum *next;
    char *path;
    const char *name; /* the end of the path */
    bool done;
    char hash[RUNSUMS_TEXT];
    pesc_status status;
    char why[1024]; /* it failed */
} sum;

struct runsums {
    thread_queue *queue;
    sum *all;
};

static void run(thread_job *job)
{
    sum *x = (sum *)(void *)job;
    x->status = runsums_of_file(x->path, x->hash);
    snprintf(x->why, sizeof x->why, "%s", x->status == PESC_OK ? "" : pesc_last_error());
}

pesc_status runsums_open(runsums **out)
{
    runsums *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("hashes", sizeof *s);
    pesc_status st = thread_queue_open(&s->queue, THREADS, run);
    if (st != PESC_OK) {
        mem_free(s);
        *out = NULL;
    }
    return st;
}

static void drop(thread_job *job)
{
    (void)job; /* runsums_close() frees it */
}

void runsums_close(runsums *s)
{
    if (!s)
        return;
    thread_queue_close(s->queue, drop);
    for (sum *x = s->all, *next; x; x = next) {
        next = x->next;
        mem_free(x->path);
        mem_free(x);
    }
    mem_free(s);
}

static sum *find(runsums *s, const char *name)
{
    for (sum *x = s->all; x; x = x->next)
        if (strcmp(x->name, name) == 0)
            return x;
    return NULL;
}

pesc_status runsums_add(runsums *s, const char *dir, const char *name)
{
    if (find(s, name))
        return PESC_OK;
    sum *x = mem_zalloc(1, sizeof *x);
    if (!x || !(x->path = io_join(dir, name))) {
        mem_free(x);
        return fail_nomem(dir, strlen(name));
    }
    x->name = x->path + strlen(x->path) - strlen(name);
    x->next = s->all;
    s->all = x;
    thread_queue_add(s->queue, &x->job);
    return PESC_OK;
}

pesc_status runsums_get(runsums *s, const char *name, char out[RUNSUMS_TEXT])
{
    sum *x = find(s, name);
    ASSERT(x);
    while (!x->done)
        ((sum *)(void *)thread_queue_take(s->queue, true))->done = true;
    if (x->status != PESC_OK)
        return fail(x->status, "%s", x->why);
    memcpy(out, x->hash, RUNSUMS_TEXT);
    return PESC_OK;
}
