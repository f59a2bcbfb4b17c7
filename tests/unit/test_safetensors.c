/* safetensors.c and safetensors_write.c. The sample is written by the reference implementation. */
#include "base/fault.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "format/shards.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pesc_status open_and_close(const char *path)
{
    weights *ws = NULL;
    pesc_status s = weights_new(&ws);
    if (s == PESC_OK)
        s = safetensors_read(ws, path);
    weights_close(ws);
    return s;
}

/* A file of this header and n bytes of data. */
static const char *file_of(const char *header, size_t n_header, size_t n_data)
{
    size_t n = 8 + n_header + n_data;
    unsigned char *bytes = calloc(n, 1);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(n_header >> (8 * i));
    memcpy(bytes + 8, header, n_header);
    const char *path = files_put("model.safetensors", bytes, n);
    free(bytes);
    return path;
}

static void test_reads_the_reference_sample(void **state)
{
    (void)state;
    weights *ws = NULL;
    must(weights_new(&ws));
    must(safetensors_read(ws, golden_path("formats/sample.safetensors")));
    assert_int_equal(weights_count(ws), 6);
    assert_int_equal(weights_files(ws), 1);
    assert_int_equal(weights_bytes(ws), 24 + 4 + 4 + 16 + 0 + 4);
    const weight *w = weights_find(ws, "w"), *e = weights_find(ws, "e"), *s = weights_find(ws, "s");
    float x[6];
    must(weights_read_f32(w, 0, 6, x));
    assert_true(w->nd == 2 && w->ne[0] == 2 && w->ne[1] == 3 && w->dt == DT_F32);
    assert_true(x[0] == 1.5f && x[1] == -2.25f && x[4] == 1e-3f && x[5] == 65504.0f);
    assert_true(e->nd == 2 && e->ne[0] == 0 && e->ne[1] == 4 && e->bytes == 0);
    assert_true(s->nd == 0 && weights_elements(s) == 1);
    must(weights_read_f32(s, 0, 1, x));
    assert_true(x[0] == 2.5f);
    must(weights_read_f32(weights_find(ws, "h"), 0, 2, x));
    assert_true(x[0] == 1.5f && x[1] == -0.333251953125f);
    must(weights_read_f32(weights_find(ws, "b.weight"), 1, 1, x));
    assert_true(x[0] == 3.140625f);
    must(weights_read_f32(weights_find(ws, "n"), 0, 2, x));
    assert_true(x[0] == -7 && x[1] == 9);
    assert_null(weights_find(ws, "__metadata__"));
    must(weights_check(ws));
    weights_close(ws);
}

#define T(fields) "{\"a\":{" fields "}}"
#define F32_1 "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
#define SHAPE(s) T("\"dtype\":\"F32\",\"shape\":" s ",\"data_offsets\":[0,4]")
#define OFFSETS(o) T("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" o)

