"""Runs whose numbers really follow from their rows, packed; and a forger who seals again what was changed."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.receipt import document
from proctor.receipt.container import Packer, order
from proctor.receipt.document import File
from proctor.receipt.pack import pack_run
from proctor.receipt.verify import Verified, verify_receipt
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.trial.point.calibrate import aggregate

T0 = 1_790_000_000.0
Files = dict[str, bytes]


def planned(index: int, **fields: Any) -> PlannedTrial:
    fields = {"subject_digest": "d" * 64, "seed": 7, **fields}
    known = {name: fields.get(name) for name in ("agent", "agent_version", "model")}
    key = trial_key(
        subject_digest=fields["subject_digest"],
        params=fields.get("params"),
        overrides=fields.get("overrides"),
        seed=fields["seed"],
        rollout=fields.get("rollout", 0),
        **known,
    )
    return PlannedTrial(key=key, index=index, body=0, **fields)


def attempt(trial: PlannedTrial, outcome: Outcome, *, number: int = 1, **fields: Any) -> AttemptRecord:
    start = T0 + 10 * trial.index + 3 * number
    return AttemptRecord(
        key=trial.key,
        number=number,
        outcome=outcome,
        started_at=start,
        ended_at=start + 2.5,
        worker="w1",
        **{"phases_s": {"queue": 30.0, "work": 1.25}, **fields},
    )


def measured(points: int = 3) -> list[tuple[PlannedTrial, list[AttemptRecord]]]:
    rng = random.Random(4)
    pairs = []
    for index in range(points):
        trial = planned(index, kind="experiment", subject="sort_list", params={"size": 10**index})
        rows = tuple(
            {"iteration": at, "duration_s": 1e-3 * (1 + rng.random()), "deep": {"swaps": at}}
            for at in range(8)
        )
        tries = [attempt(trial, Outcome.PASSED, iterations=rows, metrics=aggregate(rows))]
        if index == 1:
            lost = Failure(phase="work", type="WorkerLost", message="no heartbeat")
            tries = [
                attempt(trial, Outcome.WORKER_LOST, failure=lost, phases_s={}),
                replace(tries[0], number=2, started_at=T0 + 16, ended_at=T0 + 18.5),
            ]
        pairs.append((trial, tries))
    return pairs


def rolled_out(blobs: Blobs) -> list[tuple[PlannedTrial, list[AttemptRecord]]]:
    """A plain pass, a part, a fail, a time-out with its reward, a broken verifier, steps, rubrics."""
    pairs = []

    def add(subject: str, outcome: Outcome, reward: float | None, files: Files, **fields: Any) -> None:
        trial = planned(len(pairs), kind="task", subject=subject, agent="oracle", rollout=len(pairs))
        steps = [{"metrics": {"prompt_tokens": 100, "cost_usd": 0.25}, "tool_calls": [{}]}]
        files = {**files, "trajectory.json": json.dumps({"steps": steps}).encode()}
        usage = {"steps": 1, "prompt_tokens": 100, "completion_tokens": 0, "cost_usd": 0.25, "tool_calls": 1}
        kept = tuple(blobs.put_bytes(data, name, "text/plain") for name, data in files.items())
        record = attempt(trial, outcome, reward=reward, artifacts=kept, usage=usage, **fields)
        pairs.append((trial, [record]))

    for value in (1.0, 0.5, 0.0):
        add(
            "org/plain", from_reward(value), value, {"verifier/reward.txt": f"{value}\n".encode()},
            metrics={"rewards": {"reward": value}},
        )  # fmt: skip
    late = Failure(phase="agent", type="TimeoutError", message="the agent did not end within 9 s")
    add(
        "org/late", Outcome.AGENT_TIMEOUT, 1.0, {"verifier/reward.json": b'{"reward": 1, "tests": 4}'},
        metrics={"rewards": {"reward": 1.0, "tests": 4.0}}, failure=late,
    )  # fmt: skip
    silent = Failure(phase="verify", type="RewardMissing", message="nothing")
    add("org/silent", Outcome.VERIFIER_ERROR, None, {}, metrics={"rewards": {}}, failure=silent)
    add(
        "org/steps", Outcome.PARTIAL, 0.5,
        {"verifier/one/reward.txt": b"1", "verifier/two/reward.txt": b"0", "logs/eval.log": b"much\n" * 9},
        metrics={"rewards": {}, "steps": {"one": 1.0, "two": 0.0}},
    )  # fmt: skip
    rubrics = [
        {"id": "a", "weight": 3.0, "unit_score": 1.0, "judge_score": None, "status": "tested"},
        {"id": "b", "weight": 1.0, "unit_score": 0.0, "judge_score": None, "status": "tested"},
        {"id": "c", "weight": 9.0, "unit_score": None, "judge_score": None, "status": "untested"},
    ]
    add(
        "org/rubrics", Outcome.PARTIAL, 0.75, {"rubrics.json": json.dumps(rubrics).encode()},
        metrics={"rewards": {"reward": 0.75}, "rubrics": rubrics},
    )  # fmt: skip
    return pairs


class Workshop:
    """A store, and receipts of what is put into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = open_blobs(folder / "blobs")
        self.store = open_store(str(folder / "runs.db"))

    def put(self, kind: str, **fields: Any) -> str:
        pairs = measured() if kind == "experiment" else rolled_out(self.blobs)
        plan = Plan(trials=tuple(trial for trial, _ in pairs), warnings=("the plan warned",))
        info = RunInfo(
            **{
                "id": f"20260901T000000-{kind[:6]}", "name": f"a {kind}", "kind": kind,
                "status": RunStatus.DONE, "created_at": T0 - 1, "started_at": T0, "finished_at": T0 + 500,
                "seed": 7, "total": len(pairs), "plan_digest": plan.digest, "tags": ("nightly",),
                "resolved": {"name": kind, "seed": 7}, "environment": {"cores": 2}, **fields,
            }
        )  # fmt: skip
        attempts = [(record, record is tries[-1]) for _, tries in pairs for record in tries]
        self.store.import_run(info, plan.trials, attempts, warnings=plan.warnings)
        return info.id

    def receipt(self, kind: str, name: str = "run.receipt.zip", **options: Any) -> Path:
        try:
            run_id = self.store.run(f"a {kind}").id
        except Exception:  # noqa: BLE001 - not there yet
            run_id = self.put(kind)
        return pack_run(self.store, self.blobs, run_id, self.folder / name, **options).path


