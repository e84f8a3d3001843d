/* Write a tree as a tar, in the order of its names: what changed in a sandbox. The tree is hostile, so nothing
 * is followed and everything is counted; what this cannot do (holes, endless paths) is left to a real tar. */
#include "proctor.h"
#include <dirent.h>
#include <limits.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define BLOCK 512
#define MOST_DEPTH 200
#define MOST_LINKS 4096
#define SPARSE (1 << 20)

enum { DONE, TOO_LARGE, NEEDS_TAR, FAILED };

static char buffer[1 << 17];
static size_t filled;
static uint64_t left;
static int out;
static struct { ino_t inode; char *path; } links[MOST_LINKS];
static int link_count;

static void flush(void)
{
    for (size_t done = 0; done < filled;) {
        ssize_t put = write(out, buffer + done, filled - done);
        if (put < 0 && errno != EINTR)
            _exit(FAILED);
        done += put > 0 ? put : 0;
    }
    filled = 0;
}

static void put(const void *data, size_t size)
{
    if (size > left)
        _exit(TOO_LARGE);
    left -= size;
    for (const char *from = data; size;) {
        size_t piece = sizeof buffer - filled < size ? sizeof buffer - filled : size;
        memcpy(buffer + filled, from, piece);
        filled += piece;
        from += piece;
        size -= piece;
        if (filled == sizeof buffer)
            flush();
    }
}

static void pad(uint64_t size)
{
    static const char zeros[BLOCK];
    if (size % BLOCK)
        put(zeros, BLOCK - size % BLOCK);
}

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[8];
    char user[32], group[32], major[8], minor[8], prefix[155], fill[12];
};

static void write_header(const char *name, const char *link, char type, const struct stat *status, uint64_t size)
{
    struct header header = {.type = type, .magic = {'u', 's', 't', 'a', 'r', 0, '0', '0'}};
    time_t mtime = status->st_mtime > 0 ? status->st_mtime : 0;
    memcpy(header.name, name, strnlen(name, sizeof header.name)); /* full fields have no end */
    memcpy(header.link, link, strnlen(link, sizeof header.link));
    snprintf(header.mode, sizeof header.mode, "%07o", status->st_mode & 07777);
    snprintf(header.uid, sizeof header.uid, "%07o", status->st_uid & 07777777);
    snprintf(header.gid, sizeof header.gid, "%07o", status->st_gid & 07777777);
    snprintf(header.size, sizeof header.size, "%011llo", (unsigned long long)size);
    snprintf(header.mtime, sizeof header.mtime, "%011llo", (unsigned long long)mtime & 077777777777);
    snprintf(header.major, sizeof header.major, "%07o", 0);
    snprintf(header.minor, sizeof header.minor, "%07o", 0);
    memset(header.sum, ' ', sizeof header.sum);
    unsigned sum = 0;
    for (size_t each = 0; each < sizeof header; each++)
        sum += ((unsigned char *)&header)[each];
    snprintf(header.sum, sizeof header.sum, "%06o", sum);
    put(&header, sizeof header);
}

/* One record of an extended header: its own length in decimal, a space, key=value, a new line. */
static size_t record(char *into, const char *key, const char *value)
{
    size_t body = strlen(key) + strlen(value) + 3, length = body + 1;
    char digits[24];
    while (snprintf(digits, sizeof digits, "%zu", length) + body != length)
        length++;
    return sprintf(into, "%zu %s=%s\n", length, key, value);
}

static void write_entry(const char *path, const char *link, char type, const struct stat *status, uint64_t size,
                        int opaque)
{
    static char extended[4 * PATH_MAX];
    size_t used = 0;
    if (strlen(path) >= 100)
        used += record(extended + used, "path", path);
    if (strlen(link) >= 100)
        used += record(extended + used, "linkpath", link);
    if (opaque)
        used += record(extended + used, "SCHILY.xattr.user.overlay.opaque", "y");
    if (used) {
        struct stat plain = {.st_mode = 0644, .st_mtime = status->st_mtime};
        write_header("././@PaxHeader", "", 'x', &plain, used);
        put(extended, used);
        pad(used);
    }
    write_header(path, link, type, status, size);
}

