/* torchbin.c over zip.c. The sample is written by torch.save. */
#include "format/torchbin.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/torture.h"
#include "support/ziparchive.h"

#include <stdlib.h>

static pesc_status open_and_close(const char *path)
{
    weights *ws = NULL;
    pesc_status s = weights_new(&ws);
    if (s == PESC_OK)
        s = torchbin_read(ws, path);
    weights_close(ws);
    return s;
}

static void expect(const weights *ws, const char *name, dtype dt, int64_t n, const float *want)
{
    const weight *w = weights_find(ws, name);
    float got[8];
    assert_non_null(w);
    assert_true(w->dt == dt && weights_elements(w) == n);
    must(weights_read_f32(w, 0, n, got));
    assert_memory_equal(got, want, (size_t)n * sizeof *want);
}

static void test_reads_the_sample_of_torch(void **state)
{
    weights *ws = NULL;
    (void)state;
    must(weights_new(&ws));
    must(torchbin_read(ws, golden_path("formats/sample.bin")));
    assert_int_equal(weights_count(ws), 6);
    expect(ws, "p", DT_F32, 4, (const float[]){ 1, 2, 3, 4 });
    expect(ws, "tail", DT_BF16, 4, (const float[]){ 2, 3, 4, 5 });
    expect(ws, "head", DT_BF16, 2, (const float[]){ 0, 1 });
    expect(ws, "tied", DT_BF16, 6, (const float[]){ 0, 1, 2, 3, 4, 5 });
    expect(ws, "param", DT_F16, 1, (const float[]){ 0.5f });
    expect(ws, "long", DT_I64, 3, (const float[]){ 1, -2, 3 });
    assert_true(weights_find(ws, "tail")->nd == 2 && weights_find(ws, "tail")->ne[1] == 2);
    weights_close(ws);
}

/* A flipped bit of a weight, of the pickle or of a stated checksum is seen. */
static void test_checks_checksums(void **state)
{
    (void)state;
    size_t n;
    char *bytes = files_get(golden_path("formats/sample.bin"), &n);
    static const unsigned char stored[] = { 0, 0, 128, 63, 0, 0, 0, 64 }; /* p begins 1, 2 */
    char *p = memmem(bytes, n, stored, sizeof stored);
    char *pickle = memmem(bytes, n, "_rebuild_tensor_v2", 18);
    assert_non_null(p);
    assert_non_null(pickle);
    weights *ws = NULL;
    p[2] ^= 1;
    must(weights_new(&ws));
    must(torchbin_read(ws, files_put("m.bin", bytes, n))); /* weights are not read yet */
    must_fail(weights_check(ws), PESC_FORMAT, "m.bin: entry ");
    must_fail(weights_check(ws), PESC_FORMAT, "has the CRC-32 ");
    weights_close(ws);
    p[2] ^= 1;
    must(weights_new(&ws));
    must(torchbin_read(ws, files_put("m.bin", bytes, n)));
    must(weights_check(ws));
    weights_close(ws);
    pickle[3] ^= 1;
    must(weights_new(&ws));
    must_fail(torchbin_read(ws, files_put("m.bin", bytes, n)), PESC_FORMAT,
              "data.pkl: has the CRC");
    weights_close(ws);
    free(bytes);
}

/* ---- archives of our own ---- */

#define STR(n, s) "X" n "\0\0\0" s
#define TENSOR(elements, offset, size, stride)                                                     \
    "}" STR("\1", "a") "ctorch._utils\n_rebuild_tensor_v2\n((" STR(                                \
        "\7", "storage") "ctorch\nFloatStorage\n" STR("\1", "0")                                   \
        STR("\3", "cpu") "K" elements "tQK" offset size stride "\x89}tRs."
#define DIMS(a, b) "K" a "K" b "\x86"
#define GOOD TENSOR("\6", "\0", DIMS("\2", "\3"), DIMS("\3", "\1"))
#define PROGRAM(text) text, sizeof text - 1

static const char *finish(ziparchive *z)
{
    ziparchive_end(z);
    const char *path = files_put("m.bin", z->p, z->n);
    free(z->p);
    return path;
}

