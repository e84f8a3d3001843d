from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.tasks.git_server import commit_all, git

from proctor.errors import TaskError
from proctor.tasks.git_tree import Part, check_link, check_name, digest_of


def tree_digest(folder: Path) -> str:
    return digest_of(folder, Part(place="", digest="0" * 40))


def file_digest(file: Path) -> str:
    return digest_of(file, Part(place="", digest="0" * 40, is_folder=False))


@pytest.mark.needs("git")
def test_the_digest_of_a_folder_is_the_one_that_git_gives(tmp_path: Path):
    work = tmp_path / "work"
    (work / "a.b").mkdir(parents=True)
    (work / "a").mkdir()
    (work / "empty/inner").mkdir(parents=True)
    (work / "a/x").write_bytes(b"\0" * 3_000_000)
    (work / "a.b/y").write_text("y")
    (work / "a-").write_text("between them")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("a/x")
    (work / "größe").write_text("é")
    commit_all(work)
    expected = git(work, "rev-parse", "HEAD^{tree}")
    copy = tmp_path / "copy"
    os.system(f"cp -a {work} {copy} && rm -rf {copy}/.git")
    assert tree_digest(copy) == expected
    assert file_digest(copy / "run.sh") == git(work, "rev-parse", "HEAD:run.sh")
    assert file_digest(copy / "link") == git(work, "rev-parse", "HEAD:link")


def test_pipes_and_sockets_have_no_digest(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TaskError, match="neither a file nor a folder"):
        tree_digest(tmp_path)


@pytest.mark.parametrize("path", ["../x", "a/../b", "a//b", ".git/config", "a/.GIT/x", "a/.", "x" * 300])
def test_names_that_no_honest_repository_has_are_refused(path):
    with pytest.raises(TaskError):
        check_name(path, "here")


@pytest.mark.parametrize(
    ("path", "target", "tasks", "good"),
    [
        ("t/a/link", "../b", {"t"}, True),
        ("t/a/link", "../../b", {"t"}, False),
        ("t/a/link", "../../b", {""}, True),
        ("link", "b/c", set(), True),
        ("link", "b/../c", set(), False),
        ("link", "/etc", set(), False),
        ("link", "", set(), False),
        ("t/link", "..", {"t"}, False),
        ("t/a/link", "..", {"t"}, True),
    ],
)
def test_a_link_stays_in_its_task(path, target, tasks, good):
    if good:
        check_link(path, target, tasks, "here")
    else:
        with pytest.raises(TaskError, match="leads out of its task"):
            check_link(path, target, tasks, "here")
