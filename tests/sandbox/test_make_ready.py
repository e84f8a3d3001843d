"""What is made ready before a command starts: others ended, folders made anew, files brought."""

from __future__ import annotations

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.base import (
    Before,
    Root,
    SandboxRequest,
    exec_after,
    standing,
)
from proctor.sandbox.fake import Fake

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.fixture
def files(tmp_path):
    for name, text in {"tests/test.sh": "echo judged as $(id -un)\n", "one": "1\n"}.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_text(text)
    return tmp_path / "files"


async def text(sandbox, script, **options):
    result = await sandbox.exec(["sh", "-c", script], **options)
    assert result.exit_code == 0, result
    return result.stdout.decode().strip()


async def test_a_command_finds_a_quiet_place_fresh_folders_and_what_was_brought(sandbox, files):
    await text(
        sandbox, "mkdir -p /tests /logs/verifier; echo forged | tee /tests/old /logs/verifier/reward.txt"
    )
    await text(
        sandbox, "setsid sh -c 'while :; do echo x > /logs/verifier/reward.txt; done' >/dev/null 2>&1 &"
    )
    result = await exec_after(
        sandbox,
        Before(
            quiet=True,
            fresh=["/tests", "/logs/verifier"],
            copies=[(files / "tests", "/tests"), (files / "one", "/in/")],
        ),
        ["sh", "-c", "sh /tests/test.sh; cat - /in/one; ls -A /tests /logs/verifier; stat -c %U%a /tests"],
        user="nobody",
        stdin=b"input\n",
        cwd="/tests",
    )
    said = " ".join(result.stdout.decode().split())
    assert said == "judged as nobody input 1 /logs/verifier: /tests: test.sh root755"
    assert await text(sandbox, "pgrep -c sh || true") == "1"


async def test_a_user_inside_gains_nothing_from_what_root_made_ready(sandbox, files):
    script = "grep Cap /proc/self/status; touch /tests/mine; ls -l /proc/self/fd | grep -c memfd"
    plain = await sandbox.exec(["sh", "-c", script], user="nobody")
    made = await exec_after(
        sandbox, Before(copies=[(files / "tests", "/tests")]), ["sh", "-c", script], user="nobody"
    )
    assert made.stdout == plain.stdout
    assert b"CapEff:\t0000000000000000" in made.stdout
    assert b"CapBnd:\t0000000000000000" in made.stdout
    assert b"Permission denied" in made.stderr


async def test_what_cannot_be_made_ready_is_no_exit_code_of_the_command(sandbox, files):
    with pytest.raises(SandboxError, match="could not be prepared"):
        await exec_after(sandbox, Before(copies=[(files / "one", "/proc/one")]), ["true"])
    with pytest.raises(SandboxError, match="could not be prepared"):
        await exec_after(sandbox, Before(fresh=["/proc/self"]), ["true"])
    with pytest.raises(SandboxError, match="absolute"):
        await exec_after(sandbox, Before(copies=[(files / "one", "one")]), ["true"])
    result = await exec_after(sandbox, Before(copies=[(files / "one", "/one")]), ["sh", "-c", "exit 126"])
    assert result.exit_code == 126


async def test_processes_are_ended_once_and_again_only_after_something_ran(sandbox):
    await sandbox.end_processes()
    await text(sandbox, "setsid sleep 5000 >/dev/null 2>&1 &")
    await sandbox.end_processes()
    await sandbox.end_processes(fresh=["/new"])
    assert await text(sandbox, "pgrep sleep || echo none; ls -d /new") == "none\n/new"


async def test_folders_that_stand_are_empty_whatever_the_image_has_there(make, backend, tmp_path):
    for name in ("logs/agent/left", "logs/other/kept"):
        (tmp_path / "image" / name).parent.mkdir(parents=True)
        (tmp_path / "image" / name).write_text("")
    await backend.give_to_root(tmp_path / "image")
    sandbox = make(Root(layers=(tmp_path / "image",), host=True))
    await sandbox.start()
    assert list(standing(sandbox)) == ["/logs/agent", "/logs/artifacts"]
    assert await text(sandbox, "find /logs | sort; touch /logs/agent/new; ls /logs/agent") == (
        "/logs\n/logs/agent\n/logs/artifacts\n/logs/other\n/logs/other/kept\n/logs/verifier\nnew"
    )
    await sandbox.stop()


async def test_a_sandbox_that_cannot_do_it_in_one_go_does_it_in_three(files):
    sandbox = Fake().sandbox(SandboxRequest(name="f", root=Root(host=True)))
    await sandbox.start()
    assert not hasattr(sandbox, "exec_after")
    result = await exec_after(
        sandbox, Before(quiet=True, fresh=["/a"], copies=[(files / "one", "/b")]), ["true"], cwd="/"
    )
    assert result.exit_code == 0
    assert sandbox.files["/b"] == b"1\n"
