"""`/api/trials/{run}/{index}`: one trial, its transcript, its verifier, its files, resources and calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import PlainTextResponse, Response

from proctor.server.auth.caller import Reader, Shared, VisibleRun
from proctor.server.route import Route, answer
from proctor.server.state import State
from proctor.server.trial.attempt_files import AttemptFiles, files_of, find_trial
from proctor.server.trial.byte_ranges import Part, part_of, read_part
from proctor.server.trial.detail import trial_detail
from proctor.server.trial.resources import resources
from proctor.server.trial.transcript import MOST_STEPS, transcript, whole_step
from proctor.server.trial.verifier import verifier
from proctor.store.store import Store

router = APIRouter(prefix="/api/trials/{run}/{index}", tags=["trials"], route_class=Route)

Attempt = Annotated[int | None, Query(ge=1, le=1000, description="Which attempt. [the one that counts]")]
PATCH = "artifacts/diff.patch"
MOST_PATCH = 4 << 20


@router.get("", summary="One trial")
async def show_trial(caller: Reader, shared: Shared, run: VisibleRun, index: int) -> Response:
    """Every attempt, why it ended as it did, and the trials before and after."""
    return answer(await shared.store(trial_detail, shared, run, index))


@router.get("/transcript", summary="What the agent did, step by step")
async def show_transcript(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    index: int,
    attempt: Attempt = None,
    start: Annotated[int, Query(alias="from", ge=0, description="How many steps to pass over.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_STEPS)] = 200,
    step: Annotated[int | None, Query(ge=1, description="One step, with `full=1` whole.")] = None,
    full: bool = False,
) -> Response:
    """A page of steps. A long text is `{text, cut}`: its ends, and how many bytes are left out."""

    def of(files: AttemptFiles) -> dict[str, Any]:
        if step is not None and full:
            return whole_step(files, shared.reading.recordings, step)
        first = start if step is None else step - 1
        return transcript(files, shared.reading.recordings, first, limit if step is None else 1)

    return answer(await shared.store(_of_files, shared, run, index, attempt, of))


@router.get("/verifier", summary="What made the reward")
async def show_verifier(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """Tests, rewards by step, rubrics, controls and suspect files."""
    return answer(await shared.store(_verifier, shared, run, index, attempt))


@router.get("/files", summary="The files of an attempt")
async def list_files(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """What the attempt left; of a running one what is written so far."""

    def of(files: AttemptFiles) -> dict[str, Any]:
        shown = [
            {"path": each.path, "size": each.size, "media_type": each.media_type}
            for _, each in sorted(files.files.items())
        ]
        return {"attempt": files.number, "live": files.live, "files": shown}

    return answer(await shared.store(_of_files, shared, run, index, attempt, of))


@router.get("/file", summary="One file, as text", response_class=PlainTextResponse)
async def show_file(
    caller: Reader,
    shared: Shared,
    run: VisibleRun,
    index: int,
    path: Annotated[str, Query(max_length=4096)],
    attempt: Attempt = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    length: Annotated[int | None, Query(ge=0)] = None,
    wanted: Annotated[str | None, Header(alias="range", include_in_schema=False)] = None,
) -> Response:
    """At most 1 MiB at a time, by `offset` and `length` or a Range header; never anything but plain text."""

    def of(files: AttemptFiles) -> Part:
        with files.open(path) as file:
            return read_part(file, files.files[path].size, offset=offset, length=length, wanted=wanted)

    return part_of(await shared.store(_of_files, shared, run, index, attempt, of), path)


@router.get("/diff", summary="What the agent changed in its folder")
async def show_diff(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """A unified diff; of a very long one the first 4 MiB."""

    def of(files: AttemptFiles) -> dict[str, Any]:
        found = files.files.get(PATCH)
        text = files.read(PATCH, MOST_PATCH).decode(errors="replace") if found else ""
        size = found.size if found else 0
        return {"attempt": files.number, "diff": text, "size": size, "cut": size > MOST_PATCH}

    return answer(await shared.store(_of_files, shared, run, index, attempt, of))


@router.get("/resources", summary="What an attempt used of the machine")
async def show_resources(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """Phases, peaks and limits, and series.

    Of a rollout that took longer than two seconds: what its sandbox used over time, in seconds since it
    began, and what happened to it. Of an experiment: the values of its iterations.
    """
    return answer(await shared.store(_of_files, shared, run, index, attempt, resources))


@router.get("/calls", summary="The calls of models that a trial made")
async def list_calls(
    caller: Reader, shared: Shared, run: VisibleRun, index: int, attempt: Attempt = None
) -> Response:
    """Every call that the gateway counted, of all attempts or of one."""
    return answer(await shared.store(_calls, run, index, attempt))


def _of_files(
    store: Store,
    shared: State,
    run: str,
    index: int,
    attempt: int | None,
    make: Callable[[AttemptFiles], Any],
) -> Any:
    return make(files_of(store, shared, run, index, attempt))


def _verifier(store: Store, shared: State, run: str, index: int, attempt: int | None) -> dict[str, Any]:
    trial = find_trial(store, run, index)
    files = files_of(store, shared, run, index, attempt)
    return verifier(files, Path(store.run(run).folder or "."), trial.planned.subject)


def _calls(store: Store, run: str, index: int, attempt: int | None) -> dict[str, Any]:
    find_trial(store, run, index)
    found = [
        each for each in store.views.fleet.calls(run, index) if attempt is None or each["attempt"] == attempt
    ]
    for number, each in enumerate(found, 1):
        nano_usd = each.pop("nano_usd")
        each |= {
            "number": number,
            "started_at": each["at"],
            "settled": bool(each["settled"]),
            "cost_usd": None if nano_usd is None else nano_usd / 1e9,
        }
    return {"calls": found, "total": len(found)}
