"""One attempt at one parameter point: the timed pass, one for each instrument that needs it, the record."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError, UsageError
from proctor.experiments.base import REGISTRY, Registered
from proctor.instruments.base import Instrument, Resolved, Sampler, Wrapper, create, resolve
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.secret import resolved
from proctor.model.spec import ExperimentBody, InstrumentSpec
from proctor.model.trial import Lease
from proctor.processes import full_environment, kill_tree
from proctor.store.blobs import Blobs
from proctor.trial.experiment_files import keep_files
from proctor.trial.experiment_record import Passes, build_record, failed_record
from proctor.trial.forkserver.client import ForkServer, ImportFailedError
from proctor.trial.forkserver.lane_client import Pass
from proctor.trial.point.pace import KnownPace
from proctor.trial.redact import NOTHING_SECRET, Redactor
from proctor.trial.redact_files import clean_folder

OWN = ("trials", "manifest.json", "series.jsonl")
"""What Proctor itself has in a run's folder while the run goes on; the rest was written by experiments."""
KEPT_SERVERS = 4
"""Warm servers kept when a spec has many experiments; the idle ones beyond are ended."""


@dataclass(kw_only=True, eq=False)
class ExperimentExecutor:
    """Runs parameter points in forks of warm servers, one server per experiment."""

    bodies: Sequence[ExperimentBody]
    run_id: str
    run_dir: Path
    sources: Sequence[str]
    timeout_s: float | None
    contended: bool
    blobs: Blobs
    worker: str
    home: Path | None = None
    project: str = ""
    """The folder of what is measured, for experiments that run code of it."""
    secrets: Mapping[str, str] | None = None
    redactor: Redactor = NOTHING_SECRET
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.run_dir = self.run_dir.absolute()
        waits = not self.contended and any(map(_waits_for_calm, self.bodies))
        self._pace = KnownPace(self.home) if waits else None
        self._resolved = tuple(_resolve(body, self.sources) for body in self.bodies)
        self._asked = tuple(
            self._ask(body, resolved.riding)
            for body, resolved in zip(self.bodies, self._resolved, strict=True)
        )
        self._known = {body.experiment: _own(body, self.sources) for body in self.bodies}
        """The experiments of this run's own sources: another run may have others of the same name."""
        self._servers: dict[tuple[str, str | None], ForkServer] = {}
        self._broken: dict[tuple[str, str | None], Mapping[str, Any]] = {}
        self._starting = asyncio.Lock()

    async def execute(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        """Run the attempt to its end. Cancelled: what it started is killed before the cancellation passes."""
        return self.redactor.record(await self._attempt(trial, lease))

    async def _attempt(self, trial: PlannedTrial, lease: Lease) -> AttemptRecord:
        body = self.bodies[trial.body]
        started_at, began_ns = self.clock(), time.monotonic_ns()
        try:
            server = await self._server(body.experiment, body.python)
            try:
                passes = await self._passes(server, trial, lease, body)
            finally:
                server.users -= 1
            if passes.has_files:
                passes.artifacts, passes.notes = await asyncio.to_thread(
                    keep_files, passes.folder, self.blobs, self.redactor
                )
            return build_record(
                passes,
                lease=lease,
                body=body,
                began_ns=began_ns,
                started_at=started_at,
                ended_at=self.clock(),
                contended=self.contended,
                worker=self.worker,
            )
        except ImportFailedError as error:
            outcome, failure = Outcome.INVALID, Failure(**error.failure)
        except (SandboxError, OSError) as error:
            outcome = Outcome.SANDBOX_ERROR
            failure = Failure(phase="start", type=type(error).__name__, message=str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # The measured process holds the other end of the stream: what it sends may be anything.
            outcome = Outcome.AGENT_ERROR
            failure = Failure(
                phase="execute_once", type="BadReport", message=f"{type(error).__name__}: {error}"
            )
        return failed_record(
            outcome, failure, lease=lease, started_at=started_at, ended_at=self.clock(), worker=self.worker
        )

    async def close(self) -> None:
        """End every server and whatever it still runs."""
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(server.close() for server in servers.values()))
        await asyncio.to_thread(clean_folder, self.run_dir, self.redactor, OWN)

    async def _server(self, slug: str, python: str | None) -> ForkServer:
        """The warm server of an experiment, started again when need be; the caller is its user now."""
        async with self._starting:
            which = slug, python
            if which in self._broken:
                raise ImportFailedError(self._broken[which])
            server = self._servers.pop(which, None)
            if server is not None and not server.alive:
                await server.close()
                server = None
            if server is None:
                await self._retire()
                server = ForkServer(
                    slug=slug,
                    sources=self.sources,
                    preload=self._preload(slug),
                    python=python,
                    known=self._known.get(slug),
                )
                try:
                    await server.start()
                except ImportFailedError as error:
                    self._broken[which] = error.failure
                    raise
            self._servers[which] = server
            server.users += 1
            return server

    async def _retire(self) -> None:
        """End the servers that were idle for longest, so that many experiments do not fill the memory."""
        idle = [which for which, server in self._servers.items() if not server.users]
        for which in idle[: max(0, len(self._servers) - KEPT_SERVERS + 1)]:
            await self._servers.pop(which).close()

    def _preload(self, slug: str) -> list[str]:
        """The instruments that work inside the measured process."""
        names = {
            each["name"]
            for body, asked in zip(self.bodies, self._asked, strict=True)
            if body.experiment == slug
            for each in asked["instruments"]
        }
        return sorted(names)

    async def _passes(
        self, server: ForkServer, trial: PlannedTrial, lease: Lease, body: ExperimentBody
    ) -> Passes:
        """The timed pass, then the others; those only when the timed one gave something to look into."""
        resolved = self._resolved[trial.body]
        passes = Passes(folder=self._folder(trial, lease), resolved=resolved)
        request = self._request(trial, str(passes.folder))
        passes.timed = await server.run(request)
        if self._pace and passes.timed.report and (found := passes.timed.report.get("pace")):
            self._pace.learn(found)
        began = time.monotonic()
        if passes.timed.report is not None and passes.timed.good_rows():
            for spec in resolved.own_pass:
                instrument = create(spec)
                if isinstance(instrument, Wrapper):
                    passes.wrapped[spec.name] = await self._wrapped(instrument, trial, body, passes.folder)
                else:
                    again = self._own_request(request, spec, instrument, passes.timed)
                    passes.own[spec.name] = await server.run(again)
        passes.instruments_s = time.monotonic() - began
        return passes

    def _folder(self, trial: PlannedTrial, lease: Lease) -> Path:
        """Where the report keeps this attempt's artifacts, so that nothing has to be moved."""
        name = "artifacts" if lease.attempt <= 1 else f"artifacts-{lease.attempt}"
        return Path(f"{self.run_dir}/trials/{trial.subject}/{trial.index}/{name}")

    def _ask(self, body: ExperimentBody, riding: Sequence[InstrumentSpec]) -> dict[str, Any]:
        """What lane and child must know about every point of a body, as plain data."""
        samplers = {spec.name for spec in riding if isinstance(create(spec), Sampler)}
        plain = [
            {"name": spec.name, "options": dict(spec.options)} for spec in riding if spec.name != "timing"
        ]
        return {
            "run_id": self.run_id,
            "output_dir": str(self.run_dir),
            "instrument_names": [spec.name for spec in body.instrumentation],
            "instruments": [each for each in plain if each["name"] not in samplers],
            "samplers": [each for each in plain if each["name"] in samplers],
            "iterations": asdict(body.iterations),
            "loops": body.loops,
            "gc": body.gc,
            "timeout_s": self.timeout_s,
            "resident": body.isolation == "none",
        }

    def _request(self, trial: PlannedTrial, folder: str) -> dict[str, Any]:
        """The same, for one point."""
        body, params = self.bodies[trial.body], resolved(trial.params, self.secrets or {})
        calm = self._pace if _waits_for_calm(body) else None
        return self._asked[trial.body] | {
            "pace": calm.to_mapping() if calm else None,
            "params": params,
            "fitted": self._fitted(body, params) if body.python else None,
            "project": self.project,
            "seed": trial.seed,
            "run_dir": folder,
            "folder": folder,
            "instruments_dir": folder,
        }

    def _fitted(self, body: ExperimentBody, params: Mapping[str, Any]) -> Any:
        """The parameters, checked here: another interpreter may lack what checks them."""
        from proctor.experiments.describe import fitted
        from proctor.experiments.discover import find

        return fitted(find(body.experiment, self.sources), params)

    def _own_request(
        self, request: Mapping[str, Any], spec: InstrumentSpec, instrument: Instrument, timed: Pass
    ) -> dict[str, Any]:
        """The same point again in a fresh process, a few calls, under one instrument."""
        assert timed.report is not None
        asked = request["iterations"]
        limit_s = None if self.timeout_s is None else self.timeout_s * instrument.slowdown
        return {
            **request,
            "run_dir": "",
            "folder": f"{request['folder']}/{spec.name}",
            "instruments": [{"name": spec.name, "options": dict(spec.options)}],
            "samplers": [],
            "pace": None,
            "iterations": {**asked, "warmup": 1 if asked["warmup"] else 0, "measured": instrument.iterations},
            "loops": timed.report["loops"],
            "timeout_s": limit_s,
            "resident": False,
        }

    async def _wrapped(
        self, instrument: Wrapper, trial: PlannedTrial, body: ExperimentBody, folder: Path
    ) -> dict[str, Any]:
        """Run the point in processes of their own under another program."""
        if body.python:
            return {"error": f"{instrument.name} cannot measure in another interpreter"}
        instrument.open(folder / instrument.name)
        instrument.folder.mkdir(parents=True, exist_ok=True)
        request = {
            "slug": body.experiment,
            "sources": list(self.sources),
            "params": resolved(trial.params, self.secrets or {}),
            "seed": trial.seed,
            "run_id": self.run_id,
            "project": self.project,
        }
        command = [sys.executable, "-m", "proctor.trial.point.once"]
        runs = [(instrument.wrap(command, calls), {**request, "calls": calls}) for calls in instrument.runs()]
        # What such a program counts does not depend on what else the machine does.
        errors = await asyncio.gather(*(self._under(instrument, *each) for each in runs))
        if any(errors):
            return {"error": next(filter(None, errors))}
        return {"summary": dict(await asyncio.to_thread(instrument.close))}

    async def _under(self, instrument: Wrapper, command: Sequence[str], request: Mapping[str, Any]) -> str:
        """Run one command to its end or its time limit; what went wrong, or nothing."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=full_environment({"PYTHONHASHSEED": "0"}),
        )
        limit_s = None if self.timeout_s is None else self.timeout_s * instrument.slowdown
        try:
            async with asyncio.timeout(limit_s):
                _, said = await process.communicate(json.dumps(request).encode())
        except TimeoutError:
            return f"took more than {limit_s:g} s"
        finally:
            if process.returncode is None:
                await asyncio.to_thread(kill_tree, process.pid)
                await process.wait()
        if process.returncode:
            return said.decode("utf-8", "replace")[-2000:].strip() or f"exit code {process.returncode}"
        return ""


def _waits_for_calm(body: ExperimentBody) -> bool:
    return body.iterations.measured == "auto" and body.iterations.calm


def _own(body: ExperimentBody, sources: Sequence[str]) -> Registered | None:
    """What planning registered, if it is of these sources. Nothing is imported: that may end the process."""
    known = None if body.python else REGISTRY.get(body.experiment)
    if known is None:
        return None
    file = Path(known.file).resolve()
    return known if any(file.is_relative_to(Path(source).resolve()) for source in sources) else None


def _resolve(body: ExperimentBody, sources: Sequence[str]) -> Resolved:
    """As `instruments.base.resolve`; an unknown name may be registered by one of the experiments' modules."""
    try:
        return resolve(body.instrumentation)
    except UsageError:
        from proctor.experiments.discover import discover

        discover(sources)
        return resolve(body.instrumentation)
