"""Workers that cannot see the project: with the addresses of store and blobs alone they execute any trial."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from tests.resources import Resources

from proctor.engine.lease import worker_id
from proctor.engine.stop import Stop
from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus
from proctor.runfolder.write import RunFolder
from proctor.runs.coordinator import Coordinator
from proctor.runs.holding import Hold
from proctor.runs.perf.run import Quiet
from proctor.runs.running import ReadyRun, create, execute, reopen
from proctor.settings import Settings
from proctor.spec.load import load
from proctor.store.open import open_store

pytestmark = [pytest.mark.fault, pytest.mark.anyio]
EXPERIMENT = """
from proctor import Experiment, register_experiment
from near import double

@register_experiment("portable")
class Portable(Experiment):
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute_once(self, context):
        from .package.deep import added
        return {"n": added(double(self.n))}
"""
FILES = {
    "exps/portable.py": EXPERIMENT,
    "exps/near.py": "def double(n):\n    return 2 * n\n",
    "exps/package/__init__.py": "",
    "exps/package/deep.py": "def added(n):\n    return n + 1\n",
    "sweep.json": json.dumps({"experiment": "portable", "sources": ["exps"], "sweep": {"n": [1, 2, 3]}}),
    "set/one/task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
    "set/one/instruction.md": "Do it.\n",
    "set/one/environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "set/one/solution/solve.sh": "cp /app/laid/given /app/done\n",
    "set/one/tests/test.sh": (
        'test "$(cat /app/done)" = "$WANTED"; echo $((1 - $?)) > /logs/verifier/reward.txt\n'
    ),
    "overrides/overrides.json": json.dumps(
        {
            "overlay_files": {"laid/given": "given"},
            "evaluation": {"environment_variables": {"WANTED": "yes"}},
        }
    ),
    "overrides/given": "yes\n",
    "rollouts.json": json.dumps(
        {
            "name": "rollouts",
            "sandbox": {"host_root": True},
            "tasks": [
                {
                    "dataset": "set",
                    "agent": ["oracle", "nop"],
                    "rollouts": 2,
                    "overrides": "overrides/overrides.json",
                }
            ],
        }
    ),
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "shared/store.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def settings(tmp_path: Path, project: Path, store_url: str) -> Settings:
    return Settings(
        home=project / ".proctor",
        store=store_url,
        blobs=str(tmp_path / "shared/blobs"),
        output_dir=tmp_path / "results",
        rollouts_dir=tmp_path / "results",
    )


def created(project: Path, settings: Settings, spec: str) -> ReadyRun:
    file = project / spec
    return create(load(file), json.loads(file.read_text()), Resources(settings))


class Led:
    """A run with a coordinator and no worker, as if both were on different machines."""

    def __init__(self, run: ReadyRun) -> None:
        self.run = run

    async def __aenter__(self) -> Self:
        run = self.run
        self.store = open_store(run.settings.store_url)
        self.hold = Hold(self.store, run.info.id, run.folder, holder=worker_id(), lease_s=60)
        folder = RunFolder(run.folder, blobs=run.inputs.blobs)
        self.coordinator = Coordinator(self.store, self.hold, folder, listener=Quiet())
        await self.coordinator.lead(Stop(), wait=False)
        await self.coordinator.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hold.release()
        self.store.close()


def work(settings: Settings, tmp_path: Path, before: list[str]) -> None:
    """A worker of another machine: its own home, another folder, and the two addresses."""
    place = tmp_path / "worker"
    place.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    environment = {
        **kept,
        "PROCTOR_HOME": str(place / "home"),
        "PROCTOR_STORE": settings.store_url,
        "PROCTOR_BLOBS": str(settings.blobs_url),
    }
    command = [*before, sys.executable, "-P", "-m", "proctor.cli.main", "worker", "--until-idle"]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list((place / "home/worker").glob("*")), "nothing is left behind"


def hide_by_moving(project: Path) -> list[str]:
    project.rename(project.with_name("elsewhere"))
    return []


def hide_in_a_namespace(project: Path) -> list[str]:
    """What the worker sees at the project's place is empty; everybody else sees the project."""
    mount = f'mount -t tmpfs none {shlex.quote(str(project))} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh"]


WAYS = [
    pytest.param(hide_by_moving, id="moved"),
    pytest.param(hide_in_a_namespace, id="namespace", marks=pytest.mark.needs("root")),
]


@pytest.mark.parametrize("hide", WAYS)
async def test_a_worker_without_the_project_executes_a_sweep(
    project: Path, settings: Settings, tmp_path: Path, hide: Callable[[Path], list[str]]
):
    async with Led(created(project, settings, "sweep.json")) as led:
        work(settings, tmp_path, hide(project))
        await led.coordinator.tick()
        assert await led.coordinator.close(Stop()) is RunStatus.DONE
        rows = list(led.store.attempts(led.run.info.id))
    assert [row.record.outcome for row in rows] == [Outcome.PASSED] * 3
    assert [row.record.iterations[0]["n"] for row in rows] == [3, 5, 7]
    assert len((led.run.folder / "series.jsonl").read_text().splitlines()) == 3


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("hide", WAYS)
async def test_a_worker_without_the_project_executes_rollouts(
    project: Path, settings: Settings, tmp_path: Path, hide: Callable[[Path], list[str]]
):
    async with Led(created(project, settings, "rollouts.json")) as led:
        work(settings, tmp_path, hide(project))
        await led.coordinator.tick()
        assert await led.coordinator.close(Stop()) is RunStatus.DONE
        rows = list(led.store.attempts(led.run.info.id))
    ends = sorted((row.trial.agent, row.record.outcome) for row in rows)
    assert ends == [("nop", Outcome.FAILED)] * 2 + [("oracle", Outcome.PASSED)] * 2
    assert [row.trial.subject for row in rows] == ["one"] * 4
    assert len(list(led.run.folder.glob("trials/one/*/trajectory.json"))) == 4, "through the blobs"


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("spec", ["sweep.json", "rollouts.json"])
async def test_a_run_is_resumed_where_neither_its_project_nor_its_folder_is(
    project: Path, settings: Settings, tmp_path: Path, spec: str
):
    run = created(project, settings, spec)
    hide_by_moving(project)
    shutil.rmtree(run.folder)
    here = replace(settings, home=tmp_path / "other")
    again = reopen(run.info.id, Resources(here))
    assert await execute(again, listener=Quiet(), stop=Stop()) is RunStatus.DONE
    with open_store(settings.store_url) as store:
        outcomes = set(store.counts(run.info.id))
    assert outcomes == ({"passed"} if spec == "sweep.json" else {"passed", "failed"})
    assert (run.folder / "report.md").is_file()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_run_whose_folder_cannot_be_made_here_goes_on_in_another(
    project: Path, settings: Settings, tmp_path: Path
):
    run = created(project, settings, "sweep.json")
    shutil.rmtree(settings.output_dir)
    settings.output_dir.write_text("a file where a folder should be")
    here = replace(settings, home=tmp_path / "other", output_dir=tmp_path / "other results")
    again = reopen(run.info.id, Resources(here))
    assert again.folder.is_relative_to(here.output_dir)
    assert await execute(again, listener=Quiet(), stop=Stop()) is RunStatus.DONE
    with open_store(settings.store_url) as store:
        assert store.run(str(again.folder)) == store.run(run.info.id)
        assert store.run(run.info.id).folder == str(again.folder)
    assert (again.folder / "report.md").is_file()
