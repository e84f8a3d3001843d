/* The keeper: enters the outer user namespace, makes sandboxes, ends them, removes what they leave.
 * It reads from Proctor alone and dies with it; every init dies with the keeper. */
#include "proctor.h"
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern int failure_socket;

/* What the keeper watches: an init (stop: asked to end it), a remover, or a program it runs. */
struct child {
    struct child *next;
    pid_t pid;
    char kind;
    int stop, folder;
    char id[64], name[256];
};

static struct child *children;
static const int proctor = 3;

static struct child *remember(pid_t pid, char kind, const char *id)
{
    struct child *child = calloc(1, sizeof *child);
    if (!child)
        abort();
    *child = (struct child){.next = children, .pid = pid, .kind = kind, .folder = -1};
    snprintf(child->id, sizeof child->id, "%s", id);
    return children = child;
}

void read_request(const struct message *message, struct request *request)
{
    const struct { char tag; uint64_t *into; } numbers[] = {
        {'s', &request->shm_bytes}, {'p', &request->nproc}, {'z', &request->fsize},
        {'m', &request->data}, {'o', &request->nofile}, {'k', &request->capabilities}};
    for (const char *field = NULL; (field = next_field(message, field));) {
        const char *value = field + 1;
        switch (*field) {
        case 'S': request->id = value; break;
        case 'd': request->state = value; break;
        case 'h': request->hostname = value; break;
        case 'w': request->workdir = value; break;
        case 'c': request->cgroup_count = atoi(value); break;
        case 'T': request->trees = 1; break;
        case 'l': if (request->layer_count < MAX_LAYERS) request->layers[request->layer_count++] = value; break;
        case 'b': if (request->bind_count < MAX_BINDS) request->binds[request->bind_count++] = value; break;
        case 't': if (request->bind_count) request->bind_targets[request->bind_count - 1] = value; break;
        case 'v': if (atoi(value) >= 0 && atoi(value) < MAX_BINDS) request->bind_writable[atoi(value)] = 1; break;
        default:
            for (size_t each = 0; each < sizeof numbers / sizeof *numbers; each++)
                if (numbers[each].tag == *field)
                    *numbers[each].into = strtoull(value, NULL, 0);
        }
    }
    const int *fd = message->fds, *end = message->fds + message->fd_count;
#define TAKE() (fd < end ? *fd++ : -1)
    request->control = TAKE();
    request->seccomp = TAKE();
    for (int each = 0; each < request->cgroup_count && each < 16; each++)
        request->cgroup_fds[each] = TAKE();
    if (request->trees) {
        request->state_fd = TAKE();
        for (int each = 0; each < request->layer_count; each++)
            request->layer_fds[each] = TAKE();
        for (int each = 0; each < request->bind_count; each++)
            request->bind_fds[each] = TAKE();
    }
}

static void start_sandbox(const struct message *message)
{
    static struct request request;
    memset(&request, 0, sizeof request);
    read_request(message, &request);
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
    pid_t pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        failure_socket = request.control;
        run_init(&request);
    }
    if (pid < 0)
        reply(request.control, "e cannot make namespaces: %s", strerror(errno));
    else
        remember(pid, 'i', request.id);
}

static void reply_ended(const char *id, int code, uint64_t bytes, const struct rusage *used)
{
    reply(proctor, "g %s %d %llu %lld %ld %ld %ld", id, code, (unsigned long long)bytes, cpu_us(used),
          used->ru_maxrss, used->ru_inblock, used->ru_oublock);
}

/* used: what the sandbox used, if one has ended */
static void start_remover(const char *id, const char *name, int folder, const struct rusage *used)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[300];
        struct count count = {0};
        snprintf(path, sizeof path, "%s/upper", name);
        measure_tree(openat(folder, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), &count);
        int code = remove_tree(folder, name) < 0;
        reply_ended(id, code, count.bytes, used);
        _exit(0);
    }
    if (pid < 0)
        reply_ended(id, 1, 0, &(struct rusage){0});
    else
        remember(pid, 'r', id);
}

