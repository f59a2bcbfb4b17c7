#include "eval/unpack.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

#include <lzma.h>
#include <zlib.h>

static const char text[] = "{\"a\": 1}\n{\"a\": 2}\n";

static size_t pack_xz(unsigned char *out, size_t cap)
{
    size_t n = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text,
                                             sizeof text - 1, out, &n, cap),
                     LZMA_OK);
    return n;
}

static size_t pack_gzip(unsigned char *out, size_t cap)
{
    z_stream z = { .next_in = (unsigned char *)(uintptr_t)text, .avail_in = sizeof text - 1 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static pesc_status unpack(const char *path)
{
    char *out = NULL;
    size_t n;
    pesc_status s = unpack_file(path, 1 << 20, &out, &n);
    if (s == PESC_OK) {
        assert_int_equal(n, sizeof text - 1);
        assert_string_equal(out, text);
        mem_free(out);
    }
    return s;
}

static void reads_plain_and_packed_files(void **state)
{
    (void)state;
    unsigned char packed[1024];
    must(unpack(files_text("a.jsonl", text)));
    size_t n = pack_xz(packed, sizeof packed);
    must(unpack(files_put("a.jsonl.xz", packed, n)));
    n = pack_gzip(packed, sizeof packed);
    must(unpack(files_put("a.jsonl.gz", packed, n)));
}

/* Two packed files after one another are one. */
static void reads_members_in_a_row(void **state)
{
    (void)state;
    unsigned char packed[1024];
    char *out;
    size_t n, all;
    size_t (*const packers[])(unsigned char *, size_t) = { pack_xz, pack_gzip };
    for (size_t i = 0; i < 2; i++) {
        n = packers[i](packed, 512);
        all = n + packers[i](packed + n, 512);
        must(unpack_file(files_put("two", packed, all), 1 << 20, &out, &n));
        assert_int_equal(n, 2 * (sizeof text - 1));
        mem_free(out);
    }
}

static void refuses_damage(void **state)
{
    (void)state;
    unsigned char packed[1024];
    size_t n = pack_xz(packed, sizeof packed);
    for (size_t cut = 6; cut < n; cut++)
        must_fail(unpack(files_put("cut", packed, cut)), PESC_FORMAT, "cut or damaged");
    n = pack_gzip(packed, sizeof packed);
    for (size_t cut = 2; cut < n; cut++)
        must_fail(unpack(files_put("cut", packed, cut)), PESC_FORMAT, "cut or damaged");
}

static void refuses_more_than_the_limit(void **state)
{
    (void)state;
    static const unsigned char zeros[10000];
    unsigned char packed[1024];
    char *out = NULL;
    size_t n = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, zeros, sizeof zeros, packed,
                                             &n, sizeof packed),
                     LZMA_OK);
    const char *path = files_put("large.xz", packed, n);
    must_fail(unpack_file(path, 9999, &out, &n), PESC_FORMAT, "larger than 9999");
    must(unpack_file(path, 10000, &out, &n));
    mem_free(out);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    unsigned char packed[1024];
    size_t n = pack_xz(packed, sizeof packed);
    torture_memory(files_put("a.xz", packed, n), unpack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_packed_files),
        cmocka_unit_test(reads_members_in_a_row),
        cmocka_unit_test(refuses_damage),
        cmocka_unit_test(refuses_more_than_the_limit),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("unpack", tests, NULL, NULL);
}
