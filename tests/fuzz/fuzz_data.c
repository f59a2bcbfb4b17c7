/* libFuzzer: any bytes as a data file of each layout, through finding, checking and reading its
 * records. The first byte chooses the ending of the file's name. */
#include "data/layout.h"
#include "data/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As training does: the first record decides the format, all must be readable as that. */
static void read_record(const record_format **format, const json_t *v)
{
    record r = { 0 };
    if (!*format)
        *format = record_format_detect(v, RECORD_INSTRUCTION);
    if (*format && record_read(&r, *format, v) == PESC_OK && r.n > 0)
        ASSERT(json_array_size(r.messages) == r.n && r.masked && record_text(&r, r.n - 1));
    record_free(&r);
}

static void read_all(const layout *l)
{
    const record_format *format = NULL;
    size_t at = l->begin, begin, end;
    uint64_t count = 0;
    for (; layout_next(l, at, &begin, &end); at = layout_after(l, end)) {
        json_t *v = NULL;
        ASSERT(at <= begin && begin <= end && end <= l->map->size);
        if (layout_check(l, at, begin, count++) != PESC_OK)
            return;
        if (layout_parse(l, (const char *)l->map->data + begin, end - begin, "data", &v) == PESC_OK)
            read_record(&format, v);
        json_decref(v);
    }
    if (count > 0)
        (void)layout_check(l, at, l->map->size, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *const names[] = { "data.jsonl", "data.csv", "data.tsv", "data.txt" };
    layout l;
    if (size < 2)
        return 0;
    const io_map map = { .data = data + 1, .size = size - 1, .path = names[*data % 4] };
    if (layout_open(&l, &map) == PESC_OK)
        read_all(&l);
    layout_free(&l);
    return 0;
}
