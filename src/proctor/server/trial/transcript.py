"""The transcript of an attempt in pages: ATIF of any version as steps, long texts cut until asked for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from proctor.agents import atif
from proctor.server.problem import Problem
from proctor.server.reading.kept import Kept
from proctor.server.trial.attempt_files import AttemptFiles
from proctor.trial.progress import LiveSteps

FILE = "trajectory.json"
MOST_BYTES = 128 << 20
LONG = 16_000
"""Characters of a text that a page of steps shows."""
HEAD = 12_000
MOST_STEPS = 500

Recordings = Kept[atif.Recording]


def transcript(files: AttemptFiles, kept: Recordings, start: int, limit: int) -> dict[str, Any]:
    """Steps `start` and after; while an attempt runs those that it has told so far."""
    recording = _recording(files, kept)
    steps = recording.steps if recording else ()
    shown = steps[start : start + limit]
    return {
        "attempt": files.number,
        "live": files.live,
        "total": len(steps),
        "agent": recording.document.get("agent") if recording else None,
        "steps": [_step(at, step, full=False) for at, step in enumerate(shown, start + 1)],
    }


def steps_of(files: AttemptFiles, kept: Recordings) -> tuple[atif.Step, ...]:
    """Every step, whole."""
    recording = _recording(files, kept)
    return tuple(recording.steps) if recording else ()


def whole_step(files: AttemptFiles, kept: Recordings, step: int) -> dict[str, Any]:
    """One step with all its text."""
    steps = steps_of(files, kept)
    if not 1 <= step <= len(steps):
        raise Problem("not_found", f"The transcript has {len(steps)} steps and no step {step}")
    return {
        "attempt": files.number,
        "live": files.live,
        "total": len(steps),
        "steps": [_step(step, steps[step - 1], full=True)],
    }


def _recording(files: AttemptFiles, kept: Recordings) -> atif.Recording | None:
    found = files.files.get(FILE)
    if found is None:
        return _told_so_far(files)
    if known := kept.get(found.digest) if found.digest else None:
        return known
    if found.size > MOST_BYTES:
        raise Problem("too_large", f"The trajectory has {found.size:,} bytes; save the file {FILE} instead")
    data = files.read(FILE, MOST_BYTES)
    try:
        recording = atif.read(data)
    except atif.NotATIF as error:
        if files.live:
            return None  # half-written
        raise Problem("conflict", f"The trajectory cannot be read: {error}") from error
    return kept.put(found.digest, recording, weight=max(1, len(data))) if found.digest else recording


def _told_so_far(files: AttemptFiles) -> atif.Recording | None:
    """The steps of an attempt that runs; the last line may be half-written."""
    if not files.live or LiveSteps.FILE not in files.files:
        return None
    lines = files.read(LiveSteps.FILE, MOST_BYTES).split(b"\n")[:-1]
    try:
        return atif.read(b'{"steps": [' + b",".join(lines) + b"]}")
    except atif.NotATIF:
        return None


def _step(number: int, step: atif.Step, *, full: bool) -> dict[str, Any]:
    def text(value: str) -> str | dict[str, Any]:
        return value if full or len(value) <= LONG else _cut(value)

    return {
        "id": number,
        "source": step.source,
        "message": text(step.message),
        "reasoning": text(step.reasoning),
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": _arguments(call.arguments, text)}
            for call in step.calls
        ],
        "observation": {"results": [{"content": text(each)} for each in step.results]}
        if step.results
        else None,
        "metrics": {name: value for name, value in step.metrics.items() if isinstance(value, int | float)},
        "at": _moment(step.timestamp),
        "depth": step.depth,
        "copied": step.copied,
    }


def _cut(value: str) -> dict[str, Any]:
    """The beginning and the end of a long text, and how many bytes are between."""
    head, tail = value[:HEAD], value[HEAD - LONG :]
    left_out = len(value.encode("utf-8", "replace")) - len((head + tail).encode("utf-8", "replace"))
    return {"text": f"{head}\n…\n{tail}", "cut": left_out}


def _arguments(arguments: Mapping[str, Any], text: Any) -> dict[str, Any]:
    return {str(name): text(each) if isinstance(each, str) else each for name, each in arguments.items()}


def _moment(timestamp: str) -> float | None:
    try:
        found = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