static const char *archive(const char *pickle, size_t n, size_t storage_bytes, bool zip64)
{
    static const unsigned char zeros[256];
    ziparchive z = { .zip64 = zip64 };
    ziparchive_add(&z, "archive/data.pkl", pickle, n);
    ziparchive_add(&z, "archive/data/0", zeros, storage_bytes);
    return finish(&z);
}

static void test_reads_zip64(void **state)
{
    (void)state;
    must(open_and_close(archive(PROGRAM(GOOD), 24, false)));
    must(open_and_close(archive(PROGRAM(GOOD), 24, true)));
}

static void test_checks_tensors(void **state)
{
    static const struct {
        const char *pickle;
        size_t n, storage;
        pesc_status status;
        const char *part;
    } rows[] = {
        { PROGRAM(GOOD), 23, PESC_FORMAT,
          "tensor a: its storage has 23 bytes, expected 6 elements" },
        { PROGRAM(GOOD), 25, PESC_FORMAT, "its storage has 25 bytes" },
        { PROGRAM(TENSOR("\6", "\1", DIMS("\2", "\3"), DIMS("\3", "\1"))), 24, PESC_FORMAT,
          "elements 1 to 7 are outside its storage of 6" },
        { PROGRAM(TENSOR("\6", "\7", ")", ")")), 24, PESC_FORMAT, "are outside its storage" },
        { PROGRAM(TENSOR("\6", "\0", DIMS("\2", "\3"), DIMS("\1", "\2"))), 24, PESC_UNSUPPORTED,
          "not contiguous (stride 2 in dimension 1, expected 1); save it with .contiguous()" },
        { PROGRAM(TENSOR("\6", "\0", DIMS("\2", "\3"), DIMS("\0", "\1"))), 24, PESC_UNSUPPORTED,
          "stride 0 in dimension 0, expected 3" },
        { PROGRAM(TENSOR("\6", "\0", "\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86",
                         "\x8a\x08\0\0\0\0\0\0\0\x40K\1\x86")),
          24, PESC_FORMAT, "more elements than 64 bits can count" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        must_fail(open_and_close(archive(rows[i].pickle, rows[i].n, rows[i].storage, false)),
                  rows[i].status, rows[i].part);
    /* strides of a dimension of 1, and of an empty tensor, mean nothing */
    must(open_and_close(
        archive(PROGRAM(TENSOR("\6", "\0", DIMS("\1", "\6"), DIMS("\x09", "\1"))), 24, false)));
    must(open_and_close(
        archive(PROGRAM(TENSOR("\6", "\6", DIMS("\0", "\6"), DIMS("\x09", "\5"))), 24, false)));
}

static void test_checks_the_archive(void **state)
{
    (void)state;
    ziparchive z = { 0 };
    ziparchive_add(&z, "archive/version", "3", 1);
    must_fail(open_and_close(finish(&z)), PESC_FORMAT, "holds no data.pkl");
    z = (ziparchive){ 0 };
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    ziparchive_add(&z, "b/data.pkl", PROGRAM(GOOD));
    must_fail(open_and_close(finish(&z)), PESC_FORMAT, "holds a/data.pkl and b/data.pkl");
    z = (ziparchive){ 0 };
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    must_fail(open_and_close(finish(&z)), PESC_FORMAT, "its storage data/0 is not in the archive");
    z = (ziparchive){ 0 };
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    must_fail(open_and_close(finish(&z)), PESC_FORMAT, "entry a/data.pkl: is given twice");
    z = (ziparchive){ 0 };
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    ziparchive_add(&z, "a/byteorder", "big", 3);
    must_fail(open_and_close(finish(&z)), PESC_UNSUPPORTED, "not little-endian");
    z = (ziparchive){ 0 };
    ziparchive_add(&z, "a/data.pkl", PROGRAM(GOOD));
    ziparchive_add(&z, "a/constants.pkl", "", 0);
    must_fail(open_and_close(finish(&z)), PESC_UNSUPPORTED, "TorchScript");
    must_fail(open_and_close(files_text("m.bin", "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.")),
              PESC_UNSUPPORTED, "format from before 1.6");
    must_fail(open_and_close(files_text("m.bin", "hello")), PESC_FORMAT, "no ZIP end record");
    must_fail(open_and_close(files_text("m.bin", "")), PESC_FORMAT, "no ZIP end record");
}

/* One field of a good archive changed: where it lies, what it becomes, what is said. */
static void test_checks_zip_fields(void **state)
{
    static const struct {
        int from; /* 0: the first local header, 1: the first central record, 2: the end record */
        size_t at;
        unsigned char value;
        pesc_status status;
        const char *part;
    } rows[] = {
        { 0, 0, 'X', PESC_FORMAT, "is not the header of a ZIP entry" },
        { 0, 26, 15, PESC_FORMAT, "has another name" },
        { 0, 29, 0xFF, PESC_FORMAT, "run past the archive's data" },
        { 0, 31, 'X', PESC_FORMAT, "has another name" },
        { 1, 0, 'X', PESC_FORMAT, "is not a record of the ZIP directory" },
        { 1, 8, 1, PESC_UNSUPPORTED, "is compressed or encrypted" },
        { 1, 10, 8, PESC_UNSUPPORTED, "is compressed or encrypted" },
        { 1, 20, 0, PESC_UNSUPPORTED, "is compressed or encrypted" },
        { 1, 28, 0, PESC_FORMAT, "is empty, too long or holds NUL" },
        { 1, 29, 0xFF, PESC_FORMAT, "runs past its end" },
        { 1, 45, 0xFF, PESC_FORMAT, "is not the header of a ZIP entry" },
        { 1, 50, 0, PESC_FORMAT, "is empty, too long or holds NUL" },
        { 2, 10, 1, PESC_FORMAT, "more bytes than entries" },
        { 2, 10, 3, PESC_FORMAT, "a directory that is not there" },
        { 2, 11, 0xFF, PESC_FORMAT, "a directory that is not there" },
        { 2, 15, 0xFF, PESC_FORMAT, "a directory that is not there" },
        { 2, 19, 0xFF, PESC_FORMAT, "a directory that is not there" },
        { 2, 20, 1, PESC_FORMAT, "no ZIP end record" },
    };
    size_t n;
    (void)state;
    char *bytes = files_get(archive(PROGRAM(GOOD), 24, false), &n);
    size_t end = n - 22,
           start = (unsigned char)bytes[end + 16] | (size_t)(unsigned char)bytes[end + 17] << 8;
    size_t from[3] = { 0, start, end };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t at = from[rows[i].from] + rows[i].at;
        char kept = bytes[at];
        bytes[at] = (char)rows[i].value;
        must_fail(open_and_close(files_put("m.bin", bytes, n)), rows[i].status, rows[i].part);
        bytes[at] = kept;
    }
    bytes[start + 22] = bytes[start + 26] = 1; /* both sizes of the entry, by 64 KiB */
    must_fail(open_and_close(files_put("m.bin", bytes, n)), PESC_FORMAT,
              "run past the archive's data");
    free(bytes);
}

static void test_bears_torture(void **state)
{
    size_t n;
    (void)state;
    char *bytes = files_get(golden_path("formats/sample.bin"), &n);
    torture_cuts("m.bin", bytes, n, open_and_close);
    torture_flips("m.bin", bytes, n, 0, n, open_and_close);
    torture_memory(golden_path("formats/sample.bin"), open_and_close);
    free(bytes);
    bytes = files_get(archive(PROGRAM(GOOD), 24, true), &n);
    torture_cuts("m.bin", bytes, n, open_and_close);
    torture_flips("m.bin", bytes, n, 0, n, open_and_close);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_sample_of_torch),
        cmocka_unit_test(test_checks_checksums),
        cmocka_unit_test(test_reads_zip64),
        cmocka_unit_test(test_checks_tensors),
        cmocka_unit_test(test_checks_the_archive),
        cmocka_unit_test(test_checks_zip_fields),
        cmocka_unit_test(test_bears_torture),
    };
    return cmocka_run_group_tests_name("torchbin", tests, NULL, NULL);
}
