/* PID 1 of a sandbox: makes its root, then runs commands that Proctor asks for and reaps what they leave.
 *
 * Each program has a supervisor, a subreaper: orphans of the program come to it, so that the whole tree can
 * be ended at a time limit. When the program ends by itself, the supervisor goes and its daemons stay. */
#include "proctor.h"
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern int failure_socket;

struct supervisor {
    struct supervisor *next;
    pid_t pid;
    int alone, killed; /* alone: our own file operation, which makes no process and needs nobody to watch it */
    char id[32];
};

static struct supervisor *supervisors;

static void report(struct sandbox *sandbox, const char *kind, const char *id, int code, int killed,
                   const struct rusage *used)
{
    reply(sandbox->control, "%s %s %d %d %lld %ld %ld %ld", kind, id, code, killed, cpu_us(used), used->ru_maxrss,
          used->ru_inblock, used->ru_oublock);
}

static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/* Kill the direct children until none is left: the children of the dead come to us, the subreaper. */
static void kill_children(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    do {
        FILE *list = fopen(path, "re");
        int pid;
        while (list && fscanf(list, "%d", &pid) == 1)
            kill(pid, SIGKILL);
        if (list)
            fclose(list);
    } while (wait(NULL) > 0 || errno == EINTR);
}

static _Noreturn void supervise(struct sandbox *sandbox, struct command *command)
{
    sigset_t wanted;
    int status = 0, killed = 0;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (command->fresh_count || command->target_count) {
        void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            _exit(1);
        command->made_ready = page;
    }
    pid_t main_pid = fork();
    if (main_pid == 0)
        run_command(sandbox, command);
    if (main_pid < 0)
        dprintf(command->fds[2], "proctor: cannot start a process: %s\n", strerror(errno));
    for (int each = 0; each < 3; each++)
        close(command->fds[each]);
    for (int each = 0; each < command->target_count; each++)
        close(command->target_fds[each]);
    for (int over = main_pid < 0; !over;) {
        siginfo_t signal;
        sigwaitinfo(&wanted, &signal);
        if (signal.si_signo == SIGTERM && signal.si_pid <= 1) {
            killed = 1;
            kill_children();
            break;
        }
        pid_t pid;
        int each;
        while ((pid = waitpid(-1, &each, WNOHANG)) > 0)
            if (pid == main_pid) {
                status = each;
                over = 1;
            }
    }
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    int code = main_pid < 0 ? 126 : killed ? 137 : exit_code(status);
    int ready = killed || !command->made_ready || *command->made_ready;
    report(sandbox, ready ? "d" : "n", command->id, code, killed, &used);
    _exit(0);
}

static void forget(struct sandbox *sandbox, pid_t pid, int status, const struct rusage *used)
{
    for (struct supervisor **link = &supervisors; *link; link = &(*link)->next)
        if ((*link)->pid == pid) {
            struct supervisor *gone = *link;
            *link = gone->next;
            if (gone->alone)
                report(sandbox, "d", gone->id, exit_code(status), gone->killed, used);
            else if (!WIFEXITED(status)) /* it could not report any more */
                reply(sandbox->control, "d %s 137 1 0 0 0 0", gone->id);
            free(gone);
            return;
        }
}

static void reap(struct sandbox *sandbox, int options)
{
    pid_t pid;
    int status;
    struct rusage used;
    while ((pid = wait4(-1, &status, options, &used)) > 0 || (pid < 0 && errno == EINTR))
        if (pid > 0)
            forget(sandbox, pid, status, &used);
}

/* Every one but ourselves: new ones may appear until the last that could make them is gone. */
static void end_processes(struct sandbox *sandbox)
{
    do {
        kill(-1, SIGKILL);
        reap(sandbox, 0);
    } while (kill(-1, 0) == 0);
}

