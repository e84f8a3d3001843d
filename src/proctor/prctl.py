"""prctl: subreapers, and processes that die with their parent. No imports: measured processes load it."""

from __future__ import annotations

import errno
from signal import SIGKILL

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Adopt every descendant whose parent dies, so that none can leave the tree."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int = SIGKILL) -> None:
    """Have the kernel send `signum` to this process when the thread that made it ends; 0 takes it back."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(errno.EINVAL, f"the kernel refused prctl option {option}")
