"""Copy files from one root to another, or tell what they are, without ever leaving either root.

Every path is looked up by the kernel as if the root were `/`, so no link of an image leads out of it. Runs in
this process when Proctor is root and writes to a plain folder, else as a program in the sandboxes' user
namespace. It is self-contained for that reason: nothing of Proctor is imported here.
"""

# Descriptors and names relative to them; pathlib serves neither.
# ruff: noqa: PTH115, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

IDS = 65_536
_OPENAT2 = 437
_IN_ROOT = 0x10
_NEWUSER = 0x10000000
_BLOCK = 1 << 20
_OPAQUE = "user.overlay.opaque"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeError(Exception):
    """The files cannot be copied; the text says why."""


class Entry(NamedTuple):
    """A file, folder or link to copy."""

    name: str
    """Below the target."""
    path: str
    """In the root it comes from."""
    status: os.stat_result


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


class Root:
    """A folder that is `/` for every path looked up in it."""

    def __init__(self, folder: str | int, first_uid: int = 0, first_gid: int = 0) -> None:
        self._fd = os.open(f"/proc/self/fd/{folder}" if isinstance(folder, int) else folder, _FOLDER)
        self.first_uid = first_uid
        self.first_gid = first_gid

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """A descriptor of a path; links lead to where they lead in this root."""
        how = _How(flags | os.O_CLOEXEC, mode, _IN_ROOT)
        name = os.fsencode(path.lstrip("/") or ".")
        fd = int(_libc.syscall(_OPENAT2, self._fd, name, ctypes.byref(how), ctypes.sizeof(how)))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return fd

    @contextlib.contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A folder that is there."""
        fd = self.open(path, _FOLDER)
        try:
            yield fd
        finally:
            os.close(fd)

    def status(self, path: str) -> os.stat_result | None:
        """What a path leads to; None when nothing is there."""
        try:
            fd = self.open(path, os.O_PATH)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def real(self, entry: Entry) -> str:
        """Where something is that was found here, with the links on the way followed."""
        flags = os.O_PATH | (os.O_NOFOLLOW if stat.S_ISLNK(entry.status.st_mode) else 0)
        fd = self.open(entry.path, flags)
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def make_folders(self, path: str) -> None:
        """A folder and those above it, as far as they are not there."""
        made = ""
        for part in path.strip("/").split("/"):
            above, made = made, f"{made}/{part}"
            if not part or self.status(made) is not None:
                continue
            with self.folder(above) as parent:
                os.mkdir(part, 0o755, dir_fd=parent)
                os.chown(part, self.first_uid, self.first_gid, dir_fd=parent, follow_symlinks=False)


def select(root: Root, wanted: dict[str, Any]) -> Iterator[Entry]:
    """The entries that the sources mean; a folder means its content."""
    excluded = [re.compile(each) for each in wanted.get("exclude", ())]
    for source in wanted["sources"]:
        matches = list(_matches(root, source))
        if not matches:
            raise TreeError(f"'{source}' is not there")
        for path in matches:
            for entry in _selected(
                root, path, parents=kept_path(path, source) if wanted.get("parents") else ""
            ):
                if not any(_covers(each, entry.name) for each in excluded):
                    yield entry


def kept_path(path: str, source: str) -> str:
    """What `--parents` keeps of a path: all of it, or what follows `/./` in the source."""
    before, dot, _ = source.partition("/./")
    depth = len([part for part in before.split("/") if part not in {"", "."}]) if dot else 0
    return "/".join(path.split("/")[depth:])


def _covers(pattern: re.Pattern[str], name: str) -> bool:
    parts = name.split("/")
    return any(pattern.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1))


def _matches(root: Root, pattern: str) -> Iterator[str]:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise TreeError(f"'{pattern}' leads out of it")
    if not re.search(r"[*?\[]", pattern):
        if root.status("/".join(parts)) is not None:
            yield "/".join(parts)
        return
    found = [""]
    for part in parts:
        found = [each for place in found for each in _step(root, place, part.replace("[^", "[!"))]
    yield from sorted(found)


def _step(root: Root, place: str, pattern: str) -> Iterator[str]:
    try:
        with root.folder(place) as fd:
            names = os.listdir(fd)
    except OSError:
        return
    for name in names:
        if fnmatch.fnmatchcase(name, pattern):
            yield f"{place}/{name}".lstrip("/")


def _selected(root: Root, path: str, *, parents: str) -> Iterator[Entry]:
    status = root.status(path)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        if parents:
            yield Entry(parents, path, status)
        yield from _below(root, path, f"{parents}/" if parents else "")
    elif stat.S_ISREG(status.st_mode):
        yield Entry(parents or path.rpartition("/")[2], path, status)


def _below(root: Root, path: str, prefix: str) -> Iterator[Entry]:
    with root.folder(path) as fd:
        listed = sorted(os.listdir(fd))
        found = [(name, os.stat(name, dir_fd=fd, follow_symlinks=False)) for name in listed]
    for name, status in found:
        entry = Entry(prefix + name, f"{path}/{name}", status)
        if stat.S_ISDIR(status.st_mode):
            yield entry
            yield from _below(root, entry.path, f"{entry.name}/")
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield entry


def digest(root: Root, wanted: dict[str, Any]) -> dict[str, Any]:
    """What the content of a selection is, whenever it was written."""
    whole = hashlib.sha256()
    for entry in select(root, wanted):
        mode, uid, gid = _owned(entry.status, root)
        if stat.S_ISDIR(entry.status.st_mode):
            content = "folder"
        elif stat.S_ISLNK(entry.status.st_mode):
            content = f"link {_link(root, entry.path)}"
        else:
            seen = hashlib.sha256()
            for piece in _content(root, entry.path):
                seen.update(piece)
            content = f"file {seen.hexdigest()}"
        line = f"{entry.name}\0{mode:o} {uid} {gid}\0{content}\n"
        whole.update(line.encode(errors="surrogateescape"))
    return {"digest": whole.hexdigest(), "single": _is_single(root, wanted)}


def prune(root: Root, wanted: dict[str, Any]) -> dict[str, Any]:
    """Remove empty files and folders, and the folders above them that are empty then."""
    for path in wanted["prune"]:
        place = path
        while place.strip("/") and place not in wanted["keep"]:
            above, _, name = place.rstrip("/").rpartition("/")
            try:
                with root.folder(above) as parent:
                    if not _remove_empty(name, parent):
                        break
            except OSError:
                break
            place = above
    return {}


def _remove_empty(name: str, parent: int) -> bool:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISREG(status.st_mode) and not status.st_size:
        os.unlink(name, dir_fd=parent)
        return True
    if not stat.S_ISDIR(status.st_mode):
        return False
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if _OPAQUE in os.listxattr(fd):
            return False
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)
    return True


def copy(root: Root, target: Root, wanted: dict[str, Any]) -> dict[str, Any]:
    """Copy a selection to a path of another root; the paths that were written."""
    entries = list(select(root, wanted))
    place: str = wanted["target"]
    single = _is_single(root, wanted)
    there = target.status(place)
    into_folder = place.endswith("/") or (there is not None and stat.S_ISDIR(there.st_mode))
    names = []
    if not single or into_folder:
        target.make_folders(place)
    for entry in entries:
        path = place if single and not into_folder else f"{place.rstrip('/')}/{entry.name}"
        _write(root, target, entry, path, wanted.get("owner"))
        names.append(path)
    return {"names": names}


def _is_single(root: Root, wanted: dict[str, Any]) -> bool:
    """Whether one file is meant, which may get another name."""
    if len(wanted["sources"]) != 1 or wanted.get("parents"):
        return False
    matches = list(_matches(root, wanted["sources"][0]))
    status = root.status(matches[0]) if len(matches) == 1 else None
    return status is not None and not stat.S_ISDIR(status.st_mode)


def _owned(status: os.stat_result, root: Root) -> tuple[int, int, int]:
    uid, gid = status.st_uid - root.first_uid, status.st_gid - root.first_gid
    return stat.S_IMODE(status.st_mode), uid if 0 <= uid < IDS else 0, gid if 0 <= gid < IDS else 0


def _write(root: Root, target: Root, entry: Entry, path: str, owner: list[int] | None) -> None:
    above, _, name = path.rpartition("/")
    target.make_folders(above)
    mode, uid, gid = _owned(entry.status, root)
    uid, gid = owner or (uid, gid)
    with target.folder(above) as parent:
        if stat.S_ISDIR(entry.status.st_mode):
            if target.status(path) is not None:
                return
            os.mkdir(name, 0o700, dir_fd=parent)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            if stat.S_ISLNK(entry.status.st_mode):
                os.symlink(_link(root, entry.path), name, dir_fd=parent)
            else:
                with open(os.open(name, _WRITE, 0o600, dir_fd=parent), "wb") as file:
                    file.writelines(_content(root, entry.path))
        os.chown(name, target.first_uid + uid, target.first_gid + gid, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISLNK(entry.status.st_mode):
            os.chmod(name, mode, dir_fd=parent)
            times = (entry.status.st_atime_ns, entry.status.st_mtime_ns)
            os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)


def _link(root: Root, path: str) -> str:
    above, _, name = path.rpartition("/")
    with root.folder(above) as parent:
        return os.readlink(name, dir_fd=parent)


def _content(root: Root, path: str) -> Iterator[bytes]:
    fd = root.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        while piece := os.read(fd, _BLOCK):
            yield piece
    finally:
        os.close(fd)


def _enter(pid: int) -> None:
    """Become root of the user namespace of a process, which is the only one that an overlay lets write."""
    fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _NEWUSER) < 0:
            raise OSError(ctypes.get_errno(), "cannot enter the namespace of the sandboxes", str(pid))
    finally:
        os.close(fd)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def work(wanted: dict[str, Any], ids: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """Carry out the request; TreeError or OSError when it cannot be done."""
    with contextlib.ExitStack() as opened:
        root = Root(wanted["from"], *(ids if wanted.get("from_inside", True) else (0, 0)))
        opened.callback(root.close)
        if "prune" in wanted:
            return prune(root, wanted)
        if "to" not in wanted:
            return digest(root, wanted)
        target = Root(wanted["to"], *ids)
        opened.callback(target.close)
        if "enter" in wanted:
            _enter(wanted["enter"])
        return copy(root, target, wanted)


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(work(json.loads(sys.argv[1]))))
    except (OSError, TreeError) as failure:
        said = f"{failure.filename}: {failure.strerror}" if isinstance(failure, OSError) else str(failure)
        sys.stderr.write(said)
        sys.exit(1)