static void ended(const char *id, const char *name, int folder, const struct rusage *used)
{
    if (*name)
        start_remover(id, name, folder, used);
    else
        reply_ended(id, 0, 0, used);
    if (folder >= 0)
        close(folder);
}

/* E<id> n<name>, with the folder that holds <name>: end a sandbox and remove its state.
 * E<id> alone: end it; somebody else sees to its state. */
static void end_sandbox(const struct message *message)
{
    const char *id = message->data + 1, *name = next_field(message, message->data);
    int folder = message->fd_count ? fcntl(message->fds[0], F_DUPFD_CLOEXEC, 3) : -1;
    for (struct child *child = children; child; child = child->next)
        if (child->kind == 'i' && !strcmp(child->id, id)) {
            child->stop = 1;
            child->folder = folder;
            snprintf(child->name, sizeof child->name, "%s", name ? name + 1 : "");
            kill(child->pid, SIGKILL);
            return;
        }
    ended(id, name ? name + 1 : "", folder, &(struct rusage){0});
}

/* R<id> a<argument>…: a trusted program of the host, as root of the outer namespace. */
static void run_program(const struct message *message)
{
    char *argv[256];
    int argc = 0;
    const char *id = message->data + 1;
    for (const char *field = message->data; (field = next_field(message, field));)
        if (*field == 'a' && argc < 255)
            argv[argc++] = (char *)field + 1;
    argv[argc] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        char *env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", NULL};
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        for (int fd = 0; fd < 3; fd++)
            dup2(fd < message->fd_count ? message->fds[fd] : 2, fd);
        int extra = message->fd_count > 3 ? fcntl(message->fds[3], F_DUPFD, 100) : -1;
        if (extra >= 0)
            dup2(extra, 3); /* `3` on the command line names it */
        setsid();
        if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || argc == 0)
            _exit(126);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        syscall(SYS_close_range, extra >= 0 ? 4 : 3, ~0U, 0);
        environ = env;
        execvp(argv[0], argv);
        fail("cannot run %s", argv[0]);
    }
    if (pid < 0)
        reply(proctor, "r %s 126", id);
    else
        remember(pid, 'p', id);
}

/* A<id> m<most bytes>, with a state folder and a file: write the changes of a sandbox. With a third descriptor
 * whatever runs in it is being ended, and a byte comes from there when that is done. */
static void save_changes(const struct message *message)
{
    const char *id = message->data + 1, *most = next_field(message, message->data);
    pid_t pid = message->fd_count >= 2 && most ? fork() : -1;
    if (pid == 0) {
        char byte;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (message->fd_count > 2 && read(message->fds[2], &byte, 1) != 1)
            _exit(126);
        int tree = openat(message->fds[0], "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        write_archive(tree, message->fds[1], strtoull(most + 1, NULL, 10));
    }
    if (pid < 0)
        reply(proctor, "r %s 126", id);
    else
        remember(pid, 'p', id);
}

static void reap(void)
{
    int status;
    pid_t pid;
    struct rusage used;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
        struct child **link = &children;
        while (*link && (*link)->pid != pid)
            link = &(*link)->next;
        struct child *child = *link;
        if (!child)
            continue;
        *link = child->next;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (child->kind == 'i') {
            if (child->stop)
                ended(child->id, child->name, child->folder, &used);
            else /* nobody has asked for it */
                reply(proctor, "x %s %d %lld %ld %ld %ld", child->id, code, cpu_us(&used), used.ru_maxrss,
                      used.ru_inblock, used.ru_oublock);
        } else if (child->kind == 'p')
            reply(proctor, "r %s %d", child->id, code);
        else if (code) /* it could not report any more */
            reply_ended(child->id, code, 0, &(struct rusage){0});
        free(child);
    }
}

static void kill_program(const char *id)
{
    for (struct child *child = children; child; child = child->next)
        if (child->kind == 'p' && !strcmp(child->id, id))
            kill(child->pid, SIGKILL);
}

