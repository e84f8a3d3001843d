/* PID 1 of a container that podman or docker made: the same service as in a sandbox of our own.
 *
 * Proctor listens on a socket in a folder bound into the container; we connect once, before anything else
 * runs here, and get the socket to serve, the limits and the filter. There is no inner user namespace: what
 * runs here may be root like us, so we are not dumpable, which closes /proc/1 and tracing to it. */
#include "proctor.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

extern int failure_socket;

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("cannot reach Proctor at %s", path);
    return fd;
}

static uint64_t own_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{0}};
    if (syscall(SYS_capget, &header, sets) < 0)
        fail("cannot read capabilities");
    return sets[0].permitted | (uint64_t)sets[1].permitted << 32;
}

static void make_workdir(const char *path)
{
    struct stat status;
    char *copy = path && *path == '/' ? strdup(path) : NULL;
    if (copy && stat(copy, &status) < 0 && make_folders(copy, 0755) < 0)
        fail("cannot make %s", path);
    free(copy);
}

_Noreturn void run_in_container(const char *path)
{
    static struct request request;
    static struct message message; /* the strings of the request stay in its buffer until the next message */
    prctl(PR_SET_DUMPABLE, 0);
    close_all();
    umask(022);
    int line = connect_to(path);
    failure_socket = line;
    if (!receive_message(line, &message) || message.fd_count < 2)
        fail("Proctor hung up");
    read_request(&message, &request);
    close(line);
    failure_socket = request.control;
    request.capabilities &= own_capabilities();
    write_file("/proc/self/oom_score_adj", "500");
    if (chdir("/") < 0)
        fail("cannot enter the root folder");
    make_workdir(request.workdir);
    struct sandbox sandbox = {.request = &request, .control = request.control, .inner = -1};
    set_filter(request.seccomp);
    serve_commands(&sandbox);
}
