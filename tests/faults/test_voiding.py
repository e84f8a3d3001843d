"""Nothing that an agent does inside its sandbox takes its attempt out of the score."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal

import pytest
from tests.faults.hostile import IDEAS, MANY, RUNNING_TESTS, WHILE_TESTED, Arena, Hostile

from proctor.agents.base import AgentResult
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome
from proctor.sandbox.base import Root

pytestmark = [pytest.mark.anyio, pytest.mark.fault]
bubblewrap, podman_only = pytest.mark.needs("bubblewrap"), pytest.mark.needs("podman")
SEPARATE = """schema_version = "1.4"
artifacts = ["/app"]
[verifier]
environment_mode = "separate"
timeout_sec = 3
"""


@pytest.fixture
async def root(backend, host_layer):
    mark = host_layer.with_name("given")
    if not mark.exists():
        await backend.give_to_root(host_layer)
        mark.touch()
    return Root(layers=(host_layer,), workdir="/app")


@pytest.fixture
async def arenas(backend, tmp_path, root):
    made = []

    def make(name="arena", **options):
        made.append(Arena(tmp_path / name, backend, root, **options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


def counts_as_zero(record):
    return record.outcome.scored and record.reward == 0.0


@bubblewrap
@pytest.mark.parametrize("idea", IDEAS)
async def test_an_agent_that_fails_cannot_leave_the_score(arenas, idea):
    record = await arenas().attempt(Hostile(IDEAS[idea]))
    assert counts_as_zero(record), (record.outcome, record.failure)


@bubblewrap
@pytest.mark.parametrize("idea", WHILE_TESTED)
async def test_what_the_tests_start_of_the_agent_s_cannot_leave_the_score(arenas, idea):
    script = f"printf %s {shlex.quote(WHILE_TESTED[idea])} > /app/run"
    record = await arenas(tests=RUNNING_TESTS).attempt(Hostile(script))
    assert counts_as_zero(record), (record.outcome, record.failure)


@bubblewrap
@pytest.mark.parametrize(
    "idea", ["deep folders", "names that are not UTF-8", "long names", "everything removed"]
)
async def test_an_agent_that_fails_cannot_leave_the_score_of_a_separate_verifier(arenas, idea):
    extra = {"names that are not UTF-8": IDEAS["a name that is not UTF-8"]}
    record = await arenas(toml=SEPARATE).attempt(Hostile({**IDEAS, **extra}[idea]))
    assert counts_as_zero(record), (record.outcome, record.failure)


@bubblewrap
async def test_thousands_of_files_are_judged_and_a_part_of_them_is_kept(arenas):
    record = await arenas().attempt(Hostile(MANY % 20_000, solve=True))
    assert (record.outcome, record.reward) == (Outcome.PASSED, 1.0)
    names = [each.name for each in record.artifacts]
    assert len(names) < 10_100
    assert "artifacts/files.left-out.txt" in names


@bubblewrap
@pytest.mark.parametrize(
    "idea",
    [
        "a name that is not UTF-8", "a folder whose name is not UTF-8", "names with line ends and escapes",
        "a link whose target is not UTF-8", "pipes and devices to collect", "long names",
        "a huge sparse file", "odd attributes", "odd owners and times", "white-out names",
        "links by the hundred", "processes left behind",
    ],
)  # fmt: skip
async def test_odd_files_cost_an_agent_that_succeeds_nothing(arenas, idea):
    record = await arenas().attempt(Hostile(IDEAS[idea], solve=True))
    assert (record.outcome, record.reward) == (Outcome.PASSED, 1.0), record.failure
    assert not any("could not be kept" in note for note in record.notes), record.notes


@bubblewrap
async def test_a_name_that_is_not_utf_8_is_in_the_patch_the_state_and_the_artifacts(arenas):
    arena = arenas()
    odd = "printf x > /app/$(printf 'n\\377'); printf y > /logs/artifacts/$(printf 'a\\377b')"
    record = await arena.attempt(Hostile(odd, solve=True))
    folder = arena.folder / "run/trials/task/1"
    assert b'+++ "b/n\\377"' in (folder / "artifacts/diff.patch").read_bytes()
    assert b"n\xff" in (folder / "state.tar").read_bytes()
    (kept,) = [each.name for each in record.artifacts if "logs/artifacts" in each.name]
    assert kept.startswith("artifacts/files/logs/artifacts/a\\xffb-")
    assert (folder / kept).read_bytes() == b"y"


class Saying:
    """An agent that gives its sandbox a command that cannot be run."""

    name = "saying"
    version = "1"

    def __init__(self, **command):
        self.command = command

    async def run(self, task, sandbox, model, context):
        await sandbox.exec(**{"argv": ["true"], **self.command})
        return AgentResult()


@bubblewrap
@pytest.mark.parametrize(
    "command",
    [
        {"argv": ["sh", "-c", "echo \0"]},
        {"argv": ["sh", "-c", "x" * 3_000_000]},
        {"argv": ["true"] * 200_000},
        {"argv": ["/no/such/program"]},
        {"cwd": "/no/such/folder"},
        {"user": "nobody-at-all"},
        {"env": {"A": "\0"}},
        {"stdin": b"x" * 5_000_000},
        {"argv": ["sh", "-c", "\udcff"]},
    ],
    ids=str,
)
async def test_a_command_that_cannot_be_run_counts(arenas, command):
    record = await arenas().attempt(Saying(**command))
    assert counts_as_zero(record), (record.outcome, record.failure)


@bubblewrap
async def test_the_keeper_s_death_is_the_host_s(arenas, backend):
    class Killer:
        name, version = "killer", "1"

        async def run(self, task, sandbox, model, context):
            os.kill((await backend.keeper()).pid, signal.SIGKILL)
            await sandbox.exec(["sleep", "100"])
            return AgentResult()

    arena = arenas()
    record = await arena.attempt(Killer())
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert arena.controls() == []


@bubblewrap
async def test_one_control_serves_all_attempts_and_is_found_after_a_resume(arenas):
    arena = arenas()
    broken = IDEAS["the working folder replaced by a file"]
    records = await asyncio.gather(*(arena.attempt(Hostile(broken)) for _ in range(3)))
    assert {record.failure.type for record in records} == {ENVIRONMENT_BROKEN}
    (control,) = arena.controls()
    file = arena.folder / "run" / control["folder"] / "control.json"
    before = file.stat().st_mtime_ns
    await arena.close()
    arena.executor = arena.begin()
    assert (await arena.attempt(Hostile(broken))).failure.type == ENVIRONMENT_BROKEN
    assert file.stat().st_mtime_ns == before
    assert control["works"] is True
    assert control["tries"][0]["phases_s"]["verify"] > 0
    (kept,) = [each for each in records[0].artifacts if each.name == "control.json"]
    assert json.loads((arena.folder / "blobs" / kept.digest[:2] / kept.digest).read_bytes())["works"] is True


@podman_only
async def test_none_of_the_ideas_leaves_the_score_on_podman(podman, podman_image, tmp_path):
    root = Root(image=podman_image, workdir="/app")
    plain = Arena(tmp_path / "plain", podman, root)
    running = Arena(tmp_path / "running", podman, root, tests=RUNNING_TESTS)
    turns = asyncio.Semaphore(3)

    async def outcome(arena, script):
        async with turns:
            record = await arena.attempt(Hostile(script))
        return "" if counts_as_zero(record) else (record.outcome.value, record.failure)

    scripts = {
        **{
            f"{idea}, while tested": f"printf %s {shlex.quote(each)} > /app/run"
            for idea, each in WHILE_TESTED.items()
        },
        **IDEAS,
    }
    scripts = dict(list(scripts.items())[:: 1 if os.environ.get("PROCTOR_SOAK") else 2])
    found = await asyncio.gather(
        *(outcome(plain if idea in IDEAS else running, script) for idea, script in scripts.items())
    )
    assert {idea: how for idea, how in zip(scripts, found, strict=True) if how} == {}
    assert len(plain.controls()) == len(running.controls()) == 1
    for arena in (plain, running):
        await arena.close()
