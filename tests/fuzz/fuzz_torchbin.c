/* libFuzzer: any bytes as a file of torch.save(), and every tensor of an accepted file read at both
 * ends. The first byte chooses: the bytes are the archive, or only its data.pkl (mutations of a ZIP
 * archive rarely get that far). */
#include "base/mem.h"
#include "format/pickle.h"
#include "format/torchbin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pesc_status forget(void *ctx, const pickle_tensor *t)
{
    size_t *n = ctx;
    ASSERT(t->nd >= 0 && t->nd <= WEIGHTS_MAX_DIMS && t->offset >= 0);
    *n += t->name_bytes + t->key_bytes;
    return PESC_OK;
}

static void read_archive(const uint8_t *data, size_t size)
{
    weights *ws = NULL;
    io_map m = { .data = data, .size = size, .path = (char *)"x.bin", .slot = -1 };
    pesc_status s = weights_new(&ws);
    if (s == PESC_OK)
        s = torchbin_read_map(ws, &m);
    for (size_t i = 0; s == PESC_OK && i < weights_count(ws); i++) {
        const weight *w = weights_at(ws, i);
        int64_t n = weights_elements(w);
        float x;
        if (n > 0 && weights_read_f32(w, 0, 1, &x) == PESC_OK)
            (void)weights_read_f32(w, n - 1, 1, &x);
    }
    weights_close(ws);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t seen = 0;
    if (size == 0)
        return 0;
    if (data[0] == 'P')
        read_archive(data, size);
    else
        (void)pickle_tensors("x.bin", data, size, forget, &seen);
    return 0;
}
