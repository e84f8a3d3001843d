/* Become an ordinary process of the inside, then run a program or one of our own file operations. */
#include "proctor.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* Set once by the init, before it serves: every command inherits it, which costs nothing. */
void set_filter(int fd)
{
    struct sock_filter code[BPF_MAXINSNS];
    ssize_t size = pread(fd, code, sizeof code, 0);
    struct sock_fprog program = {size / sizeof *code, code};
    if (size <= 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        fail("cannot set the system call filter");
    close(fd);
}

struct identity {
    uid_t uid;
    gid_t gid, groups[64];
    int group_count;
    char name[256], home[256];
};

static int number(const char *text, unsigned *value)
{
    char *end;
    unsigned long parsed = strtoul(text, &end, 10);
    if (!*text || *end || parsed >= INNER_IDS)
        return 0;
    *value = parsed;
    return 1;
}

/* Split a line of passwd or group in place; the image wrote it, so anything may be in it. */
static int split(char *line, char **parts, int most)
{
    int count = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *part; count < most && (part = strsep(&line, ":"));)
        parts[count++] = part;
    return count;
}

static int in_list(char *list, const char *name)
{
    for (char *each; (each = strsep(&list, ","));)
        if (!strcmp(each, name))
            return 1;
    return 0;
}

/* Accounts of the image, if they are a plain file: a FIFO in their place must not hold us up. */
static FILE *open_accounts(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size < (16 << 20))
        return fdopen(fd, "r");
    close(fd);
    return NULL;
}

static int find_user(const char *user, struct identity *identity)
{
    char line[4096], *parts[7];
    unsigned uid = 0, gid = 0;
    int numeric = number(user, &identity->uid), found = 0;
    FILE *file = open_accounts("/etc/passwd");
    while (file && !found && fgets(line, sizeof line, file))
        if (split(line, parts, 7) >= 6 && number(parts[2], &uid) && number(parts[3], &gid) &&
            (numeric ? uid == identity->uid : !strcmp(parts[0], user))) {
            identity->uid = uid;
            identity->gid = gid;
            snprintf(identity->name, sizeof identity->name, "%s", parts[0]);
            snprintf(identity->home, sizeof identity->home, "%s", parts[5]);
            found = 1;
        }
    if (file)
        fclose(file);
    return found || numeric || !strcmp(user, "root");
}

static int find_groups(const char *group, struct identity *identity)
{
    char line[8192], *parts[4];
    unsigned gid = 0;
    int found = !group || number(group, &identity->gid);
    FILE *file = open_accounts("/etc/group");
    while (file && fgets(line, sizeof line, file)) {
        int count = split(line, parts, 4);
        if (count < 3 || !number(parts[2], &gid))
            continue;
        if (!found && !strcmp(parts[0], group)) {
            identity->gid = gid;
            found = 1;
        }
        if (!group && count == 4 && *identity->name && identity->group_count < 63 &&
            in_list(parts[3], identity->name))
            identity->groups[identity->group_count++] = gid;
    }
    if (file)
        fclose(file);
    identity->groups[identity->group_count++] = identity->gid;
    return found;
}

static void lookup(const char *wanted, struct identity *identity)
{
    char user[256];
    snprintf(user, sizeof user, "%s", *wanted ? wanted : "root");
    char *group = strchr(user, ':');
    if (group)
        *group++ = 0;
    snprintf(identity->home, sizeof identity->home, "%s", strcmp(user, "root") && strcmp(user, "0") ? "/" : "/root");
    errno = ENOENT;
    if (!find_user(user, identity) || !find_groups(group, identity))
        fail("no user or group '%s' inside", wanted);
}

static void limit(int what, uint64_t value)
{
    struct rlimit now;
    if (!value || getrlimit(what, &now) < 0)
        return;
    if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max)
        value = now.rlim_max;
    setrlimit(what, &(struct rlimit){value, value});
}

static void wield(uint64_t wanted)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{0}};
    int known = syscall(SYS_capget, &header, sets);
    for (int half = 0; half < 2; half++)
        sets[half].effective = sets[half].permitted & (uint32_t)(wanted >> (32 * half));
    if (known < 0 || syscall(SYS_capset, &header, sets) < 0)
        fail("cannot set capabilities");
}

