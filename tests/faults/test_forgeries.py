"""Agents that forge the reward of a shared verifier, and honest ones that install packages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults import forging
from tests.faults.forging import SEEN, USELESS

from proctor.agents.base import AgentResult
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

pytestmark = [pytest.mark.anyio, pytest.mark.fault]
IDEAS = {**SEEN, **USELESS}
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
_AT_ONCE = 3
_PARTS = range(0, 4, 1 if os.environ.get("PROCTOR_SOAK") else 4)
"""Of four: in a short run a quarter of the ideas are tried in podman too; bubblewrap tries all of them."""


@dataclass
class Script:
    """An agent that runs one script as root."""

    text: str
    tools: Path
    name: str = "script"
    version: str = "1"

    async def run(self, task, sandbox, model, context):
        await sandbox.upload(self.tools, "/opt")
        result = await sandbox.exec(
            ["/usr/bin/bash", "-c", self.text], cwd="/app", user="root", timeout_s=60, env=_ENV
        )
        return AgentResult(notes=(f"exit {result.exit_code}: {result.stderr.decode(errors='replace')}",))


@pytest.fixture(scope="session")
def image_tar(tmp_path_factory):
    file = tmp_path_factory.mktemp("forging") / "image.tar"
    forging.write_image(file)
    return file


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    return forging.write_tools(tmp_path_factory.mktemp("tools") / "opt")


@pytest.fixture(scope="session")
def podman_forging_image(image_tar):
    name = f"localhost/proctor-forging:{os.getpid()}"
    made = subprocess.run(["podman", "import", image_tar, name], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"podman cannot make an image here: {made.stderr.strip().splitlines()[-1:]}")
    yield name
    subprocess.run(["podman", "image", "rm", "--force", name], capture_output=True, check=False)


@pytest.fixture(scope="session")
def layer(image_tar, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layer") / "root"
    folder.mkdir()
    with tarfile.open(image_tar) as archive:
        archive.extractall(folder, filter="fully_trusted")
    return folder


@pytest.fixture
async def in_bubblewrap(backend, layer):
    await backend.give_to_root(layer)
    return backend, Root(layers=(layer,), workdir="/app", env=_ENV)


@pytest.fixture
async def in_podman(podman, podman_forging_image):
    return podman, Root(image=podman_forging_image, workdir="/app", env=_ENV)


def make_task(folder: Path, **files: str) -> Path:
    contents = {
        "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write 42 to /app/answer.\n",
        "tests/test.sh": forging.TEST,
        "tests/test_it.py": forging.TEST_PY,
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def attempt(place, folder: Path, script: str, tools: Path, *, index: int = 0, **files: str):
    """One attempt by an agent that runs a script."""
    backend, root = place
    task_folder = make_task(folder / f"task{index}", **files)
    task = read_task(task_folder)
    spec = Spec(name="s", tasks=(TaskEntry(path=str(task_folder), agents=("nop",)),))
    preparation = Preparation(spec, folder / "cache")
    preparation._agents[0, "nop"] = Script(script, tools)

    async def make_root(task, environment=None):
        return root

    setting = TaskSetting(
        run_id="run",
        run_dir=folder / f"run{index}",
        sandbox=SandboxSpec(),
        backend=backend,
        collector=Collector(folder / f"run{index}", open_blobs(folder / "blobs")),
        make_root=make_root,
        given={},
        worker="w",
    )
    trial = PlannedTrial(
        key=f"{index:064d}",
        index=index,
        kind="task",
        subject=task.name,
        subject_digest=task.digest,
        body=0,
        agent="nop",
        path=str(task_folder),
        overrides={},
    )
    lease = Lease(run_id="run", key=trial.key, index=index, worker="w", fence=1, attempt=1, expires_at=1.0)
    return await TaskExecutor(setting, preparation.plan).execute(trial, lease)


def script_of(idea: str) -> str:
    text = IDEAS[idea].replace("gcc-made", "test -f")
    return f"{forging.BEFORE}{forging.WRAP}{text}\n"


def assert_no_forgery(idea: str, record) -> None:
    """No pass is counted; where the idea works, the first verdict was one and the attempt is marked."""
    said = (idea, record.notes, record.failure, record.system_changes)
    assert record.outcome is Outcome.FAILED, said
    assert record.reward == 0, said
    again = record.system_changes.get("judged_again")
    if idea in SEEN:
        assert record.suspect, said
        assert again["rewards"] == [1.0, 0.0], said
        assert any(note.startswith("suspect: ") for note in record.notes)
    else:
        assert not record.suspect, said
        assert again is None, said


def test_there_are_more_than_thirty_ideas():
    assert len(SEEN) >= 30
    assert len(IDEAS) >= 60


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("idea", list(IDEAS))
async def test_no_idea_forges_a_reward_in_bubblewrap(idea, in_bubblewrap, tools, tmp_path):
    assert_no_forgery(idea, await attempt(in_bubblewrap, tmp_path, script_of(idea), tools))


@pytest.mark.needs("podman")
@pytest.mark.parametrize("part", _PARTS)
async def test_no_idea_forges_a_reward_in_podman(part, in_podman, tools, tmp_path):
    room = asyncio.Semaphore(_AT_ONCE)
    ideas = list(IDEAS)[part::4]

    async def one(number: int) -> None:
        async with room:
            record = await attempt(in_podman, tmp_path, script_of(ideas[number]), tools, index=number)
        assert_no_forgery(ideas[number], record)

    failed = [
        each
        for each in await asyncio.gather(*map(one, range(len(ideas))), return_exceptions=True)
        if each is not None
    ]
    assert not failed, "\n".join(map(str, failed))


HONEST = {
    "a new package by pip": (
        "python3 -m pip install -q --no-index --break-system-packages /opt/extra-1-py3-none-any.whl",
        "python3 -c 'import extra'",
    ),
    "an upgrade by pip": (
        "python3 -m pip install -q --no-index --break-system-packages /opt/demo-2-py3-none-any.whl",
        "python3 -c 'import demo; assert demo.version == 2'",
    ),
    "an upgrade by dpkg": ("dpkg -i --force-all /opt/demo-tool.deb", "demo-tool | grep -qx 'demo 2'"),
    "a new package by dpkg": ("dpkg -i --force-all /opt/new-tool.deb", "new-tool | grep -qx new"),
    "an upgrade of bash by dpkg": ("dpkg -i --force-all /opt/bash.deb", "bash -c true"),
    "an upgrade by npm": (
        (
            "d=/usr/lib/node_modules/kit; rm -r $d; mkdir $d; "
            'echo \'{"version": "2.0.0"}\' > $d/package.json; '
            "echo 'module.exports = 2' > $d/index.js"
        ),
        "grep -q 2 /usr/lib/node_modules/kit/index.js",
    ),
    "a project installed to be edited": (
        (
            f"mkdir -p /app/src /app/more {forging.SITE_LOCAL}; echo > /app/src/mine.py; "
            "echo > /app/more/theirs.py; "
            f"echo /app/src > {forging.SITE_LOCAL}/__editable__.mine.pth; "
            f"echo 'import __editable___theirs_finder; __editable___theirs_finder.install()' > "
            f"{forging.SITE_LOCAL}/__editable__.theirs.pth; printf 'import sys\\nMAPPING: dict = "
            '{"theirs": "/app/more/theirs"}\\ndef install(): sys.path.append("/app/more")\\n\' > '
            f"{forging.SITE_LOCAL}/__editable___theirs_finder.py"
        ),
        "python3 -c 'import mine, theirs'",
    ),
    "a program of its own and a longer PATH": (
        (
            "printf '#!/bin/sh\\necho mine\\n' > /usr/local/bin/my-tool; chmod +x /usr/local/bin/my-tool; "
            "echo 'export PATH=$HOME/.cargo/bin:$PATH' >> ~/.bashrc; echo '. ~/.bashrc' > ~/.profile"
        ),
        "my-tool | grep -qx mine",
    ),
    "an account": ("echo alice:x:1001:1001::/home/alice:/bin/sh >> /etc/passwd", "grep -q alice /etc/passwd"),
    "settings of a server": (
        "mkdir -p /etc/nginx; echo server > /etc/nginx/nginx.conf; echo hi > /etc/motd",
        "grep -q server /etc/nginx/nginx.conf",
    ),
    "a repaired file that the instruction names": (
        "printf '#!/bin/sh\\necho demo 3\\n' > /usr/bin/demo-tool",
        "demo-tool | grep -qx 'demo 3'",
    ),
}
CONFIRMED = {
    "an upgrade of bash by dpkg",
    "a project installed to be edited",
    "a program of its own and a longer PATH",
}
"""What is judged twice, with the same reward."""


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """Packages for the honest, built here."""
    folder = tmp_path_factory.mktemp("packages") / "opt"
    forging.build_wheel(folder, "extra", "1", {"extra.py": "version = 1\n"})
    forging.build_wheel(folder, "demo", "2", {"demo.py": "version = 2\n"})
    forging.build_deb(
        folder / "demo-tool.deb", "demo-tool", "2", {"usr/bin/demo-tool": "#!/bin/sh\necho demo 2\n"}
    )
    forging.build_deb(folder / "new-tool.deb", "new-tool", "1", {"usr/bin/new-tool": "#!/bin/sh\necho new\n"})
    other = tmp_path_factory.mktemp("bash") / "bash"
    other.write_bytes(Path("/usr/bin/bash").read_bytes() + b"\n")
    forging.build_deb(folder / "bash.deb", "bash", "2", {"usr/bin/bash": other})
    return folder


async def honest(place, folder: Path, name: str, packages: Path, index: int = 0) -> None:
    script, condition = HONEST[name]
    test = forging.TEST.replace("env true", f"env true && {condition}")
    told = "Write 42 to /app/answer. Repair /usr/bin/demo-tool.\n" if "names" in name else "Write 42.\n"
    files = {"tests/test.sh": test, "instruction.md": told}
    record = await attempt(
        place, folder, f"set -e; echo 42 > /app/answer; {script}", packages, index=index, **files
    )
    said = (name, record.notes, record.failure, record.system_changes)
    assert (record.outcome, record.reward, record.suspect) == (Outcome.PASSED, 1.0, False), said
    assert record.system_changes["count"] >= 1, said
    again = record.system_changes.get("judged_again")
    assert (again is not None) == (name in CONFIRMED), said
    assert again is None or again["rewards"] == [1.0, 1.0], said


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("name", list(HONEST))
async def test_the_honest_pass_and_are_not_suspect_in_bubblewrap(name, in_bubblewrap, packages, tmp_path):
    await honest(in_bubblewrap, tmp_path, name, packages)


@pytest.mark.needs("podman")
async def test_the_honest_pass_and_are_not_suspect_in_podman(in_podman, packages, tmp_path):
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int, name: str) -> None:
        async with room:
            await honest(in_podman, tmp_path, name, packages, number)

    found = await asyncio.gather(
        *(one(number, name) for number, name in enumerate(HONEST)), return_exceptions=True
    )
    failed = [each for each in found if each is not None]
    assert not failed, "\n".join(map(str, failed))


@pytest.mark.needs("bubblewrap")
async def test_compiled_modules_of_the_system_cost_no_second_verdict(in_bubblewrap, packages, tmp_path):
    script = "echo 42 > /app/answer; python3 -c 'import json, asyncio'"
    record = await attempt(in_bubblewrap, tmp_path, script, packages)
    assert (record.outcome, record.suspect) == (Outcome.PASSED, False)
    assert "judged_again" not in record.system_changes
    assert any("__pycache__" in each for each in record.system_changes["first"])


@pytest.mark.needs("bubblewrap")
async def test_a_second_verdict_that_breaks_confirms_nothing(in_bubblewrap, packages, tmp_path):
    test = "#!/bin/bash\n[ -f /etc/profile.d/mine.sh ] && echo 1 > /logs/verifier/reward.txt\n"
    record = await attempt(
        in_bubblewrap, tmp_path, "echo > /etc/profile.d/mine.sh", packages, **{"tests/test.sh": test}
    )
    assert (record.outcome, record.reward, record.suspect) == (Outcome.FAILED, 0.0, True)
    assert record.failure.type == "NotConfirmed"
    assert record.system_changes["judged_again"]["rewards"] == [1.0, None]
    assert "phase" not in record.failure.message
    assert record.phases_s["second_look"] > 0


@pytest.mark.needs("bubblewrap")
async def test_a_separate_verifier_is_never_asked_twice(in_bubblewrap, packages, tmp_path):
    toml = (
        'schema_version = "1.4"\nartifacts = ["/app/answer"]\n[environment]\nnetwork_mode = "no-network"\n'
        '[verifier]\nenvironment_mode = "separate"\n'
    )
    script = f"{forging.BEFORE}cp /opt/p.sh /usr/local/bin/python3"
    record = await attempt(in_bubblewrap, tmp_path, script, packages, **{"task.toml": toml})
    assert (record.outcome, record.reward, record.suspect) == (Outcome.FAILED, 0.0, False)
    assert record.system_changes == {}


@pytest.mark.needs("bubblewrap")
async def test_the_list_of_system_files_is_bounded_and_all_are_counted(in_bubblewrap, packages, tmp_path):
    script = "echo 42 > /app/answer; mkdir -p /srv/many; for n in $(seq 300); do echo > /srv/many/$n; done"
    record = await attempt(in_bubblewrap, tmp_path, script, packages)
    assert record.outcome is Outcome.PASSED
    assert record.system_changes["count"] >= 300
    assert len(record.system_changes["first"]) == 50
