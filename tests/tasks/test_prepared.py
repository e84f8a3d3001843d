"""Prepared tasks in the dialect with `lm`, `criterion`, a Dockerfile beside the file and overlay folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import TaskError
from proctor.tasks.overrides import additions, apply, check_overrides
from proctor.tasks.read import read_task
from proctor.trial.task.workspace import workspace_for

META: dict[str, Any] = {
    "task_id": "add-greeting_20250101_000000",
    "metadata": {"title": "Add a greeting", "tags": ["demo"]},
    "repo": {
        "git_url": "https://example.org/repo",
        "branch": "main",
        "start_commit_sha": "0" * 40,
        "end_commit_sha": "1" * 40,
        "subdir": "",
        "sparse_checkout": [],
    },
    "lm": {"instructions": "Write greet.py."},
    "evaluation": {
        "rubrics": [
            {"id": "works", "criterion": "It greets.", "weight": 0.6},
            {"id": "quality", "criterion": "It reads well.", "weight": 0.4},
        ],
        "test_scripts": [
            {"path": "tests/test_greet.py", "rubric_id": "works", "content": "def test_it(): pass\n"}
        ],
    },
}
DOCKERFILE = (
    "FROM debian:12\nWORKDIR /app\nRUN git clone https://example.org/repo repo\nCOPY overlay_files/ /app/\n"
)


def prepared(folder: Path, dockerfile: str = DOCKERFILE, **changes: Any) -> Path:
    for name in ("overlay_files", "overlay_repo_files/docs"):
        (folder / name).mkdir(parents=True)
    (folder / "overlay_files/notes.md").write_text("notes")
    (folder / "overlay_files/tb_meta.json").write_text("{}")
    (folder / "overlay_repo_files/docs/a.md").write_text("a")
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "tb_meta.json").write_text(json.dumps({**META, **changes}))
    return folder


def test_the_dialect_is_read_whole(tmp_path):
    task = read_task(prepared(tmp_path / "t"))
    assert (task.name, task.instruction) == (META["task_id"], "Write greet.py.")
    assert [(each.id, each.description, each.weight) for each in task.rubrics] == [
        ("works", "It greets.", 0.6),
        ("quality", "It reads well.", 0.4),
    ]
    assert [each.path for each in task.rubrics[0].scripts] == ["tests/test_greet.py"]
    assert not task.rubrics[1].is_tested
    assert task.environment.dockerfile == task.path / "Dockerfile"
    assert (task.environment.workdir, task.environment.folder) == ("/app/repo", task.path)
    assert task.repository is not None
    assert task.repository.in_image
    assert task.warnings == ()


def test_overlays_go_around_and_into_the_repository_and_the_tests_stay_hidden(tmp_path):
    task = read_task(prepared(tmp_path / "t"))
    overrides = {"overlay_files": {"more.md": "more words"}, "overlay_repo_files": {"src/x.py": "x = 1\n"}}
    space = workspace_for(task, check_overrides(overrides, "o"), task.path, tmp_path / "cache")
    assert space.source is None
    assert space.add == (("", task.path / "overlay_repo_files"), ("src/x.py", b"x = 1\n"))
    assert space.above == (("notes.md", task.path / "overlay_files/notes.md"), ("more.md", b"more words"))
    assert space.hide == ("tb_meta.json", "diff.patch")


def test_the_authors_own_change_is_not_shown_and_what_he_says_of_sharing_is_kept(tmp_path):
    folder = prepared(tmp_path / "t", sensitivity={"level": "unknown"})
    (folder / "overlay_files/diff.patch").write_text("the solution")
    task = read_task(folder)
    assert task.warnings == ()
    assert task.metadata == {**META["metadata"], "sensitivity": {"level": "unknown"}}
    space = workspace_for(task, {}, task.path, tmp_path / "cache")
    assert space.above == (("notes.md", folder / "overlay_files/notes.md"),)


def test_instructions_may_be_in_a_file(tmp_path):
    folder = prepared(tmp_path / "t", lm={"instructions": ""})
    with pytest.raises(TaskError, match="instructions"):
        read_task(folder)
    (folder / "overlay_files/LM_INSTRUCTIONS.md").write_text("From the file.")
    assert read_task(folder).instruction == "From the file."


def test_what_another_runner_put_beside_the_dockerfile_is_named(tmp_path):
    task = read_task(prepared(tmp_path / "t", DOCKERFILE + "COPY .env /app/.env\nCOPY codex-files/ /x/\n"))
    assert [each.split(": it copies ")[1].split(",")[0] for each in task.warnings] == ["codex-files", ".env"]


def test_a_script_without_content_is_a_file_of_the_task_or_left_to_the_repository(tmp_path):
    rows = [{"path": name, "rubric_id": "works"} for name in ("evaluation_tests/a.py", "tests/b.py")]
    folder = prepared(tmp_path / "t", evaluation={**META["evaluation"], "test_scripts": rows})
    (folder / "evaluation_tests").mkdir()
    (folder / "evaluation_tests/a.py").write_text("def test_a(): pass\n")
    task = read_task(folder)
    assert [each.content for each in task.rubrics[0].scripts] == ["def test_a(): pass\n", None]
    assert "tests/b.py has no content; the agent can change it" in task.warnings[0]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"path": "../x", "content": ""}, "not a path inside"),
        ({"path": "/x", "content": ""}, "not a path inside"),
        ({"content": "x"}, "not a path inside"),
        ({"path": "x", "content": 3}, "must be text"),
        ({"path": "x", "content": "", "rubric_id": "other"}, "there is no rubric 'other'"),
    ],
)
def test_a_wrong_script_is_refused(tmp_path, row, why):
    evaluation = {**META["evaluation"], "test_scripts": [row]}
    with pytest.raises(TaskError, match=why):
        read_task(prepared(tmp_path / "t", evaluation=evaluation))


def test_overrides_change_the_prompt_the_rubrics_and_the_scripts(tmp_path):
    task = read_task(prepared(tmp_path / "t"))
    script = {"path": "tests/other.py", "rubric_id": "quality", "content": "def test_b(): pass\n"}
    for where in ({"test_scripts": [script]}, {"evaluation": {"test_scripts": [script]}}):
        changed = apply(task, check_overrides({"prompt": "New.", **where}, "o"))
        assert changed.instruction == "New."
        assert [[each.path for each in rubric.scripts] for rubric in changed.rubrics] == [
            [],
            ["tests/other.py"],
        ]
    weighed = apply(
        task, check_overrides({"rubrics": [{"id": "works", "criterion": "B.", "weight": 1}]}, "o")
    )
    assert [(each.weight, len(each.scripts)) for each in weighed.rubrics] == [(1.0, 1)]


def test_rubrics_of_overrides_are_for_prepared_tasks(tmp_path):
    task = read_task(prepared(tmp_path / "t"))
    with pytest.raises(TaskError, match="is for prepared tasks"):
        apply(replace(task, kind="harbor"), {"rubrics": ["It works."]})
    with pytest.raises(TaskError, match="'rubrics' is a dict"):
        check_overrides({"evaluation": {"rubrics": {}}}, "o")


def test_another_repository_takes_the_place_of_the_one_in_the_image(tmp_path):
    task = read_task(prepared(tmp_path / "t"))
    overrides = {"repo": {"git_url": str(tmp_path / "none")}}
    changed = apply(task, overrides)
    assert changed.repository is not None
    assert not changed.repository.in_image
    with pytest.raises(TaskError, match="git clone failed"):
        workspace_for(changed, overrides, task.path, tmp_path / "cache")


def test_an_overlay_is_a_file_beside_or_its_content(tmp_path):
    (tmp_path / "a.md").write_text("a")
    data = {"overlay_files": {"x": "a.md", "y": "two words", "z": "line\n"}}
    assert additions(data, tmp_path) == [("x", tmp_path / "a.md"), ("y", b"two words"), ("z", b"line\n")]
    rows = {"overlay_repo_files": [{"path": "x", "content": "a.md"}]}
    assert additions(check_overrides(rows, "o"), tmp_path) == [("x", b"a.md")]
    with pytest.raises(TaskError, match="for a file with this content"):
        additions({"overlay_files": {"x": "missing.md"}}, tmp_path)