def unpacked(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(path: Path, change: Callable[[Files], None], target: Path) -> Path:
    """Change the files and seal the receipt again, as a forger would who knows the format."""
    files = unpacked(path)
    receipt = document.read(files.pop(document.NAME), "receipt")
    change(files)
    with target.open("w+b") as sink:
        packer, listed = Packer(sink), [each for each in receipt.files if each.packed is None]
        for name in sorted(files, key=order):
            written = packer.add(name, io.BytesIO(files[name]), len(files[name]))
            listed.append(File(name, written.sha256, written.size, written.packed))
        text = document.write(receipt.head, listed)[0].encode()
        packer.add(document.NAME, io.BytesIO(text), len(text), deflate=False)
        packer.close()
    return target


def forge_rows(path: Path, change: Callable[[list[dict[str, Any]]], None], target: Path) -> Path:
    """The same, for the rows of the series."""

    def changed(files: Files) -> None:
        rows = [json.loads(line) for line in files["series.jsonl"].splitlines()]
        change(rows)
        lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
        files["series.jsonl"] = "".join(f"{line}\n" for line in lines).encode()

    return forge(path, changed, target)


class Tools:
    """What tests do with receipts."""

    unpacked = staticmethod(unpacked)
    forge = staticmethod(forge)
    forge_rows = staticmethod(forge_rows)

    @staticmethod
    def verify(path: Path, **options: Any) -> Verified:
        return verify_receipt(path, **options)

    @staticmethod
    def told(path: Path, **options: Any) -> list[str]:
        return [each.text for each in verify_receipt(path, **options).findings.differences]


@pytest.fixture
def tools() -> type[Tools]:
    return Tools


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path)
    yield made
    made.store.close()


@pytest.fixture(scope="module", params=["experiment", "task"])
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A receipt that nobody touched, made once for each kind of run."""
    made = Workshop(tmp_path_factory.mktemp("sealed"))
    path = made.receipt(request.param)
    made.store.close()
    return path
