"""The folder of a site: which pages it has, what each was made from, and writing only those that changed.

`site.json` lists them. Nothing that is not in that list is ever written over or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from proctor.errors import UsageError
from proctor.model.canonical import digest
from proctor.runfolder.files import make_folder, read_document, write_atomic, write_json

LIST = "site.json"
SCHEMA_VERSION = 1


class Page(NamedTuple):
    """A page of the list."""

    mark: str
    """A digest of what it was made from."""
    facts: Mapping[str, Any]
    """What the index says about it."""


class Site:
    """A folder that is being brought up to date. `close` removes pages that were not asked for again."""

    def __init__(self, folder: Path, made_by: str) -> None:
        self.folder = folder
        self._made_by = made_by
        self._before = _known(folder)
        self._now: dict[str, Page] = {}
        self.written: list[str] = []
        self.removed: list[str] = []

    @property
    def pages(self) -> int:
        """How many pages it has now."""
        return len(self._now)

    def facts(self, page: str) -> Mapping[str, Any]:
        """What was said about a page when it was made; nothing about one that the site does not have."""
        return self._now[page].facts if page in self._now else {}

    def keep(self, pages: str, made_from: Any) -> bool:
        """Whether a page, or all that begin so, were made from the same and are there; then they stay."""
        mark = self._mark(made_from)
        found = {name: page for name, page in self._before.items() if name.startswith(pages)}
        there = all(page.mark == mark and (self.folder / name).is_file() for name, page in found.items())
        if not found or not there:
            return False
        self._now |= found
        return True

    def write(self, page: str, made_from: Any, text: str, facts: Mapping[str, Any] | None = None) -> None:
        """Write a page, unless the same text is there already."""
        path = self.folder / page
        if page not in self._before and path.exists():
            raise UsageError(f"{path}: this file is not a page that 'proctor publish' wrote; move it away")
        self._now[page] = Page(self._mark(made_from), dict(facts or {}))
        with suppress(OSError, UnicodeDecodeError):
            if path.read_text(encoding="utf-8") == text:
                return
        make_folder(path.parent)
        write_atomic(path, text)
        self.written.append(page)

    def close(self) -> None:
        """Remove what the site no longer has, and write the list."""
        for page in sorted(self._before.keys() - self._now.keys()):
            path = self.folder / page
            path.unlink(missing_ok=True)
            self.removed.append(page)
            with suppress(OSError):
                path.parent.rmdir()
        if self._now != self._before:
            pages = {name: page._asdict() for name, page in sorted(self._now.items())}
            make_folder(self.folder)
            write_json(self.folder / LIST, {"schema_version": SCHEMA_VERSION, "pages": pages})

    def _mark(self, made_from: Any) -> str:
        return digest([self._made_by, made_from])[:16]


def _known(folder: Path) -> dict[str, Page]:
    """The pages of an earlier time; a folder with other things in it is refused."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {}
    if not (folder / LIST).is_file():
        raise UsageError(
            f"{folder}: not empty, and not a site of 'proctor publish'; name a new or an empty folder"
        )
    pages = read_document(folder, LIST).get("pages")
    if not isinstance(pages, dict) or not all(map(_is_page, pages.items())):
        raise UsageError(f"{folder / LIST}: not a list of pages; remove the folder and publish again")
    return {name: Page(page["mark"], page["facts"]) for name, page in pages.items()}


def _is_page(item: tuple[str, Any]) -> bool:
    """Whether it is a page inside the site: the list may have been changed by others."""
    path, page = PurePosixPath(item[0]), item[1]
    inside = path.suffix == ".html" and not path.is_absolute() and ".." not in path.parts
    return inside and isinstance(page, dict) and isinstance(page.get("facts"), dict) and "mark" in page
