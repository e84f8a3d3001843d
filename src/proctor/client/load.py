"""Put a server under load as many people would: submit runs at once, read meanwhile, and count what is lost.

Every run has a name of its own and an idempotency key, so a run that is missing at the end was lost, and one
that is there twice was doubled.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from proctor.errors import StoreError
from proctor.model.describe import percentile
from proctor.outgoing import trusted

if TYPE_CHECKING:
    import aiohttp

OVER = frozenset({"done", "cancelled", "interrupted"})
LOOK_S = 1.0
_TRIES = 5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of what."""

    users: int
    runs: int
    """In all."""
    rollouts: int = 1
    agent: str = "oracle"
    model: str | None = None
    readers: int = 2
    """People who read the list and a run, once a second each."""
    seconds: float = 600.0
    """After this time what has not ended is counted as unfinished."""
    host_root: bool = False


@dataclass(slots=True)
class Timings:
    """How long requests took, by what they were, and what else they came to."""

    took_s: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    retried: int = 0
    said: dict[int, str] = field(default_factory=dict)
    """Status of a refusal → the first sentence that came with it."""

    def add(self, what: str, took_s: float, status: int, body: Any) -> None:
        """Note one answer."""
        if status >= 400:
            detail = body.get("detail") if isinstance(body, Mapping) else None
            self.said.setdefault(status, str(detail or "no sentence"))
        self.took_s.setdefault(what, []).append(took_s)
        self.statuses[status] += 1

    def summary(self) -> dict[str, dict[str, float]]:
        """Count and percentiles in milliseconds, by what was asked."""
        found = {}
        everything = {**self.took_s, "all": [each for some in self.took_s.values() for each in some]}
        for what, values in everything.items():
            ordered = sorted(values)
            found[what] = {"count": len(ordered)} | {
                f"p{at}_ms": round(1000 * percentile(ordered, at), 1) if ordered else 0.0
                for at in (50, 95, 99)
            }
        return found


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    load: Mapping[str, Any]
    wall_s: float
    submitted: int
    ended: int
    trials: int
    outcomes: Mapping[str, int]
    lost: Sequence[str]
    """Runs that were accepted and are not there."""
    doubled: Sequence[str]
    """Runs that are there more than once."""
    unfinished: Sequence[str]
    refused: Mapping[int, int]
    """Statuses of 400 and above, and how often each came."""
    refusals: Mapping[int, str]
    """The same statuses, and the first sentence that came with each."""
    retried: int
    latencies: Mapping[str, Mapping[str, float]]

    @property
    def good(self) -> bool:
        """Whether every run was taken and ended, once, and the server never failed."""
        failed = any(status >= 500 for status in self.refused) or self.submitted < self.load["runs"]
        return not (self.lost or self.doubled or self.unfinished or failed)

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, with rates."""
        wall_s = max(self.wall_s, 1e-9)
        rates = {
            "runs_per_s": round(self.ended / wall_s, 2),
            "trials_per_s": round(self.trials / wall_s, 2),
            "requests_per_s": round(self.latencies.get("all", {}).get("count", 0) / wall_s, 1),
        }
        refused = {str(status): count for status, count in self.refused.items()}
        refusals = {str(status): said for status, said in self.refusals.items()}
        return {**asdict(self), "refused": refused, "refusals": refusals, "rates": rates, "good": self.good}


class Driver:
    """Many people at once, in one event loop."""

    def __init__(self, url: str, token: str, load: Load, *, ca_bundle: str = "") -> None:
        self._url, self._load, self._ca_bundle = url, load, ca_bundle
        self._headers = {"X-Proctor-Request": "1"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._mark = f"load-{secrets.token_hex(4)}"
        self._timings = Timings()
        self._accepted: dict[str, str] = {}

    async def run(self, upload: str, say: Say) -> Report:
        """Submit, read, wait, and count."""
        import aiohttp

        connector = aiohttp.TCPConnector(limit=self._load.users + self._load.readers + 8, ssl=self._trust())
        timeout = aiohttp.ClientTimeout(total=60)
        began = time.monotonic()
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=self._headers
        ) as session:
            reading = [asyncio.create_task(self._read(session)) for _ in range(self._load.readers)]
            try:
                await asyncio.wait_for(self._submit_all(session, upload), self._load.seconds)
            except TimeoutError:
                say("not every run could be submitted in time")
            say(f"{len(self._accepted)} runs submitted in {time.monotonic() - began:.1f} s")
            rows = await self._until_ended(session, began, say)
            wall_s = time.monotonic() - began
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        return self._report(rows, wall_s)

    def _trust(self) -> Any:
        return trusted(self._ca_bundle) if self._url.startswith("https") else True

    async def _submit_all(self, session: aiohttp.ClientSession, upload: str) -> None:
        numbers = iter(range(self._load.runs))

        async def person(who: int) -> None:
            for number in numbers:
                await self._submit(session, upload, f"{self._mark}-{number}", who)

        await asyncio.gather(*(person(each) for each in range(self._load.users)))

    async def _submit(self, session: aiohttp.ClientSession, upload: str, name: str, who: int) -> None:
        entry = {"path": {"upload": upload}, "agent": self._load.agent, "rollouts": self._load.rollouts}
        spec: dict[str, Any] = {"name": name, "tasks": [entry], "tags": ["load", f"user-{who}"]}
        if self._load.model:
            entry["model"] = self._load.model
        if self._load.host_root:
            spec["sandbox"] = {"host_root": True}
        found = await self._ask(session, "submit", "POST", "/api/runs", json={"spec": spec}, key=name)
        if found:
            self._accepted[found["id"]] = name

    async def _read(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._ask(session, "list", "GET", "/api/runs?limit=50")
            if self._accepted:
                run = secrets.choice(list(self._accepted))
                await self._ask(session, "run", "GET", f"/api/runs/{run}")
                await self._ask(session, "trials", "GET", f"/api/runs/{run}/trials?limit=50")
            await asyncio.sleep(LOOK_S)

    async def _until_ended(
        self, session: aiohttp.ClientSession, began: float, say: Say
    ) -> list[dict[str, Any]]:
        said = time.monotonic()
        while True:
            rows = await self._rows(session)
            ended = sum(row["status"] in OVER and not row["wanted"] for row in rows)
            late = time.monotonic() - began > self._load.seconds
            if late or ended >= len(self._accepted):
                return rows
            if time.monotonic() - said > 5:
                said = time.monotonic()
                say(f"{ended} of {len(self._accepted)} runs have ended")
            await asyncio.sleep(LOOK_S)

    async def _rows(self, session: aiohttp.ClientSession) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            more = f"&cursor={cursor}" if cursor else ""
            path = f"/api/runs?limit=500&name={self._mark}-*{more}"
            found = await self._ask(session, "list", "GET", path)
            if found is None:
                raise StoreError(f"{self._url}: the server stopped answering while the runs went on")
            rows += found["items"]
            cursor = found["next"]
            if not cursor:
                return rows

    async def _ask(
        self, session: aiohttp.ClientSession, what: str, method: str, path: str, *, key: str = "", **more: Any
    ) -> Any:
        """The answer as data; None when it was refused. A request that got no answer is sent again."""
        import aiohttp

        headers = {"Idempotency-Key": key} if key else {}
        for left in reversed(range(_TRIES)):
            began = time.monotonic()
            try:
                async with session.request(method, self._url + path, headers=headers, **more) as answer:
                    body = await answer.json(content_type=None)
                    self._timings.add(what, time.monotonic() - began, answer.status, body)
                    if answer.status < 400:
                        return body
                    if answer.status not in {429, 502, 503, 504} or not left:
                        return None
            except (aiohttp.ClientError, TimeoutError, ValueError):
                if not left:
                    self._timings.statuses[599] += 1
                    return None
            self._timings.retried += 1
            await asyncio.sleep(0.2 * 2 ** (_TRIES - left))
        return None

    def _report(self, rows: Sequence[Mapping[str, Any]], wall_s: float) -> Report:
        there = {row["id"] for row in rows}
        names = Counter(str(row["name"]) for row in rows)
        outcomes: Counter[str] = Counter()
        for row in rows:
            outcomes.update(row["counts"])
        over = [row for row in rows if row["status"] in OVER and not row["wanted"]]
        whole = {row["id"] for row in over if row["done"] == row["total"]}
        return Report(
            load=asdict(self._load),
            wall_s=round(wall_s, 2),
            submitted=len(self._accepted),
            ended=len(over),
            trials=sum(outcomes.values()),
            outcomes=dict(outcomes),
            lost=sorted(set(self._accepted) - there),
            doubled=sorted(name for name, count in names.items() if count > 1),
            unfinished=sorted(there - whole),
            refused={status: n for status, n in sorted(self._timings.statuses.items()) if status >= 400},
            refusals=dict(self._timings.said),
            retried=self._timings.retried,
            latencies=self._timings.summary(),
        )
