"""Completion as real shells ask for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from proctor.cli import complete as complete_module
from proctor.cli.complete import with_completions
from proctor.cli.completion import SHELLS
from proctor.cli.main import COMMANDS, COMPLETING, group, main

HEAVY = {"asyncio", "rich", "numpy", "sqlalchemy", "psutil", "yaml", "psycopg"}
PROBE = """
import json, sys
from proctor.cli.main import main
sys.argv = ["proctor"]
try:
    main()
finally:
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def complete(line: str, cwd: Path) -> tuple[list[str], set[str]]:
    """What a fish shell would offer at the end of the line, and which modules that took."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_PROCTOR_COMPLETE": "fish_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": words[-1],
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    offered = [each.split(",", 1)[1].split("\t")[0] for each in done.stdout.splitlines() if "," in each]
    return offered, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture
def place(tmp_path, monkeypatch, store_rollouts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/a.yaml").write_text("")
    (tmp_path / "specs/b.toml").write_text("")
    (tmp_path / "specs/notes.txt").write_text("")
    store_rollouts({("org/hello", "oracle"): [1.0, 0.0], ("org/hello", "nop"): [0.0]}, name="study")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("proctor sh", ["show"]),
        ("proctor show l", ["latest"]),
        ("proctor show stu", ["study"]),
        ("proctor rm 2026", ["20260101T000000-aaaaaa"]),
        ("proctor compare study lat", ["latest"]),
        ("proctor summarize st", ["study"]),
        ("proctor history s", ["study"]),
        ("proctor resume la", ["latest"]),
        ("proctor run sp", ["specs/a.yaml", "specs/b.toml"]),
        ("proctor run specs/b", ["specs/b.toml"]),
        ("proctor run nothing/", []),
        ("proctor logs study org", ["org/hello/oracle#1", "org/hello/oracle#2", "org/hello/nop#1"]),
        ("proctor logs 2026 2", ["2"]),
        ("proctor logs nobody o", []),
        ("proctor list memory", ["memory_db"]),
        ("proctor ls --st", ["--status"]),
        ("proctor aa la", ["latest"]),
        ("proctor aa specs/a", ["specs/a.yaml"]),
        ("proctor gate latest --baseline st", ["study"]),
        ("proctor baseline pin main la", ["latest"]),
        ("proctor logs latest~0 1", ["1"]),
        ("proctor ab --a lat", []),
        ("proctor completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_the_next_word_is_offered(place, monkeypatch, line, offered):
    monkeypatch.setenv(COMPLETING, "fish_complete")
    _, *words, incomplete = line.split(" ")
    found = ShellComplete(group, {}, "proctor", COMPLETING).get_completions(words, incomplete)
    assert [each.value for each in found] == offered


@pytest.mark.parametrize("line", ["proctor show stu", "proctor logs study org", "proctor run sp"])
def test_heavy_modules_are_absent(place, line):
    found, modules = complete(line, place)
    assert found
    assert not modules & HEAVY


def test_the_commands_are_offered_without_importing_any(place):
    found, modules = complete("proctor ", place)
    assert found == list(COMMANDS)
    assert "sqlite3" not in modules


def test_agents_are_offered_where_an_option_takes_one(monkeypatch):
    command = click.Command("try", params=[click.Option(["-a", "--agent"])])
    with_completions(command, "try")
    (param,) = command.params
    found = param.shell_complete(click.Context(command), "or")
    assert [each.value for each in found] == ["oracle"]


def test_a_store_on_a_server_is_not_asked(monkeypatch):
    monkeypatch.setenv("PROCTOR_STORE", "postgresql://nobody@nowhere/nothing")
    assert list(complete_module.runs(click.Context(group), "")) == [("latest", "the newest run")]
    assert list(complete_module.trials(click.Context(group), "")) == []


def test_without_a_store_nothing_is_offered_and_nothing_is_made(tmp_path):
    assert complete("proctor show s", tmp_path)[0] == []
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_offers_what_needs_none(tmp_path):
    (tmp_path / ".proctor").mkdir()
    (tmp_path / ".proctor/proctor.db").write_text("not a database")
    assert complete("proctor show ", tmp_path)[0] == ["latest"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_for_each_shell(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_PROCTOR_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_a_real_bash_that_sources_the_script_completes(place):
    script = f"""
    eval "$({sys.executable} -m proctor.cli.main completion bash)"
    COMP_WORDS=(proctor show stu) COMP_CWORD=2
    _proctor_completion proctor
    echo "${{COMPREPLY[@]}}"
    """
    folder = place / "bin"
    folder.mkdir()
    (folder / "proctor").write_text(f'#!/bin/sh\nexec {sys.executable} -m proctor.cli.main "$@"\n')
    (folder / "proctor").chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=place,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "study", done.stderr
