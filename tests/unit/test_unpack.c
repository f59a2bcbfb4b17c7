#include "data/unpack.h"

#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

#include <lzma.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static const char text[] = "{\"a\": 1}\n{\"a\": 2}\n";
enum { TEXT = sizeof text - 1, LARGE = UNPACK_FREE + 1 };

typedef size_t packer(unsigned char *out, size_t cap, const void *in, size_t n);

static size_t pack_xz(unsigned char *out, size_t cap, const void *in, size_t n)
{
    size_t made = 0;
    assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, in, n, out, &made, cap),
                     LZMA_OK);
    return made;
}

static size_t pack_gzip(unsigned char *out, size_t cap, const void *in, size_t n)
{
    z_stream z = { .next_in = (unsigned char *)(uintptr_t)in, .avail_in = (unsigned)n };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = out;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static size_t pack_zstd(unsigned char *out, size_t cap, const void *in, size_t n)
{
    size_t made = ZSTD_compress(out, cap, in, n, 1);
    assert_false(ZSTD_isError(made));
    return made;
}

static packer *const packers[] = { pack_xz, pack_gzip, pack_zstd };
enum { PACKERS = 3 };

/* Unpacks a file and compares it with the text, as often as it should be there. */
static pesc_status unpack_times(const char *path, size_t times)
{
    io_map *map;
    TRY(io_map_open(&map, path));
    pesc_status s = unpack_map(&map, 0);
    if (s == PESC_OK) {
        assert_int_equal(map->size, times * TEXT);
        assert_string_equal(map->path, path);
        for (size_t i = 0; i < times; i++)
            assert_memory_equal(map->data + i * TEXT, text, TEXT);
    }
    io_map_close(map);
    return s;
}

static pesc_status unpack(const char *path)
{
    return unpack_times(path, 1);
}

static void reads_plain_and_packed_files(void **state)
{
    (void)state;
    unsigned char packed[1024];
    must(unpack(files_text("a.jsonl", text)));
    for (size_t i = 0; i < PACKERS; i++)
        must(unpack(files_put("packed", packed, packers[i](packed, sizeof packed, text, TEXT))));
}

/* Packed files after one another are one, also of nothing. */
static void reads_members_in_a_row(void **state)
{
    (void)state;
    unsigned char packed[1024];
    for (size_t i = 0; i < PACKERS; i++) {
        size_t all = packers[i](packed, 256, text, TEXT);
        all += packers[i](packed + all, 256, "", 0);
        all += packers[i](packed + all, 256, text, TEXT);
        must(unpack_times(files_put("two", packed, all), 2));
    }
}

static void refuses_damage(void **state)
{
    (void)state;
    unsigned char packed[1024];
    for (size_t i = 0; i < PACKERS; i++) {
        size_t n = packers[i](packed, sizeof packed, text, TEXT);
        for (size_t cut = 6; cut < n; cut++)
            must_fail(unpack(files_put("cut", packed, cut)), PESC_FORMAT, "cut or damaged");
        memcpy(packed + n, "behind", 6);
        must_fail(unpack(files_put("longer", packed, n + 6)), PESC_FORMAT, "cut or damaged");
    }
}

/* A file whose bytes are those of a text of LARGE letters. */
static const char *large(packer *pack, size_t *n)
{
    static unsigned char letters[LARGE], packed[LARGE / 16];
    memset(letters, 'a', LARGE);
    *n = pack(packed, sizeof packed, letters, LARGE);
    return files_put("large", packed, *n);
}

static void refuses_what_unpacks_to_too_much(void **state)
{
    (void)state;
    for (size_t i = 0; i < PACKERS; i++) {
        size_t n;
        io_map *map;
        must(io_map_open(&map, large(packers[i], &n)));
        must_fail(unpack_map(&map, 0), PESC_FORMAT, "large: unpacks to more than 16777216 bytes");
        must_fail(unpack_map(&map, (int64_t)(LARGE / n)), PESC_FORMAT, "--unpack-ratio N allows");
        must(unpack_map(&map, (int64_t)(LARGE / n) + 1));
        assert_int_equal(map->size, LARGE);
        assert_int_equal(map->data[LARGE - 1], 'a');
        io_map_close(map);
    }
    assert_true(unpack_most(UINT64_MAX / 2, 3) == UINT64_MAX);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    unsigned char packed[1024];
    for (size_t i = 0; i < PACKERS; i++)
        torture_memory(files_put("a", packed, packers[i](packed, sizeof packed, text, TEXT)),
                       unpack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_packed_files),
        cmocka_unit_test(reads_members_in_a_row),
        cmocka_unit_test(refuses_damage),
        cmocka_unit_test(refuses_what_unpacks_to_too_much),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("unpack", tests, NULL, NULL);
}
