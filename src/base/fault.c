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

static const char *const op_names[FAULT_OPS] = { "open",     "read",     "write",  "fsync",
                                                 "rename",   "mkdir",    "unlink", "mmap",
                                                 "close",    "truncate", "link",   "reserve",
                                                 "exchange", "any" };
static const struct {
    const char *name;
    int what;
} whats[] = {
    { "short", FAULT_SHORT }, { "kill", FAULT_KILL }, { "ENOSPC", ENOSPC }, { "EIO", EIO },
    { "EDQUOT", EDQUOT },     { "EROFS", EROFS },     { "EACCES", EACCES }, { "ENOMEM", ENOMEM },
    { "EMFILE", EMFILE },     { "EINTR", EINTR },     { "EINVAL", EINVAL },
};

enum { RULES = 4 };

static struct {
    _Atomic long long left; /* calls until it fires; 0: disarmed */
    fault_op op;
    int what;
} rules[RULES];
static _Atomic bool fired;

/* One rule, "op:N:what"; the text is cut up. */
static bool arm(int rule, char *spec)
{
    char *count = strchr(spec, ':'), *what = count ? strchr(count + 1, ':') : NULL;
    if (!what)
        return false;
    *count++ = *what++ = '\0';
    long long n;
    if (!str_to_i64(count, 1, 1LL << 40, &n))
        return false;
    for (int op = 0; op < FAULT_OPS; op++)
        for (size_t w = 0; w < sizeof whats / sizeof *whats; w++)
            if (strcmp(spec, op_names[op]) == 0 && strcmp(what, whats[w].name) == 0) {
                rules[rule].op = (fault_op)op;
                rules[rule].what = whats[w].what;
                rules[rule].left = n;
                return true;
            }
    return false;
}

bool fault_arm(const char *spec)
{
    char copy[128], *rest = NULL;
    for (int i = 0; i < RULES; i++)
        rules[i].left = 0;
    fired = false;
    if (!spec || !*spec)
        return true;
    if (strlen(spec) >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%s", spec);
    int n = 0;
    for (char *one = strtok_r(copy, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (n == RULES || !arm(n++, one))
            return false;
    return n > 0;
}

static void arm_from_environment(void)
{
    fault_arm(getenv("PESC_FAULT"));
}

bool fault_fired(void)
{
    return fired;
}

static int fire(int what, size_t *n)
{
    fired = true;
    if (what == FAULT_KILL)
        raise(SIGKILL);
    if (what == FAULT_SHORT) {
        if (n && *n > 1)
            *n /= 2;
        return 0;
    }
    return what;
}

int fault_check(fault_op op, size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, arm_from_environment);
    for (int i = 0; i < RULES; i++) {
        if (atomic_load_explicit(&rules[i].left, memory_order_relaxed) == 0 ||
            (rules[i].op != op && rules[i].op != FAULT_ANY))
            continue;
        if (atomic_fetch_sub(&rules[i].left, 1) == 1)
            return fire(rules[i].what, n);
    }
    return 0;
}