static const struct {
    const char *header;
    size_t data;
    pesc_status status;
    const char *part;
} bad_headers[] = {
    { "", 0, PESC_FORMAT, "byte 8: the header does not begin with '{'" },
    { "[]", 0, PESC_FORMAT, "does not begin with '{'" },
    { "\n{}", 0, PESC_FORMAT, "does not begin with '{'" },
    { "{", 0, PESC_FORMAT, "byte 9: the text ends" },
    { "{}}", 0, PESC_FORMAT, "byte 10: found bytes after the header's end" },
    { "{}\n", 0, PESC_FORMAT, "after the header's end" },
    { "{,}", 0, PESC_FORMAT, "expected '\"'" },
    { "{\"a\"}", 0, PESC_FORMAT, "expected ':'" },
    { "{\"a\":1}", 0, PESC_FORMAT, "expected '{'" },
    { "{\"a\":{" F32_1 "},}", 4, PESC_FORMAT, "expected '\"'" },
    { "{\"a\":{" F32_1 "}\"b\":{}}", 4, PESC_FORMAT, "expected ','" },
    { "{\"a\":{" F32_1 "},\"a\":{" F32_1 "}}", 4, PESC_FORMAT, "tensor a: is given twice" },
    { "{\"a\":{" F32_1 "},\"\\u0061\":{" F32_1 "}}", 4, PESC_FORMAT, "tensor a: is given twice" },
    { "{\"\xff\":{" F32_1 "}}", 4, PESC_FORMAT, "not valid UTF-8" },
    { "{\"\xc0\x80\":{" F32_1 "}}", 4, PESC_FORMAT, "not valid UTF-8" },
    { "{\"\\ud800\":{" F32_1 "}}", 4, PESC_FORMAT, "half of a surrogate pair" },
    { "{\"\\udc00\\ud800\":{" F32_1 "}}", 4, PESC_FORMAT, "half of a surrogate pair" },
    { "{\"\\u0000\":{" F32_1 "}}", 4, PESC_FORMAT, "found U+0000 in a name" },
    { "{\"\\x\":{" F32_1 "}}", 4, PESC_FORMAT, "not an escape" },
    { "{\"a\tb\":{" F32_1 "}}", 4, PESC_FORMAT, "control character 0x09" },
    { T("\"shape\":[1],\"data_offsets\":[0,4]"), 4, PESC_FORMAT, "tensor a: has no dtype" },
    { T("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, PESC_FORMAT, "has no shape" },
    { T("\"dtype\":\"F32\",\"shape\":[1]"), 4, PESC_FORMAT, "has no data_offsets" },
    { T(F32_1 ",\"x\":1"), 4, PESC_FORMAT, "found the field x" },
    { T("\"dtype\":\"F32\"," F32_1), 4, PESC_FORMAT, "has dtype twice" },
    { T(F32_1 ",\"sh\\u0061pe\":[1]"), 4, PESC_FORMAT, "has shape twice" },
    { T(F32_1 ",\"data_offsets\":[0,4]"), 4, PESC_FORMAT, "has data_offsets twice" },
    { T("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, PESC_FORMAT,
      "found dtype f32" },
    { T("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, PESC_FORMAT,
      "found dtype F33" },
    { T("\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]"), 4, PESC_UNSUPPORTED,
      "dtype F8_E5M2, which pesc does not read" },
    { T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, PESC_UNSUPPORTED, "dtype F4" },
    { T("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]"), 4, PESC_FORMAT, "expected '\"'" },
    { SHAPE("[-1]"), 4, PESC_FORMAT, "found '-', expected a whole number" },
    { SHAPE("[-0]"), 4, PESC_FORMAT, "found '-', expected a whole number" },
    { SHAPE("[1.0]"), 4, PESC_FORMAT, "has a fraction or exponent" },
    { SHAPE("[1e0]"), 4, PESC_FORMAT, "has a fraction or exponent" },
    { SHAPE("[\"1\"]"), 4, PESC_FORMAT, "expected a whole number" },
    { SHAPE("[01]"), 4, PESC_FORMAT, "leading zero" },
    { SHAPE("[18446744073709551616]"), 4, PESC_FORMAT, "does not fit 64 bits" },
    { SHAPE("[9223372036854775808]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[4294967296,2147483648]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[4294967296,4294967296]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[65536,65536,65536,65536]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[256,256,256,256,256,256,256,256]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[4611686018427387904]"), 4, PESC_FORMAT, "span 4 bytes" },
    { SHAPE("[0,4611686018427387904,4]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[4611686018427387904,4,0]"), 4, PESC_FORMAT, "more elements than 64 bits" },
    { SHAPE("[1,1,1,1,1,1,1,1,1]"), 4, PESC_FORMAT, "more than 8 dimensions" },
    { SHAPE("[1,]"), 4, PESC_FORMAT, "expected a whole number" },
    { SHAPE("1"), 4, PESC_FORMAT, "expected '['" },
    { SHAPE("[2]"), 4, PESC_FORMAT, "span 4 bytes" },
    { SHAPE("[0]"), 4, PESC_FORMAT, "span 4 bytes" },
    { OFFSETS("[4,0]"), 4, PESC_FORMAT, "run backwards" },
    { OFFSETS("[-4,0]"), 4, PESC_FORMAT, "expected a whole number" },
    { OFFSETS("[0]"), 4, PESC_FORMAT, "expected ','" },
    { OFFSETS("[0,4,4]"), 4, PESC_FORMAT, "expected ']'" },
    { OFFSETS("[0,0]"), 4, PESC_FORMAT, "span 0 bytes" },
    { OFFSETS("[0,4]"), 3, PESC_FORMAT, "ends at 4, but the file has only 3" },
    { OFFSETS("[18446744073709551612,18446744073709551615]"), 4, PESC_FORMAT, "has only 4" },
    { OFFSETS("[0,4]"), 5, PESC_FORMAT, "1 belong to no tensor" },
    { OFFSETS("[1,5]"), 5, PESC_FORMAT, "a hole before it" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
      5, PESC_FORMAT, "tensor b: its data begins at 2, expected 3: there is an overlap" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
      3, PESC_FORMAT, "an overlap with another tensor" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
      3, PESC_FORMAT, "an overlap with another tensor" },
    { "{\"__metadata__\":{\"a\":1}}", 0, PESC_FORMAT, "__metadata__: a: is not a string" },
    { "{\"__metadata__\":{\"a\":[[[[[]]]]]}}", 0, PESC_FORMAT, "is not a string" },
    { "{\"__metadata__\":1}", 0, PESC_FORMAT, "expected '{'" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, PESC_FORMAT, "__metadata__ is given twice" },
};

static void test_refuses_bad_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof *bad_headers; i++)
        must_fail(open_and_close(file_of(bad_headers[i].header, strlen(bad_headers[i].header),
                                         bad_headers[i].data)),
                  bad_headers[i].status, bad_headers[i].part);
}

static const struct {
    const char *header;
    size_t data;
    size_t tensors;
} good_headers[] = {
    { "{}", 0, 0 },
    { "   {}   ", 0, 0 },
    { "{ \"a\" :\n{" F32_1 " } }", 4, 1 },
    { "{\"\\ud83d\\ude00\":{" F32_1 "}}", 4, 1 },
    { "{\"%n%s../../x\":{" F32_1 "}}", 4, 1 },
    { "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
      "\"e\":{\"dtype\":\"U8\",\"shape\":[7,0],\"data_offsets\":[3,3]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
      4, 3 },
    { "{\"__metadata__\":{\"a\":\"\\u0000\"},\"a\":{" F32_1 "}}", 4, 1 },
    { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, 1 },
};

static void test_reads_unusual_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good_headers / sizeof *good_headers; i++) {
        weights *ws = NULL;
        must(weights_new(&ws));
        must(safetensors_read(ws, file_of(good_headers[i].header, strlen(good_headers[i].header),
                                          good_headers[i].data)));
        assert_int_equal(weights_count(ws), good_headers[i].tensors);
        weights_close(ws);
    }
}

