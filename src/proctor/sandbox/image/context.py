"""The files that COPY may take: those of the build context, less `.dockerignore`, and nothing outside of it.

Links are resolved as if the context were the root of the file system, so they cannot lead out.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.sandbox.image.dockerfile import MOST_BYTES
from proctor.sandbox.image.tree import kept_path

_MOST_LINKS = 40
_MOST_IGNORE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One file, folder or link to copy."""

    source: Path
    name: str
    """Its path below the target; empty for a single file whose target names it."""
    status: os.stat_result
    fetched: bool = False
    """Whether it came from an address: archives among those stay as they are."""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.st_mode)


class Context:
    """A folder from which an image is built."""

    def __init__(self, folder: Path, dockerfile: Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._dockerfile = dockerfile

    def select(self, pattern: str, where: str, *, parents: bool = False) -> list[Selected]:
        """The entries that a source of COPY means; a folder means its content. `parents`: paths are kept."""
        found = []
        for relative in self._matches(pattern, where):
            place = self._resolve(relative, where)
            if place is None:
                continue
            status = place.lstat()
            kept = kept_path(relative, pattern) if parents else ""
            if stat.S_ISDIR(status.st_mode):
                below = self._below(place, relative)
                found += [replace(each, name=f"{kept}/{each.name}") if kept else each for each in below]
            elif self._ignored(relative):
                continue
            elif stat.S_ISREG(status.st_mode):
                name = kept or relative.rpartition("/")[2]
                found.append(Selected(source=place, name=name, status=status))
        if not found and not self.is_folder(pattern, where):
            hint = " (`.dockerignore` leaves it out)" if self._exists(pattern) else ""
            raise TaskError(f"{where}: '{pattern}' is not in the build context {self.folder}{hint}")
        return found

    def fingerprint(self) -> str:
        """Changes when any file here does; costs a look at each, not a read."""
        seen = hashlib.sha256()
        for place, folders, files in os.walk(self.folder):
            folders.sort()
            for name in sorted((*folders, *files)):
                path = f"{place}/{name}"
                info = os.lstat(path)
                seen.update(
                    f"{path}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ino}\0{info.st_mode}\n".encode()
                )
        return seen.hexdigest()

    def content_digest(self, dockerfile: Path) -> str:
        """What the whole context and the Dockerfile hold, whenever they were written."""
        files = digest([each for each in self._below(self.folder, "") if not each.is_folder])
        return hashlib.sha256(read_small(dockerfile, MOST_BYTES) + files.encode()).hexdigest()

    def _matches(self, pattern: str, where: str) -> list[str]:
        parts = [part for part in pattern.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise TaskError(f"{where}: '{pattern}' leads out of the build context {self.folder}")
        if not re.search(r"[*?\[]", pattern):
            return ["/".join(parts)]
        return sorted(self._glob("", parts, where))

    def _glob(self, prefix: str, parts: Sequence[str], where: str) -> Iterator[str]:
        place = self._resolve(prefix, where)
        if not parts:
            yield prefix
        elif place and place.is_dir():
            for each in place.iterdir():
                if fnmatch.fnmatchcase(each.name, _go_pattern(parts[0])):
                    yield from self._glob(f"{prefix}/{each.name}".lstrip("/"), parts[1:], where)

    def _resolve(self, relative: str, where: str) -> Path | None:
        """A path with its links followed, each as if the context were `/`; None when nothing is there."""
        waiting = relative.split("/")[::-1]
        done: list[str] = []
        links = 0
        while waiting:
            part = waiting.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                done = done[:-1]
                continue
            place = self.folder.joinpath(*done, part)
            try:
                mode = place.lstat().st_mode
            except OSError:
                return None
            if not stat.S_ISLNK(mode):
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise TaskError(f"{where}: '{relative}' is a link that points to itself")
            text = str(place.readlink())
            done = [] if text.startswith("/") else done
            waiting += text.split("/")[::-1]
        return self.folder.joinpath(*done)

    def _below(self, folder: Path, relative: str) -> Iterator[Selected]:
        for place, folders, files in os.walk(folder):
            inner = os.path.relpath(place, folder)
            prefix = "" if inner == "." else f"{inner}/"
            for name in sorted((*folders, *files)):
                path = f"{relative}/{prefix}{name}".lstrip("/")
                status = os.lstat(f"{place}/{name}")
                kept = (
                    stat.S_ISDIR(status.st_mode)
                    or stat.S_ISREG(status.st_mode)
                    or stat.S_ISLNK(status.st_mode)
                )
                if kept and not self._ignored(path):
                    yield Selected(source=Path(place, name), name=prefix + name, status=status)
            if not self._has_exceptions:
                folders[:] = [
                    each for each in folders if not self._ignored(f"{relative}/{prefix}{each}".lstrip("/"))
                ]

    def is_folder(self, pattern: str, where: str = "") -> bool:
        """Whether a source of COPY is one folder."""
        if re.search(r"[*?\[]", pattern):
            return False
        place = self._resolve(pattern, where)
        return place is not None and place.is_dir()

    def _exists(self, pattern: str) -> bool:
        return any(self.folder.glob(pattern.strip("/") or "."))

    @cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], bool]]:
        for file in (
            self._dockerfile.with_name(f"{self._dockerfile.name}.dockerignore"),
            self.folder / ".dockerignore",
        ):
            if file.is_file() and not file.is_symlink() and file.stat().st_size <= _MOST_IGNORE_BYTES:
                return list(_rules(file.read_text(errors="replace")))
        return []

    @cached_property
    def _has_exceptions(self) -> bool:
        return any(not leaves_out for _, leaves_out in self._rules)

    def _ignored(self, relative: str) -> bool:
        """Whether the last rule that speaks of a path, or of a folder it is in, leaves it out."""
        result = False
        parts = relative.split("/")
        for pattern, leaves_out in self._rules:
            if any(pattern.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1)):
                result = leaves_out
        return result


