"""Harbor's environments keep the promises of our sandboxes, as far as they can, and say what they cannot."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tarfile
import uuid
from pathlib import Path

import pytest
from tests.harbor_stand_in import install_stand_in

from proctor.errors import HostError, LastingSandboxError, SandboxError, UsageError
from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Limits, Root, SandboxRequest, end_processes, set_network
from proctor.sandbox.choose import check_host_root, choose, kind_of, open_backend, open_images
from proctor.sandbox.harbor import archive
from proctor.sandbox.harbor.backend import HarborBackend, HarborImages
from proctor.sandbox.harbor.place import find, provider_environment
from proctor.sandbox.harbor.sandbox import _KILL
from proctor.sandbox.image.images import BuildProgress

pytestmark = pytest.mark.anyio
LOCAL = "local_environment:LocalEnvironment"
ENVIRONMENT = Path(__file__).parents[2] / "integration/local_environment.py"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shutil.copy(ENVIRONMENT, tmp_path)
    return tmp_path / "home/cache"


@pytest.fixture
async def backend(cache, anyio_backend):
    install_stand_in(cache)
    made = HarborBackend(LOCAL, cache)
    yield made
    await made.close()


def request(**limits) -> SandboxRequest:
    root = Root(workdir="/app", env={"OF": "the image"})
    return SandboxRequest(name="s1", root=root, limits=Limits(**limits), env={"OF": "the task"})


@pytest.fixture
async def sandbox(backend):
    made = backend.sandbox(request())
    await made.start()
    return made


@pytest.mark.needs("bubblewrap")
async def test_commands_run_with_their_variables_input_and_folder(sandbox):
    heard = []
    result = await sandbox.exec(
        ["sh", "-c", 'echo "$OF $1 $(cat) $(pwd)"; echo bad >&2; exit 3', "sh", "it's"],
        stdin=b"given",
        cwd="/app/deep",
        on_output=lambda stream, data: heard.append((stream, data)),
    )
    assert result.exit_code == 3
    assert heard == [("stdout", b"the task it's given /app/deep\n"), ("stderr", b"bad\n")]
    assert (result.stdout, result.stderr) == (heard[0][1], heard[1][1])
    assert (await sandbox.exec(["echo", "x"], keep_bytes=0)).stdout == b""


@pytest.mark.needs("bubblewrap")
async def test_a_command_that_takes_too_long_is_ended(sandbox):
    result = await sandbox.exec(["sleep", "1000"], timeout_s=0.3)
    assert (result.exit_code, result.timed_out) == (137, True)
    working = asyncio.create_task(sandbox.exec(["sleep", "1000"]))
    await asyncio.wait({working}, timeout=0.2)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.needs("bubblewrap")
async def test_files_go_in_and_only_plain_ones_come_out(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep/run.sh").chmod(0o755)
    (source / "link").symlink_to("/etc/passwd")
    await sandbox.upload(source, "/app/in")
    await sandbox.upload(source / "deep/run.sh", "/app/one.sh")
    await sandbox.upload(source / "deep/run.sh", "/app/folder/")
    shown = await sandbox.exec(["sh", "-c", "in/deep/run.sh; sh one.sh; sh folder/run.sh; readlink in/link"])
    assert shown.stdout == b"ran\nran\nran\n/etc/passwd\n"
    found = await sandbox.download("/app/in", tmp_path / "out")
    assert (found.files, found.dropped) == (1, ("link",))
    assert (tmp_path / "out/deep/run.sh").read_text().endswith("echo ran\n")
    await sandbox.download("/app/one.sh", tmp_path / "one")
    assert (tmp_path / "one").read_text().endswith("echo ran\n")
    small = await sandbox.download("/app/in", tmp_path / "small", max_bytes=3)
    assert (small.files, small.dropped_count) == (0, 2)
    await sandbox.exec(["truncate", "-s", "70M", "/app/large"])
    large = await sandbox.download("/app/large", tmp_path / "large", max_bytes=1 << 20)
    assert (large.dropped, (tmp_path / "large").exists()) == (("/app/large",), False)
    with pytest.raises(FileNotFoundError):
        await sandbox.download("/app/nothing", tmp_path / "nothing")
    with pytest.raises(SandboxError, match="must be absolute"):
        await sandbox.upload(source, "in")
    with pytest.raises(SandboxError, match="neither a file nor a folder"):
        await sandbox.upload(source / "link", "/app/link")


@pytest.mark.needs("bubblewrap")
async def test_folders_are_made_anew_before_tests_come(sandbox):
    await sandbox.exec(["sh", "-c", "mkdir -p /tests && touch /tests/left"])
    await end_processes(sandbox, fresh=["/tests", "/logs/verifier"])
    shown = await sandbox.exec(["sh", "-c", "ls /tests; stat -c %a /logs/verifier"])
    assert shown.stdout == b"777\n"


@pytest.mark.needs("bubblewrap")
async def test_the_record_says_what_nobody_holds(backend):
    sandbox = backend.sandbox(request(cpus=1, memory_bytes=1 << 30, storage_bytes=1 << 30))
    await sandbox.start()
    info = sandbox.info()
    await sandbox.stop()
    await sandbox.stop()
    assert set(info.enforced) == {"network", "cpus", "memory", "pids", "storage", "verifier"}
    assert [name for name, how in info.enforced.items() if not how.startswith("not enforced")] == ["network"]
    assert info.ledger["unknown"]["cpu_s"]
    with pytest.raises(SandboxError, match="is not running"):
        await sandbox.exec(["true"])


@pytest.mark.needs("bubblewrap")
async def test_a_network_that_cannot_be_changed_is_said(sandbox):
    with pytest.raises(SandboxError, match="cannot set network"):
        await set_network(sandbox, "public")


@pytest.mark.needs("bubblewrap")
async def test_a_process_that_dies_is_the_machines_failure(backend, sandbox):
    os.kill((await backend.bridge()).pid, signal.SIGKILL)
    with pytest.raises(HostError, match="the process that runs Harbor was killed by signal 9"):
        await sandbox.exec(["true"])


async def test_what_harbor_refuses_is_not_tried_again(cache):
    install_stand_in(cache)
    backend = HarborBackend("modal", cache)
    with pytest.raises(LastingSandboxError, match="harbor:modal cannot start: ImportError: modal needs more"):
        await backend.sandbox(request()).start()
    await backend.close()


async def test_without_harbor_nothing_starts(cache):
    with pytest.raises(LastingSandboxError, match="Harbor is not installed"):
        await HarborBackend("modal", cache).sandbox(request()).start()
    assert "--version 0.24.0+modal" in kind_of("harbor:modal").obstacle()


async def test_names_of_harbors_environments_are_sandboxes(cache, monkeypatch):
    assert choose("modal") == choose("harbor:modal") == "harbor:modal"
    assert choose("docker") == "docker"
    assert choose("harbor:docker") == "harbor:docker"
    with pytest.raises(UsageError, match="did you mean 'daytona'"):
        choose("daytonna")
    with pytest.raises(UsageError):
        choose("harbor:")
    with pytest.raises(UsageError, match="host root works with bubblewrap only"):
        check_host_root("modal")
    backend = open_backend("e2b", cache)
    assert backend.name == "harbor:e2b"
    assert isinstance(open_images(backend, cache), HarborImages)
    assert await backend.reap() == ()
    install_stand_in(cache)
    assert "has no environment 'e2b'; it has modal" in kind_of("harbor:e2b").obstacle()
    assert kind_of("harbor:modal").obstacle() == ""
    assert find(cache, "9.9") is None


async def test_an_environment_gets_what_its_image_is_made_from(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\nWORKDIR /work\n")
    wanted = TaskEnvironment(image="org/image:1", folder=tmp_path, dockerfile=tmp_path / "Dockerfile")
    root = await HarborImages()._make(wanted, BuildProgress())
    assert (root.image, root.definition, root.workdir) == ("org/image:1", tmp_path, "/work")


def test_a_service_gets_its_own_variables_and_no_others(monkeypatch):
    for name in ("MODAL_TOKEN_ID", "OPENAI_API_KEY", "https_proxy"):
        monkeypatch.setenv(name, "x")
    given = provider_environment("modal")
    assert {"MODAL_TOKEN_ID", "https_proxy"} < set(given)
    assert "OPENAI_API_KEY" not in given
    assert "MODAL_TOKEN_ID" not in provider_environment("docker")


def test_only_marked_processes_are_ended():
    mark = f"MADE_BY_A_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    marked = subprocess.Popen(["sleep", "1000"], env={**os.environ, name: value})
    other = subprocess.Popen(["sleep", "1000"])
    try:
        subprocess.run(["sh", "-c", _KILL, "sh", mark], check=True, timeout=60)
        assert marked.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for each in (marked, other):
            each.kill()
            each.wait()


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_an_archive_cannot_write_elsewhere(tmp_path, name):
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.addfile(tarfile.TarInfo(name))
    if name.startswith("/"):
        archive.unpack(tmp_path / "a.tar", tmp_path / "in", max_bytes=10, single=False)
        assert (tmp_path / "in/etc/out").exists()
        return
    with pytest.raises(SandboxError, match="not a path below it"):
        archive.unpack(tmp_path / "a.tar", tmp_path / "in", max_bytes=10, single=False)


def test_what_is_no_archive_is_said(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"hello" * 1000)
    with pytest.raises(SandboxError, match="no archive"):
        archive.unpack(tmp_path / "a.tar", tmp_path / "in", max_bytes=10, single=False)


async def test_a_service_that_does_not_answer_in_time_is_the_hosts_failure(sandbox, monkeypatch):
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("proctor.sandbox.harbor.sandbox._END_S", 0.01)
    monkeypatch.setattr(sandbox, "_command", never)
    with pytest.raises(HostError, match=r"cannot end processes in sandbox s1: no answer within 0\.01 s"):
        await sandbox.end_processes()
