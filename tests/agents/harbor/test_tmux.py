"""This machine's tmux, carried into sandboxes that have none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.sandbox.conftest import backend, cache_dir  # noqa: F401 - fixtures

from proctor.agents.harbor import tmux
from proctor.errors import UsageError
from proctor.sandbox.base import Limits, Root, SandboxRequest

pytestmark = [pytest.mark.anyio, pytest.mark.needs("tmux")]
SESSION = f"""\
export PATH="{tmux.BIN}:$PATH" TERM=xterm-256color
tmux new-session -x 100 -y 20 -d -s t 'bash --login' && tmux send-keys -t t 'echo $((6*7)) $TERM' Enter
for each in $(seq 100); do tmux capture-pane -p -t t | grep '^42' && break; sleep 0.05; done
"""


@pytest.mark.needs("bubblewrap")
async def test_it_works_in_a_sandbox_with_a_server_that_stays(backend, tmp_path):  # noqa: F811
    root = Root(host=True, workdir="/tmp", binds=tmux.binds(tmp_path))
    sandbox = backend.sandbox(SandboxRequest(name="t", root=root, limits=Limits()))
    await sandbox.start()
    shown = await sandbox.exec(["bash", "-c", SESSION])
    later = await sandbox.exec([f"{tmux.BIN}/tmux", "has-session", "-t", "t"])
    await sandbox.stop()
    assert shown.stdout.startswith(b"42 "), shown
    assert later.exit_code == 0


def test_it_brings_its_own_c_library(tmp_path):
    (place,) = tmux.binds(tmp_path).values()
    assert {"loader", "libc.so.6", "tmux"} <= {each.name for each in (place / "lib").iterdir()}
    assert (place / "terminfo/x/xterm-256color").is_file()
    own = [f"{place}/lib/loader", "--library-path", f"{place}/lib", f"{place}/lib/tmux", "-V"]
    assert subprocess.run(own, capture_output=True, text=True, check=True).stdout.startswith("tmux ")
    assert list(tmux.binds(tmp_path).values()) == [place]


def test_a_program_that_is_no_program_is_not_copied(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    (tmp_path / "made").mkdir()
    with pytest.raises(UsageError, match="is not copied"):
        tmux.Tmux(str(script)).build(tmp_path / "made", "1", print)


def test_a_machine_without_tmux_has_none_to_give(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    tmux._version.cache_clear()
    try:
        assert tmux.binds(tmp_path) == {}
    finally:
        tmux._version.cache_clear()
    assert not Path(tmp_path / "agents").exists()
