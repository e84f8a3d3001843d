"""What specs and uploads from the API may ask of the server, and how much of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server import tasks

from proctor.server.auth.caller import EVERYTHING, Caller
from proctor.server.problem import Problem
from proctor.server.state import Mode, State, open_state
from proctor.server.submit.ceilings import Ceilings
from proctor.server.submit.reading import Submission, read
from proctor.server.upload import Uploading, keep
from proctor.settings import Settings
from proctor.store.service.uploads import Upload

ME = Caller("ada", EVERYTHING)
COMPOSE = "services:\n  main: {image: example/none:1}\n"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    found = open_state(Settings(home=tmp_path / "home", rollouts_dir=tmp_path / "rollouts"), Mode.LOCAL)
    yield found
    found.close()


@pytest.fixture
def upload(state: State, tmp_path: Path) -> Callable[..., Upload]:
    def make(name: str = "hello", settings: Settings | None = None, **files: str) -> Upload:
        state.settings = settings or state.settings
        archive = tmp_path / f"{name}.zip"
        archive.write_bytes(tasks.packed(tasks.files(name) | {f"{name}/{key}": files[key] for key in files}))
        return keep(state.store.store, state, ME, archive, Uploading(filename=archive.name))[0]

    return make


@pytest.mark.parametrize("key", ["cpus", "memory_bytes", "storage_bytes", "pids"])
def test_a_spec_asks_for_no_more_than_the_machine_has_or_the_settings_allow(state: State, upload, key: str):
    made = upload()

    def submit(number: int) -> None:
        spec = tasks.spec(made.id) | {"sandbox": {key: number}}
        read(Submission(spec=spec), state.store.store, state, ME)

    submit(1)
    with pytest.raises(Problem, match=f"PROCTOR_SERVE_{key.upper()}") as refused:
        submit(1 << 60)
    assert refused.value.errors == [
        {"where": f"sandbox.{key}", "message": refused.value.errors[0]["message"]}
    ]
    state.settings = replace(state.settings, **{f"serve_{key}": 2})
    submit(2)
    with pytest.raises(Problem, match="at most 2 "):
        submit(3)


def test_workers_elsewhere_may_have_more_than_this_machine():
    assert Ceilings.of(Settings(broker="redis://x")) == Ceilings.of_tasks(Settings())
    assert Ceilings.of(Settings(broker="redis://x", serve_cpus=4)).cpus == 4


def test_a_task_asks_for_no_more_than_the_settings_allow(state: State, upload):
    wanted = {"task.toml": tasks.TASK + "memory_mb = 4096\n"}
    upload("large", **wanted)
    with pytest.raises(Problem, match="PROCTOR_SERVE_MEMORY_BYTES"):
        upload("large", replace(state.settings, serve_memory_bytes=1 << 30), **wanted)


@pytest.mark.parametrize(
    "services",
    [
        "".join(f"  s{at}: {{image: example/none:1}}\n" for at in range(21)),
        "  s: {image: x, deploy: {replicas: 21}}\n",
    ],
)
def test_a_task_brings_a_bounded_number_of_companions(state: State, upload, services: str):
    toml = tasks.TASK.replace('docker_image = "example/none:1"', "")
    files = {"task.toml": toml, "environment/docker-compose.yaml": COMPOSE + services}
    with pytest.raises(Problem, match="21 services beside the agent's"):
        upload("many", **files)
    upload("many", replace(state.settings, serve_companions=21), **files)


def test_a_project_keeps_a_bounded_number_and_size_of_uploads(state: State, upload):
    state.settings = replace(state.settings, serve_uploads=2)
    upload("a")
    size = upload("b").size_bytes
    with pytest.raises(Problem, match="has 2 uploads"):
        upload("c")
    state.settings = replace(state.settings, serve_uploads=10, serve_upload_bytes=int(2.5 * size))
    with pytest.raises(Problem, match="of uploads, of") as refused:
        upload("c")
    assert refused.value.code == "quota"
