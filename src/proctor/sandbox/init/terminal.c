/* A shell that stays: a pseudo terminal that outlives the command which opened it, and what talks to it.
 *
 *   terminal open SOCKET COLUMNS ROWS PROGRAM [ARGUMENT ...]   start a program on a new terminal, and leave
 *   terminal talk SOCKET LIMIT_MS MARK [FILE LINE]             type standard input, print what comes back
 *
 * `talk` ends with 0 when MARK, digits and the last byte of MARK have come, with 124 at the time limit, and with
 * 125 when the terminal is gone. With FILE its input is written there, and LINE is typed: a terminal takes no
 * line of more than 4 kB, and a script may be longer.
 * What the terminal prints while nobody listens is kept, the last of it, and told to whoever comes next. */
#include "proctor.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>

#define KEPT (1 << 18)
#define PIECE (1 << 16)
#define TIME_LIMIT 124
#define GONE 125

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static _Noreturn void broken(const char *what)
{
    dprintf(2, "terminal: %s: %s\n", what, strerror(errno));
    _exit(GONE);
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return -1;
        data += written;
        size -= written;
    }
    return 0;
}

/* The terminal */

struct bytes {
    char *data;
    size_t size, room;
};

static void append(struct bytes *bytes, const char *data, size_t size)
{
    if (bytes->size + size > bytes->room) {
        bytes->room = 2 * (bytes->size + size);
        bytes->data = realloc(bytes->data, bytes->room);
        if (!bytes->data)
            _exit(1);
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

static void take(struct bytes *bytes, size_t size)
{
    bytes->size -= size;
    memmove(bytes->data, bytes->data + size, bytes->size);
}

/* Pass on as much as is taken now; -1 when nobody is there any more. */
static int pass_on(int fd, struct bytes *bytes)
{
    ssize_t sent = bytes->size ? write(fd, bytes->data, bytes->size) : 0;
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    take(bytes, sent);
    return 0;
}

/* With `waiting` the end of the shell is heard while nothing else happens: hundreds of terminals may wait. */
static _Noreturn void serve_terminal(int listening, int master, pid_t shell, const sigset_t *waiting)
{
    const struct timespec soon = {.tv_nsec = 100000000};
    struct bytes printed = {0}, typed = {0};
    static char piece[PIECE];
    int client = -1, over = 0, ended = 0;
    while (!over || (client >= 0 && printed.size)) {
        /* A listener that is slow holds up the terminal; without one the oldest output goes. */
        short reads = !over && (client < 0 || printed.size < PIECE) ? POLLIN : 0;
        struct pollfd watched[3] = {
            {.fd = over ? -1 : master, .events = reads | (typed.size ? POLLOUT : 0)},
            {.fd = listening, .events = POLLIN},
            {.fd = client, .events = POLLIN | (printed.size ? POLLOUT : 0)},
        };
        if (!watched[0].events)
            watched[0].fd = -1;
        int found = ppoll(watched, 3, ended ? &soon : NULL, waiting);
        if (found < 0 && errno != EINTR)
            break;
        if (watched[0].revents & (POLLIN | POLLHUP)) {
            ssize_t size = read(master, piece, sizeof piece);
            if (size > 0) {
                append(&printed, piece, size);
                if (client < 0 && printed.size > KEPT)
                    take(&printed, printed.size - KEPT);
            } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
                over = 1;
            }
        }
        if (watched[0].revents & POLLOUT)
            pass_on(master, &typed);
        if (watched[1].revents & POLLIN) {
            int next = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (next >= 0) {
                if (client >= 0)
                    close(client);
                client = next;
                continue;
            }
        }
        if (client >= 0 && watched[2].revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t size = read(client, piece, sizeof piece);
            if (size > 0) {
                append(&typed, piece, size);
            } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
                close(client);
                client = -1;
                continue;
            }
        }
        if (client >= 0 && watched[2].revents & POLLOUT && pass_on(client, &printed) < 0) {
            close(client);
            client = -1;
        }
        /* Jobs of a shell that has ended may hold its terminal: what came before its end is still read. */
        if (ended && watched[0].fd == master && !(watched[0].revents & POLLIN))
            over = 1;
        if (!ended && waitpid(shell, NULL, WNOHANG) == shell)
            ended = 1;
    }
    _exit(0);
}

static void note_end(int signal) { (void)signal; }

