"""Script: make mount namespaces that show different folders at the same places, and send their descriptors.

It ends at once; whoever holds the descriptors keeps the namespaces alive. Without the rights of root it makes
a user namespace around them, in which the user stays the same.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x4_0000


def main(channel_fd: int, binds: list[list[tuple[str, str]]]) -> None:
    """For each list of (folder, place) make a namespace; then send them, and the user namespace if any."""
    with socket.socket(fileno=channel_fd) as channel:
        try:
            namespaces = _make(binds)
        except OSError as error:
            channel.sendall(f"{error.strerror}: {error.filename}".encode())
        else:
            socket.send_fds(channel, [b"ok"], namespaces)


def _make(binds: list[list[tuple[str, str]]]) -> list[int]:
    users = _leave_the_usual()
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    mounts = []
    for shown in binds:
        _call("unshare", _CLONE_NEWNS)
        for folder, place in shown:
            _call("mount", os.fsencode(folder), os.fsencode(place), None, _MS_BIND | _MS_REC, None)
        mounts.append(os.open("/proc/self/ns/mnt", os.O_RDONLY))
    return [*mounts, *users]


def _leave_the_usual() -> list[int]:
    """Get a mount namespace to work in; the user namespace that it took."""
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        return [os.open("/proc/self/ns/user", os.O_RDONLY)]
    return []


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)


if __name__ == "__main__":
    # The places, then a dash, then the folders of one side, then those of the other.
    places = sys.argv[2 : sys.argv.index("-")]
    folders = sys.argv[sys.argv.index("-") + 1 :]
    count = len(places)
    sides = [folders[:count], folders[count:]]
    main(int(sys.argv[1]), [list(zip(side, places, strict=True)) for side in sides])
