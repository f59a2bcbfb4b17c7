/* The file rules of mode B, and a second wall in mode A where the kernel has Landlock.
 *
 * A process that is restricted by a ruleset may use only the paths that a rule names. Landlock does
 * not cover stat(), so the existence of other paths can be seen; the system calls that would change
 * what it does not cover (chmod, utime, ...) are missing from the table of seccomp.c. */
#include "sandbox/box.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's interface, here because the header of the C library may know an older version. */
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, RULE_PATH_BENEATH = 1 };

typedef struct ruleset {
    uint64_t fs, net, scoped; /* the second since ABI 4, the third since ABI 6 */
} ruleset;

typedef struct beneath {
    uint64_t allowed;
    int32_t parent;
} __attribute__((packed)) beneath;

enum {
    CAN_EXECUTE = 1 << 0,
    CAN_WRITE = 1 << 1,
    CAN_READ = 1 << 2,
    CAN_LIST = 1 << 3,
    CAN_REMOVE = 1 << 5,
    CAN_CREATE = 1 << 8, /* regular files; no directories, links or devices */
    CAN_TRUNCATE = 1 << 14
};

/* How many access rights each ABI knows; all of them are refused unless a rule allows them. */
static const int rights[] = { 0, 13, 14, 15, 15, 16 };
enum { LAST_ABI = sizeof rights / sizeof *rights - 1 };

typedef struct path_rule {
    const char *path;
    uint64_t allowed;
} path_rule;

/* A path that does not exist needs no rule. Only the interpreter and the loader can be executed. */
static const path_rule path_rules[] = {
    { box_python, CAN_READ | CAN_EXECUTE },
    { "/lib64/ld-linux-x86-64.so.2", CAN_READ | CAN_EXECUTE },
    { "/lib/ld-linux-aarch64.so.1", CAN_READ | CAN_EXECUTE },
    { "/usr/lib", CAN_READ | CAN_LIST },
    { "/usr/lib64", CAN_READ | CAN_LIST },
    { "/usr/share/zoneinfo", CAN_READ | CAN_LIST },
    { "/lib", CAN_READ | CAN_LIST },
    { "/lib64", CAN_READ | CAN_LIST },
    { "/etc/ld.so.cache", CAN_READ },
    { "/dev/null", CAN_READ | CAN_WRITE },
    { "/dev/zero", CAN_READ },
    { "/dev/urandom", CAN_READ },
};
enum { N_RULES = sizeof path_rules / sizeof *path_rules };

int box_landlock_abi(void)
{
    long abi = syscall(CREATE_RULESET, NULL, 0, 1);
    return abi > 0 ? (int)abi : 0;
}

static int add_rule(int set, path_rule r)
{
    int fd = box_open(r.path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    beneath b = { .allowed = r.allowed, .parent = fd };
    int bad = syscall(ADD_RULE, set, RULE_PATH_BENEATH, &b, 0) != 0;
    box_close(fd);
    return bad ? -1 : 0;
}

int box_landlock(int abi, const char *tmp, box_step *at)
{
    *at = (box_step){ "creating a Landlock ruleset", NULL };
    uint64_t all = (1u << rights[abi < LAST_ABI ? abi : LAST_ABI]) - 1;
    ruleset attr = { .fs = all, .net = 3, .scoped = 3 };
    size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
    int set = (int)syscall(CREATE_RULESET, &attr, size, 0);
    if (set < 0)
        return -1;
    for (int i = 0; i < N_RULES; i++) {
        *at = (box_step){ "adding the Landlock rule for", path_rules[i].path };
        if (add_rule(set, path_rules[i]))
            return -1;
    }
    *at = (box_step){ "adding the Landlock rule for", tmp };
    uint64_t files = CAN_READ | CAN_WRITE | CAN_LIST | CAN_REMOVE | CAN_CREATE | CAN_TRUNCATE;
    if (add_rule(set, (path_rule){ tmp, files & all }))
        return -1;
    *at = (box_step){ "applying the Landlock rules", NULL };
    int bad = syscall(RESTRICT_SELF, set, 0) != 0;
    box_close(set);
    return bad ? -1 : 0;
}
