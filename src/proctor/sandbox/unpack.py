"""Unpack a hostile tar into a layer: names are walked descriptor by descriptor and links are never followed.

Runs in this process when Proctor is root, else as a program in the sandboxes' user namespace, where files can
be given to any of their users. It is self-contained for that reason: nothing of Proctor is imported here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

IDS = 65_536
OPAQUE = "user.overlay.opaque"
_OPAQUE_OF_ROOT = "trusted.overlay.opaque"
_WHITEOUT = ".wh."
_OPAQUE_MARK = ".wh..wh..opq"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 1 << 18
_MOST_ENTRIES = 4_000_000
_FILE_MODE = 0o7777


class UnpackError(Exception):
    """The archive is not one that may be unpacked."""


class Unpacker:
    """Writes the members of one archive below one folder."""

    def __init__(self, target: int, first_uid: int, first_gid: int, opaque: str = OPAQUE) -> None:
        self._target = target
        self._opaque_name = opaque
        self._first_uid = first_uid
        self._first_gid = first_gid
        self._times: dict[tuple[str, ...], int] = {}
        self._opaque: set[tuple[str, ...]] = set()
        self._near: tuple[tuple[str, ...], int] = ((), -1)

    def unpack(self, stream: BinaryIO) -> None:
        """Write everything; UnpackError when a name would lead out or the archive is broken."""
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as archive:
                for count, member in enumerate(archive):
                    if count >= _MOST_ENTRIES:
                        raise UnpackError(f"more than {_MOST_ENTRIES} entries")
                    self._member(archive, member)
                    vars(archive)["members"].clear()  # or it remembers every one
        except (tarfile.TarError, EOFError, OverflowError) as error:
            raise UnpackError(f"not a tar that can be read: {error}") from error
        finally:
            self._forget()
        for parts, mtime in self._times.items():
            with contextlib.suppress(OSError), self._folder(parts) as folder:
                os.utime(folder, (mtime, mtime))

    def _member(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if not parts:
            if member.isdir():
                self._finish(self._target, member)
                self._mark_opaque(self._target, member)
            return
        *parents, name = parts
        with self._parent(tuple(parents)) as folder:
            if name == _OPAQUE_MARK:
                os.setxattr(folder, self._opaque_name, b"y")
                self._opaque.add(tuple(parents))
            elif name.startswith(_WHITEOUT):
                if tuple(parents) not in self._opaque:  # there it would hide nothing and be seen itself
                    self._whiteout(folder, name.removeprefix(_WHITEOUT))
            elif member.isdir():
                self._make_folder(folder, name, member)
                self._times[parts] = int(member.mtime)
            else:
                self._clear(folder, name)
                self._make(archive, folder, name, member)

    def _make(self, archive: tarfile.TarFile, folder: int, name: str, member: tarfile.TarInfo) -> None:
        if member.isreg():
            self._write(archive, folder, name, member)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=folder)
            self._own(name, member, folder)
        elif member.islnk():
            *parents, source = _parts(member.linkname) or ("",)
            with self._folder(tuple(parents)) as other:
                os.link(source, name, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
        elif member.isfifo():
            os.mkfifo(name, 0o600, dir_fd=folder)
            self._own(name, member, folder)
            os.chmod(name, member.mode & 0o777, dir_fd=folder)
        elif member.ischr() and (member.devmajor, member.devminor) == (0, 0):
            self._whiteout(folder, name)

    def _write(self, archive: tarfile.TarFile, folder: int, name: str, member: tarfile.TarInfo) -> None:
        source = archive.extractfile(member)
        assert source is not None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            size = 0
            while data := source.read(_BLOCK):
                size += len(data)
                if len(data) == _BLOCK and not any(data):
                    os.lseek(fd, len(data), os.SEEK_CUR)  # holes stay holes
                else:
                    _write_all(fd, data)
            os.ftruncate(fd, size)
            self._finish(fd, member)
        finally:
            os.close(fd)

    def _make_folder(self, folder: int, name: str, member: tarfile.TarInfo) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            self._clear(folder, name, keep_folder=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
        fd = os.open(name, _FOLDER, dir_fd=folder)
        try:
            self._finish(fd, member)
            self._mark_opaque(fd, member)
        finally:
            os.close(fd)

    def _mark_opaque(self, fd: int, member: tarfile.TarInfo) -> None:
        if any(member.pax_headers.get(f"SCHILY.xattr.{each}") == "y" for each in (OPAQUE, _OPAQUE_OF_ROOT)):
            os.setxattr(fd, self._opaque_name, b"y")

    def _finish(self, fd: int, member: tarfile.TarInfo) -> None:
        uid, gid = self._ids(member)
        os.fchown(fd, uid, gid)
        os.fchmod(fd, member.mode & _FILE_MODE)
        os.utime(fd, (int(member.mtime), int(member.mtime)))

    def _own(self, name: str, member: tarfile.TarInfo, folder: int) -> None:
        uid, gid = self._ids(member)
        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)

    def _ids(self, member: tarfile.TarInfo) -> tuple[int, int]:
        if not (0 <= member.uid < IDS and 0 <= member.gid < IDS):
            raise UnpackError(f"{member.name} belongs to {member.uid}:{member.gid}; ids end at {IDS - 1}")
        return self._first_uid + member.uid, self._first_gid + member.gid

    def _whiteout(self, folder: int, name: str) -> None:
        if name in {"", ".", ".."}:
            raise UnpackError(f"{name!r} cannot be removed from the layers below")
        self._clear(folder, name)
        os.mknod(name, 0o020000, 0, dir_fd=folder)
        os.chown(name, self._first_uid, self._first_gid, dir_fd=folder, follow_symlinks=False)

    def _clear(self, folder: int, name: str, *, keep_folder: bool = False) -> None:
        """Make way for a later member of the same name."""
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=folder)
            except IsADirectoryError:
                if not keep_folder:
                    os.rmdir(name, dir_fd=folder)

    @contextlib.contextmanager
    def _parent(self, parts: tuple[str, ...]) -> Iterator[int]:
        """The folder of a member, made when the archive left it out; the last one stays open."""
        if self._near[0] != parts or self._near[1] < 0:
            self._forget()
            with self._folder(parts, make=True) as folder:
                self._near = (parts, os.dup(folder))
        yield self._near[1]

    def _forget(self) -> None:
        if self._near[1] >= 0:
            os.close(self._near[1])
        self._near = ((), -1)

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        fd = os.dup(self._target)
        try:
            for part in parts:
                below = self._step(fd, part, make=make)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _step(self, folder: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise UnpackError(f"a link points to {name!r}, which is not in the archive") from None
        except OSError as error:
            raise UnpackError(f"{name!r} is not a folder, but the archive has entries below it") from error
        os.mkdir(name, 0o755, dir_fd=folder)
        os.chown(name, self._first_uid, self._first_gid, dir_fd=folder)
        return os.open(name, _FOLDER, dir_fd=folder)


def _write_all(fd: int, data: bytes) -> None:
    """As in `proctor.disk`, which this program cannot import: a nearly full disk takes a part of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts or "\0" in name:
        raise UnpackError(f"{name!r} points outside the archive")
    return parts


def unpack(stream: BinaryIO, target: int, *, first_uid: int = 0, first_gid: int = 0) -> None:
    """Unpack a tar, compressed or not, below a folder; its ids are counted from the first ones."""
    try:
        Unpacker(target, first_uid, first_gid).unpack(stream)
    except OSError as error:
        raise UnpackError(f"{error.filename or 'unpacking'}: {error.strerror}") from error


def main(arguments: list[str]) -> int:
    """Unpack standard input into the folder that is descriptor 3, or that is named, with its opaque mark."""
    os.umask(0)
    try:
        if not arguments:
            unpack(sys.stdin.buffer, 3)
        else:
            folder, opaque = arguments
            Unpacker(os.open(folder, _FOLDER), 0, 0, opaque).unpack(sys.stdin.buffer)
    except OSError as error:
        os.write(2, f"{error.filename or 'unpacking'}: {error.strerror}\n".encode(errors="replace")[:2000])
        return 1
    except UnpackError as error:
        os.write(2, f"{error}\n".encode(errors="replace")[:2000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
