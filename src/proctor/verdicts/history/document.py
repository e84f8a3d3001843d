"""A history as plain data: what `proctor history --json` prints. Additions only, once published."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proctor.model.canonical import finite
from proctor.verdicts.history.model import History, Line, Move, Ran
from proctor.verdicts.history.words import captions, sentence

SCHEMA_VERSION = 1


def to_mapping(history: History) -> dict[str, Any]:
    """Plain data; what is not finite becomes null."""
    plain: dict[str, Any] = finite(
        {
            "schema_version": SCHEMA_VERSION,
            "series": history.name,
            "kind": history.kind,
            "metric": history.metric,
            "clock": history.clock,
            "sentence": sentence(history),
            "runs": [_run(run) for run in history.runs],
            "lines": [_line(line, history) for line in history.lines],
            "notes": [*history.notes, *captions(history)],
        }
    )
    return plain


def _run(run: Ran) -> dict[str, Any]:
    """Without its folder: that is a place on this machine, for links."""
    return {name: value for name, value in asdict(run).items() if name != "folder"}


def _line(line: Line, history: History) -> dict[str, Any]:
    return {
        "name": line.name,
        "metric": line.metric,
        "main": line.main,
        "unit": "share" if line.is_share else line.metric,
        "values": [asdict(value) if value else None for value in line.values],
        "levels": list(line.levels),
        "noise": line.noise,
        "alternating": asdict(line.alternating) if line.alternating else None,
        "changes": [_move(move, history) for move in line.moves],
    }


def _move(move: Move, history: History) -> dict[str, Any]:
    at, last = history.runs[move.at], history.runs[move.last]
    return {
        "run_id": at.id,
        "commit": at.commit or None,
        "previous_run_id": last.id,
        "previous_commit": last.commit or None,
        "before": move.before,
        "after": move.after,
        "change": move.change,
        "interval_95": [move.low, move.high],
    }
