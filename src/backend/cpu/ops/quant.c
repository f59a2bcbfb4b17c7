/* quant: f32 weights into NF4 spans. Ranges of whole blocks are quantised apart, in scratch, and
 * put into their place: blocks do not know of each other. */
#include "backend/cpu/ops/ops.h"
#include "tensor/nf4.h"

#include <string.h>

enum { RANGE = 256 * NF4_BLOCK };

typedef struct quant {
    unsigned char *span;
    const float *w;
    int64_t n;
} quant;

static void quant_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const quant *p = ctx;
    int64_t n = end - begin, blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
    nf4_quantize(scratch, p->w + begin, n);
    memcpy(p->span + begin / 2, scratch, nf4_codes_bytes(n));
    memcpy(nf4_scales(p->span, p->n) + begin / NF4_BLOCK, nf4_scales(scratch, n),
           (size_t)blocks * sizeof(float));
}

void OP(quantize_nf4)(device *d, tensor out, tensor w, bool double_quant)
{
    int64_t matrices = out.nd == 3 ? out.ne[0] : 1,
            n = tensor_count(&w) / (matrices ? matrices : 1);
    for (int64_t m = 0; m < matrices; m++) {
        unsigned char *span = out.nd == 3 ? tensor_slice(&out, m, 1).data : out.data;
        quant p = { span, (const float *)w.data + m * n, n };
        cpu_for(cpu_of(d), n, RANGE, quant_range, &p);
        if (double_quant)
            nf4_double_quantize(span, n, NULL, NULL, NULL);
    }
}
