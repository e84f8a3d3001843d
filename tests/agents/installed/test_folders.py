"""Agents on this machine: whole or not at all, whoever installs them at the same time or is killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.agents.installed.folders import find, install, loader_of, place_of, remove, versions
from proctor.errors import FetchError, NotFoundError, UsageError


class Recipe:
    """Writes a script, and counts how often."""

    built = 0

    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    def build(self, folder, version, say):
        self.built += 1
        (folder / "bin").mkdir(mode=0o700)
        (folder / "bin/agent").write_text("#!/bin/sh\n")
        (folder / "bin/agent").chmod(0o700)
        say(f"version {version}")
        if self.problem:
            raise FetchError(self.problem)

    def argv(self, folder):
        return [f"{folder}/bin/agent"]

    def probe(self, folder):
        return [f"{folder}/bin/agent", "--version"]


def names(cache: Path) -> list[str]:
    return sorted(each.name for each in (cache / "agents/a").iterdir() if each.is_dir())


def test_an_agent_is_installed_once_and_every_account_may_run_it(tmp_path):
    recipe, said = Recipe(), []
    found = install(tmp_path, "a", "1.0", recipe, said.append)
    assert install(tmp_path, "a", "1.0", recipe, said.append) == found == find(tmp_path, "a", "1.0")
    assert (recipe.built, said) == (1, ["version 1.0"])
    assert found.size_bytes == len("#!/bin/sh\n")
    assert (place_of(tmp_path, "a", "1.0") / "bin/agent").stat().st_mode & 0o777 == 0o755
    assert place_of(tmp_path, "a", "1.0").stat().st_mode & 0o555 == 0o555


def test_a_failed_installation_leaves_nothing(tmp_path):
    with pytest.raises(FetchError, match="no such package"):
        install(tmp_path, "a", "1.0", Recipe("no such package"), print)
    assert names(tmp_path) == []
    assert find(tmp_path, "a", "1.0") is None


KILLED = """
import os, signal, sys
from pathlib import Path
from proctor.agents.installed.folders import install
class Recipe:
    def build(self, folder, version, say):
        (folder / "half").write_text("half")
        print("begun", flush=True)
        sys.stdin.read() if len(sys.argv) > 2 else os.kill(os.getpid(), signal.SIGKILL)
        (folder / "agent").write_text("#!")
    def argv(self, folder):
        return [f"{folder}/agent"]
install(Path(sys.argv[1]), "a", "1.0", Recipe(), print)
"""


def test_what_a_killed_installation_left_is_no_agent_and_is_removed_by_the_next(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert (versions(tmp_path, "a"), len(names(tmp_path))) == ([], 1)
    install(tmp_path, "a", "1.0", Recipe(), print)
    assert names(tmp_path) == ["1.0"]


def test_two_installations_at_once_make_one_agent(tmp_path):
    first = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), "waits"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout.readline() == b"begun\n"
    second = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])  # it would be killed if it built
    first.communicate(timeout=60)
    assert (first.returncode, second.wait(timeout=60)) == (0, 0)
    assert names(tmp_path) == ["1.0"]


def test_versions_stand_side_by_side_and_are_removed_one_by_one_or_all(tmp_path):
    for version in ("1.0", "1.1"):
        install(tmp_path, "a", version, Recipe(), print)
    assert [each.version for each in remove(tmp_path, "a", "1.0")] == ["1.0"]
    assert [each.version for each in versions(tmp_path, "a")] == ["1.1"]
    remove(tmp_path, "a")
    assert names(tmp_path) == []
    with pytest.raises(NotFoundError, match="a is not installed"):
        remove(tmp_path, "a")


@pytest.mark.parametrize("version", ["latest", "../1", "", ".1", "1/2"])
def test_what_is_not_a_version_is_refused(tmp_path, version):
    with pytest.raises(UsageError, match="is not a version"):
        install(tmp_path, "a", version, Recipe(), print)


def test_the_loader_that_a_program_needs_is_read_from_it(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/agent").write_text("#!/bin/sh\n")
    assert loader_of(tmp_path, Recipe()) == ""
    shutil.copy(Path(sys.executable).resolve(), tmp_path / "bin/agent")
    assert Path(loader_of(tmp_path, Recipe())).exists()
