/* libFuzzer: any bytes as a Parquet file, through its footer, its pages and its rows. */
#include "base/mem.h"
#include "format/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "data.parquet";
    io_map map = { .data = data, .size = size, .path = path, .slot = -1 };
    parquet *p;
    if (size == 0 || parquet_open(&p, &map, (64 << 20) + 32 * size) != PESC_OK)
        return 0;
    for (uint64_t i = 0; i < parquet_rows(p) && i < 64; i++) {
        json_t *v;
        if (parquet_row(p, i * 7 % parquet_rows(p), &v) == PESC_OK)
            ASSERT(json_is_object(v));
        json_decref(v);
    }
    parquet_close(p);
    return 0;
}