static void start_command(struct sandbox *sandbox, const struct message *message)
{
    struct command command = {.id = message->data + 1, .cwd = "/", .user = "root", .fds = {-1, -1, -1}};
    size_t strings = 2;
    for (const char *field = NULL; (field = next_field(message, field));)
        strings++;
    char **room = calloc(3 * strings, sizeof *room), *targets[MAX_TARGETS];
    command.argv = room;
    command.env = room ? room + strings : NULL;
    command.fresh = room ? room + 2 * strings : NULL;
    command.targets = targets;
    for (const char *field = message->data; room && (field = next_field(message, field));) {
        switch (*field) {
        case 'a': command.argv[command.argc++] = (char *)field + 1; break;
        case 'e': command.env[command.envc++] = (char *)field + 1; break;
        case 'c': command.cwd = field + 1; break;
        case 'u': command.user = field + 1; break;
        case 'b': command.builtin = field + 1; break;
        case 'q': command.quiet = field + 1; break;
        case 'f': command.fresh[command.fresh_count++] = (char *)field + 1; break;
        case 'r': if (command.target_count < MAX_TARGETS) targets[command.target_count++] = (char *)field + 1; break;
        }
    }
    /* output, errors, input if there is any; then a stream for each target */
    int streams = message->fd_count - command.target_count;
    for (int each = 0; each < 3 && each < streams; each++)
        command.fds[(each + 1) % 3] = message->fds[each];
    for (int each = 0; each < command.target_count; each++)
        command.target_fds[each] = streams >= 0 ? message->fds[streams + each] : -1;
    if (command.quiet)
        end_processes(sandbox);
    struct supervisor *supervisor = calloc(1, sizeof *supervisor);
    pid_t pid = command.argc && supervisor ? fork() : -1;
    if (pid == 0 && command.builtin)
        run_command(sandbox, &command);
    if (pid == 0)
        supervise(sandbox, &command);
    if (pid < 0)
        reply(sandbox->control, "d %s 126 0 0 0 0 0", command.id);
    else {
        *supervisor = (struct supervisor){.next = supervisors, .pid = pid, .alone = command.builtin != NULL};
        snprintf(supervisor->id, sizeof supervisor->id, "%s", command.id);
        supervisors = supervisor;
        supervisor = NULL;
    }
    free(supervisor);
    free(room);
}

/* On the loopback, or with `any` on every address that is the inside's. */
static void listen_inside(struct sandbox *sandbox, const char *id, int port, int any)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(any ? INADDR_ANY : INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char text[64];
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 128) < 0)
        reply(sandbox->control, "l %s %s", id, strerror(errno));
    else {
        snprintf(text, sizeof text, "l %s ok", id);
        reply_fd(sandbox->control, fd, text);
    }
    close(fd);
}

static void handle(struct sandbox *sandbox, const struct message *message)
{
    const char *id = message->data + 1, *rest = next_field(message, message->data);
    switch (message->data[0]) {
    case 'X': start_command(sandbox, message); break;
    case 'K':
        for (struct supervisor *each = supervisors; each; each = each->next)
            if (!strcmp(each->id, id)) {
                each->killed = 1;
                kill(each->pid, each->alone ? SIGKILL : SIGTERM);
            }
        break;
    case 'C': /* end every process but this one, and tell whoever waits at the other end of a pipe, or Proctor */
        end_processes(sandbox);
        if (message->fd_count) /* nobody may be there any more; process 1 is not harmed by that */
            (void)!write(message->fds[0], "y", 1);
        else
            reply(sandbox->control, "c %s", id);
        break;
    case 'L': listen_inside(sandbox, id, rest ? atoi(rest) : 0, rest && next_field(message, rest)); break;
    }
}

/* A child that puts us into our control groups, which may wait for the kernel while we build the root, and
 * then makes the inner user namespace: root there is nobody anywhere else, and can make no further one.
 * What the kernel counts for a namespace it also counts for who made it: that is an id of each sandbox's own, so
 * that the limits of `limit_shares` and those set here are a sandbox's, whichever users its processes are. */
struct assistant {
    pid_t pid;
    int go, done;
};

static void limit_share(int what, int parts)
{
    struct rlimit now;
    if (getrlimit(what, &now) == 0 && now.rlim_cur != RLIM_INFINITY) {
        now.rlim_cur /= parts;
        setrlimit(what, &now);
    }
}

static void become_maker(const char *id)
{
    uid_t uid = 1 + strtoul(id, NULL, 10) % (INNER_IDS - 1);
    limit_share(RLIMIT_MSGQUEUE, 2); /* a fourth would be two queues of the usual size */
    limit_share(RLIMIT_SIGPENDING, SHARES);
    limit_share(RLIMIT_MEMLOCK, SHARES);
    if (setresuid(uid, uid, uid) < 0)
        fail("cannot become the maker of the inner user namespace");
    prctl(PR_SET_DUMPABLE, 1); /* or nobody could write our maps */
}

