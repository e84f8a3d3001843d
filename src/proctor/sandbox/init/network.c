/* The network namespace of a sandbox. To make and remove one is a good tenth of what a sandbox costs, so one
 * that was left as it was made is used again, by a sandbox that comes later. The inside cannot configure
 * its network, only use it, and any use is counted: each packet, each failed attempt, each socket still open.
 * Where a single number differs from those of a new network, nobody else gets it. */
#include "proctor.h"
#include <linux/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* The numbers of a new network, written by the first init that made one; the keeper's other children see it. */
struct numbers {
    volatile int known;
    size_t size;
    char text[1 << 16];
};

static struct numbers *new_network;
static int spares[64], spare_count;

void share_numbers(void)
{
    new_network = mmap(NULL, sizeof *new_network, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (new_network == MAP_FAILED)
        new_network = NULL;
}

static ssize_t read_numbers(char *text, size_t room)
{
    static const char *const files[] = {"dev", "snmp", "snmp6", "netstat", "sockstat"};
    size_t used = 0;
    for (size_t each = 0; each < sizeof files / sizeof *files; each++) {
        char path[32];
        ssize_t got;
        snprintf(path, sizeof path, "/proc/self/net/%s", files[each]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue; /* a kernel without IPv6 */
        size_t began = used;
        while (fd >= 0 && used < room && (got = read(fd, text + used, room - used)) > 0)
            used += got;
        close(fd);
        if (fd < 0 || used == room)
            return -1;
        if (!strcmp(files[each], "sockstat")) { /* only its first line, the open sockets, is of this network */
            char *line = memchr(text + began, '\n', used - began);
            used = line ? (size_t)(line - text) : used;
        }
    }
    return used;
}

static int is_as_new(void)
{
    static char text[sizeof new_network->text];
    ssize_t size = read_numbers(text, sizeof text);
    return size >= 0 && (size_t)size == new_network->size && !memcmp(text, new_network->text, size);
}

static void raise_loopback(void)
{
    struct ifreq interface = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    interface.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &interface) < 0)
        fail("cannot raise the loopback");
    close(fd);
}

/* In a child of the keeper: a network like new, or a new one. */
void enter_network(int spare)
{
    int found = spare >= 0 && new_network && new_network->known && setns(spare, CLONE_NEWNET) == 0 && is_as_new();
    if (!found) {
        if (unshare(CLONE_NEWNET) < 0)
            fail("cannot make a network namespace");
        raise_loopback();
    }
    if (!found && new_network && !new_network->known) {
        ssize_t size = read_numbers(new_network->text, sizeof new_network->text);
        new_network->size = size > 0 ? size : 0;
        __sync_synchronize();
        new_network->known = size > 0;
    }
    if (new_network) /* what runs inside later must not reach it */
        munmap(new_network, sizeof *new_network);
    close(spare);
    while (spare_count)
        close(spares[--spare_count]); /* the keeper's */
}

/* In the keeper: the network of an init, held while it ends. */
int hold_network(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Nobody is in it any more. */
void keep_network(int network)
{
    if (network >= 0 && spare_count < (int)(sizeof spares / sizeof *spares))
        spares[spare_count++] = network;
    else
        close(network);
}

/* A network that somebody had, or -1. */
int spare_network(void) { return spare_count ? spares[--spare_count] : -1; }

/* In the keeper while it is still root: public networks need /dev/net/tun, which many machines keep for root.
 * In mounts of its own the keeper gets a device that it may open; the machine's own stays as it is. Where that
 * cannot be done, slirp4netns says so when a network is asked for. */
void offer_tun(void)
{
    static const char folder[] = "/dev/net", device[] = "/dev/net/tun";
    struct stat found;
    if (stat(device, &found) < 0 || !S_ISCHR(found.st_mode) || (found.st_mode & 0006) == 0006)
        return;
    mode_t mask = umask(0);
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
        mount("proctor", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=4k") == 0)
        (void)!mknod(device, S_IFCHR | 0666, found.st_rdev);
    umask(mask);
}