static void drop_capabilities(uint64_t kept, int strict)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{0}};
    wield(~0ULL); /* a change from root to another user took them out of effect */
    for (int each = 0; each < 64; each++)
        if (!(kept >> each & 1) && prctl(PR_CAPBSET_DROP, each) < 0) {
            if (strict && errno != EINVAL)
                fail("cannot drop capability %d", each);
            break; /* beyond the last one this kernel knows, or in a container that was given no right to */
        }
    for (int half = 0; half < 2; half++)
        sets[half].permitted = sets[half].effective = (uint32_t)(kept >> (32 * half));
    if (syscall(SYS_capset, &header, sets) < 0)
        fail("cannot drop capabilities");
}

/* As the inside's root: what the command is to find. */
static void make_ready(struct sandbox *sandbox, struct command *command)
{
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        fail("cannot become root of the inside");
    wield(sandbox->request->capabilities);
    make_fresh(command->fresh_count, command->fresh);
    for (int each = 0; each < command->target_count; each++)
        receive_tree(command->target_fds[each], command->targets[each]);
    wield(~0ULL);
    *command->made_ready = 1;
}

static void enter(struct sandbox *sandbox, struct command *command, struct identity *identity)
{
    struct request *request = sandbox->request;
    limit(RLIMIT_CORE, 0);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    limit(RLIMIT_NPROC, request->nproc);
    limit(RLIMIT_FSIZE, request->fsize);
    limit(RLIMIT_DATA, request->data);
    limit(RLIMIT_NOFILE, request->nofile);
    if (sandbox->inner >= 0 && setns(sandbox->inner, CLONE_NEWUSER) < 0)
        fail("cannot enter the inner user namespace");
    if (command->made_ready)
        make_ready(sandbox, command);
    lookup(command->user, identity);
    close_all();
    if (chdir(command->cwd) < 0)
        fail("cannot enter folder %s", command->cwd);
    if (setgroups(identity->group_count, identity->groups) < 0 ||
        setresgid(identity->gid, identity->gid, identity->gid) < 0)
        fail("cannot become group %u", identity->gid);
    prctl(PR_SET_KEEPCAPS, 1);
    if (setresuid(identity->uid, identity->uid, identity->uid) < 0)
        fail("cannot become user %u", identity->uid);
    drop_capabilities(identity->uid == 0 || command->builtin ? request->capabilities : 0, sandbox->inner >= 0);
}

static const char *get(struct command *command, const char *name)
{
    size_t length = strlen(name);
    for (int each = 0; each < command->envc; each++)
        if (!strncmp(command->env[each], name, length) && command->env[each][length] == '=')
            return command->env[each] + length + 1;
    return NULL;
}

/* Find the program as the inside would: its own PATH, its own files. */
static _Noreturn void execute(struct command *command)
{
    char candidate[4096];
    const char *name = command->argv[0], *path = get(command, "PATH");
    int reason = ENOENT;
    if (strchr(name, '/') || !path) {
        execve(name, command->argv, command->env);
        fail("cannot run %s", name);
    }
    while (*path) {
        size_t length = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, name);
        execve(candidate, command->argv, command->env);
        if (errno != ENOENT && errno != ENOTDIR)
            reason = errno;
        path += length + (path[length] == ':');
    }
    errno = reason;
    fail("cannot run %s", name);
}

_Noreturn void run_command(struct sandbox *sandbox, struct command *command)
{
    struct identity identity = {0};
    char home[300];
    sigset_t none;
    setsid();
    int null = command->fds[0] < 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    for (int fd = 0; fd < 3; fd++)
        dup2(command->fds[fd] < 0 ? null : command->fds[fd], fd);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    prctl(PR_SET_NAME, "command");
    enter(sandbox, command, &identity);
    if (command->builtin)
        _exit(run_builtin(command->argc, command->argv));
    if (!get(command, "HOME")) {
        snprintf(home, sizeof home, "HOME=%s", identity.home);
        command->env[command->envc++] = home;
    }
    execute(command);
}
