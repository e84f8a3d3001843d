from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.tasks.digest import task_digest


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text("")
    (folder / "tests/test.sh").write_text("exit 0\n")
    return folder


def test_a_copy_elsewhere_has_the_same_digest(task, tmp_path):
    shutil.copytree(task, tmp_path / "copy")
    assert task_digest(task) == task_digest(tmp_path / "copy")


def test_content_names_execute_bits_and_links_all_count(task):
    seen = {task_digest(task)}
    (task / "tests/test.sh").write_text("exit 1\n")
    seen.add(task_digest(task))
    (task / "tests/test.sh").chmod(0o755)
    seen.add(task_digest(task))
    (task / "tests/test.sh").rename(task / "tests/other.sh")
    seen.add(task_digest(task))
    (task / "link").symlink_to("task.toml")
    seen.add(task_digest(task))
    assert len(seen) == 5


def test_what_is_ignored_does_not_count(task):
    before = task_digest(task)
    (task / "__pycache__").mkdir()
    (task / "__pycache__/x.pyc").write_text("x")
    assert task_digest(task) == before
    (task / ".harborignore").write_text("# notes\nscratch/\n*.log\n")
    before = task_digest(task)
    (task / "scratch").mkdir()
    (task / "scratch/x").write_text("x")
    (task / "tests/a.log").write_text("x")
    assert task_digest(task) == before


def test_an_unchanged_task_is_not_read_again(task, tmp_path):
    first = task_digest(task, tmp_path / "cache")
    info = (task / "tests/test.sh").stat()
    (task / "tests/test.sh").write_text("exit 2\n")
    os.utime(task / "tests/test.sh", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert task_digest(task, tmp_path / "cache") == first, "same size and time: remembered"
    (task / "tests/test.sh").write_text("exit 22\n")
    assert task_digest(task, tmp_path / "cache") != first


def test_a_damaged_or_unwritable_cache_only_costs_time(task, tmp_path):
    first = task_digest(task, tmp_path / "cache")
    for file in (tmp_path / "cache/digests").iterdir():
        file.write_text("garbage")
    assert task_digest(task, tmp_path / "cache") == first
    (tmp_path / "blocked").write_text("a file where the cache would be")
    assert task_digest(task, tmp_path / "blocked") == first


def test_a_pipe_in_a_task_is_refused(task):
    os.mkfifo(task / "pipe")
    with pytest.raises(TaskError, match="pipe"):
        task_digest(task)
