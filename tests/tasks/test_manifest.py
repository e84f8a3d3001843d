from __future__ import annotations

from pathlib import Path

import pytest
from tests.tasks.git_server import write_task

from proctor.errors import TaskError
from proctor.model.spec import TaskEntry
from proctor.tasks.dataset import content_digest, find_tasks, listed_tasks
from proctor.tasks.walk import task_folders

HARBOR = {
    "alpha": "f63a4817d0a11d2591e8f75ba6e78b0057b5428e3bcbbf1333111617f3e21e0c",
    "beta": "f7608d8bf560756416809af8ef982a910430e8729d38f93be509cd789c07b29d",
}
"""What Harbor 0.24 computes for the two tasks below."""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    write_task(
        folder / "alpha",
        {
            "README.md": "Read.\n",
            "notes.txt": "not published",
            "environment/a~": "backup",
            "steps/one/instruction.md": "one\n",
            "tests/__pycache__/m.pyc": "no",
        },
    )
    write_task(
        folder / "beta",
        {
            ".gitignore": "*.log\n!keep.log\n/tests/data/\nenvironment/*.tmp\n",
            "tests/data/x": "x",
            "tests/a.log": "a",
            "tests/keep.log": "k",
            "environment/x.tmp": "t",
            "environment/deep/y.tmp": "t",
            "trajectory.json": "{}",
        },
    )
    return folder


def write_manifest(folder: Path, *names: str, more: str = "", **digests: str) -> None:
    rows = [
        f'[[tasks]]\nname = "org/{name}"\ndigest = "{digests.get(name, f"sha256:{HARBOR.get(name)}")}"\n'
        for name in names
    ]
    (folder / "dataset.toml").write_text('[dataset]\nname = "org/set"\n' + "".join(rows) + more)


def test_the_digest_of_a_task_is_harbors(dataset):
    assert {name: content_digest(dataset / name) for name in HARBOR} == HARBOR


def test_exactly_the_listed_tasks_are_found(dataset, tmp_path):
    write_manifest(dataset, "alpha")
    found = find_tasks(TaskEntry(path=str(dataset)), tmp_path, tmp_path / "cache")
    assert [each.name for each in found.tasks] == ["org/alpha"]
    assert found.broken == ()
    write_manifest(dataset, "alpha", "beta")
    assert listed_tasks(dataset, task_folders(dataset)) == {dataset / "alpha", dataset / "beta"}


def test_a_folder_without_a_manifest_has_no_say(dataset):
    assert listed_tasks(dataset, task_folders(dataset)) is None


def test_a_task_that_was_changed_is_named_with_both_digests(dataset):
    write_manifest(dataset, "alpha", "beta")
    (dataset / "beta/instruction.md").write_text("Do something else.\n")
    with pytest.raises(
        TaskError, match=rf"'org/beta' has changed.*the manifest says sha256:{HARBOR['beta']}"
    ):
        listed_tasks(dataset, task_folders(dataset))


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        (["gamma"], "", "digest 'sha256:None' is not"),
        (["alpha"], '[[tasks]]\nname = "org/x"\ndigest = "sha256:' + "0" * 64 + '"\n', "not in this folder"),
        ([], "", "lists no tasks"),
        (["alpha"], '[[files]]\npath = "../x"\n', "not the name of a file beside"),
        (["alpha"], '[[files]]\npath = "metric.py"\n', "'metric.py' is missing"),
        ([], "[tasks]\n", r"expected \[\[tasks\]\] tables"),
        ([], "= x\n", "not a dataset manifest"),
        (["alpha"], '[[files]]\npath = "README.md"\ndigest = "md5:1"\n', "is not sha256"),
        (
            ["alpha"],
            f'[[files]]\npath = "README.md"\ndigest = "sha256:{"0" * 64}"\n',
            "'README.md' has changed",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_an_error(dataset, names, more, message):
    (dataset / "README.md").write_text("hello")
    write_manifest(dataset, *names, more=more)
    with pytest.raises(TaskError, match=message):
        listed_tasks(dataset, task_folders(dataset))


def test_files_beside_the_tasks_are_checked_when_they_have_a_digest(dataset):
    (dataset / "metric.py").write_text("hello")
    digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    write_manifest(dataset, "alpha", more=f'[[files]]\npath = "metric.py"\ndigest = "{digest}"\n')
    assert listed_tasks(dataset, task_folders(dataset)) == {dataset / "alpha"}
    write_manifest(dataset, "alpha", more='[[files]]\npath = "metric.py"\n')
    assert listed_tasks(dataset, task_folders(dataset)) == {dataset / "alpha"}


def test_a_task_is_found_by_its_folder_when_it_has_no_name_of_its_own(dataset):
    (dataset / "alpha/task.toml").write_text('version = "1.0"\n')
    write_manifest(dataset, "alpha", alpha=f"sha256:{content_digest(dataset / 'alpha')}")
    assert listed_tasks(dataset, task_folders(dataset)) == {dataset / "alpha"}


def test_tasks_in_category_folders_are_found(dataset):
    (dataset / "easy").mkdir()
    (dataset / "alpha").rename(dataset / "easy/alpha")
    write_manifest(dataset, "alpha")
    assert listed_tasks(dataset, task_folders(dataset)) == {dataset / "easy/alpha"}
