"""The fake keeps the promises of the protocol."""

from __future__ import annotations

import asyncio

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.base import Root, Sandbox, SandboxInfo, SandboxRequest, end_processes
from proctor.sandbox.fake import Fake, FakeResult

pytestmark = pytest.mark.anyio


def request(**more):
    return SandboxRequest(name="f", root=Root(host=True, env={"A": "1"}, workdir="/w", user="u"), **more)


@pytest.fixture
async def started(anyio_backend):
    sandbox = Fake().sandbox(request(env={"B": "2"}))
    await sandbox.start()
    return sandbox


async def test_the_handler_sees_the_command_and_may_change_files():
    def handler(command):
        command.files["/w/out"] = b"made"
        return FakeResult(exit_code=3, stdout=b"hello", stderr=b"oops", oom_killed=True)

    backend = Fake(handler)
    sandbox: Sandbox = backend.sandbox(request(env={"B": "2"}))
    await sandbox.start()
    seen = []
    result = await sandbox.exec(
        ["x", "y"], env={"C": "3"}, stdin=b"i", on_output=lambda *piece: seen.append(piece), keep_bytes=2
    )
    assert (result.exit_code, result.stdout, result.stderr, result.oom_killed) == (3, b"lo", b"ps", True)
    assert seen == [("stdout", b"hello"), ("stderr", b"oops")]
    command = backend.sandboxes[0].commands[0]
    assert (command.argv, command.cwd, command.user, command.stdin) == (("x", "y"), "/w", "u", b"i")
    assert command.env == {"A": "1", "B": "2", "C": "3"}
    assert backend.sandboxes[0].files == {"/w/out": b"made"}


async def test_a_command_over_its_time_is_ended(started):
    started._backend.handler = lambda command: FakeResult(takes_s=100)
    result = await started.exec(["sleep"], timeout_s=0.01, keep_bytes=0)
    assert result.timed_out
    assert result.exit_code == 137


async def test_stopping_fails_commands_in_flight(started):
    started._backend.handler = lambda command: FakeResult(takes_s=0.05)
    running = asyncio.ensure_future(started.exec(["sleep"]))
    await asyncio.sleep(0)
    await started._backend.close()
    with pytest.raises(SandboxError, match="not running"):
        await running


async def test_files_go_in_and_out(started, tmp_path):
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/a").write_text("aa")
    (tmp_path / "in/sub/b").write_text("b" * 50)
    (tmp_path / "in/link").symlink_to("a")
    await started.upload(tmp_path / "in", "/t")
    await started.upload(tmp_path / "in/a", "/t/")
    await started.upload(tmp_path / "in/a", "/t/c")
    assert set(started.files) == {"/t/a", "/t/sub/b", "/t/c"}
    found = await started.download("/t", tmp_path / "out", max_bytes=10)
    assert (found.files, found.bytes, found.dropped) == (2, 4, ("sub/b",))
    await started.download("/t/a", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "aa"
    with pytest.raises(FileNotFoundError):
        await started.download("/missing", tmp_path / "x")
    with pytest.raises(SandboxError, match="absolute"):
        await started.upload(tmp_path / "in", "t")


async def test_ending_processes_empties_the_fresh_folders(started):
    started.files.update({"/tests/a": b"", "/tests2/a": b"", "/logs/verifier/reward.txt": b"1"})
    await end_processes(started, fresh=["/tests", "/logs/verifier"])
    assert set(started.files) == {"/tests2/a"}
    assert started.ended == 1


async def test_it_can_be_told_to_fail():
    backend = Fake(fail_start=1)
    with pytest.raises(SandboxError, match="told to fail"):
        await backend.sandbox(request()).start()
    again = backend.sandbox(request())
    await again.start()
    assert (await again.exec(["x"])).exit_code == 0
    assert await backend.reap() == ()


async def test_it_says_that_nothing_is_enforced(started):
    info = started.info()
    assert isinstance(info, SandboxInfo)
    assert info.enforced["everything"].startswith("not enforced")


async def test_a_sandbox_without_the_extra_is_emptied_by_commands():
    class Plain:
        def __init__(self, code):
            self.code, self.commands = code, []

        async def exec(self, argv, **options):
            self.commands.append((tuple(argv), options))
            return await Fake(lambda command: FakeResult(exit_code=self.code)).sandbox(
                request()
            ).start() or result(self.code)

        def info(self):
            return SandboxInfo(backend="p", name="p")

    def result(code):
        from proctor.sandbox.base import ExecResult

        return ExecResult(exit_code=code)

    plain = Plain(0)
    await end_processes(plain, fresh=["/tests"])
    assert plain.commands[0][0] == ("sh", "-c", "kill -9 -1")
    assert plain.commands[1][0][-2] == "/tests"
    with pytest.raises(SandboxError, match="/tests"):
        await end_processes(Plain(1), fresh=["/tests"])
