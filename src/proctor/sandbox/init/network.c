/* The network namespace of a sandbox: new for each, with nothing but its loopback. */
#include "proctor.h"
#include <linux/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

void make_network(void)
{
    struct ifreq interface = {.ifr_name = "lo"};
    if (unshare(CLONE_NEWNET) < 0)
        fail("cannot make a network namespace");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    interface.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &interface) < 0)
        fail("cannot raise the loopback");
    close(fd);
}

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
