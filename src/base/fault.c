#include "base/fault.h"

#include "base/str.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAULT_SHORT = -1, FAULT_KILL = -2 };

static const char *const op_names[FAULT_OPS] = { "open",  "read",    "write", "fsync", "rename",
                                                 "mkdir", "unlink",  "mmap",  "close", "truncate",
                                                 "link",  "reserve", "any" };
static const struct {
    const char *name;
    int what;
} whats[] = {
    { "short", FAULT_SHORT }, { "kill", FAULT_KILL }, { "ENOSPC", ENOSPC }, { "EIO", EIO },
    { "EDQUOT", EDQUOT },     { "EROFS", EROFS },     { "EACCES", EACCES }, { "ENOMEM", ENOMEM },
    { "EMFILE", EMFILE },     { "EINTR", EINTR },
};

static struct {
    _Atomic long long left; /* calls until it fires; 0: disarmed */
    fault_op op;
    int what;
    _Atomic bool fired;
} fault;

bool fault_arm(const char *spec)
{
    fault.left = 0;
    fault.fired = false;
    if (!spec || !*spec)
        return true;
    char copy[64];
    if (strlen(spec) >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%s", spec);
    char *count = strchr(copy, ':'), *what = count ? strchr(count + 1, ':') : NULL;
    if (!what)
        return false;
    *count++ = *what++ = '\0';
    long long n;
    if (!str_to_i64(count, 1, 1LL << 40, &n))
        return false;
    for (int op = 0; op < FAULT_OPS; op++)
        for (size_t w = 0; w < sizeof whats / sizeof *whats; w++)
            if (strcmp(copy, op_names[op]) == 0 && strcmp(what, whats[w].name) == 0) {
                fault.op = (fault_op)op;
                fault.what = whats[w].what;
                fault.left = n;
                return true;
            }
    return false;
}

static void arm_from_environment(void)
{
    fault_arm(getenv("PESC_FAULT"));
}

bool fault_fired(void)
{
    return fault.fired;
}

int fault_check(fault_op op, size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, arm_from_environment);
    if (atomic_load_explicit(&fault.left, memory_order_relaxed) == 0 ||
        (fault.op != op && fault.op != FAULT_ANY))
        return 0;
    if (atomic_fetch_sub(&fault.left, 1) != 1)
        return 0;
    fault.fired = true;
    if (fault.what == FAULT_KILL)
        raise(SIGKILL);
    if (fault.what == FAULT_SHORT) {
        if (n && *n > 1)
            *n /= 2;
        return 0;
    }
    return fault.what;
}
