"""The files that COPY may take: those of the build context, less `.dockerignore`, and nothing outside of it.

The kernel follows links as if the context were the root of the file system, so they cannot lead out.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.disk import read_small
from proctor.errors import TaskError

if TYPE_CHECKING:
    from proctor.sandbox.image import tree

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

    def select(
        self, pattern: str, where: str, *, parents: bool = False, exclude: Sequence[str] = ()
    ) -> list[Selected]:
        """The entries that a source of COPY means; a folder means its content. `parents`: paths are kept.

        `exclude`: regular expressions for names below the target that are left out.
        """
        from proctor.sandbox.image import tree

        wanted = {"sources": [pattern], "parents": parents, "exclude": exclude}
        with self._root() as root:
            try:
                found = list(self._selected(root, wanted))
            except tree.TreeError as error:
                raise self._missing(pattern, where) from error
            except OSError as error:
                why = "is a link that points to itself" if error.errno == errno.ELOOP else str(error.strerror)
                raise TaskError(f"{where}: '{pattern}' {why}") from error
        if not found and not self.is_folder(pattern):
            raise self._missing(pattern, where)
        return found

    def _missing(self, pattern: str, where: str) -> TaskError:
        if ".." in pattern.split("/"):
            return TaskError(f"{where}: '{pattern}' leads out of the build context {self.folder}")
        left_out = any(self.folder.glob(pattern.strip("/") or "."))
        hint = " (`.dockerignore` leaves it out)" if left_out else ""
        return TaskError(f"{where}: '{pattern}' is not in the build context {self.folder}{hint}")

    def _selected(self, root: tree.Root, wanted: dict[str, Any]) -> Iterator[Selected]:
        from proctor.sandbox.image import tree

        for entry in tree.select(root, wanted):
            if not self._ignored(entry.path.lstrip("/")):
                yield Selected(source=Path(root.real(entry)), name=entry.name, status=entry.status)

    @contextlib.contextmanager
    def _root(self) -> Iterator[tree.Root]:
        from proctor.sandbox.image import tree

        root = tree.Root(str(self.folder))
        try:
            yield root
        finally:
            root.close()

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
        from proctor.sandbox.image.dockerfile import MOST_BYTES

        with self._root() as root:
            files = digest([each for each in self._selected(root, {"sources": ["."]}) if not each.is_folder])
        return hashlib.sha256(read_small(dockerfile, MOST_BYTES) + files.encode()).hexdigest()

    def is_folder(self, pattern: str) -> bool:
        """Whether a source of COPY is one folder."""
        if re.search(r"[*?\[]", pattern):
            return False
        with self._root() as root, contextlib.suppress(OSError):
            status = root.status(pattern)
            return status is not None and stat.S_ISDIR(status.st_mode)
        return False

    @cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], bool]]:
        for file in (
            self._dockerfile.with_name(f"{self._dockerfile.name}.dockerignore"),
            self.folder / ".dockerignore",
        ):
            if file.is_file() and not file.is_symlink() and file.stat().st_size <= _MOST_IGNORE_BYTES:
                return list(_rules(file.read_text(errors="replace")))
        return []

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
