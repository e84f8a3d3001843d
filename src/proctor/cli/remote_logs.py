"""`proctor logs` of a run that is on a server: read in parts, so that a log of any size begins at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import Exit, NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.client.client import Client
    from proctor.model.plan import PlannedTrial

LOOK_S = 0.5
_PIECE = 1 << 20
_TRAJECTORY = "trajectory.json"
Show = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class RemoteLogs:
    """The logs of one trial of a run on a server."""

    client: Client
    run_id: str
    trial: PlannedTrial
    attempt: int | None
    name: str | None
    tail: int | None

    def print(self, show: Show, *, follow: bool) -> int:
        """Print the logs; with `follow` until the attempt ends."""
        if self.name == "trajectory":
            return self._trajectory(show)
        places: dict[str, int] = {}
        try:
            while True:
                found = self.client.logs(self.run_id, self.trial.index, self.attempt)
                names = self._chosen(found, must=not found["live"] or not follow)
                several = len(names) > 1
                for name in names:
                    for piece in self._new(name, places, found["attempt"]):
                        show(name if several else "", piece)
                if not follow or not found["live"]:
                    show("", b"")
                    return Exit.OK
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED

    def _chosen(self, found: Mapping[str, Any], *, must: bool) -> list[str]:
        from proctor.render.trial_logs import Log, chosen

        names = [str(each["name"]) for each in found["logs"]]
        wanted = [each.name for each in chosen([Log(name, Path()) for name in names], self.name)]
        if must and not wanted and self.name:
            where = f"trial {self.trial.index} ({self.trial.label}), attempt {found['attempt']}"
            raise NotFoundError(f"{where}: no log named '{self.name}'; logs: {', '.join(names) or 'none'}")
        if must and not any(each["size"] for each in found["logs"] if each["name"] in wanted):
            print(f"empty: {', '.join(wanted) or 'no log'}", file=sys.stderr)
        return wanted

    def _new(self, name: str, places: dict[str, int], attempt: int) -> Iterator[bytes]:
        """What was added since the last look; at first all of it, or its last lines."""
        if name not in places and self.tail is not None:
            last, places[name] = self._tail(name, attempt)
            yield last
            return
        while True:
            at = places.setdefault(name, 0)
            piece, size = self.client.log(self.run_id, self.trial.index, name, at, attempt)
            places[name] = at + len(piece)
            if piece:
                yield piece
            if not piece or places[name] >= size:
                return

    def _tail(self, name: str, attempt: int) -> tuple[bytes, int]:
        """The last lines, and where the log ends; read backwards until there are enough."""
        _, size = self.client.log(self.run_id, self.trial.index, name, 0, attempt)
        found, start, wanted = b"", size, self.tail or 0
        while start > 0 and found.count(b"\n") <= wanted:
            start = max(0, start - _PIECE)
            piece, _ = self.client.log(self.run_id, self.trial.index, name, start, attempt)
            found = piece[: size - start - len(found)] + found
        lines = found.splitlines(keepends=True)
        return b"".join(lines[len(lines) - min(wanted, len(lines)) :]), size

    def _trajectory(self, show: Show) -> int:
        from proctor.agents import atif

        try:
            recording = atif.read(self.client.file(self.run_id, self.trial.index, _TRAJECTORY, self.attempt))
        except atif.NotATIF as error:
            raise UsageError(f"trial {self.trial.index}: {error}") from error
        lines = "".join(atif.text_of(recording)).splitlines(keepends=True)
        kept = lines if self.tail is None else lines[len(lines) - min(self.tail, len(lines)) :]
        show("", "".join(kept).encode(errors="replace"))
        show("", b"")
        return Exit.OK


def listing(client: Client, run_id: str, trials: Sequence[PlannedTrial]) -> Iterator[Sequence[Any]]:
    """Of each trial: itself, how it ended, its attempts, and `(name, address, size)` of its logs."""
    rows = {
        each["index"]: each
        for page in client.pages(f"/api/runs/{run_id}/trials", 500)
        for each in page["items"]
    }
    for trial in trials:
        row = rows[trial.index]
        state = row["outcome"] or ("running" if row["state"] in {"running", "leased"} else row["state"])
        attempts = int(row["attempts"]) + (state == "running")
        found = client.logs(run_id, trial.index)["logs"] if attempts else []
        address = client.page(f"/api/trials/{run_id}/{trial.index}/logs")
        logs = [(each["name"], f"{address}/{each['name']}", each["size"]) for each in found]
        yield trial, state, attempts, logs
