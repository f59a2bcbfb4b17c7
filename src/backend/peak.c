#include "backend/peak.h"

#include "base/clock.h"

pesc_status peak_measure(device *dev, dtype dt, double *flops)
{
    enum { TIMES = 5 };
    int64_t rows = dev->head_rows / 2, side = dev->head_rows * 2;
    size_t each = (size_t)(side * side) * sizeof(float);
    void *memory = NULL;
    TRY(dev->op->alloc(dev, 3 * each, &memory));
    dev->op->zero(dev, memory, 3 * each);
    tensor a = { memory, dt, 2, { rows, side } }, b = a, out = a;
    b.data = (char *)memory + each;
    b.ne[0] = side;
    out.data = (char *)memory + 2 * each;
    pesc_status s = PESC_OK;
    *flops = 0;
    for (int i = 0; s == PESC_OK && i < TIMES; i++) {
        double began = clock_seconds();
        dev->op->matmul(dev, &(mm){ .out = out, .a = a, .b = b, .scale = 1 });
        s = dev->op->sync(dev);
        double speed = 2.0 * (double)(rows * side * side) / (clock_seconds() - began + 1e-9);
        *flops = speed > *flops ? speed : *flops;
    }
    dev->op->free(dev, memory);
    return s;
}
