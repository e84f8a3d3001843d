"""Artifacts into a run's folder, behind the rows of `series.jsonl`: a row never waits for its files.

While files are still to come the folder has `.copying`: how far they are, as a byte of the series before
which every row has all of its files, and what is on its way. So whoever opens the folder after a kill reads
the rows after that byte and looks for their files only, and nothing about them is held in memory.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError, StoreError
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact, AttemptRecord
from proctor.runfolder.files import beside_of, make_folder, write_atomic, write_error
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME, decode_row

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs

COPYING = ".copying"
"""In the run's folder while artifacts of its rows are still to come."""
_COPIED = "series_bytes"
_PAGE = 200
"""Rows whose files are copied before it is written down how far they have come."""
_NEAR_AT_ONCE, _FAR_AT_ONCE = 4, 64
"""Attempts whose files are copied at the same time: an object store answers after 10 to 30 ms."""
_LARGE_BYTES, _LARGE_AT_ONCE = 1 << 20, 4
"""Of larger files only so many are on their way, since some of each is in memory."""


class MissingBlobError(StoreError):
    """A file of an attempt is not among the blobs."""


class Copies:
    """The artifacts of one run's rows. Rows are added in one thread, files are copied in others."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self._folder = folder
        self._base = str(folder)
        self._blobs = blobs
        self.at_once = _FAR_AT_ONCE if blobs.remote else _NEAR_AT_ONCE
        self._place = folder / COPYING
        self._lock = threading.Lock()
        """Of the two numbers below and the mark; held for moments only."""
        self._turn = threading.Lock()
        """Held by whoever copies."""
        self._from: int | None = None
        """Rows before this byte of the series have their files; None when all have."""
        self._until = 0
        """The end of the last row."""
        self._coming = False
        """Whether rows are just being written, so that the end that is known is none."""
        self._gone: MissingBlobError | None = None
        """Why the mark stays at a row whose files cannot be had."""
        self._next = 0
        """The next row to look at: after `_from` when files of an earlier one are gone."""
        self._edition = 0
        """Counts how often the series was written again."""
        self._failing = False
        """Whether the last rows could not be copied: then one of them is tried before the others."""
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)

    def open(self, until: int) -> None:
        """Find out what an earlier process left; the series ends at this byte."""
        with self._lock:
            self._until, self._coming = until, False
            self._from = self._gone = None
            if self._place.is_dir():
                self._from = self._next = _read(self._place / _COPIED, self._folder / NAME, until)

    def expect(self, at: int) -> None:
        """Rows at this byte are about to come before their files; `added` follows in any case."""
        with self._lock:
            self._coming = True
            if self._from is None:
                make_folder(self._place)
                self._mark(at)
                self._next = at

    def added(self, until: int) -> None:
        """The series ends at this byte now."""
        with self._lock:
            self._until, self._coming = until, False

    def restart(self) -> None:
        """The series is about to be written again, in another order."""
        with self._lock:
            make_folder(self._place)
            self._mark(0)
            self._coming = True
            self._next, self._until, self._gone = 0, 0, None
            self._edition += 1

    def now(self, trial: PlannedTrial, record: AttemptRecord) -> None:
        """Copy the files of an attempt whose row is not written yet."""
        made: set[str] = set()
        for artifact, relative in zip(record.artifacts, artifact_paths(trial, record), strict=True):
            self.copy(artifact, relative, made, beside_of(self._folder / relative))

    def some(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Copy the files of the next rows, until `go_on` says no; whether there may be more to do.

        A file that is not among the blobs is passed over, for `rest` to report. Any other error is raised
        when the other files of these rows are there, and the next call tries again.
        """
        with self._turn:
            edition, begin, lines = self._lines()
            if not lines:
                return False
            with ThreadPoolExecutor(min(self.at_once, len(lines)), "proctor-folder") as threads:
                copied = [threads.submit(self._row, line, go_on) for line in lines]
            self._settle(edition, begin, lines, copied)
            return go_on()

    def rest(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Copy all that is missing, also what was passed over before: it may be back."""
        with self._lock:
            self._next, self._gone = self._from or 0, None
        while self.some(go_on):
            pass
        if self._gone:
            raise self._gone

    def _lines(self) -> tuple[int, int, list[bytes]]:
        with self._lock:
            edition, begin, until = self._edition, self._next, self._until
            if self._from is None or begin >= until:
                self._clear()
                return edition, begin, []
        lines: list[bytes] = []
        at, most = begin, 1 if self._failing else _PAGE
        with (self._folder / NAME).open("rb") as series:
            series.seek(begin)
            while at < until and len(lines) < most and (line := series.readline()):
                lines.append(line)
                at += len(line)
        return edition, begin, lines

    def _row(self, line: bytes, go_on: Callable[[], bool]) -> bool:
        if not go_on():
            return False
        row, made = decode_row(line, NAME), set[str]()
        for artifact, relative in zip(
            row.record.artifacts, artifact_paths(row.trial, row.record), strict=True
        ):
            if not go_on():
                return False
            self.copy(artifact, relative, made, self._place / os.urandom(8).hex())
        return True

    def _settle(self, edition: int, begin: int, lines: list[bytes], copied: list[Future[bool]]) -> None:
        """Write down how far it has come; raise the first error that may pass."""
        at, reached, problem = begin, self._from or 0, None
        for line, each in zip(lines, copied, strict=True):
            error = each.exception()
            if isinstance(error, MissingBlobError):
                self._gone = self._gone or error
            elif error or not each.result():
                problem = error
                break
            at += len(line)
            if not self._gone:
                reached = at
        with self._lock:
            if self._edition != edition:
                return
            self._failing = problem is not None
            self._next = at
            if reached != self._from:
                self._mark(reached)
            self._clear()
        if problem:
            raise problem

    def _mark(self, at: int) -> None:
        write_atomic(self._place / _COPIED, str(at))
        self._from = at

    def _clear(self) -> None:
        """Nothing is to come: whatever is still here was left by a process that was killed."""
        if self._from is not None and self._from >= self._until and not self._coming:
            self._from = None
            shutil.rmtree(self._place, ignore_errors=True)

    def copy(self, artifact: Artifact, relative: str, made: set[str], beside: Path) -> None:
        """Copy one artifact into the folder unless it is there already. `made`: folders that are there."""
        with suppress(OSError):
            found = os.lstat(f"{self._base}/{relative}")
            if stat.S_ISREG(found.st_mode) and found.st_size == artifact.size_bytes:
                return
        above, target = os.path.dirname(relative), self._folder / relative  # noqa: PTH120 - many times
        if above not in made:
            make_folder(f"{self._base}/{above}")
            made.add(above)
        try:
            with (
                self._large if artifact.size_bytes > _LARGE_BYTES else nullcontext(),
                beside.open("wb") as copy,
            ):
                self._blobs.copy_to(artifact.digest, copy)
            beside.replace(target)
        except NotFoundError as error:
            raise MissingBlobError(
                f"{relative}: the blob {artifact.digest} is not in the store; it was removed or never written"
            ) from error
        except OSError as error:
            raise write_error(target, error) from error
        finally:
            beside.unlink(missing_ok=True)


def _read(mark: Path, series: Path, until: int) -> int:
    """Where the mark is; 0, from where everything is looked for, when no row begins there."""
    try:
        at = int(mark.read_text())
        if not 0 < at <= until:
            return 0
        with series.open("rb") as rows:
            rows.seek(at - 1)
            return at if rows.read(1) == b"\n" else 0
    except (OSError, ValueError):
        return 0
