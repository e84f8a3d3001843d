"""The system call filter of a sandbox, assembled here: what no task needs and an attacker would like.

A deny-list on purpose: package managers, compilers, debuggers and tmux must work as in any container. The
kernel's own checks (no capability outside the inner user namespace) are the wall; this takes away doors. The
binding of libseccomp comes with distributions only and would have to be there for each interpreter.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Sequence

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
# name: (x86_64, the generic table of aarch64 and riscv64); None where the call does not exist
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# These answer "no such call": programs then take their other way, as on an older kernel.
_ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
}
_SOCKET, _IOCTL, _CLONE, _UNSHARE, _SETNS = (41, 198), (16, 29), (56, 220), (272, 97), (308, 268)
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink: not vsock, packet, alg, bluetooth …
_TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put keystrokes into a terminal
_NEWUSER = 0x10000000
"""May not be made; entering one is how the init, which has this filter too, puts a command inside. That takes
CAP_SYS_ADMIN in the namespace entered, which nothing inside has anywhere."""

_LD, _JEQ, _JSET, _JGE, _RET = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24

Instruction = tuple[int, int, int, int]


def supported(machine: str | None = None) -> bool:
    """Whether this processor's call numbers are known."""
    return (machine or os.uname().machine) in _ARCHES


def build_filter(machine: str | None = None) -> bytes:
    """The program as the kernel, and bubblewrap's --seccomp, read it."""
    machine = machine or os.uname().machine
    program: list[Instruction] = [
        (_LD, 0, 0, _ARCH),
        (_JEQ, 1, 0, _ARCHES[machine]),
        _deny(errno.ENOSYS),
        (_LD, 0, 0, _NR),
    ]
    if machine == "x86_64":
        program += [(_JGE, 0, 1, 0x40000000), _deny(errno.ENOSYS)]
    program += _search(sorted(_judged(0 if machine == "x86_64" else 1).items()))
    return b"".join(struct.pack("=HBBI", *each) for each in program)


def _judged(column: int) -> dict[int, list[Instruction]]:
    """What happens to each call that is not simply allowed, by its number."""
    denied = {
        numbers[column]: [_deny(code)]
        for table, code in ((_NUMBERS, errno.EPERM), (_ABSENT, errno.ENOSYS))
        for numbers in table.values()
    }
    allowed_family = [(_JEQ, family, False) for family in _FAMILIES]
    looked_into = {
        _SOCKET[column]: _checks(_ARG0, allowed_family, deny=errno.EAFNOSUPPORT, otherwise_allow=False),
        _IOCTL[column]: _checks(_ARG1, [(_JEQ, code, True) for code in _TERMINAL_IOCTLS]),
        _CLONE[column]: _checks(_ARG0, [(_JSET, _NEWUSER, True)]),
        _UNSHARE[column]: _checks(_ARG0, [(_JSET, _NEWUSER, True)]),
        _SETNS[column]: _checks(_ARG1, [(_JEQ, _NEWUSER, False)], otherwise_allow=False),
    }
    return {number: body for number, body in (denied | looked_into).items() if number is not None}


def _search(calls: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Halve the numbers until one is left: the kernel walks this for every call there is when it loads it."""
    if len(calls) == 1:
        ((number, body),) = calls
        return [(_JEQ, 0, len(body), number), *body, (_RET, 0, 0, _ALLOW)]
    middle = len(calls) // 2
    below, above = _search(calls[:middle]), _search(calls[middle:])
    return [(_JGE, len(below), 0, calls[middle][0]), *below, *above]


def _deny(code: int) -> Instruction:
    return (_RET, 0, 0, _ERRNO | code)


def _checks(
    argument: int,
    tests: Iterable[tuple[int, int, bool]],
    *,
    deny: int = errno.EPERM,
    otherwise_allow: bool = True,
) -> list[Instruction]:
    """Look at the low half of an argument, which is all the kernel uses of these."""
    body: list[Instruction] = [(_LD, 0, 0, argument)]
    for operation, value, denied in tests:
        body += [(operation, 0, 1, value), _deny(deny) if denied else (_RET, 0, 0, _ALLOW)]
    body.append((_RET, 0, 0, _ALLOW) if otherwise_allow else _deny(deny))
    return body
