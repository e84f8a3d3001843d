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
from proctor.store.open import open_store
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
        state.resources.settings = settings or state.settings
        archive = tmp_path / f"{name}.zip"
        archive.write_bytes(tasks.packed(tasks.files(name) | {f"{name}/{key}": files[key] for key in files}))
        return keep(
            open_store(state.settings.store_url), state, ME, archive, Uploading(filename=archive.name)
        )[0]

    return make


@pytest.mark.parametrize("key", ["cpus", "memory_bytes", "storage_bytes", "pids"])
def test_a_spec_asks_for_no_more_than_the_machine_has_or_the_settings_allow(state: State, upload, key: str):
    made = upload()

    def submit(number: int) -> None:
        spec = tasks.spec(made.id) | {"sandbox": {key: number}}
        read(Submission(spec=spec), open_store(state.settings.store_url), state, ME)

    submit(1)
    with pytest.raises(Problem, match=f"PROCTOR_SERVE_{key.upper()}") as refused:
        submit(1 << 60)
    assert refused.value.errors == [
        {"where": f"sandbox.{key}", "message": refused.value.errors[0]["message"]}
    ]
    state.resources.settings = replace(state.settings, **{f"serve_{key}": 2})
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


@pytest.mark.parametrize("number", ["'10000'", "1.0e+4", "'${N:-1}'", "'${N:?which}'"])
def test_the_number_of_companions_is_written_out_or_the_task_refused(upload, number: str):
    """Programs that start them read texts as numbers, and a spec sets variables later."""
    toml = tasks.TASK.replace('docker_image = "example/none:1"', "")
    services = f"  s: {{image: x, deploy: {{replicas: {number}}}}}\n"
    with pytest.raises(Problem, match=r"^docker-compose.yaml: service s: deploy: replicas is a whole number"):
        upload("many", **{"task.toml": toml, "environment/docker-compose.yaml": COMPOSE + services})


@pytest.mark.parametrize(
    "compose",
    [
        "services: &s\n  main: {image: example/none:1, labels: *s}\n",
        "x-0: &a0 [x]\n"
        + "".join(f"x-{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 12))
        + "services:\n  main: {image: example/none:1, command: *a11}\n",
        "services:\n  main: {image: example/none:1, command: " + "[" * 300 + "]" * 300 + "}\n",
    ],
    ids=["contains itself", "10^11 values", "deep"],
)
def test_a_compose_file_is_no_larger_than_it_looks(upload, compose: str):
    toml = tasks.TASK.replace('docker_image = "example/none:1"', "")
    with pytest.raises(Problem, match="too large or too deep"):
        upload("many", **{"task.toml": toml, "environment/docker-compose.yaml": compose})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("notes", "n" * 20_001),
        ("tags", ["t" * 201]),
        ("tags", ["t"] * 101),
        ("tags", ["two\nlines"]),
        ("labels", [f"l{at}" for at in range(101)]),
    ],
)
def test_what_a_spec_says_of_its_run_is_as_short_as_what_a_request_says(
    state: State, upload, key: str, value
):
    made = upload()
    for more in ({}, {key: value}):
        spec, changes = tasks.spec(made.id) | more, {key: value} if not more else None
        with pytest.raises(Problem, match=key):
            read(Submission(spec=spec, changes=changes), open_store(state.settings.store_url), state, ME)


def test_a_project_keeps_a_bounded_number_and_size_of_uploads(state: State, upload):
    state.resources.settings = replace(state.settings, serve_uploads=2)
    upload("a")
    size = upload("b").size_bytes
    with pytest.raises(Problem, match="has 2 uploads"):
        upload("c")
    state.resources.settings = replace(state.settings, serve_uploads=10, serve_upload_bytes=int(2.5 * size))
    with pytest.raises(Problem, match="of uploads, of") as refused:
        upload("c")
    assert refused.value.code == "quota"
