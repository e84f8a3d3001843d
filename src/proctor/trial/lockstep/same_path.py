"""Show the code of both sides at one path: how long a file's name is decides where Python puts what it loads.

Two mount namespaces show two folders at the same place. Their descriptors keep them alive, so nothing runs
for them and nothing is left when our process ends, however it ends. Where namespaces are refused, links with
names of equal length take their place.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.model.lockstep import PathsAlike
from proctor.processes import host_environment

_MAKER = Path(__file__).with_name("mount_namespaces.py")
_TIMEOUT_S = 20.0
_ANSWER_BYTES = 4096
_MOST_NAMESPACES = 3

Both = tuple[Path, Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSide:
    """Where the processes of one side see what they run."""

    root: str
    python: str
    second_root: str = ""
    """Where the second A of an A/A pair sees the code, if not at `root`."""
    pycache: str = ""
    """A folder for the bytecode of the side's own code; empty: beside the code."""
    enter: tuple[str, ...] = ()
    """The words in front of a command that sees it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSides:
    """Both sides, and how alike their paths are."""

    a: SeenSide
    b: SeenSide
    paths: PathsAlike = "same"
    notes: tuple[str, ...] = ()


@contextmanager
def same_path(folder: Path, roots: Both, pythons: tuple[str, str]) -> Iterator[SeenSides]:
    """Both sides at one path below `folder`, as far as this machine and these interpreters allow."""
    a, b = (SeenSide(root=str(root), python=python) for root, python in zip(roots, pythons, strict=True))
    shown = _shown(folder, roots, pythons)
    seen = SeenSides(a=a, b=b)
    with ExitStack() as stack:
        if shown:
            try:
                enters = stack.enter_context(_mounted(folder, shown))
                seen = replace(
                    seen,
                    a=_moved(a, {name: folder / name for name in shown}, enters[0]),
                    b=_moved(b, {name: folder / name for name in shown}, enters[1]),
                )
            except OSError as error:
                seen = _linked(folder, seen, shown, str(error))
        if pythons[0] != pythons[1] and "env" not in shown:
            alike = seen.paths == "same" and len(pythons[0]) == len(pythons[1])
            seen = replace(
                seen,
                paths="equal length" if alike else "different",
                notes=(*seen.notes, _of_interpreters(pythons)),
            )
        yield seen


def _shown(folder: Path, roots: Both, pythons: tuple[str, str]) -> dict[str, Both]:
    """What must be seen at one path, by the name that it gets there."""
    shown: dict[str, Both] = {}
    if roots[0] != roots[1]:
        # At one path the sides must not share bytecode: it is told apart by time and size alone.
        pycaches = (folder / "pyc-a", folder / "pyc-b")
        for pycache in pycaches:
            pycache.mkdir()
        shown |= {"side": roots, "pyc": pycaches}
    a, b = (Path(python).parents[1] for python in pythons)
    if a != b and all((each / "pyvenv.cfg").is_file() for each in (a, b)):
        shown["env"] = (a, b)
    return shown


def _moved(side: SeenSide, places: Mapping[str, Path], enter: tuple[str, ...] = ()) -> SeenSide:
    python = places["env"] / "bin" / Path(side.python).name if "env" in places else side.python
    return replace(
        side,
        root=str(places.get("side", side.root)),
        python=str(python),
        pycache=str(places.get("pyc", "")),
        enter=enter,
    )


def _of_interpreters(pythons: tuple[str, str]) -> str:
    lengths = " and ".join(str(len(python)) for python in pythons)
    return (
        f"the interpreters are at paths of {lengths} characters, which by itself can change the speed; two "
        "virtual environments would be compared at one path"
    )


def _linked(folder: Path, seen: SeenSides, shown: Mapping[str, Both], why: str) -> SeenSides:
    """Both sides behind links; only code that asks for its working folder sees where it really is."""
    try:
        for name in shown.keys() & {"side", "env"}:
            for letter, target in zip("abc", (*shown[name], shown[name][0]), strict=True):
                (folder / f"{name}-{letter}").symlink_to(target)
    except OSError as error:
        note = f"the sides are at different paths, which by itself can change the speed: {why}; {error}"
        return replace(seen, paths="different", notes=(note,))
    a, b = (
        _moved(side, {name: folder / f"{name}-{letter}" for name in shown})
        for side, letter in ((seen.a, "a"), (seen.b, "b"))
    )
    if "side" in shown:
        a = replace(a, second_root=str(folder / "side-c"))
    note = f"the sides are at paths of equal length, but not at one path: {why}"
    return SeenSides(a=a, b=b, paths="equal length", notes=(note,))


@contextmanager
def _mounted(folder: Path, shown: Mapping[str, Both]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """How to enter the namespace of A, and of B. OSError, in words, where there can be none."""
    nsenter = shutil.which("nsenter")
    if not nsenter:
        raise OSError("the program nsenter (util-linux) is missing")
    places = [folder / name for name in shown]
    for place in places:
        place.mkdir(exist_ok=True)
    with ExitStack() as stack:
        fds = _namespaces([str(place) for place in places], shown)
        for fd in fds:
            stack.callback(os.close, fd)
        own = f"/proc/{os.getpid()}/fd"
        user = [f"--user={own}/{fds[2]}", "--preserve-credentials"] if len(fds) > 2 else []
        a, b = ((nsenter, f"--mount={own}/{fd}", *user, "--") for fd in fds[:2])
        for enter in (a, b):
            tried = subprocess.run(
                [*enter, "true"],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                env=host_environment(),
            )
            if tried.returncode:
                raise OSError(f"a mount namespace cannot be entered: {tried.stderr.strip()}")
        yield a, b


def _namespaces(places: list[str], shown: Mapping[str, Both]) -> list[int]:
    """Descriptors of the mount namespaces of A and of B, and of the user namespace that they needed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        folders = [str(both[side]) for side in (0, 1) for both in shown.values()]
        maker = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_MAKER), str(theirs.fileno()), *places, "-", *folders],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=host_environment(),
        )
        try:
            theirs.close()
            ours.settimeout(_TIMEOUT_S)
            answer, fds, _, _ = socket.recv_fds(
                ours, _ANSWER_BYTES, _MOST_NAMESPACES, socket.MSG_CMSG_CLOEXEC
            )
        finally:
            maker.kill()
            maker.wait()
    if answer != b"ok":
        raise OSError(
            f"mount namespaces are not possible here ({answer.decode(errors='replace') or 'no answer'})"
        )
    return fds
