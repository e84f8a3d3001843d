"""The reporters: built in, or added by decorator or entry point. A failing one does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ProctorError, StoreError, UsageError
from proctor.runfolder.read import RunData

Reporter = Callable[[RunData, Path], None]
GROUP = "proctor.reporters"
REPORTERS: dict[str, Reporter] = {}
"""Name → reporter. A reporter gets the run and its folder and writes files there."""

_log = logging.getLogger("proctor.render")


@dataclass(frozen=True, slots=True)
class ReporterFailure:
    """A reporter that could not write."""

    name: str
    error: str


def register_reporter(name: str) -> Callable[[Reporter], Reporter]:
    """Make a function `(data, folder) -> None` a reporter; it then writes at the end of every run."""

    def decorate(reporter: Reporter) -> Reporter:
        # A module that is imported twice registers the same thing twice, and that is fine.
        if name in REPORTERS and _place(REPORTERS[name]) != _place(reporter):
            raise UsageError(f"a reporter named '{name}' is already registered")
        REPORTERS[name] = reporter
        return reporter

    return decorate


def _place(reporter: Reporter) -> tuple[str, str]:
    code = getattr(reporter, "__code__", None)
    return getattr(code, "co_filename", repr(reporter)), getattr(reporter, "__qualname__", "")


def built_in() -> dict[str, Reporter]:
    """The reporters that are always there; imported when a report is written, not before."""
    from proctor.render.results.folder import write_markdown, write_page, write_rollouts
    from proctor.verdicts.run import summary

    return {"json": summary.write, "md": write_markdown, "html": write_page, "rollouts": write_rollouts}


def available() -> dict[str, Reporter | str]:
    """Every reporter by name; text instead of one says why it cannot be used."""
    from importlib.metadata import entry_points

    found: dict[str, Reporter | str] = {**built_in(), **REPORTERS}
    for point in entry_points(group=GROUP):
        if point.name in found:
            continue
        try:
            found[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - somebody else's module may raise anything at import
            found[point.name] = f"cannot be imported: {type(error).__name__}: {error}"
    return found


def write_reports(
    data: RunData, folder: Path, names: Iterable[str] | None = None
) -> tuple[ReporterFailure, ...]:
    """Let the reporters write, all or the named ones. A full disk is everyone's failure and is raised."""
    known = available()
    failures: list[ReporterFailure] = []
    for name in known if names is None else names:
        reporter = known.get(name)
        if reporter is None:
            raise UsageError(f"'{name}' is not a report format; there are {', '.join(sorted(known))}")
        if isinstance(reporter, str):
            failures.append(ReporterFailure(name, reporter))
            continue
        try:
            reporter(data, folder)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a reporter is user code; what it raises is reported
            text = str(error) if isinstance(error, ProctorError) else f"{type(error).__name__}: {error}"
            failures.append(ReporterFailure(name, text))
    for failure in failures:
        _log.warning("the report '%s' was not written: %s", failure.name, failure.error)
    return tuple(failures)
