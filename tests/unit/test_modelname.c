#include "base/io.h"
#include "base/mem.h"
#include "format/modelname.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void is(const char *name, const char *path)
{
    char *found = NULL;
    must(modelname_find(&found, name));
    assert_string_equal(found, path);
    mem_free(found);
}

static void is_not(const char *name, const char *part)
{
    char *found = NULL;
    must_fail(modelname_find(&found, name), PESC_IO, part);
    assert_null(found);
}

static char cache[4096];

static void use_cache(void)
{
    files_clear();
    snprintf(cache, sizeof cache, "%s", files_path("hub"));
    setenv("HF_HUB_CACHE", cache, 1);
}

static const char *below(const char *tail)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", cache, tail);
    return path;
}

static void finds_a_snapshot(void **state)
{
    (void)state;
    use_cache();
    files_text("hub/models--acme--tiny-1.5/snapshots/abc/config.json", "{}");
    files_text("hub/models--acme--tiny-1.5/snapshots/def/config.json", "{}");
    files_text("hub/models--acme--tiny-1.5/refs/main", "def\n");
    is("acme/tiny-1.5", below("models--acme--tiny-1.5/snapshots/def"));
    files_text("hub/models--acme--one/snapshots/abc/config.json", "{}");
    is("acme/one", below("models--acme--one/snapshots/abc"));
}

static void finds_the_cache(void **state)
{
    (void)state;
    use_cache();
    files_text("hub/models--acme--one/snapshots/abc/config.json", "{}");
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", files_path(""), 1);
    char *found = NULL;
    must(modelname_find(&found, "acme/one"));
    mem_free(found);
    unsetenv("HF_HOME");
    setenv("XDG_CACHE_HOME", files_path(""), 1);
    is_not("acme/one", "huggingface/hub; to download it: hf download acme/one");
    unsetenv("XDG_CACHE_HOME");
}

static void names_the_download(void **state)
{
    (void)state;
    use_cache();
    is_not("acme/none", "acme/none: is neither a directory here nor a model in the cache ");
    is_not("acme/none", "to download it: hf download acme/none");
    files_text("hub/models--acme--bad/refs/main", "../../etc");
    files_text("hub/etc/config.json", "{}");
    files_text("hub/models--acme--bad/snapshots/a/x", "");
    files_text("hub/models--acme--bad/snapshots/b/x", "");
    is_not("acme/bad", "hf download acme/bad");
    files_text("hub/models--acme--gone/refs/main", "abc");
    is_not("acme/gone", "hf download acme/gone");
}

static void leaves_paths_alone(void **state)
{
    (void)state;
    use_cache();
    is("none", "none");
    is("./acme/none", "./acme/none");
    is("/acme/none", "/acme/none");
    is("a/b/c", "a/b/c");
    is("../none", "../none");
    is("acme/.none", "acme/.none");
    assert_int_equal(chdir(files_path("")), 0);
    files_text("acme/there/config.json", "{}");
    is("acme/there", "acme/there"); /* a directory here wins */
    is("acme/none", "acme/none");   /* a mistyped path below one */
}

static void opens_a_directory_with_one_file(void **state)
{
    (void)state;
    char file[4096];
    use_cache();
    snprintf(file, sizeof file, "%s", files_text("out/model.gguf", "GGUF"));
    is(files_path("out"), file);
    files_text("out/config.json", "{}");
    is(files_path("out"), files_path("out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_a_snapshot),   cmocka_unit_test(finds_the_cache),
        cmocka_unit_test(names_the_download), cmocka_unit_test(opens_a_directory_with_one_file),
        cmocka_unit_test(leaves_paths_alone),
    };
    return cmocka_run_group_tests_name("modelname", tests, NULL, NULL);
}