static void test_refuses_bad_lengths(void **state)
{
    static const struct {
        uint64_t length;
        const char *part;
    } rows[] = {
        { 3, "a header of 3 bytes, but only 2 follow" },
        { 100000001, "a header of 100000001 bytes, expected at most 100000000" },
        { 1ull << 63, "expected at most 100000000" },
        { UINT64_MAX, "expected at most 100000000" },
        { UINT64_MAX - 7, "expected at most 100000000" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[10] = "________{}";
        for (int b = 0; b < 8; b++)
            bytes[b] = (unsigned char)(rows[i].length >> (8 * b));
        must_fail(open_and_close(files_put("model.safetensors", bytes, sizeof bytes)), PESC_FORMAT,
                  rows[i].part);
    }
    must_fail(open_and_close(files_put("model.safetensors", "1234567", 7)), PESC_FORMAT,
              "has 7 bytes, too few");
    must_fail(open_and_close(files_put("model.safetensors", "", 0)), PESC_FORMAT, "has 0 bytes");
}

/* A name as long as its file: refused early, and cut in the sentence. */
static void test_refuses_long_names(void **state)
{
    (void)state;
    char header[8000];
    int n = snprintf(header, sizeof header, "{\"%05000d\":{" F32_1 "}}", 1);
    must_fail(open_and_close(file_of(header, (size_t)n, 4)), PESC_FORMAT, "more than 4096 bytes");
    n = snprintf(header, sizeof header, "{\"%0513d\":{" F32_1 "}}", 1);
    must_fail(open_and_close(file_of(header, (size_t)n, 4)), PESC_FORMAT, "at most 512");
    n = snprintf(header, sizeof header, "{\"%0512d\":{" F32_1 "}}", 1);
    must(open_and_close(file_of(header, (size_t)n, 4)));
}

static void test_bears_torture(void **state)
{
    (void)state;
    size_t n;
    char *bytes = files_get(golden_path("formats/sample.safetensors"), &n);
    torture_cuts("model.safetensors", bytes, n, open_and_close);
    size_t header = 8 + (unsigned char)bytes[0] + ((size_t)(unsigned char)bytes[1] << 8);
    size_t refused = torture_flips("model.safetensors", bytes, n, 0, header, open_and_close);
    /* what remains readable are flips inside names and padding */
    assert_true(refused > header * 8 * 3 / 4);
    torture_memory(golden_path("formats/sample.safetensors"), open_and_close);
    free(bytes);
}

static void test_refuses_what_is_no_file(void **state)
{
    (void)state;
    files_clear();
    must_fail(open_and_close(files_path("")), PESC_IO, "is not a regular file");
    must_fail(open_and_close(files_path("absent")), PESC_IO, "No such file");
    assert_int_equal(mkfifo(files_path("fifo"), 0600), 0);
    must_fail(open_and_close(files_path("fifo")), PESC_IO, "is not a regular file");
    assert_int_equal(symlink("loop", files_path("loop")), 0);
    must_fail(open_and_close(files_path("loop")), PESC_IO, "loop");
}

/* The header is read, nothing else: 6 GiB of holes cost nothing, and offsets beyond 32 bits hold.
 */
static void test_reads_a_large_sparse_file(void **state)
{
    (void)state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1610612736],\"data_offsets\":[0,6442450944]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[6442450944,6442450948]}}";
    const char *path = file_of(header, sizeof header - 1, 0);
    float x = 7;
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseeko(f, 8 + (off_t)sizeof header - 1 + 6442450944, SEEK_SET), 0);
    assert_int_equal(fwrite(&x, sizeof x, 1, f), 1);
    fclose(f);
    weights *ws = NULL;
    must(weights_new(&ws));
    must(safetensors_read(ws, path));
    must(weights_read_f32(weights_find(ws, "b"), 0, 1, &x));
    assert_true(x == 7);
    must(weights_read_f32(weights_find(ws, "a"), 1610612735, 1, &x));
    assert_true(x == 0);
    weights_close(ws);
    files_clear();
}

