/* quant: f32 weights to NF4. Blocks are independent, so ranges of whole blocks are quantised in
 * scratch and copied to their place. */
#include "backend/cpu/ops/ops.h"
#include "tensor/nf4.h"

#include <string.h>

enum { RANGE = 256 * NF4_BLOCK };

typedef struct quant {
    unsigned char *storage;
    const float *w;
    int64_t n;
} quant;

static void quant_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const quant *p = ctx;
    int64_t n = end - begin, blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
    nf4_quantize(scratch, p->w + begin, n);
    memcpy(p->storage + begin / 2, scratch, nf4_codes_bytes(n));
    memcpy(nf4_scales(p->storage, p->n) + begin / NF4_BLOCK, nf4_scales(scratch, n),
           (size_t)blocks * sizeof(float));
}

void OP(quantize_nf4)(device *d, tensor out, tensor w, bool double_quant)
{
    int64_t matrices = out.nd == 3 ? out.ne[0] : 1,
            n = tensor_count(&w) / (matrices ? matrices : 1);
    for (int64_t m = 0; m < matrices; m++) {
        unsigned char *storage = out.nd == 3 ? tensor_slice(&out, m, 1).data : out.data;
        quant p = { storage, (const float *)w.data + m * n, n };
        cpu_for(cpu_of(d), n, RANGE, quant_range, &p);
        if (double_quant)
            nf4_double_quantize(storage, n, NULL, NULL, NULL);
    }
}