/* What the kernel counts per account belongs to all sandboxes together: each gets a part of it, see `start_assistant`. */
static void limit_shares(void)
{
    static const struct { const char *whole, *share; } counted[] = {
        {"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"},
        {"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"},
        {"/proc/sys/fs/fanotify/max_user_groups", "/proc/sys/user/max_fanotify_groups"},
        {"/proc/sys/fs/fanotify/max_user_marks", "/proc/sys/user/max_fanotify_marks"}};
    for (size_t each = 0; each < sizeof counted / sizeof *counted; each++) {
        char text[32] = "";
        int fd = open(counted[each].whole, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) /* a kernel without it */
            text[0] = 0;
        close(fd);
        long whole = atol(text);
        snprintf(text, sizeof text, "%ld", whole < SHARES ? 1 : whole / SHARES);
        if (whole > 0 && write_file(counted[each].share, text) < 0 && errno != ENOENT)
            fail("cannot limit %s", counted[each].share);
    }
}

static void serve(int parent)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    int deaths = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    struct pollfd polls[] = {{proctor, POLLIN, 0}, {deaths, POLLIN, 0}, {parent, POLLIN, 0}};
    for (;;) {
        if (poll(polls, parent >= 0 ? 3 : 2, -1) < 0)
            continue;
        if (parent >= 0 && polls[2].revents)
            return;
        if (polls[1].revents) {
            struct signalfd_siginfo drained;
            while (read(deaths, &drained, sizeof drained) > 0)
                ;
            reap();
        }
        if (polls[0].revents) {
            struct message message;
            if (!receive_message(proctor, &message))
                return;
            switch (message.data[0]) {
            case 'S': start_sandbox(&message); break;
            case 'E': end_sandbox(&message); break;
            case 'R': run_program(&message); break;
            case 'A': save_changes(&message); break;
            case 'K': kill_program(message.data + 1); break;
            }
            for (int each = 0; each < message.fd_count; each++)
                close(message.fds[each]);
        }
    }
}

/* keeper UID GID: as root, become these first; the program itself is never root beyond this line.
 * keeper container SOCKET: be the init of a container that somebody else made.
 * keeper measure …: say how much disk a sandbox takes. */
int main(int argc, char **argv)
{
    struct message message;
    pid_t creator = getppid();
    if (argc >= 3 && !strcmp(argv[1], "container"))
        run_in_container(argv[2]);
    if (argc >= 3 && !strcmp(argv[1], "terminal"))
        return run_terminal(argc - 2, argv + 2);
    if (argc >= 3 && !strcmp(argv[1], "measure"))
        return run_measure(argc - 2, argv + 2);
    syscall(SYS_close_range, 4, ~0U, 0);
    int parent = syscall(SYS_pidfd_open, creator, 0);
    if (parent >= 0)
        fcntl(parent, F_SETFD, FD_CLOEXEC);
    fcntl(proctor, F_SETFD, FD_CLOEXEC);
    if (argc == 3) {
        uid_t uid = strtoul(argv[1], NULL, 10);
        gid_t gid = strtoul(argv[2], NULL, 10);
        offer_tun();
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            fail("cannot leave root");
    }
    if (geteuid() == 0) {
        errno = EPERM;
        fail("will not make sandboxes as root");
    }
    if (argc == 3)
        memset(argv[1], 0, strlen(argv[1]) + 1 + strlen(argv[2])); /* nothing to read in /proc/1/cmdline */
    prctl(PR_SET_NAME, "proctor");
    prctl(PR_SET_DUMPABLE, 1);
    failure_socket = proctor;
    if (unshare(CLONE_NEWUSER) < 0)
        fail("cannot make a user namespace");
    reply(proctor, "m");
    if (!receive_message(proctor, &message) || message.data[0] != 'G')
        return 1;
    if (setgroups(0, NULL) < 0)
        fail("cannot leave the supplementary groups");
    limit_shares();
    failure_socket = -1;
    umask(022);
    if (chdir("/") < 0)
        return 1;
    serve(parent);
    return 0;
}