/* A file that shrinks after it was checked: zeros and a mark, not a signal. */
static void test_survives_a_file_cut_while_mapped(void **state)
{
    (void)state;
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[100000],\"data_offsets\":[0,100000]}}";
    const char *path = file_of(header, sizeof header - 1, 100000);
    weights *ws = NULL;
    must(weights_new(&ws));
    must(safetensors_read(ws, path));
    assert_int_equal(truncate(path, 100), 0);
    float x;
    must(weights_read_f32(weights_find(ws, "a"), 99999, 1, &x));
    must_fail(weights_check(ws), PESC_IO, "became shorter");
    weights_close(ws);
}

/* ---- writing ---- */

static const safetensors_spec specs[] = {
    { "b\"\\\n", DT_BF16, 1, { 3 } }, { "empty", DT_F32, 2, { 0, 5 } },
    { "f", DT_F32, 2, { 2, 2 } },     { "i", DT_I64, 0, { 0 } },
    { "u", DT_U8, 1, { 5 } },
};
enum { N_SPECS = sizeof specs / sizeof *specs, DATA_BYTES = 6 + 0 + 16 + 8 + 5 };

/* Writes bytes 0, 1, 2, ... in pieces of `piece`. */
static pesc_status write_all(uint64_t shard_bytes, size_t piece)
{
    safetensors_plan plan = { .dir = files_path("out"),
                              .stem = "model",
                              .specs = specs,
                              .n = N_SPECS,
                              .shard_bytes = shard_bytes };
    safetensors_writer *w = NULL;
    unsigned char data[DATA_BYTES];
    for (size_t i = 0; i < DATA_BYTES; i++)
        data[i] = (unsigned char)i;
    pesc_status s = safetensors_writer_open(&w, &plan);
    for (size_t i = 0; s == PESC_OK && i < DATA_BYTES; i += piece)
        s = safetensors_write(w, data + i, DATA_BYTES - i < piece ? DATA_BYTES - i : piece);
    if (s != PESC_OK) {
        safetensors_writer_abort(w);
        return s;
    }
    return safetensors_writer_finish(w);
}

static void check_written(const weights *ws)
{
    unsigned char next = 0;
    assert_int_equal(weights_count(ws), N_SPECS);
    for (size_t i = 0; i < N_SPECS; i++) {
        const weight *w = weights_find(ws, specs[i].name);
        assert_non_null(w);
        assert_true(w->dt == specs[i].dt && w->nd == specs[i].nd);
        assert_memory_equal(w->ne, specs[i].ne, (size_t)w->nd * sizeof *w->ne);
        for (size_t b = 0; b < w->bytes; b++)
            assert_int_equal(w->data[b], next++);
    }
    assert_int_equal(next, DATA_BYTES);
}

