"""Packages become folders that work wherever they are; no registry but where a test says so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from proctor.agents.installed.recipes import Npm, PyPI, find_python, run
from proctor.errors import FetchError, UsageError


@pytest.fixture
def package(tmp_path: Path) -> str:
    """A package of npm in a file, as a version."""
    source = tmp_path / "package"
    source.mkdir()
    about = {"name": "tiny-agent", "version": "1.2.3", "bin": {"tiny": "tiny.sh"}}
    (source / "package.json").write_text(json.dumps(about))
    (source / "tiny.sh").write_text("#!/bin/sh\necho tiny $1\n")
    (source / "tiny.sh").chmod(0o755)
    with tarfile.open(tmp_path / "tiny-agent-1.2.3.tgz", "w:gz") as packed:
        packed.add(source, "package")
    return f"file:{tmp_path}/tiny-agent-1.2.3.tgz"


@pytest.mark.needs("registries")
def test_a_package_of_npm_works_after_its_folder_was_moved(tmp_path, package):
    recipe = Npm(package="tiny-agent", program="lib/node_modules/tiny-*/tiny.sh")
    (tmp_path / "made").mkdir()
    recipe.build(tmp_path / "made", package, print)
    moved = (tmp_path / "made").rename(tmp_path / "moved")
    done = subprocess.run([*recipe.argv(str(moved)), "works"], capture_output=True, text=True, check=True)
    assert done.stdout == "tiny works\n"
    assert recipe.probe("/x") == ["/x/bin/agent", "--version"]


@pytest.mark.needs("registries")
def test_a_package_without_the_program_is_refused(tmp_path, package):
    with pytest.raises(FetchError, match=r"tiny-agent .* has no bin/other"):
        Npm(package="tiny-agent", program="bin/other").build(tmp_path, package, print)


def test_a_script_is_started_by_the_node_that_came_with_it():
    recipe = Npm(package="p", program="bin/p", node=True)
    assert recipe.argv("/x") == ["/x/bin/node", "/x/bin/agent"]
    assert recipe.probe("/x") == ["/x/bin/node", "--version"]


def test_what_a_package_manager_said_last_is_in_the_error():
    with pytest.raises(FetchError, match="sh ended with 3: no such package"):
        run(["/bin/sh", "-c", "echo no such package >&2; exit 3"])
    with pytest.raises(FetchError, match="nothing-here cannot be started: No such file"):
        run(["/nothing-here"])


def test_a_python_is_chosen_by_its_version(tmp_path):
    own = sys.version_info[:2]
    assert find_python(own, own).version == "{}.{}".format(*own)
    assert find_python((3, 98), (3, 99)) is None
    with pytest.raises(UsageError, match=r"needs a Python from 3\.98 to 3\.99, and none was found here"):
        PyPI(package="p", module="p", pythons=((3, 98), (3, 99))).build(tmp_path, "1", print)


@pytest.mark.needs("registries")
def test_a_package_of_pypi_brings_a_python_that_needs_nothing_of_this_machine(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "tiny_agent-1.2.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_agent.py", "import sqlite3, ssl, sys\nprint(sys.prefix, *sys.argv[1:])\n")
        about = "tiny_agent-1.2.3.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-agent\nVersion: 1.2.3\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    recipe = PyPI(package="tiny-agent", module="tiny_agent")
    recipe.build(tmp_path / "made", "1.2.3", print)
    moved = shutil.move(tmp_path / "made", tmp_path / "moved")
    for argv in (recipe.probe(str(moved)), [*recipe.argv(str(moved)), "works"]):
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PYTHONHOME": "/no"})
    assert done.stdout == f"{moved}/python works\n"
    linked = subprocess.run(["ldd", moved / "python/bin/python3"], capture_output=True, text=True, check=True)
    assert str(Path(sys.base_prefix) / "lib") not in linked.stdout
