"""The machine and the source tree are described without ever failing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from proctor.trial import environment
from proctor.trial.environment import capture_environment, capture_vcs, packages


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-b", "trunk")
    return tmp_path


def test_an_environment_is_plain_data_with_what_a_reader_needs():
    found = capture_environment()
    assert json.loads(json.dumps(found)) == found
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 1 << 20
    assert found["cpu_model"]
    assert found["python"]["version"].count(".") == 2
    assert len(found["load"]) == 3
    assert {"governor", "container", "kernel", "hostname", "platform", "distribution"} <= found.keys()
    assert "pytest" in found["packages"]


def test_packages_agree_with_their_metadata():
    from importlib.metadata import version

    found = dict(packages())
    for name in ("pytest", "click", "sqlalchemy", "proctor-bench"):
        assert found[name] == version(name)


def test_a_machine_that_tells_nothing_is_no_error(monkeypatch):
    monkeypatch.setattr(environment, "_read", lambda _: None)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.delenv("container", raising=False)
    found = capture_environment()
    assert (found["memory_bytes"], found["governor"], found["container"]) == (None, None, None)


@pytest.mark.parametrize(
    ("files", "name", "value"),
    [
        ({"/sys/fs/cgroup/cpu.max": "150000 100000"}, "cpu_quota", 1.5),
        ({"/sys/fs/cgroup/cpu.max": "max 100000"}, "cpu_quota", None),
        (
            {
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            "cpu_quota",
            0.5,
        ),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, "cpu_quota", None),
        ({"/sys/devices/system/cpu/cpufreq/boost": "1"}, "turbo", True),
        ({"/sys/devices/system/cpu/intel_pstate/no_turbo": "1"}, "turbo", False),
        ({"/proc/1/cgroup": "0::/kubepods/x"}, "container", "kubepods"),
        ({"/run/systemd/container": "nspawn"}, "container", "nspawn"),
        ({"/proc/cpuinfo": "flags : fpu hypervisor\ncpu MHz : nonsense"}, "virtual_machine", True),
    ],
)
def test_what_the_system_says_is_read(monkeypatch, files, name, value):
    monkeypatch.setattr(environment, "_read", files.get)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    monkeypatch.delenv("container", raising=False)
    assert capture_environment()[name] == value


@pytest.mark.parametrize(("file", "name"), [("/run/.containerenv", "podman"), ("/.dockerenv", "docker")])
def test_containers_are_known_by_their_files(monkeypatch, file, name):
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == file)
    assert environment._container() == name


@pytest.mark.needs("git")
def test_a_tree_is_clean_or_dirty_and_has_a_commit_and_a_branch(repository):
    assert capture_vcs(repository) == {"commit": None, "branch": "trunk", "dirty": False}
    (repository / "file").write_text("one")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "first")
    clean = capture_vcs(repository)
    assert len(clean["commit"]) == 40
    assert (clean["branch"], clean["dirty"]) == ("trunk", False)
    (repository / "file").write_text("two")
    assert capture_vcs(repository) == {**clean, "dirty": True}
    git(repository, "checkout", "--force", "--detach")
    assert capture_vcs(repository)["branch"] is None


def test_a_folder_without_a_repository_is_unknown(tmp_path):
    assert capture_vcs(tmp_path) == {"commit": None, "branch": None, "dirty": None}
    assert capture_vcs(tmp_path / "not there")["commit"] is None


def test_without_git_everything_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert capture_vcs(tmp_path)["dirty"] is None
