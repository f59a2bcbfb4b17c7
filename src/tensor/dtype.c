#include "tensor/dtype.h"

static const struct {
    size_t block, bytes;
    const char *name;
} rows[DT_COUNT] = {
#define DTYPE_ROW(name, block, bytes, text) { block, bytes, text },
    DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *dtype_name(dtype dt)
{
    return rows[dt].name;
}

size_t dtype_block(dtype dt)
{
    return rows[dt].block;
}

size_t dtype_block_bytes(dtype dt)
{
    return rows[dt].bytes;
}

bool dtype_bytes(dtype dt, uint64_t n, size_t *bytes)
{
    size_t block = rows[dt].block;
    if (dt == DT_NF4) {
        /* codes of all elements, padded to 4 bytes, then one f32 scale per block */
        uint64_t codes = (n / 2 + n % 2 + 3) & ~(uint64_t)3;
        uint64_t blocks = n / block + (n % block != 0);
        return n <= UINT64_MAX / 2 && !__builtin_add_overflow(codes, blocks * 4, bytes);
    }
    if (n % block)
        return false;
    return !__builtin_mul_overflow(n / block, rows[dt].bytes, bytes);
}
