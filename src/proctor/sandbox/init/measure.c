/* How much disk a sandbox takes: a tree of any depth, and the files without a name that its processes hold open.
 * What is counted is hostile and changes meanwhile: nothing is followed, nothing recurses, and time is limited. */
#include "proctor.h"
#include <dirent.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>

#define HELD 64 /* folders open at a time, however deep the tree */
#define INODE_BYTES 4096 /* as in storage.py: a million empty files fill a disk too */
#define OVERLAY_MAGIC 0x794c7630
#define TRIES 3
#define KCMP_FILES 2

struct level {
    DIR *listing; /* NULL: closed, to be opened again at `position` */
    long position;
    dev_t device;
    ino_t inode;
};

struct held_file {
    dev_t device;
    ino_t inode;
    uint64_t bytes;
};

static struct held_file *held;
static size_t held_count, held_room;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Whether no more has to be counted: it is too much already, or has taken too long. */
static int is_over(struct count *count)
{
    if (count->most && (count->bytes > count->most || count->inodes * INODE_BYTES > count->most))
        return 1;
    if (!count->late && count->deadline_ms && ++count->steps % 256 == 0)
        count->late = now_ms() > count->deadline_ms;
    return count->late;
}

/* The folders between the root and where the walk is; the upper ones are closed while it is far below. */
static int enter(struct level **levels, size_t *depth, size_t *room, int fd)
{
    struct stat status;
    DIR *listing = fd >= 0 && fstat(fd, &status) == 0 ? fdopendir(fd) : NULL;
    struct level *grown = *levels;
    if (listing && *depth == *room && (grown = realloc(grown, (2 * *room + 16) * sizeof *grown))) {
        *levels = grown;
        *room = 2 * *room + 16;
    }
    if (!listing || !grown) {
        if (listing)
            closedir(listing);
        else if (fd >= 0)
            close(fd);
        return -1;
    }
    if (*depth >= HELD) {
        struct level *upper = &(*levels)[*depth - HELD];
        upper->position = telldir(upper->listing);
        closedir(upper->listing);
        upper->listing = NULL;
    }
    (*levels)[(*depth)++] = (struct level){listing, 0, status.st_dev, status.st_ino};
    return 0;
}

/* Back to the folder above; -1 when the one below was moved elsewhere meanwhile, so that there is no way back. */
static int leave(struct level *levels, size_t *depth)
{
    struct stat status;
    DIR *below = levels[--*depth].listing;
    int result = 0;
    if (*depth && !levels[*depth - 1].listing) {
        struct level *above = &levels[*depth - 1];
        int fd = openat(dirfd(below), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == above->device && status.st_ino == above->inode &&
            (above->listing = fdopendir(fd)))
            seekdir(above->listing, above->position);
        else {
            close(fd);
            result = -1;
        }
    }
    closedir(below);
    return result;
}

/* Disk that a tree takes; -1: it was changed under way so that not all could be counted. Uses up the descriptor. */
int measure_tree(int folder, struct count *count)
{
    struct level *levels = NULL;
    size_t depth = 0, room = 0;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), torn;
    close(folder);
    for (torn = enter(&levels, &depth, &room, fd); depth;) {
        DIR *listing = levels[depth - 1].listing;
        struct dirent *each = listing && !is_over(count) ? readdir(listing) : NULL;
        struct stat status;
        if (!each) {
            if (!listing)
                depth--;
            else
                torn |= leave(levels, &depth);
            continue;
        }
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..") ||
            fstatat(dirfd(listing), each->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        count->bytes += (uint64_t)status.st_blocks * 512 / (S_ISDIR(status.st_mode) ? 1 : status.st_nlink);
        count->inodes++;
        if (S_ISDIR(status.st_mode))
            enter(&levels, &depth, &room,
                  openat(dirfd(listing), each->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    }
    free(levels);
    return torn;
}

static int by_identity(const void *one, const void *other)
{
    const struct held_file *a = one, *b = other;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->inode < b->inode ? -1 : a->inode > b->inode;
}

/* Several descriptors may hold one file. */
static void forget_doubles(void)
{
    size_t kept = 0;
    if (held_count)
        qsort(held, held_count, sizeof *held, by_identity);
    for (size_t each = 0; each < held_count; each++)
        if (!kept || by_identity(&held[kept - 1], &held[each]))
            held[kept++] = held[each];
    held_count = kept;
}

static void hold(const struct stat *status)
{
    if (held_count == held_room) {
        forget_doubles();
        if (held_count * 2 >= held_room) {
            struct held_file *grown = realloc(held, (2 * held_room + 256) * sizeof *held);
            if (!grown)
                return;
            held = grown;
            held_room = 2 * held_room + 256;
        }
    }
    held[held_count++] = (struct held_file){status->st_dev, status->st_ino, (uint64_t)status->st_blocks * 512};
}

/* A folder of links to open files: note those of the root's file system that have no name any more. */
static void look_at_links(int folder, const char *name, struct count *count)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *each; listing && !is_over(count) && (each = readdir(listing));) {
        struct stat status;
        struct statfs system;
        if (each->d_name[0] == '.')
            continue;
        if (fstatat(fd, each->d_name, &status, 0) < 0) {
            if (errno == EPERM) /* map_files is for root of the machine */
                break;
            continue;
        }
        if (!S_ISREG(status.st_mode) || status.st_nlink)
            continue;
        int file = openat(fd, each->d_name, O_PATH | O_CLOEXEC);
        if (file >= 0 && fstatfs(file, &system) == 0 && system.f_type == OVERLAY_MAGIC) /* not memory */
            hold(&status);
        close(file);
    }
    if (listing)
        closedir(listing);
}

