"""`/api/timings`: what `proctor ab` and `proctor time --export` left in the folder of results.

They are files of the server's machine and of no project, so only who sees the default project sees them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as InPath
from starlette.responses import Response

from proctor.errors import ProctorError
from proctor.server.auth.caller import Caller, Reader, Shared
from proctor.server.listing import Paged, listed
from proctor.server.problem import Problem
from proctor.server.reading.documents import page_mapping
from proctor.server.reading.reading import Reading
from proctor.server.route import Route, answer
from proctor.store.service.ownership import DEFAULT
from proctor.store.store import Store

router = APIRouter(prefix="/api/timings", tags=["verdicts"], route_class=Route)
Name = Annotated[str, InPath(max_length=130, description="The name of a file in the list.")]
_SAID = ("title", "headline", "verdict", "tone")


@router.get("", summary="Saved comparisons and timings of commands")
async def list_timings(caller: Reader, shared: Shared, page: Paged) -> Response:
    """Newest first. A file that cannot be read is listed with the reason."""
    folder = _folder(caller, shared.settings.output_dir)
    start = page.after if isinstance(page.after, int) else 0
    return answer(await shared.heavy(_listed, shared.reading, folder, start, page.limit))


@router.get("/{name}", summary="One saved comparison or timing")
async def show_timing(caller: Reader, shared: Shared, name: Name) -> Response:
    """The document of `proctor ab` or of `proctor time`."""
    folder = _folder(caller, shared.settings.output_dir)
    return answer(await shared.heavy(_document, folder, name))


def _folder(caller: Caller, folder: Path) -> Path:
    if not caller.sees(DEFAULT):
        raise Problem("not_found", "Saved timings belong to the default project, which you do not see")
    return folder


def _listed(_: Store, reading: Reading, folder: Path, start: int, limit: int) -> dict[str, Any]:
    from proctor.engine.saved_timings import timings_in

    found = timings_in(folder)
    items = [_item(reading, file, kind) for file, kind in found[start : start + limit]]
    return listed(items, after=start + limit if len(found) > start + limit else None)


def _item(reading: Reading, file: Path, kind: str) -> dict[str, Any]:
    from proctor.engine.saved_timings import timing_document

    about = file.stat()
    key, stamp = ("timing", str(file)), (about.st_mtime_ns, about.st_size)
    known = reading.lists.get(key, stamp)
    if known is None:
        try:
            document = timing_document(file, drawn=False)
            said = {name: document.get(name, "") for name in _SAID}
        except ProctorError as error:
            said = {**dict.fromkeys(_SAID, ""), "title": file.name, "headline": str(error)}
        known = reading.lists.put(key, [said], stamp=stamp)
    return {"name": file.name, "kind": kind, "at": about.st_mtime, **known[0]}


def _document(_: Store, folder: Path, name: str) -> dict[str, Any]:
    from proctor.engine.saved_timings import timing, timing_document

    return page_mapping(timing_document(timing(folder, name), drawn=True), str(folder), ())
