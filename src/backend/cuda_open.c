/* cuda_open: finds pesc-cuda.so, loads it and calls its entry (cuda/host.h). It is loaded only when
 * a cuda device is asked for, and never unloaded: the CUDA runtime does not support that. */
#include "backend/backend.h"
#include "backend/cuda/host.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "pesc-cuda.so"

/* Where it is looked for, relative to the directory of the object that holds this code: a build
 * directory, the installed shared library, the installed command. */
static const char *const places[] = { "", "pesc/", "../lib/pesc/" };

/* The directory of the object that holds this code, with its slash: the shared libpesc, or the
 * program libpesc.a is linked into. "" when it is unknown. The dynamic loader does not know the
 * program's own file (its name is ""); the kernel does. */
static void own_directory(char dir[PATH_MAX])
{
    Dl_info info;
    struct link_map *object = NULL;
    bool known = dladdr1(places, &info, (void **)&object, RTLD_DL_LINKMAP) != 0 && object;
    const char *file = known && *object->l_name ? object->l_name : "/proc/self/exe";
    *dir = '\0';
    if (!realpath(file, dir))
        *dir = '\0';
    char *slash = strrchr(dir, '/');
    *(slash ? slash + 1 : dir) = '\0';
}

/* The path of pesc-cuda.so; "" when it is in none of the places. */
static void find_library(const char *dir, char *path, size_t size)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, size, "%s%s" LIBRARY, dir, places[i]);
        if (length > 0 && (size_t)length < size && access(path, R_OK) == 0)
            return;
    }
    *path = '\0';
}

pesc_status cuda_open(device **out, int index)
{
    static const cuda_host host = { PESC_VERSION, sizeof(ops), fail };
    char dir[PATH_MAX], path[PATH_MAX + 64];
    *out = NULL;
    own_directory(dir);
    find_library(dir, path, sizeof path);
    /* without a path the loader searches LD_LIBRARY_PATH and its own directories */
    void *library = dlopen(*path ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library && *path)
        return fail(PESC_DEVICE, "device \"cuda:%d\": %s cannot be loaded: %s", index, path,
                    dlerror());
    if (!library)
        return fail(PESC_DEVICE,
                    "device \"cuda:%d\": this build has no CUDA part: found no " LIBRARY
                    " beside this program or library, in pesc or ../lib/pesc from there, or on the "
                    "loader's path; build pesc where nvcc is installed, or use cpu",
                    index);
    cuda_entry entry;
    *(void **)&entry = dlsym(library, CUDA_ENTRY);
    if (!entry)
        return fail(PESC_DEVICE, "device \"cuda:%d\": %s has no " CUDA_ENTRY ": it is another file",
                    index, *path ? path : LIBRARY);
    return entry(out, index, &host);
}
