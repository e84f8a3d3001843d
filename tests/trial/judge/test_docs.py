"""The page about judges: what it says to write is read, and what it says to run runs without a provider."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.spec.load import load

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/judges.md").read_text()
FIRST, SPEC, REPLIES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_its_first_spec_is_read(tmp_path: Path):
    (tmp_path / "spec.toml").write_text(FIRST)
    judge = load(tmp_path / "spec.toml").tasks[0].judge
    assert judge is not None
    assert [(each.id, each.weight) for each in judge.rubrics] == [("readable", 2.0), ("rubric-2", 1.0)]


@pytest.mark.needs("bubblewrap")
def test_its_commands_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tasks/config-edit", tmp_path / "tasks/config-edit")
    Path("judged.toml").write_text(SPEC)
    Path("replies.toml").write_text(REPLIES)
    serve, run = (line.split() for line in re.findall(r"^.*proctor (?:provider|run) .*$", PAGE, re.MULTILINE))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [port if word == "8080" else word for word in serve[1:]]
    served = subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert served.stdout is not None
        assert port in served.stdout.readline()
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", f"http://127.0.0.1:{port}/v1")
        assert main(run[2:]) == 0
        assert main(["eval", "judged", "--judge"]) == 0
    finally:
        served.kill()
        served.communicate()
    shown = capsys.readouterr().out
    (told,) = re.findall(r"^(oracle  .*)$", PAGE, re.MULTILINE)
    assert told.split() in [line.split() for line in shown.splitlines()]
