"""Documents for the page: charts with their pictures, and links that lead to the page's own addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor.model.document import Document, to_mapping

Address = Callable[[str], str]
_TRIAL = re.compile(r"trials/[^/]+/(\d+)(?:\.attempt-(\d+))?(?:/|$)")


def page_document(document: Document, runs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A document as the page reads it; `runs` are ids and folders that its links may lead to."""
    return page_mapping(to_mapping(document, drawn=True), document.folder, runs)


def page_mapping(document: Mapping[str, Any], folder: str, runs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The same of a document that was kept with its pictures; its links are relative to `folder`."""
    found = {name: part for name, part in document.items() if name != "folder"}
    _rewrite(found, addresses(folder or ".", runs))
    return found


def addresses(folder: str, runs: Iterable[tuple[str, str]]) -> Address:
    """What turns a link relative to a folder into an address of the page; empty for what has none."""
    known = [(run, os.path.normpath(place)) for run, place in runs if place]

    def address(href: str) -> str:
        if href.startswith(("#", "http://", "https://")):
            return href
        path, _, mark = href.partition("#")
        whole = os.path.normpath(Path(folder, path))
        for run, place in known:
            if whole == place or whole.startswith(f"{place}/"):
                return _inside(run, whole[len(place) + 1 :]) + (f"#{mark}" if mark else "")
        return ""

    return address


def _inside(run: str, rest: str) -> str:
    if trial := _TRIAL.match(rest):
        attempt = f"?attempt={trial[2]}" if trial[2] else ""
        return f"/trials/{run}/{trial[1]}{attempt}"
    return f"/runs/{run}"


def _rewrite(part: Any, address: Address) -> None:
    if isinstance(part, dict):
        href = part.get("href")
        if isinstance(href, str):
            part["href"] = address(href)
            if not part["href"]:
                del part["href"]
        for name, each in part.items():
            if name != "data":
                _rewrite(each, address)
    elif isinstance(part, list):
        for each in part:
            _rewrite(each, address)