static struct assistant start_assistant(struct request *request)
{
    int go[2], done[2];
    char byte;
    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(done, O_CLOEXEC) < 0)
        fail("cannot make a pipe");
    struct assistant assistant = {fork(), go[1], done[0]};
    if (assistant.pid == 0) {
        close(go[1]);
        for (int each = 0; each < request->cgroup_count; each++)
            if (write(request->cgroup_fds[each], "1", 1) < 0) /* the process id of our parent, here */
                fail("cannot enter control group %d", each);
        /* from within the folder: a root of mode 700 would not let us pass once we are nobody */
        if (read(go[0], &byte, 1) != 1 || chdir("/proc/sys/user") < 0)
            fail("cannot enter /proc/sys/user");
        become_maker(request->id);
        if (unshare(CLONE_NEWUSER) < 0 || write_file("max_user_namespaces", "0") < 0 || write(done[1], "y", 1) != 1)
            fail("cannot make the inner user namespace");
        read(go[0], &byte, 1);
        _exit(0);
    }
    close(go[0]);
    close(done[1]);
    for (int each = 0; each < request->cgroup_count; each++)
        close(request->cgroup_fds[each]);
    return assistant;
}

static int make_inner(struct assistant assistant)
{
    int fd = -1;
    char byte, path[64], map[32];
    snprintf(map, sizeof map, "0 0 %d", INNER_IDS);
    if (assistant.pid > 0 && write(assistant.go, "y", 1) == 1 && read(assistant.done, &byte, 1) == 1) {
        snprintf(path, sizeof path, "/proc/%d/uid_map", assistant.pid);
        int mapped = write_file(path, map);
        snprintf(path, sizeof path, "/proc/%d/gid_map", assistant.pid);
        mapped |= write_file(path, map);
        snprintf(path, sizeof path, "/proc/%d/ns/user", assistant.pid);
        fd = mapped == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
    if (fd < 0)
        fail("cannot map ids into the inner user namespace");
    close(assistant.go);
    close(assistant.done);
    waitpid(assistant.pid, NULL, 0);
    return fd;
}

static void ignore(int signal) { (void)signal; }

/* Say that all is made, then do what is asked until Proctor hangs up. */
_Noreturn void serve_commands(struct sandbox *sandbox)
{
    sigset_t none, child;
    failure_socket = -1;
    reply(sandbox->control, "ready %d", sandbox->pid);
    sigemptyset(&none);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = ignore}, NULL);
    for (;;) {
        struct pollfd poll_control = {sandbox->control, POLLIN, 0};
        int events = ppoll(&poll_control, 1, NULL, &none);
        reap(sandbox, WNOHANG);
        if (events <= 0)
            continue;
        struct message message;
        if (!receive_message(sandbox->control, &message))
            _exit(0);
        handle(sandbox, &message);
        for (int each = 0; each < message.fd_count; each++)
            close(message.fds[each]);
    }
}

/* Ours where the keeper lives, whose /proc is still the one we see. */
static pid_t outer_pid(void)
{
    char text[32] = "";
    return readlink("/proc/self", text, sizeof text - 1) > 0 ? atoi(text) : 0;
}

_Noreturn void run_init(struct request *request)
{
    struct sandbox sandbox = {.request = request, .control = request->control, .pid = outer_pid()};
    make_network();
    struct assistant assistant = start_assistant(request);
    setfsgid(0); /* what is made here belongs to the inside's root */
    setfsuid(0);
    prctl(PR_SET_DUMPABLE, 1); /* undone by the change above, like the next */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    write_file("/proc/self/oom_score_adj", "500");
    if (sethostname(request->hostname, strlen(request->hostname)) < 0)
        fail("cannot set the host name");
    build_root(request);
    write_file("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
    sandbox.inner = make_inner(assistant);
    if (unshare(CLONE_NEWCGROUP) < 0 && errno != EINVAL)
        fail("cannot make a control group namespace");
    if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              NULL) < 0)
        fail("cannot make /proc/sys read-only");
    set_filter(request->seccomp);
    serve_commands(&sandbox);
}
