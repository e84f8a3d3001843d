"""The keeper without a compiler: the same messages, with bubblewrap making the namespaces.

Slower (a Python process per sandbox) and with one weakness: the process that keeps a sandbox open can be
killed from the inside, which then ends. Everything else holds as with the compiled keeper.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from proctor.sandbox.init import kernel
from proctor.sandbox.init.warden import Warden, forked, measure
from proctor.sandbox.init.wire import Message, receive, reply

_SOCKET = 3
_TUN = Path("/dev/net/tun")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(slots=True)
class _Child:
    """A warden, a remover or a program, known by a descriptor that tells of its end."""

    pid: int
    kind: str
    ident: str
    pidfd: int
    asked: bool = False
    """Whether it was told to end."""
    folder: int = -1
    name: str = ""
    used_bytes: int = 0


class Keeper:
    """Serves one Proctor process."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._children: dict[int, _Child] = {}

    def serve(self, parent: int) -> None:
        """Work until Proctor hangs up or dies."""
        while True:
            ready = set(select.select([_SOCKET, parent, *self._children], [], [])[0])
            if parent in ready:
                return
            for pidfd in ready & set(self._children):
                self._ended(self._children.pop(pidfd))
            if _SOCKET in ready:
                message = receive(self._socket)
                if message is None:
                    return
                self._handle(message)
                message.close()

    def _handle(self, message: Message) -> None:
        if message.kind == "S":
            self._remember(forked(lambda: Warden(message).run()), "warden", message.ident)
        elif message.kind == "R":
            self._remember(forked(lambda: _become(message)), "program", message.ident)
        elif message.kind == "A":
            reply(self._socket, "r", message.ident, 2)  # let a real tar do it
        elif message.kind == "E":
            self._end(message)
        elif message.kind == "K":
            for child in self._children.values():
                if child.kind == "program" and child.ident == message.ident:
                    os.kill(child.pid, signal.SIGKILL)

    def _end(self, message: Message) -> None:
        folder = os.dup(message.fds[0]) if message.fds else -1
        for child in self._children.values():
            if child.kind == "warden" and child.ident == message.ident:
                child.asked, child.folder, child.name = True, folder, message.one("n")
                os.kill(child.pid, signal.SIGTERM)
                return
        self._is_over(message.ident, message.one("n"), folder)

    def _is_over(self, ident: str, name: str, folder: int) -> None:
        if folder >= 0:
            self._remove(ident, name, folder)
        else:
            reply(self._socket, "g", ident, 0, 0)

    def _remove(self, ident: str, name: str, folder: int) -> None:
        def work() -> None:
            os.fchdir(folder)
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            os.execve("/bin/rm", ["rm", "-rf", "--", name], {})  # noqa: S606 - a list, no shell

        os.fchdir(folder)
        used_bytes, _ = measure(f"{name}/upper")
        os.chdir("/")
        self._remember(forked(work), "remover", ident, used_bytes)
        os.close(folder)

    def _remember(self, pid: int, kind: str, ident: str, used_bytes: int = 0) -> None:
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = _Child(pid, kind, ident, pidfd, used_bytes=used_bytes)

    def _ended(self, child: _Child) -> None:
        os.close(child.pidfd)
        _, status, used = os.wait4(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        code = code if code >= 0 else 128 - code
        if child.kind == "warden":
            cpu_us = int((used.ru_utime + used.ru_stime) * 1e6)
            figures = (cpu_us, used.ru_maxrss, used.ru_inblock, used.ru_oublock)
            reply(self._socket, "x", child.ident, code, *figures)
            if child.asked:
                self._is_over(child.ident, child.name, child.folder)
        else:
            reply(self._socket, "g" if child.kind == "remover" else "r", child.ident, code, child.used_bytes)


def _become(message: Message) -> None:
    """Become a trusted program of the host, as root of the outer user namespace."""
    given = [os.dup(fd) if fd < 10 else fd for fd in message.fds]
    for number, fd in enumerate(given[:4]):
        os.dup2(fd, number)
    os.closerange(max(3, len(given[:4])), 65_536)
    os.setsid()
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.die_with_parent()
    argv = list(message.all("a"))
    os.execvpe(argv[0], argv, {"PATH": _PATH, "LC_ALL": "C.UTF-8"})  # noqa: S606 - a list, no shell


def _offer_tun() -> None:
    """While still root: a tun device that we may open, in mounts of our own; the machine's stays as it is."""
    found = _TUN.stat()
    if not stat.S_ISCHR(found.st_mode) or found.st_mode & 0o006 == 0o006:
        return
    kernel.unshare(kernel.NEWNS)
    kernel.mount("", "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("proctor", str(_TUN.parent), "tmpfs", kernel.MS_NOSUID, "mode=755,size=4k")
    os.mknod(_TUN, stat.S_IFCHR, found.st_rdev)
    _TUN.chmod(0o666)


def main(arguments: list[str]) -> NoReturn:
    """Leave root if we are root, enter a user namespace, wait to be mapped, serve."""
    parent = os.pidfd_open(os.getppid())
    os.set_inheritable(_SOCKET, False)
    sock = socket.socket(fileno=_SOCKET)
    try:
        if arguments:
            uid, gid = (int(word) for word in arguments)
            with contextlib.suppress(OSError):  # slirp4netns says so when a network is asked for
                _offer_tun()
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        if os.geteuid() == 0:
            raise PermissionError(1, "cannot create sandboxes as root")
        kernel.be_dumpable()
        kernel.unshare(kernel.NEWUSER)
    except OSError as error:
        reply(sock, "e", error.strerror)
        sys.exit(1)
    reply(sock, "m")
    if receive(sock) is None:
        sys.exit(1)
    os.setgroups([])
    kernel.hide_arguments()
    gc.freeze()
    gc.disable()  # the children of this process share its memory as long as nothing walks over it
    os.umask(0o022)
    os.chdir("/")
    with contextlib.suppress(KeyboardInterrupt):
        Keeper(sock).serve(parent)
    os._exit(0)