static void test_writes_one_file(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= DATA_BYTES; piece++) {
        files_clear();
        must(write_all(0, piece));
        weights *ws = NULL;
        must(weights_new(&ws));
        must(safetensors_read(ws, files_path("out/model.safetensors")));
        check_written(ws);
        weights_close(ws);
        assert_false(files_there("out/model.safetensors.index.json"));
    }
    /* as the reference writes it: padded to 8, wider elements first */
    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\\\"\\\\\\u000a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[8,8]},"
        "\"f\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
        "\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"u\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[30,35]}}";
    size_t n;
    char *bytes = files_get(files_path("out/model.safetensors"), &n);
    assert_memory_equal(bytes + 8, expected, sizeof expected - 1);
    assert_int_equal((n - DATA_BYTES) % 8, 0);
    free(bytes);
}

static void test_writes_shards_and_index(void **state)
{
    (void)state;
    files_clear();
    must(write_all(16, 7));
    assert_true(files_there("out/model-00001-of-00003.safetensors"));
    assert_true(files_there("out/model-00003-of-00003.safetensors"));
    weights *ws = NULL;
    must(weights_new(&ws));
    must(shards_read(ws, files_path("out"), files_path("out/model.safetensors.index.json"),
                     safetensors_read));
    check_written(ws);
    assert_int_equal(weights_files(ws), 3);
    weights_close(ws);
}

static void test_writes_nothing(void **state)
{
    (void)state;
    files_clear();
    safetensors_writer *w = NULL;
    safetensors_plan plan = { .dir = files_path("out"), .stem = "model" };
    must(safetensors_writer_open(&w, &plan));
    must(safetensors_writer_finish(w));
    must(open_and_close(files_path("out/model.safetensors")));
}

/* Whatever call fails, what is under the final name is complete, and the index comes last. */
static void test_writes_all_or_nothing(void **state)
{
    static const char *const ops[] = { "open", "write", "fsync", "rename", "mkdir", "close" };
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (int n = 1;; n++) {
            char spec[64];
            files_clear();
            snprintf(spec, sizeof spec, "%s:%d:ENOSPC", ops[i], n);
            assert_true(fault_arm(spec));
            pesc_status s = write_all(16, 7);
            bool fired = fault_fired();
            fault_arm(NULL);
            if (!fired) {
                must(s);
                assert_true(n > 1);
                break;
            }
            assert_int_equal(s, PESC_DISK);
            if (files_there("out/model-00001-of-00003.safetensors"))
                must(open_and_close(files_path("out/model-00001-of-00003.safetensors")));
            bool whole = files_there("out/model-00003-of-00003.safetensors");
            assert_true(whole || !files_there("out/model.safetensors.index.json"));
        }
    }
}

static pesc_status write_sharded(const char *path)
{
    (void)path;
    return write_all(16, 7);
}

/* Memory may be lacking for what is optional: removing what dead processes left. */
static void test_writer_bears_lack_of_memory(void **state)
{
    (void)state;
    files_clear();
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n);
        pesc_status s = write_sharded("");
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(s);
            break;
        }
        assert_true(s == PESC_OK || s == PESC_NOMEM || s == PESC_DISK);
        if (s == PESC_OK)
            must(open_and_close(files_path("out/model-00003-of-00003.safetensors")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_reference_sample),
        cmocka_unit_test(test_refuses_bad_headers),
        cmocka_unit_test(test_reads_unusual_headers),
        cmocka_unit_test(test_refuses_bad_lengths),
        cmocka_unit_test(test_refuses_long_names),
        cmocka_unit_test(test_bears_torture),
        cmocka_unit_test(test_refuses_what_is_no_file),
        cmocka_unit_test(test_reads_a_large_sparse_file),
        cmocka_unit_test(test_survives_a_file_cut_while_mapped),
        cmocka_unit_test(test_writes_one_file),
        cmocka_unit_test(test_writes_shards_and_index),
        cmocka_unit_test(test_writes_nothing),
        cmocka_unit_test(test_writes_all_or_nothing),
        cmocka_unit_test(test_writer_bears_lack_of_memory),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
