/* A shell that stays: a pseudo terminal that outlives the command which opened it, and what talks to it.
 *
 *   terminal open SOCKET COLUMNS ROWS PROGRAM [ARGUMENT ...] [, PROGRAM [ARGUMENT ...]]
 *       start the first of the programs that is there on a new terminal, print where scripts are, and leave.
 *       Who connects to SOCKET may ask; with "-", who has the other end of standard output, which is a socket.
 *   terminal talk SOCKET LIMIT_MS MARK [LINE]
 *       ask once, with standard input as the text, print what comes back, and end with the code.
 *
 * A question is a `struct question`, MARK, LINE and a text. The text is typed; with LINE it becomes the script,
 * and LINE is typed with the script's path behind it: a terminal takes no line of more than 4 kB, and a script
 * may be longer. Answers are a `struct answer` each: 'o' with the bytes that the terminal printed behind it, and
 * 'e' when the question is over. Its code is 0 when MARK, digits and the last byte of MARK have come, 124 at the
 * time limit. Who hears no end has lost the terminal: 125, for `talk`. */
#include "terminal.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>

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
    while (argv) {
        char **rest = argv;
        while (*rest && strcmp(*rest, ","))
            rest++;
        char **next = *rest ? rest + 1 : NULL;
        *rest = NULL;
        execvp(argv[0], argv);
        argv = next;
    }
failed:;
    int problem = errno;
    write_all(said, &problem, sizeof problem);
    _exit(127);
}

/* Where questions come from: who connects to a socket of that name, or who has the other end of our output. */
static void listen_at(const char *path, struct terminal *terminal)
{
    *terminal = (struct terminal){.listening = -1, .client = -1};
    if (!strcmp(path, "-")) {
        terminal->client = fcntl(1, F_DUPFD_CLOEXEC, 3);
        if (terminal->client < 0 || fcntl(terminal->client, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
            broken("standard output");
        return;
    }
    struct sockaddr_un address = address_of(path);
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    umask(077);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) < 0 || listen(listening, 4) < 0)
        broken(path);
    umask(022);
    terminal->listening = listening;
}

static int open_terminal(const char *path, int columns, int rows, char **argv)
{
    struct winsize size = {.ws_col = columns, .ws_row = rows};
    int said[2], problem = 0;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0)
        broken("no terminal can be made");
    const char *name = ptsname(master);
    int script = memfd_create("script", MFD_CLOEXEC);
    if (!name || script < 0 || pipe2(said, O_CLOEXEC) < 0)
        broken("no terminal can be made");
    struct terminal terminal;
    listen_at(path, &terminal);
    signal(SIGPIPE, SIG_IGN);
    pid_t server = fork();
    if (server < 0)
        broken("no process can be started");
    if (server == 0) {
        sigset_t child, before;
        setsid();
        prctl(PR_SET_NAME, "terminal");
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, &before);
        sigaction(SIGCHLD, &(struct sigaction){.sa_handler = note_end}, NULL);
        terminal.shell = fork();
        if (terminal.shell == 0)
            start_program(name, argv, said[1], &before);
        int nothing = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(nothing, fd);
        close(said[0]);
        close(said[1]);
        terminal.master = master;
        terminal.script = script;
        serve_terminal(&terminal, &before);
    }
    close(said[1]);
    if (read(said[0], &problem, sizeof problem) == sizeof problem) {
        errno = problem;
        broken(argv[0]);
    }
    dprintf(1, SCRIPT_PATH, server, script);
    return 0;
}

/* Whoever talks to it */

static void ask(int fd, long long limit_ms, const char *mark, const char *line)
{
    static char piece[PIECE];
    struct bytes text = {0};
    for (ssize_t size; (size = read(0, piece, sizeof piece)) > 0;)
        append(&text, piece, size);
    struct question question = {0, strlen(mark), strlen(line), text.size, limit_ms};
    if (write_all(fd, &question, sizeof question) < 0 || write_all(fd, mark, question.mark_size) < 0 ||
        write_all(fd, line, question.line_size) < 0 || write_all(fd, text.data, text.size) < 0)
        broken("the terminal is gone");
}

static int talk(const char *path, long long limit_ms, const char *mark, const char *line)
{
    static char piece[PIECE];
    struct sockaddr_un address = address_of(path);
    struct answer answer;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        broken(path);
    signal(SIGPIPE, SIG_IGN);
    ask(fd, limit_ms, mark, line);
    while (recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer) {
        if (answer.kind == 'e')
            return answer.value;
        while (answer.value) {
            ssize_t size = read(fd, piece, answer.value < sizeof piece ? answer.value : sizeof piece);
            if (size <= 0 || write_all(1, piece, size) < 0)
                return GONE;
            answer.value -= size;
        }
    }
    return GONE;
}

int run_terminal(int argc, char **argv)
{
    if (argc > 4 && !strcmp(argv[0], "open"))
        return open_terminal(argv[1], atoi(argv[2]), atoi(argv[3]), argv + 4);
    if ((argc == 4 || argc == 5) && !strcmp(argv[0], "talk"))
        return talk(argv[1], atoll(argv[2]), argv[3], argc == 5 ? argv[4] : "");
    return 2;
}
