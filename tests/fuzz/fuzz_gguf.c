/* libFuzzer: any bytes as a GGUF file, through everything that reads one. */
#include "base/mem.h"
#include "format/gguf.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_numbers(const weights *ws)
{
    for (size_t i = 0; i < weights_count(ws); i++) {
        const weight *w = weights_at(ws, i);
        int64_t n = weights_elements(w);
        float *x = mem_alloc((size_t)n, sizeof *x);
        if (x)
            (void)weights_read_f32(w, 0, n, x);
        mem_free(x);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    gguf *g = NULL;
    json_t *config = NULL;
    weights *ws = NULL;
    tokenizer *t = NULL;
    int fd = memfd_create("gguf", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (gguf_open(&g, path) == PESC_OK) {
        (void)gguf_config(&config, g);
        (void)gguf_tokenizer(&t, g);
        if (gguf_weights(&ws, g) == PESC_OK)
            read_numbers(ws);
    }
    json_decref(config);
    tokenizer_close(t);
    gguf_close(g);
    weights_close(ws);
    close(fd);
    return 0;
}
