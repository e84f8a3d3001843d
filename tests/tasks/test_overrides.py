from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.model.task import Task
from proctor.tasks.overrides import additions, apply, check_overrides, load_overrides, merge, removals
from proctor.tasks.read import read_task


def test_the_tasks_own_words_win_key_by_key():
    merged = merge(
        {"lm_instructions": "own", "environment_variables": {"A": "own"}},
        {
            "lm_instructions": "config",
            "environment_variables": {"A": "config", "B": "config"},
            "repo": {"branch": "x"},
        },
    )
    assert merged == {
        "lm_instructions": "own",
        "environment_variables": {"A": "own", "B": "config"},
        "repo": {"branch": "x"},
    }


def test_a_task_is_changed_in_a_copy():
    task = Task(name="t", path=Path(), digest="d", instruction="old")
    changed = apply(
        task,
        {
            "lm_instructions": "new",
            "environment_variables": {"A": 1},
            "evaluation": {"timeout_sec": 5, "environment_variables": {"B": "2"}},
            "repo": {"git_url": "x", "sparse_checkout": ["a"]},
        },
    )
    assert (task.instruction, changed.instruction) == ("old", "new")
    assert changed.environment.env == {"A": "1"}
    assert (changed.verifier.timeout_s, changed.verifier.env) == (5.0, {"B": "2"})
    assert changed.repository is not None
    assert changed.repository.sparse_checkout == ("a",)
    assert apply(task, {}) is task


def test_files_come_as_content_or_from_beside_the_overrides(tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/a.txt").write_text("a")
    data = {
        "remove_repo_paths": ["old"],
        "inject_files": {"x.txt": "text", "y.json": {"a": 1}},
        "overlay_files": [{"path": "here", "source": "extra"}, "extra/a.txt"],
    }
    assert removals(data) == ("old",)
    assert additions(check_overrides(data, "x"), tmp_path) == [
        ("x.txt", b"text"),
        ("y.json", b'{"a": 1}'),
        ("here", tmp_path / "extra"),
        ("extra/a.txt", tmp_path / "extra/a.txt"),
    ]
    with pytest.raises(TaskError, match="is not in"):
        additions({"overlay_files": {"x": "../../etc/passwd"}}, tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected a mapping"),
        ({"inject_file": {}}, "did you mean 'inject_files'"),
        ({"repo": {"url": "x"}}, "repo: 'url' is not a key"),
        ({"lm_instructions": 3}, "is a int"),
        ({"remove_repo_paths": ["../x"]}, "inside the workspace"),
        ({"inject_files": {"/etc/passwd": "x"}}, "inside the workspace"),
        ({"inject_files": [{"path": "x"}]}, "needs 'path' and"),
    ],
)
def test_wrong_overrides_are_refused(data, message):
    with pytest.raises(TaskError, match=message):
        check_overrides(data, "overrides.json")


def test_an_overrides_file_must_be_small_json(tmp_path):
    with pytest.raises(TaskError, match="No such file"):
        load_overrides(tmp_path / "none.json")
    (tmp_path / "o.json").write_text("{")
    with pytest.raises(TaskError, match="not valid JSON"):
        load_overrides(tmp_path / "o.json")


def prepared(folder: Path, **changes: object) -> Path:
    (folder / "repo").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "tests/a.sh").write_text("exit 0\n")
    meta = {
        "name": "fix",
        "instructions": "Fix it.",
        "rubrics": [
            {"id": "works", "weight": 2, "tests": ["a.sh"]},
            "reads well",
        ],
        "environment_variables": {"A": 1},
        **changes,
    }
    (folder / "tb_meta.json").write_text(json.dumps({k: v for k, v in meta.items() if v is not None}))
    return folder


def test_a_prepared_task_has_a_repository_and_rubrics(tmp_path):
    task = read_task(prepared(tmp_path / "t", extra=1))
    assert (task.kind, task.name, task.instruction) == ("prepared", "fix", "Fix it.")
    assert [(each.id, each.weight, each.tests) for each in task.rubrics] == [
        ("works", 2.0, ("a.sh",)),
        ("rubric-2", 1.0, ()),
    ]
    assert task.repository is not None
    assert task.repository.path == task.path / "repo"
    assert task.environment.workdir == "/app"
    assert "'extra' is not a key" in task.warnings[0]


def test_test_scripts_may_stand_apart_from_the_rubrics(tmp_path):
    by_name = read_task(prepared(tmp_path / "a", rubrics=[{"id": "w"}], test_scripts={"w": "a.sh"}))
    assert by_name.rubrics[0].tests == ("a.sh",)
    alone = read_task(prepared(tmp_path / "b", rubrics=None, test_scripts=["a.sh"]))
    assert [(each.id, each.tests) for each in alone.rubrics] == [("all", ("a.sh",))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instructions": ""}, "instructions"),
        ({"repo": 3}, "folder name or a mapping"),
        ({"repo": {"url": "x"}}, "is not a key"),
        ({"repo": "../.."}, "points outside"),
        ({"repo": "none"}, "nothing to work on"),
        ({"rubrics": 3}, "must be a list"),
        ({"rubrics": [3]}, "mapping or a sentence"),
        ({"rubrics": [{"id": "x", "weight": -1}]}, "weight -1"),
        ({"rubrics": [{"id": "x", "tests": ["none.sh"]}]}, "tests/none.sh is missing"),
        ({"test_scripts": 3}, "must be a mapping"),
        ({"evaluation": 3}, "must be a mapping"),
        ({"evaluation": {"timeout_sec": "long"}}, "timeout_sec is 'long'"),
        ({"timeout_sec": "long"}, "timeout_sec is 'long'"),
        ({"timeout_sec": True}, "timeout_sec is True"),
        ({"workdir": "app"}, "workdir is 'app', not an absolute path"),
        ({"docker_image": 5}, "docker_image is 5"),
        ({"environment_variables": {"A=B": 1}}, "cannot be an environment variable"),
        ({"rubrics": [{"id": "x", "tests": 5}]}, "must be a list of scripts"),
        ({"rubrics": [{"id": "x", "weight": 0, "tests": "a.sh"}]}, "every rubric has the weight 0"),
        ({"rubrics": None}, "no tests/test.sh; nothing would be judged"),
        ({"repo": {"git_url": "x", "sparse_checkout": 5}}, "must be a list of paths"),
    ],
)
def test_a_wrong_prepared_task_is_refused(tmp_path, changes, message):
    with pytest.raises(TaskError, match=message):
        read_task(prepared(tmp_path / "t", **changes))


def test_the_evaluation_of_a_prepared_task_is_honoured(tmp_path):
    evaluation = {"timeout_sec": 7, "environment_variables": {"B": 2}, "test_scripts": ["a.sh"], "tiemout": 1}
    task = read_task(prepared(tmp_path / "t", rubrics=None, evaluation=evaluation))
    assert (task.verifier.timeout_s, dict(task.verifier.env)) == (7.0, {"B": "2"})
    assert [each.tests for each in task.rubrics] == [("a.sh",)]
    assert "evaluation: 'tiemout' is not a key" in task.warnings[0]


def test_a_time_limit_of_overrides_must_be_a_number():
    with pytest.raises(TaskError, match="timeout_sec is 'x'"):
        check_overrides({"evaluation": {"timeout_sec": "x"}}, "o.json")


def test_a_prepared_task_describes_itself(tmp_path):
    about = {"name": None, "task_id": "t-7", "description": "Short.", "metadata": {"level": 2}}
    task = read_task(prepared(tmp_path / "t", **about))
    assert (task.name, task.description, dict(task.metadata)) == ("t-7", "Short.", {"level": 2})
