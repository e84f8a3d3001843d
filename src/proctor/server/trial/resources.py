"""What an attempt used of the machine: totals from its record, and series over time from the file it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proctor.server.trial.attempt_files import AttemptFiles
from proctor.trial.task.resources import FILE, MOST_POINTS

_MOST_BYTES = 1 << 20
_Amount = int | float | None


class Kept(msgspec.Struct, frozen=True):
    """The file as `trial/task/resources.py` writes it; a run that was imported may have another's."""

    at_s: list[float] = []
    memory_bytes: list[_Amount] = []
    cpu_s: list[_Amount] = []
    throttled_s: list[_Amount] = []
    disk_bytes: list[_Amount] = []
    received_bytes: list[_Amount] = []
    sent_bytes: list[_Amount] = []
    limits: dict[str, float] = {}
    events: list[dict[str, float | str]] = []


def resources(files: AttemptFiles) -> dict[str, Any]:
    """Totals, series and what happened."""
    record = files.record
    kept = _kept(files)
    series = _over_time(kept) if kept else _iterations(record.iterations) if record else []
    return {
        "attempt": files.number,
        "phases_s": record.phases_s if record else {},
        "ledger": record.ledger if record else {},
        "series": series,
        "events": [
            {"at": each.get("at_s"), "kind": each.get("kind"), "text": each.get("text")}
            for each in (kept.events if kept else ())
        ],
    }


def _kept(files: AttemptFiles) -> Kept | None:
    if FILE not in files.files or files.live:
        return None
    try:
        found = msgspec.json.decode(files.read(FILE, _MOST_BYTES), type=Kept)
    except msgspec.MsgspecError:
        return None
    return found if len(found.at_s) <= MOST_POINTS else None


def _over_time(kept: Kept) -> list[dict[str, Any]]:
    found = [
        _series("memory_bytes", "bytes", kept, kept.memory_bytes, kept.limits.get("memory_bytes")),
        _series("cpu_cores", "cores", kept, _rates(kept.at_s, kept.cpu_s), kept.limits.get("cpus")),
        _series("disk_bytes", "bytes", kept, kept.disk_bytes, kept.limits.get("storage_bytes")),
        _series("received_bytes", "bytes", kept, kept.received_bytes),
        _series("sent_bytes", "bytes", kept, kept.sent_bytes),
    ]
    return [each for each in found if len(each["values"]) == len(kept.at_s)]


def _series(
    name: str, unit: str, kept: Kept, values: Sequence[_Amount], limit: float | None = None
) -> dict[str, Any]:
    return {"name": name, "unit": unit, "at": kept.at_s, "values": values, "limit": limit}


def _rates(at_s: Sequence[float], total: Sequence[_Amount]) -> list[float | None]:
    """How fast a total grew before each point; before the first it began at 0."""
    found: list[float | None] = []
    last_at, last = 0.0, 0.0
    for at, value in zip(at_s, total, strict=False):
        if value is None or at <= last_at:
            found.append(None)
            continue
        found.append(round(max(0.0, value - last) / (at - last_at), 3))
        last_at, last = at, value
    return found


def _iterations(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every number of the iterations as a series by iteration."""
    names = dict.fromkeys(name for row in rows[:1] for name, value in row.items() if _is_number(value))
    return [
        {"name": name, "unit": "", "at": list(range(len(rows))), "values": [row.get(name) for row in rows]}
        for name in names
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
