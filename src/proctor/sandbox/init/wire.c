/* Packets with descriptors, and the few things that every part does. */
#include "proctor.h"
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* 1: a message; 0: the other side has gone. A message too long for a packet comes in a descriptor. */
int receive_message(int socket, struct message *message)
{
    static char buffer[MAX_MESSAGE + 1];
    union { char space[CMSG_SPACE(sizeof(int) * MAX_FDS)]; struct cmsghdr align; } control;
    struct iovec piece = {buffer, MAX_MESSAGE};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.space,
                            .msg_controllen = sizeof control.space};
    ssize_t size;
    do
        size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    if (size <= 0)
        return 0;
    message->data = buffer;
    message->size = size;
    message->fd_count = 0;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each))
        if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) {
            message->fd_count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(message->fds, CMSG_DATA(each), message->fd_count * sizeof(int));
        }
    if (buffer[0] == '@' && message->fd_count > 0) { /* the text is in the last descriptor */
        static char *large;
        int fd = message->fds[--message->fd_count];
        off_t length = lseek(fd, 0, SEEK_END);
        free(large);
        large = length > 0 && length < (64 << 20) ? malloc(length + 1) : NULL;
        if (!large || pread(fd, large, length, 0) != length) {
            close(fd);
            return 0;
        }
        close(fd);
        message->data = large;
        message->size = length;
    }
    message->data[message->size] = 0;
    return 1;
}

const char *next_field(const struct message *message, const char *after)
{
    const char *next = after ? after + strlen(after) + 1 : message->data;
    return next < message->data + message->size ? next : NULL;
}

void reply(int socket, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size > (int)sizeof text - 1)
        size = sizeof text - 1;
    while (send(socket, text, size, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

void reply_fd(int socket, int fd, const char *text)
{
    union { char space[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct iovec piece = {(void *)text, strlen(text)};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.space,
                            .msg_controllen = sizeof control.space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    sendmsg(socket, &header, MSG_NOSIGNAL);
}

long long cpu_us(const struct rusage *used)
{
    return (used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000LL + used->ru_utime.tv_usec +
           used->ru_stime.tv_usec;
}

int failure_socket = -1;

/* While a sandbox is being made its failure goes to whoever asked; later, to standard error. */
_Noreturn void fail(const char *format, ...)
{
    char text[400];
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (failure_socket >= 0)
        reply(failure_socket, "e %s: %s", text, strerror(saved));
    else
        dprintf(2, "proctor: %s: %s\n", text, strerror(saved));
    _exit(saved == ENOENT ? 127 : 126);
}

int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t written = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return written < 0 ? -1 : 0;
}

/* `mkdir -p`; the path is changed and restored in passing. */
int make_folders(char *path, mode_t mode)
{
    for (char *slash = path + 1; *slash; slash++)
        if (*slash == '/') {
            *slash = 0;
            int result = mkdir(path, 0755);
            *slash = '/';
            if (result < 0 && errno != EEXIST)
                return -1;
        }
    return mkdir(path, mode) < 0 && errno != EEXIST ? -1 : 0;
}

void close_all(void)
{
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
}
