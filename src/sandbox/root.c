/* The file system of mode A: a read-only tmpfs that holds what Python needs, and a small /tmp.
 *
 * The caller is alone in a mount namespace that its own user namespace owns. /proc, /sys, /etc and
 * /home do not exist here. A tree that the host mounted with flags such as nodev keeps them: cloned
 * mounts may only be restricted further. */
#include "sandbox/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <sys/mount.h> and <linux/mount.h> cannot both be included everywhere. */
enum {
    MOUNT_RDONLY = 1,
    MOUNT_NOSUID = 2,
    MOUNT_NODEV = 4,
    MOUNT_NOEXEC = 8,
    MOUNT_REMOUNT = 32,
    MOUNT_BIND = 4096,
    MOUNT_REC = 16384,
    MOUNT_PRIVATE = 1 << 18,
    UNMOUNT_DETACH = 2
};

typedef struct tree {
    const char *path; /* absolute; without its first character relative to the new root */
    uint64_t attr;    /* added to those it has */
} tree;

static const tree trees[] = {
    { "/usr", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV },
    { "/bin", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV },
    { "/lib", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV },
    { "/lib64", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV },
    { "/dev/null", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC },
    { "/dev/zero", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC },
    { "/dev/urandom", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC },
};
enum { N_TREES = sizeof trees / sizeof *trees };

static int mount_new(const char *type, const char *at, unsigned long flags, const char *options)
{
    return (int)syscall(SYS_mount, type, at, type, flags, options);
}

/* Makes the place for a mount: a directory, or an empty file. */
static int make_place(const char *path, mode_t like)
{
    if (S_ISDIR(like))
        return mkdir(path, 0755);
    int fd = box_open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : box_close(fd);
}

static int copy_link(const char *from, const char *to)
{
    char target[256];
    ssize_t n = readlink(from, target, sizeof target - 1);
    if (n < 0)
        return -1;
    target[n] = '\0';
    return symlink(target, to);
}

static int clone_tree(const tree *t, const char *to)
{
    struct stat st;
    if (lstat(t->path, &st))
        return errno == ENOENT ? 0 : -1;
    if (S_ISLNK(st.st_mode))
        return copy_link(t->path, to);
    if (make_place(to, st.st_mode))
        return -1;
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, t->path,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0)
        return -1;
    struct mount_attr attr = { .attr_set = t->attr };
    int bad =
        syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) ||
        syscall(SYS_move_mount, fd, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH);
    box_close(fd);
    return bad ? -1 : 0;
}

int box_enter_root(box_step *at)
{
    *at = (box_step){ "making the mounts private", NULL };
    if (mount_new(NULL, "/", MOUNT_REC | MOUNT_PRIVATE, NULL))
        return -1;
    *at = (box_step){ "mounting", "a tmpfs" };
    if (mount_new("tmpfs", "/tmp", MOUNT_NOSUID | MOUNT_NODEV, "size=1m,nr_inodes=64,mode=755") ||
        chdir("/tmp") || mkdir("dev", 0755) || mkdir("tmp", 0700))
        return -1;
    for (int i = 0; i < N_TREES; i++) {
        *at = (box_step){ "mounting", trees[i].path };
        if (clone_tree(&trees[i], trees[i].path + 1))
            return -1;
    }
    *at = (box_step){ "mounting", "/tmp" };
    if (mount_new("tmpfs", "tmp", MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC,
                  "size=64m,nr_inodes=4096,mode=700"))
        return -1;
    *at = (box_step){ "changing the root directory", NULL };
    if (syscall(SYS_pivot_root, ".", ".") || syscall(SYS_umount2, ".", UNMOUNT_DETACH) ||
        chdir("/"))
        return -1;
    return mount_new(NULL, "/",
                     MOUNT_REMOUNT | MOUNT_BIND | MOUNT_RDONLY | MOUNT_NOSUID | MOUNT_NODEV, NULL);
}
