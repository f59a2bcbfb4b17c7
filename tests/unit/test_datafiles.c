#include "data/datafiles.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names below the directory of the test, with spaces, in order. */
static void stands_for(const char *name, const char *expected)
{
    datafiles f = { 0 };
    char found[4096] = "";
    size_t below = strlen(files_path("x")) - 1;
    must(datafiles_add(&f, name));
    for (size_t i = 0, n = 0; i < f.n; i++)
        n +=
            (size_t)snprintf(found + n, sizeof found - n, "%s%s", i ? " " : "", f.paths[i] + below);
    assert_string_equal(found, expected);
    datafiles_free(&f);
}

static const char *with(const char *path, const char *split)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s:%s", files_path(path), split);
    return name;
}

static void put(const char *const *names)
{
    files_clear();
    for (; *names; names++)
        files_text(*names, "x");
}

static void finds_shards_in_order(void **state)
{
    (void)state;
    put((const char *[]){ "d/data/train-00001-of-00002.parquet",
                          "d/data/train-00000-of-00002.parquet", "d/data/train_sft-00000.parquet",
                          "d/data/test-00000-of-00001-0f.parquet", "d/README.md", NULL });
    stands_for(files_path("d"),
               "d/data/train-00000-of-00002.parquet d/data/train-00001-of-00002.parquet");
    stands_for(with("d", "test"), "d/data/test-00000-of-00001-0f.parquet");
    stands_for(with("d", "train_sft"), "d/data/train_sft-00000.parquet");
}

/* Files of one ending only: two exports of the same records are not read twice. */
static void takes_one_ending(void **state)
{
    (void)state;
    put((const char *[]){ "d/train.parquet", "d/train.jsonl.xz", "d/train.jsonl.gz", NULL });
    stands_for(files_path("d"), "d/train.jsonl.xz");
}

static void finds_configurations_and_folders(void **state)
{
    (void)state;
    put((const char *[]){ "d/main/train-00000-of-00001.parquet", "d/socratic/train.jsonl",
                          "d/flat/test/0001.parquet", "d/flat/test/0000.parquet", NULL });
    stands_for(with("d", "main/train"), "d/main/train-00000-of-00001.parquet");
    stands_for(with("d", "socratic/train"), "d/socratic/train.jsonl");
    stands_for(with("d/flat", "test"), "d/flat/test/0000.parquet d/flat/test/0001.parquet");
}

static void one_file_stands_for_a_directory(void **state)
{
    (void)state;
    put((const char *[]){ "d/alpaca.json", "d/dataset_infos.json", "d/.x.json", NULL });
    stands_for(files_path("d"), "d/alpaca.json");
    datafiles f = { 0 };
    must_fail(datafiles_add(&f, with("d", "test")), PESC_IO, "of the split test");
    files_text("d/more.json", "x");
    must_fail(datafiles_add(&f, files_path("d")), PESC_IO,
              "has no data files of the split train (train.jsonl, train-00000-of-00001.parquet and "
              "the like); it has .x.json, alpaca.json, dataset_infos.json, more.json; give "
              "DIR:SPLIT, DIR:CONFIG/SPLIT or the files");
    datafiles_free(&f);
}

static void leaves_files_alone(void **state)
{
    (void)state;
    put((const char *[]){ "a:b.jsonl", NULL });
    stands_for(files_path("a:b.jsonl"), "a:b.jsonl");
    stands_for(files_path("none.jsonl"), "none.jsonl");
}

static void finds_the_cache(void **state)
{
    (void)state;
    put((const char *[]){ "hub/datasets--acme--set/snapshots/1/data/train-0.parquet",
                          "hub/datasets--acme--set/snapshots/1/data/test-0.parquet", NULL });
    setenv("HF_HUB_CACHE", files_path("hub"), 1);
    stands_for("acme/set", "hub/datasets--acme--set/snapshots/1/data/train-0.parquet");
    stands_for("acme/set:test", "hub/datasets--acme--set/snapshots/1/data/test-0.parquet");
    datafiles f = { 0 };
    must_fail(datafiles_add(&f, "acme/none:test"), PESC_IO,
              "acme/none: is neither a file or directory here nor a dataset in the cache ");
    must_fail(datafiles_add(&f, "acme/none"), PESC_IO, "hf download acme/none --repo-type dataset");
    datafiles_free(&f);
    unsetenv("HF_HUB_CACHE");
}

static pesc_status find(const char *path)
{
    datafiles f = { 0 };
    pesc_status s = datafiles_add(&f, path);
    datafiles_free(&f);
    return s;
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    put((const char *[]){ "d/main/train-0.parquet", NULL });
    torture_memory(with("d", "main/train"), find);
    put((const char *[]){ "d/alpaca.json", NULL });
    torture_memory(files_path("d"), find);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_shards_in_order),
        cmocka_unit_test(takes_one_ending),
        cmocka_unit_test(finds_configurations_and_folders),
        cmocka_unit_test(one_file_stands_for_a_directory),
        cmocka_unit_test(leaves_files_alone),
        cmocka_unit_test(finds_the_cache),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("datafiles", tests, NULL, NULL);
}
