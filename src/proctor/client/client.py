"""The client of a server's API: one method for each thing that commands and scripts ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from proctor.client.connection import Connection
from proctor.client.stream import follow
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow

PAGE = 500
RECORDS = 100
"""Records in one answer: those of experiments are large."""
AT_ONCE = 100
"""Trials whose records are asked for at once."""


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a run."""

    id: int
    run: str
    at: float
    kind: str
    index: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class Client:
    """A Proctor server. Every refusal is a ProctorError with the server's own sentence."""

    def __init__(self, url: str, token: str = "", *, ca_bundle: str = "") -> None:
        self.connection = Connection(url, token, ca_bundle)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.connection.url

    def page(self, path: str) -> str:
        """The address of a page of it, for people."""
        return f"{self.url}{path}"

    def session(self) -> Mapping[str, Any]:
        """Who we are to the server: user, project, scopes."""
        found: Mapping[str, Any] = self.connection.get("/api/session")
        return found

    def runs(self, *, limit: int = PAGE, **filters: Any) -> Iterator[dict[str, Any]]:
        """Runs, newest first; `status`, `name`, `kind`, `tag`, `agent`, `model`, `project`, `q`."""
        for found in self.pages("/api/runs", limit, **filters):
            yield from found["items"]

    def run(self, ref: str) -> dict[str, Any]:
        """One run: by id, beginning of an id, name or `latest`."""
        found: dict[str, Any] = self.connection.get(_run(ref))
        return found

    def run_secrets(self, ref: str) -> dict[str, Any]:
        """`{secrets, providers}` of an open run, for a worker whose token has that scope."""
        found: dict[str, Any] = self.connection.get(f"{_run(ref)}/secrets")
        return found

    def gate(self, run_id: str) -> dict[str, Any]:
        """The verdict of a run's gates, as the server judged it when the run ended."""
        found: dict[str, Any] = self.connection.get(f"{_run(run_id)}/gate")
        return found

    def submit(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a spec: `{spec, name?, tags?, notes?, parallel?, project?, start?}`; the run."""
        found: dict[str, Any] = self.connection.send("POST", "/api/runs", body)
        return found

    def plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a spec would run, how long and at what price; nothing is written."""
        found: dict[str, Any] = self.connection.send("POST", "/api/plan", body)
        return found

    def upload(self, archive: Path, name: str, **fields: str) -> dict[str, Any]:
        """Upload the ZIP of a task; `id` names it in specs."""
        found: dict[str, Any] = self.connection.send_file("/api/tasks", archive, name, fields)
        return found

    def uploads(self) -> Iterator[dict[str, Any]]:
        """Uploaded tasks, newest first."""
        for found in self.pages("/api/uploads", PAGE):
            yield from found["items"]

    def cancel(self, ref: str) -> dict[str, Any]:
        """End a run for good."""
        return self._change(ref, "cancel")

    def pause(self, ref: str) -> dict[str, Any]:
        """Finish what runs, and begin no more."""
        return self._change(ref, "pause")

    def resume(self, ref: str, *, errors: bool = False, **budgets: float | None) -> dict[str, Any]:
        """Go on with a run; budgets may be raised."""
        return self._change(ref, "resume", {"errors": errors, **budgets})

    def _change(self, ref: str, verb: str, body: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = self.connection.send("POST", f"{_run(ref)}/{verb}", body)
        return found

    def demand(self, slots: int) -> dict[str, Any]:
        """How much could run now, for workers of so many slots."""
        found: dict[str, Any] = self.connection.get("/api/queue", slots=slots)["demand"]
        return found

    def planned(self, ref: str) -> Iterator[PlannedTrial]:
        """Every trial of a run, in the order of the plan."""
        for found in self.pages(f"{_run(ref)}/planned", PAGE):
            yield from msgspec.convert(found["items"], list[PlannedTrial], strict=False)

    def records(self, ref: str, trials: Mapping[int, PlannedTrial], **only: Any) -> Iterator[AttemptRow]:
        """Every attempt of a run, in the order of the plan; with `counted` only those that count."""
        for found in self.pages(f"{_run(ref)}/records", RECORDS, **only):
            yield from (_attempt(each, trials) for each in found["items"])

    def records_of(
        self, ref: str, trials: Mapping[int, PlannedTrial], indices: Sequence[int]
    ) -> Iterator[AttemptRow]:
        """Every attempt at these trials."""
        for at in range(0, len(indices), AT_ONCE):
            yield from self.records(ref, trials, index=list(indices[at : at + AT_ONCE]))

    def events(self, ref: str, after: int = 0) -> Iterator[Happened | None]:
        """What happens in a run, as it happens, without end. None: the stream was opened."""
        for each in follow(self.connection, "/api/events", {"run": ref, "after": after}, str(after)):
            if each is None:
                yield None
                continue
            several = each.data if isinstance(each.data, list) else [each.data]
            yield from msgspec.convert(several, list[Happened])

    def logs(self, run: str, index: int, attempt: int | None = None) -> dict[str, Any]:
        """The logs of an attempt: `{attempt, live, logs: [{name, size}]}`."""
        found: dict[str, Any] = self.connection.get(f"{_trial(run, index)}/logs", attempt=attempt)
        return found

    def log(
        self, run: str, index: int, name: str, offset: int, attempt: int | None = None
    ) -> tuple[bytes, int]:
        """A part of a log from an offset, and the size of all of it."""
        path = f"{_trial(run, index)}/logs/{quote(name, safe='')}"
        piece, headers = self.connection.get_bytes(path, offset=offset, attempt=attempt)
        return piece, int(headers.get("X-Log-Size") or offset + len(piece))

    def file(self, run: str, index: int, path: str, attempt: int | None = None) -> bytes:
        """A file of an attempt, whole."""
        found = b""
        while True:
            piece, headers = self.connection.get_bytes(
                f"{_trial(run, index)}/file", path=path, offset=len(found), attempt=attempt
            )
            found += piece
            if not piece or len(found) >= int(headers.get("X-Log-Size") or 0):
                return found

    def trial(self, run: str, index: int) -> dict[str, Any]:
        """One trial with its attempts."""
        found: dict[str, Any] = self.connection.get(_trial(run, index))
        return found

    def pages(self, path: str, limit: int, **params: Any) -> Iterator[dict[str, Any]]:
        """The pages of a list, as the server sends them."""
        cursor = None
        while True:
            found = self.connection.get(path, limit=limit, cursor=cursor, **params)
            yield found
            cursor = found["next"]
            if cursor is None:
                return


def _run(ref: str) -> str:
    return f"/api/runs/{quote(ref, safe='')}"


def _trial(run: str, index: int) -> str:
    return f"/api/trials/{quote(run, safe='')}/{index}"


def _attempt(item: Mapping[str, Any], trials: Mapping[int, PlannedTrial]) -> AttemptRow:
    record = msgspec.convert(item, AttemptRecord, strict=False)
    return AttemptRow(record, counts=bool(item["counts"]), trial=trials[item["index"]])
