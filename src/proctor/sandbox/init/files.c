/* Files in and out, and trees removed. `receive` and `send` run as the inside's root, within
 * its root file system: a link can lead nowhere else. Nothing here trusts the tree it walks. */
#include "proctor.h"
#include <dirent.h>
#include <limits.h>
#include <sys/time.h>
#include <sys/xattr.h>

struct __attribute__((packed)) entry {
    char kind; /* F file, D folder, L link (in only), X left out (out only), E end */
    uint32_t mode;
    int64_t mtime;
    uint64_t size;
    uint16_t path_size;
};

static char block[1 << 16];
static int stream; /* what `receive_tree` reads from: a file, which others may be reading too */
static off_t place;

static int read_all(void *into, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(stream, (char *)into + done, size - done, place);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return -1;
        done += got > 0 ? got : 0;
        place += got > 0 ? got : 0;
    }
    return 0;
}

int write_all(int fd, const void *from, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t put = write(fd, (const char *)from + done, size - done);
        if (put < 0 && errno != EINTR)
            return -1;
        done += put > 0 ? put : 0;
    }
    return 0;
}

static void receive_file(const char *path, const struct entry *entry)
{
    if (unlink(path) < 0 && errno == EISDIR)
        remove_tree(AT_FDCWD, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("cannot write %s", path);
    for (uint64_t left = entry->size; left;) {
        size_t piece = left < sizeof block ? left : sizeof block;
        if (read_all(block, piece) < 0 || write_all(fd, block, piece) < 0)
            fail("cannot write %s", path);
        left -= piece;
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = entry->mtime}};
    fchmod(fd, entry->mode & 0777);
    futimens(fd, times);
    close(fd);
}

/* Unpack a stream of entries below a folder; an empty path is the target itself. */
void receive_tree(int from, const char *target)
{
    struct entry entry;
    static char path[2 * PATH_MAX];
    for (stream = from, place = 0;;) {
        if (read_all(&entry, sizeof entry) < 0 || entry.path_size >= PATH_MAX)
            fail("the stream ended early");
        if (entry.kind == 'E')
            return;
        size_t used = snprintf(path, PATH_MAX, "%s", target);
        if (entry.path_size)
            path[used++] = '/';
        if (read_all(path + used, entry.path_size) < 0)
            fail("the stream ended early");
        path[used + entry.path_size] = 0;
        char *slash = strrchr(path, '/');
        if (entry.kind != 'D' && slash > path) {
            *slash = 0;
            if (access(path, F_OK) < 0 && make_folders(path, 0755) < 0)
                fail("cannot make %s", path);
            *slash = '/';
        }
        if (entry.kind == 'D') {
            int given = entry.path_size == 0 && access(path, F_OK) == 0; /* /tmp stays as open as it was */
            if (make_folders(path, 0755) < 0)
                fail("cannot make %s", path);
            if (!given)
                chmod(path, entry.mode & 0777);
        } else if (entry.kind == 'L') {
            if (entry.size >= sizeof block || read_all(block, entry.size) < 0)
                fail("the stream ended early");
            block[entry.size] = 0;
            unlink(path);
            if (symlink(block, path) < 0)
                fail("cannot link %s", path);
        } else
            receive_file(path, &entry);
    }
}

static void send_header(char kind, const struct stat *status, uint64_t size, const char *path)
{
    struct entry entry = {kind, status ? status->st_mode & 07777 : 0, status ? status->st_mtime : 0, size,
                          (uint16_t)strlen(path)};
    if (write_all(1, &entry, sizeof entry) < 0 || write_all(1, path, entry.path_size) < 0)
        _exit(0);
}

static void send_file(int fd, const struct stat *status, const char *path)
{
    send_header('F', status, status->st_size, path);
    for (uint64_t left = status->st_size; left;) {
        size_t piece = left < sizeof block ? left : sizeof block;
        ssize_t got = read(fd, block, piece);
        if (got <= 0) { /* it shrank: the size was promised */
            memset(block, 0, piece);
            got = piece;
        }
        if (write_all(1, block, got) < 0)
            _exit(0);
        left -= got;
    }
}