def digest(selected: Sequence[Selected]) -> str:
    """What the content of a selection is, whenever it was written."""
    whole = hashlib.sha256()
    for each in selected:
        mode = stat.S_IMODE(each.status.st_mode) & 0o777
        if each.is_folder:
            content = "folder"
        elif each.is_link:
            content = f"link {each.source.readlink()}"
        else:
            with each.source.open("rb") as file:
                content = f"file {hashlib.file_digest(file, 'sha256').hexdigest()}"
        whole.update(f"{each.name}\0{mode:o}\0{content}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def stage(selected: Sequence[Selected], folder: Path) -> None:
    """Lay a selection out below a folder, by hard links where the disk allows."""
    for each in selected:
        target = folder / each.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if each.is_folder:
            target.mkdir(exist_ok=True)
            target.chmod(stat.S_IMODE(each.status.st_mode) & 0o777 | 0o700)
            continue
        target.unlink(missing_ok=True)
        if each.is_link:
            target.symlink_to(each.source.readlink())
            continue
        try:
            os.link(each.source, target, follow_symlinks=False)
        except OSError:
            shutil.copy2(each.source, target, follow_symlinks=False)


def _rules(text: str) -> Iterator[tuple[re.Pattern[str], bool]]:
    for line in text.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        leaves_out = not pattern.startswith("!")
        yield re.compile(path_regex(pattern.lstrip("!").strip())), leaves_out


def path_regex(pattern: str) -> str:
    """A pattern of `.dockerignore` or `--exclude` as a regular expression for a whole path."""
    return _regex("/".join(part for part in pattern.split("/") if part not in {"", "."}))


def _regex(pattern: str) -> str:
    """`*` and `?` stop at a slash; `**` does not."""
    pieces = []
    for piece in re.findall(r"\*\*/?|\*|\?|\[[^\]]*\]|\\.|.", pattern):
        if piece == "**/":
            pieces.append("(?:.*/)?")
        elif piece == "**":
            pieces.append(".*")
        elif piece == "*":
            pieces.append("[^/]*")
        elif piece == "?":
            pieces.append("[^/]")
        elif piece.startswith("[") and len(piece) > 2:
            pieces.append(piece.replace("[!", "[^"))
        else:
            pieces.append(re.escape(piece[-1]))
    return "".join(pieces)


def _go_pattern(pattern: str) -> str:
    return pattern.replace("[^", "[!")
