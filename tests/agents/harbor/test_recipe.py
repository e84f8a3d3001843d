"""How Harbor is installed, and for which Python; the real installation is in tests/integration."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.harbor_stand_in import install_stand_in

from proctor.agents.harbor import recipe
from proctor.agents.harbor.recipe import HarborPackages
from proctor.agents.installed.folders import install, place_of, versions
from proctor.agents.installed.recipes import Python, find_python
from proctor.cli.main import main
from proctor.errors import FetchError, UsageError
from proctor.sandbox.harbor.place import ABOUT, VERSION, find, find_all, homes

LOCK = Path(recipe.__file__).with_name("harbor.lock")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What pip is asked for; the packages are those of the stand-in."""
    calls: list[tuple[str, ...]] = []

    def pip_install(target: Path, *packages: str, options=(), python: str = "") -> None:
        calls.append((*options, *packages))
        made = install_stand_in(target.parent / "elsewhere")
        (made.folder / "packages").rename(target)
        (target / "harbor-0.24.0.dist-info").mkdir()
        (target / "harbor-0.24.0.dist-info/METADATA").write_text("Name: harbor\nVersion: 0.24.0\n")

    python = Python(str(Path(sys.executable).resolve()), "3.12", Path(), Path(), "")
    monkeypatch.setattr(recipe, "pip_install", pip_install)
    monkeypatch.setattr(recipe, "find_python", lambda *_, **__: python)
    return calls


def test_the_version_that_was_tried_is_installed_by_its_hashes(tmp_path, asked):
    install(tmp_path, "harbor", VERSION, HarborPackages(), print)
    assert asked == [("--require-hashes", f"--requirement={LOCK}")]
    found = find(tmp_path)
    assert found
    assert (found.agents, found.environments) == (("claude-code", "nop", "terminus-2"), ("modal",))
    assert found.folder == place_of(tmp_path, "harbor", VERSION).absolute()
    assert [each.version for each in versions(tmp_path, "harbor")] == [VERSION]


def test_extras_and_other_versions_are_named_to_pip(tmp_path, asked):
    for version in ("0.24.0+modal+e2b", "0.23.0"):
        install(tmp_path, "harbor", version, HarborPackages(), print)
    assert asked == [("harbor[modal,e2b]==0.24.0",), ("harbor==0.23.0",)]
    assert [each.extras for each in find_all(tmp_path)] == [("modal", "e2b"), ()]
    with pytest.raises(UsageError, match="not an extra"):
        install(tmp_path, "harbor", "0.24.0+Modal_", HarborPackages(), print)


def test_a_harbor_that_does_not_start_is_not_installed(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(
        recipe, "command", lambda folder, *_: [f"{folder}/bin/python", "-c", "import nothing_here"]
    )
    with pytest.raises(FetchError, match="Harbor was installed and does not start: Traceback"):
        install(tmp_path, "harbor", VERSION, HarborPackages(), print)
    assert find(tmp_path) is None


def test_a_machine_without_a_fitting_python_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "find_python", lambda *_, **__: None)
    with pytest.raises(UsageError, match="HARBOR_PYTHON; install one"):
        HarborPackages().build(tmp_path, VERSION, print)


def test_the_lock_pins_everything_and_names_no_registry():
    text = LOCK.read_text()
    assert f"\nharbor=={VERSION} " in text
    assert "://" not in text
    assert len(re.findall(r"^\S+==\S+", text, re.MULTILINE)) > 50
    assert "--hash=sha256:" in text


def test_pythons_of_pyenv_and_uv_are_found(tmp_path, monkeypatch):
    for place in ("pyenv/versions/3.12.1/bin", "uv/cpython-3.13.0-linux/bin"):
        file = tmp_path / place / "python3"
        file.parent.mkdir(parents=True)
        version = re.search(r"3\.(\d+)", place)
        assert version
        facts = json.dumps([str(file), version[0], "/", "/", ""])
        file.write_text(f"#!/bin/sh\necho '{facts}'\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert [
        found and found.version for found in (find_python((3, 12), (3, 12)), find_python((3, 13), (3, 13)))
    ] == [
        "3.12",
        "3.13",
    ]
    named = str(tmp_path / "uv/cpython-3.13.0-linux/bin/python3")
    chosen = find_python((3, 12), (3, 14), also=["", str(tmp_path / "none"), named])
    assert chosen
    assert chosen.program == named
    assert find_python((3, 98), (3, 99)) is None


def test_the_commands_know_harbor(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path))
    install_stand_in(tmp_path / "cache")
    assert main(["agents", "install", "harbor"]) == 0
    assert "harbor 0.24.0 is installed" in capsys.readouterr().out
    assert main(["agents", "--json"]) == 0
    (found,) = [each for each in json.loads(capsys.readouterr().out) if each["name"] == "terminus-2"]
    assert [each["version"] for each in found["installed"]] == [VERSION]
    assert main(["agents", "remove", "terminus-2"]) == 0
    assert not (homes(tmp_path / "cache") / VERSION / ABOUT).exists()
    assert main(["agents", "--json"]) == 0
    (found,) = [
        each
        for each in json.loads(capsys.readouterr().out.partition("\n")[2])
        if each["name"] == "terminus-2"
    ]
    assert "0.24.0 is not installed: run 'proctor agents install harbor'" in found["missing"]