/* Send what is at folder/name under the given path; bytes: what may still be sent. */
static void send_tree(int folder, const char *name, char *path, size_t used, uint64_t *bytes, int depth)
{
    struct stat status;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) ||
        depth > 128 || (S_ISREG(status.st_mode) && (uint64_t)status.st_size > *bytes)) {
        if (depth == 0 && fd < 0 && errno == ENOENT)
            fail("missing");
        send_header('X', fd >= 0 ? &status : NULL, 0, path);
        close(fd);
        return;
    }
    if (S_ISREG(status.st_mode)) {
        *bytes -= status.st_size;
        send_file(fd, &status, path);
        close(fd);
        return;
    }
    send_header('D', &status, 0, path);
    DIR *listing = fdopendir(fd);
    for (struct dirent *each; listing && (each = readdir(listing));) {
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, ".."))
            continue;
        size_t length = strlen(each->d_name), start = used ? used + 1 : 0;
        if (start + length >= PATH_MAX)
            continue;
        if (used)
            path[used] = '/';
        memcpy(path + start, each->d_name, length + 1);
        send_tree(dirfd(listing), each->d_name, path, start + length, bytes, depth + 1);
        path[used] = 0;
    }
    if (listing)
        closedir(listing);
}

static void send_out(const char *source, const char *most)
{
    static char path[PATH_MAX + 8];
    uint64_t bytes = strtoull(most, NULL, 10);
    send_tree(AT_FDCWD, source, path, 0, &bytes, 0);
    send_header('E', NULL, 0, "");
}

/* Logs may be written by whichever account an agent or the tests run as. */
static mode_t mode_of(const char *path)
{
    return strncmp(path, "/logs/", 6) ? 0755 : 0777;
}

/* As `make_fresh` would leave it: to take a folder of a lower layer away and make it again is dear. */
static int is_fresh(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), entries = 0;
    if (fd < 0 || fstat(fd, &status) < 0 || status.st_uid || status.st_gid ||
        (status.st_mode & 07777) != mode_of(path) || flistxattr(fd, NULL, 0) > 0) {
        close(fd);
        return 0;
    }
    DIR *listing = fdopendir(fd);
    while (listing && entries < 3 && readdir(listing))
        entries++;
    if (listing)
        closedir(listing);
    return listing && entries == 2;
}

/* Whatever is at each path goes; an empty folder of the inside's root stands there instead. */
void make_fresh(int count, char **paths)
{
    for (int each = 0; each < count; each++) {
        char *path = paths[each];
        for (char *slash = path + 1; *slash; slash++) {
            struct stat status;
            if (*slash != '/')
                continue;
            *slash = 0; /* a link among the parents could lead to a folder that somebody prepared */
            if (lstat(path, &status) == 0 && !S_ISDIR(status.st_mode) && unlink(path) < 0)
                fail("cannot replace %s", path);
            if (mkdir(path, 0755) < 0 && errno != EEXIST)
                fail("cannot make %s", path);
            *slash = '/';
        }
        if (is_fresh(path))
            continue;
        remove_tree(AT_FDCWD, path);
        if (mkdir(path, 0755) < 0 || chmod(path, mode_of(path)) < 0)
            fail("cannot make %s", path);
    }
}

/* receive TARGET from standard input; send SOURCE BYTES to standard output; fresh PATH… */
int run_builtin(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[0], "receive"))
        receive_tree(0, argv[1]);
    else if (argc == 3 && !strcmp(argv[0], "send"))
        send_out(argv[1], argv[2]);
    else if (argc >= 2 && !strcmp(argv[0], "fresh"))
        make_fresh(argc - 1, argv + 1);
    else
        return 126;
    return 0;
}

static unsigned long steps; /* names that went, since this process began */

static int went(int result)
{
    steps += result == 0;
    return result;
}

/* Remove a tree however deep: what lies below 64 levels is first moved up to the top. */
static int remove_below(int top, int folder, const char *name, int depth)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP) && went(unlinkat(folder, name, 0)) == 0)
        return 0;
    if (fd < 0 && errno == EACCES && fchmodat(folder, name, 0700, 0) == 0)
        fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) /* somebody else's: only an empty one can go */
        return went(unlinkat(folder, name, AT_REMOVEDIR));
    if (fd < 0)
        return 0;
    DIR *listing = fdopendir(fd);
    for (struct dirent *each; listing && (each = readdir(listing));) {
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, ".."))
            continue;
        if (each->d_type != DT_DIR && went(unlinkat(fd, each->d_name, 0)) == 0)
            continue;
        if (depth < 64)
            remove_below(top < 0 ? fd : top, fd, each->d_name, depth + 1);
        else {
            char fresh_name[32];
            snprintf(fresh_name, sizeof fresh_name, ".proctor-%lu", steps);
            went(renameat(fd, each->d_name, top, fresh_name));
        }
    }
    if (listing)
        closedir(listing);
    return went(unlinkat(folder, name, AT_REMOVEDIR));
}

int remove_tree(int folder, const char *name)
{
    if (!*name || !strcmp(name, "..") || !strcmp(name, "."))
        return -1;
    for (unsigned long before = steps - 1; steps != before;) {
        before = steps;
        if (remove_below(-1, folder, name, 0) == 0)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return -1;
    }
    return -1;
}
