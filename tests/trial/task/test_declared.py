from __future__ import annotations

from pathlib import Path

import pytest

from proctor.model.task import CollectHook, Task, TaskArtifact
from proctor.sandbox.base import Download, ExecResult, Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeResult, FakeSandbox
from proctor.trial.task.declared import copy_in, copy_out, run_hooks, services_missing, wanted

pytestmark = pytest.mark.anyio


async def started(kind=FakeSandbox, handler=lambda command: FakeResult()):
    sandbox = kind(Fake(handler=handler), SandboxRequest(name="s", root=Root(workdir="/app")))
    await sandbox.start()
    return sandbox


def kept(folder: Path) -> dict[str, str]:
    files = (each for each in sorted(folder.rglob("*")) if each.is_file())
    return {each.relative_to(folder).as_posix(): each.read_text() for each in files}


async def test_a_file_and_a_folder_are_kept_where_they_were_or_where_they_are_wanted(tmp_path):
    sandbox = await started()
    sandbox.files |= {"/app/out.txt": b"1", "/var/log/x/a": b"2", "/var/log/x/b/c": b"3", "/etc/y": b"4"}
    artifacts = [
        TaskArtifact(source="out.txt"),
        TaskArtifact(source="/var/log/x"),
        TaskArtifact(source="/etc/y", destination="mine/z"),
        TaskArtifact(source="/nothing/there"),
    ]
    taken = await copy_out(sandbox, artifacts, "/app", tmp_path)
    assert kept(tmp_path) == {"out.txt": "1", "var/log/x/a": "2", "var/log/x/b/c": "3", "mine/z": "4"}
    assert [artifact.source for artifact, _ in taken] == ["out.txt", "/var/log/x", "/etc/y"]


@pytest.mark.parametrize("pattern", ["*.o", "build", "b/build", "./b/build"])
async def test_what_is_excluded_is_left_out(tmp_path, pattern):
    sandbox = await started(handler=lambda command: FakeResult(exit_code=127))
    sandbox.files |= {"/app/a": b"1", "/app/b/build/x.o": b"2"}
    await copy_out(sandbox, [TaskArtifact(source="/app", exclude=(pattern,))], "/app", tmp_path)
    assert kept(tmp_path) == {"app/a": "1"}


async def test_a_copy_without_what_is_excluded_is_made_inside_where_there_is_a_tar(tmp_path):
    def tar(command):
        command.files["/tmp/.proctor-artifact/a"] = b"1"
        assert "--exclude='*.big'" in command.argv[-1]
        return FakeResult()

    sandbox = await started(handler=tar)
    sandbox.files |= {"/app/a": b"1", "/app/x.big": b"2"}
    await copy_out(sandbox, [TaskArtifact(source="/app", exclude=("*.big",))], "/app", tmp_path)
    assert kept(tmp_path) == {"app/a": "1"}


async def test_of_two_that_would_overlap_the_first_is_kept(tmp_path):
    sandbox = await started()
    sandbox.files |= {"/a/x": b"1", "/b/x": b"2"}
    both = [TaskArtifact(source="/a", destination="d"), TaskArtifact(source="/b/x", destination="d/x")]
    await copy_out(sandbox, both, "/app", tmp_path)
    assert kept(tmp_path) == {"d/x": "1"}


async def test_what_was_taken_is_laid_out_in_another_sandbox_where_it_came_from(tmp_path):
    one, other = await started(), await started()
    one.files |= {"/app/out.txt": b"1", "/data/x": b"2"}
    artifacts = [TaskArtifact(source="out.txt", destination="renamed"), TaskArtifact(source="/data")]
    await copy_in(other, await copy_out(one, artifacts, "/app", tmp_path), "/app")
    assert other.files == {"/app/out.txt": b"1", "/data/x": b"2"}


def task(**options) -> Task:
    return Task(name="t", path=Path("t"), digest="", **options)


def test_the_published_folder_comes_first_unless_it_is_declared():
    own = TaskArtifact(source="/logs/artifacts/", exclude=("x",))
    assert [each.source for each in wanted(task(artifacts=(TaskArtifact(source="a"),)), None)] == [
        "/logs/artifacts", "a"
    ]  # fmt: skip
    assert wanted(task(artifacts=(own,)), None) == [own]


async def test_hooks_run_in_order_and_one_that_fails_is_noted():
    sandbox = await started(handler=lambda command: FakeResult(exit_code=int("bad" in command.argv[-1])))
    hooks = [
        CollectHook(command="bad"),
        CollectHook(command="dump", user="db"),
        CollectHook(command="x", service="db"),
    ]
    notes = await run_hooks(sandbox, hooks, cwd="/app", env={"A": "1"})
    assert [(each.argv[-1], each.user) for each in sandbox.commands] == [("bad", "root"), ("dump", "db")]
    assert notes[0] == "collect hook 'bad': exit code 1"
    assert "there is no service 'db' here" in notes[1]


class Companion:
    def __init__(self):
        self.commands = []

    async def exec(self, argv, *, user=None, timeout_s=None):
        self.commands.append((argv[-1], user))
        return ExecResult(exit_code=0)

    async def download(self, source, target, *, max_bytes):
        target.write_text(f"from {source}")
        return Download(files=1)


class WithServices(FakeSandbox):
    db = Companion()

    def companion(self, service):
        assert service == "db"
        return self.db


async def test_services_beside_the_sandbox_are_asked_for_theirs(tmp_path):
    sandbox = await started(WithServices)
    declared = TaskArtifact(source="/dump.sql", service="db")
    assert await run_hooks(sandbox, [CollectHook(command="x", service="db")], cwd="/", env={}) == []
    assert sandbox.db.commands == [("x", None)]
    await copy_out(sandbox, [declared], "/app", tmp_path)
    assert kept(tmp_path) == {"dump.sql": "from /dump.sql"}
    assert services_missing(sandbox, task(artifacts=(declared,))) is None
    assert "podman or docker" in str(services_missing(await started(), task(artifacts=(declared,))))
    assert services_missing(await started(), task()) is None
