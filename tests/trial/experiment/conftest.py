"""What the tests of experiment trials share: an executor over the subjects beside this file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import ExperimentBody, Iterations
from proctor.model.trial import Lease
from proctor.store.blobs import open_blobs
from proctor.trial.experiment_trial import ExperimentExecutor

SOURCE = str(Path(__file__).with_name("subjects.py"))


class Bench:
    """Runs points of one body, one after another or together, and keeps where they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = open_blobs(folder / "blobs")

    def executor(
        self, *bodies: ExperimentBody, timeout_s: float | None = None, **options: Any
    ) -> ExperimentExecutor:
        return ExperimentExecutor(
            bodies=bodies,
            run_id="run",
            run_dir=self.folder / "run",
            sources=options.pop("sources", [SOURCE]),
            timeout_s=timeout_s,
            contended=options.pop("contended", False),
            blobs=self.blobs,
            worker="tester",
            **options,
        )

    def trial(
        self, index: int, params: Mapping[str, Any], *, slug: str, body: int = 0, seed: int = 7
    ) -> PlannedTrial:
        return PlannedTrial(
            key=f"key-{index}",
            index=index,
            kind="experiment",
            subject=slug,
            subject_digest="",
            body=body,
            params=params,
            seed=seed,
        )

    def lease(self, index: int, attempt: int = 1) -> Lease:
        return Lease("run", f"key-{index}", index, "tester", 1, attempt, 0.0)

    def points(
        self,
        slug: str,
        points: Sequence[Mapping[str, Any]],
        *,
        timeout_s: float | None = None,
        together: bool = False,
        **body: Any,
    ) -> list[AttemptRecord]:
        """Measure each point and close; the records in order."""
        body.setdefault("iterations", Iterations(measured=4))
        executor = self.executor(ExperimentBody(experiment=slug, **body), timeout_s=timeout_s)

        async def run() -> list[AttemptRecord]:
            try:
                jobs = [
                    executor.execute(self.trial(index, params, slug=slug), self.lease(index))
                    for index, params in enumerate(points)
                ]
                if together:
                    return list(await asyncio.gather(*jobs))
                return [await job for job in jobs]
            finally:
                await executor.close()

        return asyncio.run(run())

    def point(self, slug: str, params: Mapping[str, Any] | None = None, **options: Any) -> AttemptRecord:
        return self.points(slug, [params or {}], **options)[0]

    def read(self, record: AttemptRecord, name: str) -> bytes:
        (artifact,) = [each for each in record.artifacts if each.name == name]
        with self.blobs.open(artifact.digest) as file:
            return file.read()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def run() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    return lambda make: asyncio.run(make())
