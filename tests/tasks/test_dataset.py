from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.tasks.archive import pack
from proctor.tasks.dataset import find_tasks
from proctor.tasks.walk import task_folders


def make(folder: Path, toml: str = "") -> Path:
    for name, text in {
        "task.toml": toml,
        "instruction.md": f"Do what {folder.name} is about.\n",
        "environment/Dockerfile": "FROM debian:12\n",
        "tests/test.sh": "true\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(tmp_path: Path, **options) -> list[str]:
    found = find_tasks(TaskEntry(path="set", **options), tmp_path, tmp_path / "cache")
    return [task.name for task in (*found.tasks, *found.broken)]


def test_categories_are_walked_and_hidden_and_installed_folders_are_not(tmp_path):
    for place in ("a", "python/b", "python/deep/er/c", ".git/d", "node_modules/e", "python/.venv/f"):
        make(tmp_path / "set" / place)
    (tmp_path / "set/docs").mkdir()
    (tmp_path / "set/README.md").write_text("About.\n")
    assert names(tmp_path) == ["a", "b", "c"]


def test_a_folder_inside_a_task_is_never_a_task(tmp_path):
    make(tmp_path / "set/a")
    make(tmp_path / "set/a/environment/project")
    assert names(tmp_path) == ["a"]


def test_a_task_too_deep_and_a_link_in_a_circle_are_not_followed(tmp_path):
    make(tmp_path / "set/a")
    make(tmp_path / "set" / "/".join("123456789") / "b")
    (tmp_path / "set/again").symlink_to(tmp_path / "set")
    assert names(tmp_path) == ["a"]


def test_a_task_that_is_linked_into_a_dataset_is_found(tmp_path):
    make(tmp_path / "elsewhere/a")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/linked").symlink_to(tmp_path / "elsewhere/a")
    assert names(tmp_path) == ["a"]


def test_names_that_occur_twice_get_the_path_that_tells_them_apart(tmp_path):
    for place in ("python/sum", "rust/sum", "rust/max"):
        make(tmp_path / "set" / place)
    make(tmp_path / "set/one", '[task]\nname = "org/same"\n')
    make(tmp_path / "set/two", '[task]\nname = "org/same"\n')
    assert names(tmp_path) == ["one", "python/sum", "max", "rust/sum", "two"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"include": ("python/*",)}, ["b"]),
        ({"include": ("b", "c")}, ["b", "c"]),
        ({"include": ("org/named",)}, ["org/named"]),
        ({"include": ("named",)}, ["org/named"]),
        ({"exclude": ("rust/*", "own-*")}, ["b"]),
        ({"include": ("python/*", "rust/*"), "exclude": ("c",)}, ["b"]),
    ],
)
def test_patterns_match_the_folder_the_path_and_the_name(tmp_path, options, wanted):
    make(tmp_path / "set/python/b")
    make(tmp_path / "set/rust/c")
    make(tmp_path / "set/own-folder", '[task]\nname = "org/named"\n')
    assert names(tmp_path, **options) == wanted


def test_patterns_that_leave_nothing_are_an_error_that_names_what_there_is(tmp_path):
    for name in "abcdef":
        make(tmp_path / "set" / name)
    with pytest.raises(
        TaskError, match=r"set: include and exclude leave no task; there are a, b, c, d and 2 more"
    ):
        names(tmp_path, include=("x*",))


def test_a_folder_that_looks_like_a_task_and_has_no_task_toml_is_broken_not_forgotten(tmp_path):
    make(tmp_path / "set/a")
    (make(tmp_path / "set/b") / "task.toml").unlink()
    found = find_tasks(TaskEntry(path="set"), tmp_path, tmp_path / "cache")
    assert [task.name for task in found.tasks] == ["a"]
    assert "no task.toml" in found.broken[0].error


def test_a_task_that_cannot_be_run_here_is_broken_and_says_why(tmp_path):
    make(tmp_path / "set/a")
    make(tmp_path / "set/b", "[environment]\ngpus = 1\n")
    found = find_tasks(TaskEntry(path="set"), tmp_path, tmp_path / "cache")
    assert [task.name for task in found.tasks] == ["a"]
    assert "1 GPU" in found.broken[0].error


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "it is empty"),
        (["a.txt", "b/c.txt"], "only a.txt, b/; a task is a folder with task.toml, instruction.md"),
        (["1", "2", "3", "4", "5", "6"], "only 1, 2, 3, 4 and 2 more"),
        (["hello/task.yaml"], "task.yaml is the older Terminal-Bench format"),
    ],
)
def test_a_folder_without_tasks_says_what_it_holds_and_what_a_task_is(tmp_path, files, said):
    root = tmp_path / "set"
    root.mkdir()
    for name in files:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
    with pytest.raises(TaskError) as caught:
        task_folders(root)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "inside", "wanted"),
    [('[task]\nname = "org/own"\n', "", "org/own"), ("", "folder", "folder"), ("", "", "packed-sums")],
)
def test_a_zip_keeps_the_name_of_its_task(tmp_path, toml, inside, wanted):
    make(tmp_path / "pack" / (inside or "."), toml)
    pack(tmp_path / "pack", tmp_path / "packed-sums.zip")
    for _ in range(2):
        (task,) = find_tasks(TaskEntry(path="packed-sums.zip"), tmp_path, tmp_path / "cache").tasks
        assert task.name == wanted
