#include "base/fault.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/modeldir.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A directory as pesc leaves one: a weight file with `text`, config.json and the list. */
static void write_model(const char *dir, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    files_text(path, text);
    must(modeldir_list(files_path(dir), "config.json"));
    snprintf(path, sizeof path, "%s/config.json", dir);
    files_text(path, text);
}

/* The weights and the configuration agree, and which model it is. */
static char model_in(const char *dir)
{
    char a[512], b[512], *x = NULL, *y = NULL;
    size_t n;
    snprintf(a, sizeof a, "%s/model.safetensors", dir);
    snprintf(b, sizeof b, "%s/config.json", dir);
    must(io_read_file(files_path(a), 64, &x, &n));
    must(io_read_file(files_path(b), 64, &y, &n));
    char which = strcmp(x, y) == 0 ? x[0] : '?';
    mem_free(x);
    mem_free(y);
    return which;
}

static void replaces_what_is_listed_and_keeps_the_rest(void **state)
{
    (void)state;
    files_clear();
    write_model("old", "a");
    files_text("old/extra.safetensors.txt", "mine");
    files_text("old/notes/one", "mine");
    write_model("new", "b");
    char fresh[512];
    snprintf(fresh, sizeof fresh, "%s", files_path("new"));
    must(pesc_model_replace(fresh, files_path("old")));
    assert_int_equal(model_in("old"), 'b');
    assert_true(files_there("old/extra.safetensors.txt"));
    assert_true(files_there("old/notes/one"));
    assert_false(files_there("new"));
}

static void refuses_what_it_did_not_write(void **state)
{
    (void)state;
    files_clear();
    files_text("old/config.json", "{}");
    must_fail(pesc_model_check_replace(files_path("old"), NULL, 0), PESC_USAGE,
              "was not written by pesc");
    write_model("made", "a");
    must(pesc_model_check_replace(files_path("made"), NULL, 0));
    files_text("made/pytorch_model.bin", "x");
    must_fail(pesc_model_check_replace(files_path("made"), NULL, 0), PESC_USAGE,
              "holds pytorch_model.bin");
    files_clear();
    write_model("made", "a");
    files_text("made/.pesc-files.json",
               "{\"format\": \"pesc-model\", \"version\": 1, \"files\": [\"../x\"]}");
    must_fail(pesc_model_check_replace(files_path("made"), NULL, 0), PESC_FORMAT,
              "is not a list of the files of a model");
    char inside[512];
    files_clear();
    write_model("made", "a");
    write_model("made/sub", "b");
    snprintf(inside, sizeof inside, "%s", files_path("made/sub"));
    const char *inputs[] = { NULL, inside };
    must_fail(pesc_model_check_replace(files_path("made"), inputs, 2), PESC_USAGE, "is read as");
}

/* Every file operation fails once: the old model or the new one is there, complete, and the user's
 * files exist somewhere. */
static void keeps_one_of_the_two_whatever_fails(void **state)
{
    (void)state;
    bool fired = true;
    for (int n = 1; fired && n < 200; n++) {
        char spec[32], fresh[512];
        files_clear();
        write_model("old", "a");
        files_text("old/mine", "mine");
        files_text("old/notes/one", "mine");
        write_model("new", "b");
        snprintf(fresh, sizeof fresh, "%s", files_path("new"));
        snprintf(spec, sizeof spec, "any:%d:EIO", n);
        assert_true(fault_arm(spec));
        pesc_status s = pesc_model_replace(fresh, files_path("old"));
        fired = fault_fired();
        fault_arm(NULL);
        char which = model_in("old");
        assert_true(which == 'b' || (which == 'a' && s != PESC_OK));
        assert_true(files_there("old/mine"));
        assert_true(files_there("old/notes/one") || files_there("old.pesc-old/notes/one"));
        must(pesc_model_check_replace(files_path("old"), NULL, 0)); /* ends it, or undoes it */
        assert_true(files_there("old/notes/one"));
        assert_false(files_there("old.pesc-old"));
        assert_int_equal(model_in("old"), which);
    }
    assert_false(fired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaces_what_is_listed_and_keeps_the_rest),
        cmocka_unit_test(refuses_what_it_did_not_write),
        cmocka_unit_test(keeps_one_of_the_two_whatever_fails),
    };
    return cmocka_run_group_tests_name("replace", tests, NULL, NULL);
}
