#include "support/files.h"

#include "support/check.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[PATH_MAX - 512];

static void stop(const char *path)
{
    perror(path);
    abort();
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    return where->level > 0 ? remove(path) : 0;
}

void files_clear(void)
{
    if (top[0])
        nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_all(void)
{
    files_clear();
    rmdir(top);
}

const char *files_path(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    if (!top[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(top, sizeof top, "%s/pesc-test-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(top))
            stop(top);
        atexit(remove_all);
    }
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s%s%s", top, *name ? "/" : "", name);
    return path;
}

static void make_parents(char *path)
{
    for (char *p = strchr(path + strlen(top) + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(path, 0777);
        *p = '/';
    }
}

const char *files_put(const char *name, const void *bytes, size_t n)
{
    char *path = (char *)files_path(name);
    make_parents(path);
    unlink(path); /* a new file is far cheaper than an old one rewritten */
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        stop(path);
    return path;
}

const char *files_text(const char *name, const char *text)
{
    return files_put(name, text, strlen(text));
}

char *files_get(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0)
        stop(path);
    char *bytes = malloc((size_t)st.st_size + 1);
    *n = fread(bytes, 1, (size_t)st.st_size, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

void files_must_be(const char *name, const char *text)
{
    size_t n;
    char *found = files_get(files_path(name), &n);
    assert_string_equal(found, text);
    assert_int_equal(n, strlen(text));
    free(found);
}

bool files_there(const char *name)
{
    return access(files_path(name), F_OK) == 0;
}
