"""No key of a provider is anywhere an agent, a reader of its files or another account could find it."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
from pathlib import Path

import pytest
from tests.integration.test_models import KEY, inside, make_task, provided, spec
from tests.leaks import contents, leaking_files, looking, shapes, told, watched_processes

from proctor.cli.main import main
from proctor.gateway.provider.script import commands

pytestmark = pytest.mark.needs("bubblewrap")
SOLVE = f"{looking(KEY)}; echo hello > answer.txt"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A task that looks around when it is solved, and again when it is judged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_MODEL_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    make_task(tmp_path / "task")
    test = tmp_path / "task/tests/test.sh"
    test.write_text(f"{looking(KEY)}\n{test.read_text()}")
    (tmp_path / "task/solution").mkdir()
    (tmp_path / "task/solution/solve.sh").write_text(f"cd /app\n{SOLVE}\n")
    return tmp_path


def recorded() -> dict[str, str]:
    call = {"tool_call_id": "1", "function_name": "shell", "arguments": {"command": SOLVE}}
    steps = [{"step_id": 1, "source": "agent", "message": "", "tool_calls": [call]}]
    Path("recorded.json").write_text(json.dumps({"schema_version": "ATIF-v1.4", "steps": steps}))
    return {"trajectory": "recorded.json"}


def spec_of(agent: str) -> str:
    if agent == "command":
        return inside()
    options = {"agent_options": recorded()} if agent == "replay" else {}
    return spec(agent, "priced" if agent == "terminal" else None, options)


@pytest.mark.parametrize("agent", ["terminal", "command", "oracle", "replay", "nop"])
def test_no_key_is_in_a_sandbox_a_folder_the_store_a_log_or_a_process(project, monkeypatch, capfd, agent):
    with provided(monkeypatch, commands(SOLVE)) as provider, watched_processes(KEY) as seen:
        assert main(["run", spec_of(agent), "-vv"]) == 0
    shown = capfd.readouterr()
    Path("shown.txt").write_text(shown.out + shown.err)
    home, folders = Path(os.environ["PROCTOR_HOME"]), Path(os.environ["PROCTOR_ROLLOUTS_DIR"])
    assert leaking_files(KEY, (project, home, folders)) == []
    assert seen == []
    kept = [
        data.decode(errors="replace")
        for file in folders.rglob("*")
        if file.is_file()
        for data in contents(file)
    ]
    looked, leaked = told("\n".join(kept))
    assert (looked > 0, leaked) == (True, [])
    asked = json.dumps(provider.requests).encode()
    assert [shape for shape in shapes(KEY) if shape in asked] == []


@pytest.mark.parametrize(
    "text",
    [
        "a {key} b",
        "{quoted}",
        "{json}",
    ],
)
def test_the_scan_finds_what_it_looks_for(tmp_path, text):
    (tmp_path / "f").write_text(
        text.format(key=KEY, quoted=urllib.parse.quote(KEY, safe=""), json=json.dumps(KEY))
    )
    assert leaking_files(KEY, [tmp_path]) == [str(tmp_path / "f")]


@pytest.mark.parametrize("before", [b"", b"B", b"Be", b"Bearer ", b"user:"])
def test_the_scan_finds_an_encoded_key_in_the_middle_of_something(tmp_path, before):
    import base64
    import gzip
    import zipfile

    (tmp_path / "a").write_bytes(gzip.compress(base64.b64encode(before + KEY.encode() + b" and more")))
    with zipfile.ZipFile(tmp_path / "b", "w") as archive:
        archive.writestr("x", (before + KEY.encode()).hex())
    assert len(leaking_files(KEY, [tmp_path])) == 2


def test_the_scan_inside_finds_what_it_looks_for(tmp_path):
    (tmp_path / "settings").write_text(f"key={KEY}")
    line = looking(KEY, str(tmp_path))
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert told(done.stdout) == (1, [f"leaked:{tmp_path}/settings"])
