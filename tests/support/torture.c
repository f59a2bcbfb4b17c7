#include "support/torture.h"

#include "base/mem.h"
#include "format/gguf.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>

static void check_refusal(pesc_status s, const char *what, size_t at)
{
    int code = pesc_status_exit_code(s);
    if (code != 3 || pesc_last_error()[0] == '\0')
        fail_msg("%s %zu: exit code %d, \"%s\"", what, at, code, pesc_last_error());
}

void torture_cuts(const char *name, const void *bytes, size_t n, torture_fn read)
{
    for (size_t cut = 0; cut < n; cut++)
        check_refusal(read(files_put(name, bytes, cut)), "cut at byte", cut);
}

size_t torture_flips(const char *name, const void *bytes, size_t n, size_t first, size_t end,
                     torture_fn read)
{
    unsigned char *copy = malloc(n);
    size_t refused = 0;
    memcpy(copy, bytes, n);
    for (size_t bit = first * 8; bit < end * 8; bit++) {
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        pesc_status s = read(files_put(name, copy, n));
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (s != PESC_OK)
            check_refusal(s, "flipped bit", bit);
        refused += s != PESC_OK;
    }
    free(copy);
    return refused;
}

void torture_memory(const char *file, torture_fn read)
{
    char path[4096]; /* what we were given may be a buffer that others use too */
    snprintf(path, sizeof path, "%s", file);
    for (uint64_t n = 1; n < 100000; n++) {
        mem_fail_at(n);
        pesc_status s = read(path);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(s);
            return;
        }
        if (s != PESC_NOMEM)
            fail_msg("allocation %llu refused: got \"%s\": \"%s\"", (unsigned long long)n,
                     pesc_status_text(s), pesc_last_error());
    }
    fail_msg("it never stops allocating");
}

static pesc_status read_gguf_weights(const char *path)
{
    gguf *g = NULL;
    weights *ws = NULL;
    pesc_status s = gguf_open(&g, path);
    if (s == PESC_OK)
        s = gguf_weights(&ws, g);
    gguf_close(g);
    weights_close(ws);
    return s;
}

void torture_gguf_memory(const char *path)
{
    torture_memory(path, read_gguf_weights);
}

void torture_text(const char *name, const char *text, torture_fn read)
{
    size_t n = strlen(text);
    torture_cuts(name, text, n, read);
    torture_flips(name, text, n, 0, n, read);
    torture_memory(files_text(name, text), read);
}
