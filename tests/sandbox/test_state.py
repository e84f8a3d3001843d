"""Saved states of real sandboxes."""

# Scripts for the inside are kept whole.
# ruff: noqa: E501

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.base import Root, SandboxRequest

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

CHANGES = """
mkdir -p /app/d && echo one > /app/one && ln -s /etc/passwd /app/link && ln /app/one /app/hard && mkfifo /app/pipe
chown 33:1000 /app/one && chmod 4755 /app/one && rm -r /srv /etc/terminfo && mkdir /etc/terminfo && echo n > /etc/terminfo/new
chmod 0700 / && truncate -s 1G /app/sparse && chmod 755 /
"""
LOOK = """
stat -c '%n %F %u:%g %a %s' /app/* | sort; readlink /app/link; ls -A /etc/terminfo; ls -d /srv 2>&1 | tail -c 26; cat /app/hard
"""


async def text(sandbox, script) -> str:
    result = await sandbox.exec(["sh", "-c", script])
    assert result.exit_code == 0, result
    return result.stdout.decode()


async def test_a_sandbox_started_from_a_state_is_like_the_one_it_was_saved_from(backend, sandbox, tmp_path):
    await text(sandbox, CHANGES)
    before = await text(sandbox, LOOK)
    state = tmp_path / "state.tar"
    assert await sandbox.save_state(state, max_bytes=1 << 20)
    assert state.stat().st_size < 1 << 20, "holes take no room"
    other = backend.sandbox(SandboxRequest(name="again", root=Root(host=True, workdir="/app"), state=state))
    await other.start()
    try:
        assert await text(other, LOOK) == before
    finally:
        await other.stop()


@pytest.mark.parametrize(
    "script",
    [
        'long=$(printf "n%.0s" $(seq 120)); mkdir -p "/app/$long/$long"; echo x > "/app/$long/$long/é $long"; ln -s "/$long/$long" /app/link',
        "cd /app; for i in $(seq 300); do mkdir d; cd d; done; echo x > f",
        "cd /app; for i in $(seq 50); do mkdir $(printf 'l%.0s' $(seq 200)); cd l*; done; echo x > f",
        "for i in $(seq 3000); do echo $i; done | (cd /app; xargs touch)",
        "head -c 3000000 /dev/urandom > /app/noise; ln /app/noise /app/again",
        "touch -d 1960-01-01 /app/old; touch -d 2400-01-01 /app/new; mkdir -m 7777 /app/odd",
    ],
    ids=["long-names", "deep", "long-and-deep", "many", "large", "odd"],
)
async def test_unusual_trees_come_back_as_they_were(backend, sandbox, tmp_path, script):
    await text(sandbox, script)
    look = "cd /app; find . -printf '%P %y %m %l %n\\n' | sort | md5sum; find . -type f | wc -l; cat noise 2>&1 | md5sum"
    before = await text(sandbox, look)
    state = tmp_path / "state.tar"
    assert await sandbox.save_state(state, max_bytes=64 << 20)
    other = backend.sandbox(SandboxRequest(name="again", root=Root(host=True, workdir="/app"), state=state))
    await other.start()
    try:
        assert await text(other, look) == before
    finally:
        await other.stop()


async def test_changes_can_become_a_layer_of_other_sandboxes(backend, sandbox, tmp_path):
    await text(sandbox, CHANGES)
    before = await text(sandbox, LOOK)
    layer = tmp_path / "layer"
    await sandbox.take_layer(layer)
    await sandbox.stop()
    root = Root(host=True, workdir="/app", layers=(layer,))
    other = backend.sandbox(SandboxRequest(name="again", root=root))
    await other.start()
    try:
        assert await text(other, LOOK) == before
    finally:
        await other.stop()


async def test_removed_files_are_marked_and_owners_are_those_of_the_inside(sandbox, tmp_path):
    await text(sandbox, CHANGES)
    assert await sandbox.save_state(tmp_path / "state.tar", max_bytes=1 << 20)
    with tarfile.open(tmp_path / "state.tar") as archive:
        members = {member.name.removeprefix("./"): member for member in archive}
    assert members["srv"].ischr()
    assert (members["app/hard"].uid, members["app/hard"].gid) == (33, 1000)
    assert members["app/link"].issym()


async def test_a_state_that_is_too_large_is_not_kept(sandbox, tmp_path):
    await text(sandbox, "head -c 300000 /dev/urandom > /app/noise")
    assert not await sandbox.save_state(tmp_path / "state.tar", max_bytes=200_000)
    assert list(tmp_path.glob("*.tar*")) == list(tmp_path.glob(".*tar*")) == []
    assert await sandbox.save_state(tmp_path / "state.tar", max_bytes=400_000)


async def test_processes_end_before_a_state_is_saved(sandbox, tmp_path):
    await text(sandbox, "(while :; do date +%N > /app/clock; done) & sleep 0.1")
    assert await sandbox.save_state(tmp_path / "state.tar", max_bytes=1 << 20)
    assert (
        await text(sandbox, 'a=$(cat /app/clock); sleep 0.1; [ "$a" = "$(cat /app/clock)" ] && echo still')
        == "still\n"
    )


async def test_files_that_nobody_may_read_are_saved_and_sockets_are_left_out(sandbox, tmp_path):
    script = "umask 777; mkdir /app/closed; echo x > /app/closed/file; python3 -c \"import socket; socket.socket(1).bind('/app/s')\""
    await text(sandbox, script)
    assert await sandbox.save_state(tmp_path / "state.tar", max_bytes=1 << 20)
    with tarfile.open(tmp_path / "state.tar") as archive:
        assert archive.extractfile("./app/closed/file").read() == b"x\n"
        assert "./app/s" not in archive.getnames()


async def test_a_damaged_state_is_refused_and_leaves_nothing(backend, tmp_path):
    (tmp_path / "state.tar").write_bytes(b"not a tar at all" * 100)
    request = SandboxRequest(name="broken", root=Root(host=True), state=tmp_path / "state.tar")
    with pytest.raises(SandboxError, match=r"cannot unpack .*state\.tar"):
        await backend.sandbox(request).start()
    with pytest.raises(SandboxError, match="/no/such does not exist"):
        await backend.sandbox(replace(request, state=Path("/no/such"))).start()
    assert list(backend.folder.glob("*/")) == []


async def test_a_sandbox_that_does_not_run_has_no_state(make, tmp_path):
    with pytest.raises(SandboxError, match="not running"):
        await make().save_state(tmp_path / "state.tar", max_bytes=1)