static void write_content(int fd, uint64_t size)
{
    static char piece[1 << 16];
    for (uint64_t wanted = size; wanted;) {
        size_t most = wanted < sizeof piece ? wanted : sizeof piece;
        ssize_t got = read(fd, piece, most);
        if (got <= 0) { /* it shrank: the size was promised */
            memset(piece, 0, most);
            got = most;
        }
        put(piece, got);
        wanted -= got;
    }
    pad(size);
}

/* The path under which a file with several names was written before; remembers it otherwise. */
static const char *seen_before(const struct stat *status, const char *path)
{
    for (int each = 0; each < link_count; each++)
        if (links[each].inode == status->st_ino)
            return links[each].path;
    if (link_count == MOST_LINKS || !(links[link_count].path = strdup(path)))
        _exit(NEEDS_TAR);
    links[link_count++].inode = status->st_ino;
    return NULL;
}

static void write_file_entry(int folder, const char *name, const char *path, const struct stat *status)
{
    const char *first = status->st_nlink > 1 ? seen_before(status, path) : NULL;
    if (first) {
        write_entry(path, first, '1', status, 0, 0);
        return;
    }
    if (status->st_size > SPARSE && (uint64_t)status->st_blocks * 512 < (uint64_t)status->st_size / 2)
        _exit(NEEDS_TAR);
    if ((uint64_t)status->st_size > left)
        _exit(TOO_LARGE);
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    write_entry(path, "", '0', status, status->st_size, 0);
    write_content(fd, status->st_size);
    close(fd);
}

static int by_name(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static char **names_in(DIR *listing, size_t *count)
{
    char **names = NULL;
    size_t room = 0;
    *count = 0;
    for (struct dirent *each; (each = readdir(listing));) {
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, ".."))
            continue;
        if (*count == room && !(names = realloc(names, (room = 2 * room + 16) * sizeof *names)))
            _exit(FAILED);
        if (!(names[(*count)++] = strdup(each->d_name)))
            _exit(FAILED);
    }
    if (*count)
        qsort(names, *count, sizeof *names, by_name);
    return names;
}

static void write_folder(int fd, char *path, size_t used, int depth);

static void write_one(int folder, const char *name, char *path, size_t used, int depth)
{
    struct stat status;
    char link[PATH_MAX];
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISDIR(status.st_mode)) {
        int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            write_folder(fd, path, used, depth + 1);
    } else if (S_ISREG(status.st_mode))
        write_file_entry(folder, name, path, &status);
    else if (S_ISLNK(status.st_mode)) {
        ssize_t size = readlinkat(folder, name, link, sizeof link - 1);
        if (size > 0) {
            link[size] = 0;
            write_entry(path, link, '2', &status, 0, 0);
        }
    } else if (S_ISFIFO(status.st_mode))
        write_entry(path, "", '6', &status, 0, 0);
    else if (S_ISCHR(status.st_mode) && status.st_rdev == 0) /* how an overlay marks what was removed */
        write_entry(path, "", '3', &status, 0, 0);
}

static void write_folder(int fd, char *path, size_t used, int depth)
{
    struct stat status;
    char opaque = 0;
    size_t count;
    if (depth > MOST_DEPTH)
        _exit(NEEDS_TAR);
    if (fstat(fd, &status) < 0)
        _exit(FAILED);
    fgetxattr(fd, "user.overlay.opaque", &opaque, 1);
    path[used] = '/';
    path[used + 1] = 0;
    write_entry(path, "", '5', &status, 0, opaque == 'y');
    DIR *listing = fdopendir(fd);
    if (!listing)
        _exit(FAILED);
    char **names = names_in(listing, &count);
    for (size_t each = 0; each < count; each++) {
        size_t length = strlen(names[each]);
        if (used + 1 + length + 2 >= PATH_MAX)
            _exit(NEEDS_TAR);
        memcpy(path + used + 1, names[each], length + 1);
        write_one(dirfd(listing), names[each], path, used + 1 + length, depth);
        free(names[each]);
    }
    free(names);
    closedir(listing);
    path[used] = 0;
}

/* The exit code of the process says how it went; the descriptor of the tree is used up. */
_Noreturn void write_archive(int tree, int target, uint64_t most)
{
    static char path[PATH_MAX + 8] = ".";
    static const char end[2 * BLOCK];
    out = target;
    left = most;
    if (tree < 0)
        _exit(FAILED);
    write_folder(tree, path, 1, 0);
    put(end, sizeof end);
    flush();
    _exit(DONE);
}
