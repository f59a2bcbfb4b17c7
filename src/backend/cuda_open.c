/* cuda_open: finds pesc-cuda.so and hands it over to its own open. Loaded only when a cuda device
 * is asked for, and kept: a GPU's runtime cannot be unloaded. */
#include "backend/backend.h"
#include "backend/cuda/host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "pesc-cuda.so"

enum { PATH_BYTES = 4096 };

/* Beside the program, then where `make install` puts it; "" when neither is there: then the
 * loader's own path is asked. */
static void find(char *path, size_t size)
{
    static const char *const places[] = { "", "../lib/pesc/" };
    char dir[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(dir, '/');
    *(slash ? slash + 1 : dir) = '\0';
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
    char path[2 * PATH_BYTES];
    *out = NULL;
    find(path, sizeof path);
    void *library = dlopen(*path ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library && *path)
        return fail(PESC_DEVICE, "device \"cuda:%d\": %s cannot be loaded: %s", index, path,
                    dlerror());
    if (!library)
        return fail(PESC_DEVICE,
                    "device \"cuda:%d\": this build has no CUDA part: found no " LIBRARY
                    " beside the program, in ../lib/pesc or on the loader's path; build pesc where "
                    "nvcc is installed, or use cpu",
                    index);
    cuda_entry entry;
    *(void **)&entry = dlsym(library, CUDA_ENTRY);
    if (!entry)
        return fail(PESC_DEVICE, "device \"cuda:%d\": %s has no " CUDA_ENTRY ": it is another file",
                    index, *path ? path : LIBRARY);
    return entry(out, index, &host);
}