static void start_program(const char *name, char **argv, int said, const sigset_t *signals)
{
    sigprocmask(SIG_SETMASK, signals, NULL);
    setsid();
    int terminal = open(name, O_RDWR);
    if (terminal < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0)
        goto failed;
    struct termios how;
    if (tcgetattr(terminal, &how) == 0) {
        how.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
        how.c_iflag |= IUTF8;
        tcsetattr(terminal, TCSANOW, &how);
    }
    for (int fd = 0; fd < 3; fd++)
        dup2(terminal, fd);
    if (terminal > 2)
        close(terminal);
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv);
failed:;
    int problem = errno;
    write_all(said, (char *)&problem, sizeof problem);
    _exit(127);
}

static int open_terminal(const char *path, int columns, int rows, char **argv)
{
    struct winsize size = {.ws_col = columns, .ws_row = rows};
    struct sockaddr_un address = address_of(path);
    int said[2], problem = 0;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0)
        broken("no terminal can be made");
    const char *name = ptsname(master);
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    umask(077);
    if (!name || listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listening, 4) < 0 || pipe2(said, O_CLOEXEC) < 0)
        broken(path);
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    pid_t server = fork();
    if (server < 0)
        broken("no process can be started");
    if (server == 0) {
        sigset_t child, before;
        setsid();
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, &before);
        sigaction(SIGCHLD, &(struct sigaction){.sa_handler = note_end}, NULL);
        pid_t shell = fork();
        if (shell == 0)
            start_program(name, argv, said[1], &before);
        int nothing = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(nothing, fd);
        close(said[0]);
        close(said[1]);
        serve_terminal(listening, master, shell, &before);
    }
    close(said[1]);
    if (read(said[0], &problem, sizeof problem) == sizeof problem) {
        errno = problem;
        broken(argv[0]);
    }
    return 0;
}

/* Whoever talks to it */

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void send_input(int fd, const char *file, const char *line)
{
    static char piece[PIECE];
    int target = file ? open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : fd;
    ssize_t size;
    if (target < 0)
        broken(file);
    while ((size = read(0, piece, sizeof piece)) > 0)
        if (write_all(target, piece, size) < 0)
            broken(file ? file : "what was typed is not taken");
    if (!file)
        return;
    close(target);
    if (dprintf(fd, "%s\n", line) < 0)
        broken("the terminal is gone");
}

/* Whether the mark with its digits is in there. Its last byte ends both the mark and the digits. */
static int is_marked(const struct bytes *seen, const char *mark)
{
    size_t size = strlen(mark);
    const char *from = seen->data, *end = seen->data + seen->size, *at;
    while (from < end && (at = memmem(from, end - from, mark, size))) {
        const char *digit = at + size;
        while (digit < end && *digit >= '0' && *digit <= '9')
            digit++;
        if (digit < end && digit > at + size && *digit == mark[size - 1])
            return 1;
        from = at + 1;
    }
    return 0;
}

static int talk(const char *path, long long limit_ms, const char *mark, const char *file, const char *line)
{
    static char piece[PIECE];
    struct sockaddr_un address = address_of(path);
    struct bytes seen = {0};
    size_t overlap = strlen(mark) + 16;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        broken(path);
    signal(SIGPIPE, SIG_IGN);
    long long deadline = now_ms() + limit_ms;
    send_input(fd, file, line);
    for (;;) {
        long long left = deadline - now_ms();
        struct pollfd watched = {.fd = fd, .events = POLLIN};
        int found = left > 0 ? poll(&watched, 1, left > 60000 ? 60000 : (int)left) : 0;
        if (found < 0 && errno != EINTR)
            return GONE;
        if (found <= 0 && left <= 0)
            return TIME_LIMIT;
        if (found <= 0)
            continue;
        ssize_t size = read(fd, piece, sizeof piece);
        if (size <= 0 || write_all(1, piece, size) < 0)
            return GONE;
        append(&seen, piece, size);
        if (is_marked(&seen, mark))
            return 0;
        if (seen.size > overlap)
            take(&seen, seen.size - overlap);
    }
}

int run_terminal(int argc, char **argv)
{
    if (argc > 4 && !strcmp(argv[0], "open"))
        return open_terminal(argv[1], atoi(argv[2]), atoi(argv[3]), argv + 4);
    if (argc == 4 && !strcmp(argv[0], "talk"))
        return talk(argv[1], atoll(argv[2]), argv[3], NULL, NULL);
    if (argc == 6 && !strcmp(argv[0], "talk"))
        return talk(argv[1], atoll(argv[2]), argv[3], argv[4], argv[5]);
    return 2;
}