static void look_at_process(int proc, const char *pid, struct count *count)
{
    char path[64];
    snprintf(path, sizeof path, "%.20s/task", pid);
    int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *threads = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *each; threads && !is_over(count) && (each = readdir(threads));) {
        if (each->d_name[0] == '.')
            continue;
        /* nearly always all threads share their files */
        if (strcmp(each->d_name, pid) && syscall(SYS_kcmp, atoi(pid), atoi(each->d_name), KCMP_FILES, 0, 0) == 0)
            continue;
        snprintf(path, sizeof path, "%.20s/fd", each->d_name);
        look_at_links(fd, path, count);
    }
    if (threads)
        closedir(threads);
    snprintf(path, sizeof path, "%.20s/map_files", pid);
    look_at_links(proc, path, count);
}

/* Files without a name that are open in the PID namespace of a process. */
static void measure_unlinked(const char *init, struct count *count)
{
    struct stat wanted, status;
    char path[64];
    DIR *proc = opendir("/proc");
    snprintf(path, sizeof path, "%.20s/ns/pid", init);
    if (!proc || fstatat(dirfd(proc), path, &wanted, 0) < 0)
        return;
    for (struct dirent *each; !is_over(count) && (each = readdir(proc));) {
        snprintf(path, sizeof path, "%.20s/ns/pid", each->d_name);
        if (each->d_name[0] >= '1' && each->d_name[0] <= '9' && fstatat(dirfd(proc), path, &status, 0) == 0 &&
            status.st_dev == wanted.st_dev && status.st_ino == wanted.st_ino)
            look_at_process(dirfd(proc), each->d_name, count);
    }
    closedir(proc);
    forget_doubles();
    for (size_t each = 0; each < held_count; each++)
        count->bytes += held[each].bytes;
    count->inodes += held_count;
}

/* The sandbox's own memory file system, where no control group counts it. */
static void measure_shm(const char *init, struct count *count)
{
    struct statfs system;
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/root/dev/shm", init);
    if (statfs(path, &system) == 0)
        count->bytes += (uint64_t)(system.f_blocks - system.f_bfree) * system.f_bsize;
}

static uint64_t total(const struct count *count)
{
    return count->bytes > count->inodes * INODE_BYTES ? count->bytes : count->inodes * INODE_BYTES;
}

/* measure SECONDS MOST-BYTES PID shm|- PATH…: bytes, inodes, and 1 where there may be more, on standard output.
 * Stops at the most bytes (0: never), and counts files without a name unless the PID is 0. */
int run_measure(int argc, char **argv)
{
    struct count found = {0};
    if (argc < 5)
        return 126;
    int64_t deadline_ms = now_ms() + 1000LL * atoi(argv[0]);
    uint64_t most = strtoull(argv[1], NULL, 10);
    int torn = 0;
    for (int attempt = 0; attempt == 0 || (torn && attempt < TRIES); attempt++) {
        struct count count = {.most = most, .deadline_ms = deadline_ms};
        torn = 0;
        for (int each = 4; each < argc; each++) {
            struct stat status;
            int fd = open(argv[each], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (fd < 0 && errno == ENOTDIR && lstat(argv[each], &status) == 0) {
                count.bytes += (uint64_t)status.st_blocks * 512;
                count.inodes++;
            } else if (fd < 0) {
                dprintf(2, "%s: %s\n", argv[each], strerror(errno));
                return 1;
            } else
                torn |= measure_tree(fd, &count);
        }
        if (attempt == 0 || total(&count) > total(&found))
            found = count;
    }
    if (atoi(argv[2]) > 0) {
        found.late = 0;
        found.deadline_ms = now_ms() + 1000LL * atoi(argv[0]); /* a large tree leaves time for these */
        measure_unlinked(argv[2], &found);
        if (!strcmp(argv[3], "shm"))
            measure_shm(argv[2], &found);
    }
    dprintf(1, "%llu %llu %d\n", (unsigned long long)found.bytes, (unsigned long long)found.inodes,
            torn || is_over(&found));
    return 0;
}
