#include "base/log.h"
#include "format/safetensors.h"
#include "format/shards.h"
#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

#include <stdio.h>
#include <stdlib.h>

static pesc_status read_index(const char *path)
{
    weights *ws = NULL;
    pesc_status s = weights_new(&ws);
    if (s == PESC_OK)
        s = shards_read(ws, files_path(""), path, safetensors_read);
    weights_close(ws);
    return s;
}

/* Shard 1 holds a and b, shard 2 holds c: one byte each. */
static void put_shards(void)
{
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
        "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
    };
    for (int i = 0; i < 2; i++) {
        char bytes[512] = { (char)strlen(headers[i]) }, name[16];
        memcpy(bytes + 8, headers[i], strlen(headers[i]));
        snprintf(name, sizeof name, "%d.st", i + 1);
        files_put(name, bytes, 8 + strlen(headers[i]) + (size_t)(2 - i));
    }
}

#define MAP(entries) "{\"metadata\":{\"total_size\":3},\"weight_map\":{" entries "}}"
#define GOOD MAP("\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"2.st\"")

static void test_reads_shards(void **state)
{
    static const char *const good[] = {
        GOOD,
        "{\"weight_map\":{\"c\":\"2.st\",\"a\":\"1.st\",\"b\":\"1.st\"}}",
        "{\"metadata\":{\"total_size\":3.0,\"x\":[{}]},\"other\":null,"
        "\"weight_map\":{\"c\":\"2.st\",\"\\u0061\":\"1.st\",\"b\":\"1.st\"}}\n",
        "{\"metadata\":null,\"weight_map\":{\"c\":\"2.st\",\"a\":\"1.st\",\"b\":\"1.st\"}}",
    };
    (void)state;
    put_shards();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        must(read_index(files_text("index.json", good[i])));
}

static const struct {
    const char *text;
    pesc_status status;
    const char *part;
} bad[] = {
    { "", PESC_FORMAT, "byte 0: the text ends, expected '{'" },
    { "[]", PESC_FORMAT, "expected '{'" },
    { "{}", PESC_FORMAT, "weight_map: is missing" },
    { "{\"weight_map\":[]}", PESC_FORMAT, "expected '{'" },
    { "{\"weight_map\":{\"a\":1}}", PESC_FORMAT, "expected '\"'" },
    { GOOD "x", PESC_FORMAT, "after the index's end" },
    { MAP("\"a\":\"../1.st\""), PESC_FORMAT,
      "tensor a is in \"../1.st\", expected the name of a file" },
    { MAP("\"a\":\"/etc/passwd\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\"sub/1.st\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\"..\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\".hidden\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\"\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\"a\\\\b\""), PESC_FORMAT, "expected the name of a file beside the index" },
    { MAP("\"a\":\"1\\u0000.st\""), PESC_FORMAT, "found U+0000" },
    { MAP("\"a\":\"3.st\""), PESC_IO, "names the shard 3.st, which is not there" },
    { MAP("\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"1.st\""), PESC_FORMAT, "tensor c is not in 1.st" },
    { MAP("\"a\":\"1.st\",\"b\":\"2.st\",\"c\":\"2.st\""), PESC_FORMAT,
      "tensor b is not in 2.st but in" },
    { MAP("\"a\":\"1.st\",\"c\":\"2.st\""), PESC_FORMAT, "does not name tensor b, which is in" },
    { MAP("\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"2.st\",\"d\":\"2.st\""), PESC_FORMAT,
      "tensor d is not in 2.st" },
    { MAP("\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"2.st\",\"\\u0061\":\"1.st\""), PESC_FORMAT,
      "names tensor a twice" },
    { "{\"weight_map\":{\"a\":\"1.st\",\"b\":\"1.st\"},\"weight_map\":{\"c\":\"2.st\"}}",
      PESC_FORMAT, "weight_map is given twice" },
};

static void test_refuses_disagreement(void **state)
{
    (void)state;
    put_shards();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        must_fail(read_index(files_text("index.json", bad[i].text)), bad[i].status, bad[i].part);
}

static void test_refuses_one_tensor_in_two_shards(void **state)
{
    size_t n;
    (void)state;
    put_shards();
    char *bytes = files_get(files_path("2.st"), &n);
    files_put("3.st", bytes, n);
    free(bytes);
    must_fail(
        read_index(files_text("index.json",
                              MAP("\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"2.st\",\"d\":\"3.st\""))),
        PESC_FORMAT, "tensor c: is given twice, first in");
}

static void keep_notice(void *ud, const char *sentence)
{
    snprintf(ud, 256, "%s", sentence);
}

static void test_remarks_on_a_wrong_total(void **state)
{
    char said[256] = "";
    (void)state;
    put_shards();
    log_swap(&(pesc_events){ .notice = keep_notice, .ud = said });
    must(read_index(files_text("index.json", "{\"metadata\":{\"total_size\":99},\"weight_map\":{"
                                             "\"a\":\"1.st\",\"b\":\"1.st\",\"c\":\"2.st\"}}")));
    log_swap(NULL);
    assert_non_null(strstr(said, "metadata.total_size is 99, but the shards hold 3 bytes"));
}

static void test_bears_torture(void **state)
{
    (void)state;
    put_shards();
    torture_text("index.json", GOOD, read_index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_shards),
        cmocka_unit_test(test_refuses_disagreement),
        cmocka_unit_test(test_refuses_one_tensor_in_two_shards),
        cmocka_unit_test(test_remarks_on_a_wrong_total),
        cmocka_unit_test(test_bears_torture),
    };
    return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
