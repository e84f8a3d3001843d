/* Build the root file system of a sandbox, as PID 1 in fresh namespaces.
 * Every path of the image is looked up after the pivot, so that its links can only lead inside. */
#include "proctor.h"
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 4
#endif
#ifndef MOUNT_ATTR_RDONLY
struct mount_attr { uint64_t attr_set, attr_clr, propagation, userns_fd; };
#define MOUNT_ATTR_RDONLY 1
#define MOUNT_ATTR_NOSUID 2
#define MOUNT_ATTR_NODEV 4
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
#define DEVICES (sizeof devices / sizeof *devices)

static int open_source(const char *path)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        fail("cannot open %s", path);
    return fd;
}

/* Put a source under a short name of the staging folder: a detached mount, or a link to a descriptor. */
static void place(int fd, int tree, const char *name)
{
    char link[32];
    if (tree) {
        if (mkdir(name, 0755) < 0 ||
            syscall(SYS_move_mount, fd, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            fail("cannot attach %s", name);
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (symlink(link, name) < 0)
        fail("cannot place %s", name);
}

static void mount_overlay(struct request *request)
{
    char options[4000] = "userxattr,upperdir=s/upper,workdir=s/work,lowerdir=";
    size_t used = strlen(options);
    for (int each = 0; each < request->layer_count; each++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", each);
        place(request->layer_fds[each], request->trees, name);
        used += snprintf(options + used, sizeof options - used, "%s%s", each ? ":" : "", name);
    }
    if ((mkdir("s/upper", 0755) < 0 && errno != EEXIST) || (mkdir("s/work", 0755) < 0 && errno != EEXIST))
        fail("cannot make the upper folder");
    /* volatile: the upper is thrown away, so nobody waits for its disk */
    snprintf(options + used, sizeof options - used, ",volatile");
    if (mount("overlay", "r", "overlay", MS_NODEV, options) == 0)
        return;
    options[used] = 0;
    if (mount("overlay", "r", "overlay", MS_NODEV, options) < 0)
        fail("cannot mount the overlay of %d layers (is the state folder itself on an overlay?)",
             request->layer_count);
}

static void bind_fd(int fd, int tree, const char *target)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int result = tree ? (int)syscall(SYS_move_mount, fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)
                      : mount(link, target, NULL, MS_BIND | MS_REC, NULL);
    if (result < 0)
        fail("cannot bind %s", target);
}

static void restrict_mount(const char *target, int writable)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (!writable)
        attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &attributes, sizeof attributes) < 0)
        fail("cannot restrict the mount %s", target);
}

static void make_devices(const int *device_fds, uint64_t shm_bytes)
{
    char options[64], path[32];
    mkdir("/dev", 0755);
    if (mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=256") < 0)
        fail("cannot mount /dev");
    for (size_t each = 0; each < DEVICES; each++) {
        snprintf(path, sizeof path, "/dev/%s", devices[each]);
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        bind_fd(device_fds[each], 0, path);
        close(device_fds[each]);
    }
    mkdir("/dev/pts", 0755);
    mkdir("/dev/shm", 01777);
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620,gid=5") < 0)
        fail("cannot mount /dev/pts");
    snprintf(options, sizeof options, "mode=1777,size=%llu,nr_inodes=16k", (unsigned long long)shm_bytes);
    if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        fail("cannot mount /dev/shm");
    if (symlink("pts/ptmx", "/dev/ptmx") < 0 || symlink("/proc/self/fd", "/dev/fd") < 0 ||
        symlink("/proc/self/fd/0", "/dev/stdin") < 0 || symlink("/proc/self/fd/1", "/dev/stdout") < 0 ||
        symlink("/proc/self/fd/2", "/dev/stderr") < 0)
        fail("cannot fill /dev");
}

static void bind_sources(struct request *request)
{
    for (int each = 0; each < request->bind_count; each++) {
        struct stat status;
        char *target = strdup(request->bind_targets[each]);
        if (fstat(request->bind_fds[each], &status) < 0 || !target)
            fail("cannot look at %s", request->binds[each]);
        if (S_ISDIR(status.st_mode)) {
            if (make_folders(target, 0755) < 0)
                fail("cannot make %s", target);
        } else {
            char *slash = strrchr(target, '/');
            *slash = 0;
            if (*target && make_folders(target, 0755) < 0)
                fail("cannot make %s", target);
            *slash = '/';
            close(open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        }
        bind_fd(request->bind_fds[each], request->trees, target);
        restrict_mount(target, request->bind_writable[each]);
        close(request->bind_fds[each]);
        free(target);
    }
}

void build_root(struct request *request)
{
    int device_fds[DEVICES];
    char path[32];
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fail("cannot leave mount propagation");
    for (size_t each = 0; each < DEVICES; each++) {
        snprintf(path, sizeof path, "/dev/%s", devices[each]);
        device_fds[each] = open_source(path);
    }
    if (!request->trees) {
        request->state_fd = open_source(request->state);
        for (int each = 0; each < request->layer_count; each++)
            request->layer_fds[each] = open_source(request->layers[each]);
        for (int each = 0; each < request->bind_count; each++)
            request->bind_fds[each] = open_source(request->binds[each]);
    }
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0 || chdir("/tmp") < 0)
        fail("cannot stage in /tmp");
    if (mkdir("r", 0755) < 0)
        fail("cannot stage");
    place(request->state_fd, request->trees, "s");
    mount_overlay(request);
    if (chdir("r") < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        fail("cannot enter the new root");
    mkdir("/proc", 0755);
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        fail("cannot mount /proc (a container with a masked /proc forbids it)");
    make_devices(device_fds, request->shm_bytes);
    bind_sources(request);
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        fail("cannot leave the old root");
    close(request->state_fd);
    for (int each = 0; each < request->layer_count; each++)
        close(request->layer_fds[each]);
    if (request->workdir && *request->workdir == '/') {
        char *workdir = strdup(request->workdir);
        struct stat status;
        if (workdir && stat(workdir, &status) < 0 && make_folders(workdir, 0755) < 0)
            fail("cannot make %s", workdir);
        free(workdir);
    }
}
