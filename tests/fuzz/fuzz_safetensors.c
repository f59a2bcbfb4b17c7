/* libFuzzer: any bytes as a .safetensors file, grouped as bitsandbytes does, and every tensor of an
 * accepted file read: its first and last elements must lie inside the file. */
#include "format/bnb.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weights *ws = NULL;
    io_map m = { .data = data, .size = size, .path = (char *)"x.safetensors", .slot = -1 };
    pesc_status s = weights_new(&ws);
    if (s == PESC_OK)
        s = safetensors_read_map(ws, &m);
    if (s == PESC_OK)
        s = bnb_group(ws);
    for (size_t i = 0; s == PESC_OK && i < weights_count(ws); i++) {
        const weight *w = weights_at(ws, i);
        int64_t n = weights_elements(w);
        float x;
        ASSERT(weights_find(ws, w->name) == w);
        if (n > 0 && weights_read_f32(w, 0, 1, &x) == PESC_OK)
            (void)weights_read_f32(w, n - 1, 1, &x);
    }
    weights_close(ws);
    return 0;
}
