"""Step-by-step tasks as they are read: what counts, what is refused, and what is only warned about."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trial.episode.stage import write_task

from proctor.errors import TaskError
from proctor.tasks.episodes import TABLES
from proctor.tasks.lint.check import check_task
from proctor.tasks.read import read_task

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "specs" / "episodes" / "tasks" / "lost_parcel"


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    write_task(folder / "vault")
    file = folder / "vault" / "task.toml"
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return folder / "vault"


def test_the_example_is_read_with_all_that_it_says():
    task = read_task(EXAMPLE)
    assert (task.name, task.kind, task.version) == ("lost_parcel", "episode", "1")
    assert task.instruction.startswith("Find the depot")
    assert task.metadata == {"suite": "post", "seed_behavior": "fixed"}
    assert task.episode is not None
    assert (task.episode.steps, task.episode.tool_calls) == (12, 12)
    assert task.episode.setup == ("setup.py", "setup")
    assert task.episode.filesystem_roots == ("/post",)
    assert (task.environment.network, task.agent.network, task.verifier.network) == ("none", "none", "none")
    assert task.warnings == ()


def test_its_tables_are_those_of_the_reference_page():
    page = (ROOT / "docs/reference/task-format.md").read_text()
    for table, keys in TABLES.items():
        for key, meaning in keys.items():
            name = f"{table}.{key}" if table else key
            assert f"| `{name}` | {meaning} |" in page


def test_entry_points_may_leave_out_the_function_and_name_other_files(tmp_path: Path):
    folder = changed(tmp_path, ("[sandbox]", '[validator]\nentrypoint = "judge.py:look"\n[sandbox]'))
    (folder / "judge.py").write_text("def look(env): ...")
    task = read_task(folder)
    assert task.episode is not None
    assert task.episode.validator == ("judge.py", "look")
    file = folder / "task.toml"
    file.write_text(file.read_text().replace("judge.py:look", "judge.py"))
    again = read_task(folder).episode
    assert again is not None
    assert again.validator == ("judge.py", "validate")


@pytest.mark.parametrize(
    ("hosts", "network", "allowed"),
    [('["*"]', "public", ()), ('["a.example", "*.b.example"]', "allowlist", ("a.example", "*.b.example"))],
)
def test_hosts_of_a_task_are_the_network_of_its_actions_and_not_of_its_agent(
    tmp_path: Path, hosts: str, network: str, allowed: tuple[str, ...]
):
    task = read_task(changed(tmp_path, ("[sandbox]", f"[sandbox]\nnetwork_hosts = {hosts}")))
    assert (task.verifier.network, task.verifier.allowed_hosts) == (network, allowed)
    assert task.agent.network == "none"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "vault"', 'id = "a/b"', "task.toml:2: 'id' must be letters"),
        ('id = "vault"', "", "'id' is missing"),
        ("steps = 5", "steps = 0", "'steps' must be a whole number from 1"),
        ("steps = 5", "steps = true", "'steps' must be a whole number"),
        ("tool_calls = 4", "", "[budgets] has no 'tool_calls'"),
        ('"Open the vault."', "3", "'description' must be a text"),
        ("version = 1", "version = 1\ndeterministic = 1", "'deterministic' must be true or false"),
        ("[sandbox]", '[sandbox]\nnetwork_hosts = ["http://a"]', "not a host name"),
        ("[sandbox]", '[setup]\nentrypoint = "../x.py:setup"\n[sandbox]', "a Python file of this folder"),
        ("[sandbox]", '[setup]\nentrypoint = "setup.py:1"\n[sandbox]', "must be file.py:function"),
        ("[sandbox]", '[setup]\nentrypoint = "other.py"\n[sandbox]', "other.py: missing"),
        ("[sandbox]", '[action_surface]\nschema = "json"\n[sandbox]', "must be 'introspected'"),
        ("[sandbox]", "[environment]\ndocker_image = 3\n[sandbox]", "the name of an image"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, old: str, new: str, said: str):
    with pytest.raises(TaskError) as caught:
        read_task(changed(tmp_path, (old, new)))
    assert said in str(caught.value)


def test_a_key_that_is_misspelt_is_a_warning_with_the_nearest_name(tmp_path: Path):
    task = read_task(changed(tmp_path, ("[sandbox]", "[sandbox]\nnetwork_host = []")))
    (warning,) = task.warnings
    assert "task.toml:9: 'network_host' is not a key of [sandbox]; did you mean 'network_hosts'?" in warning


def test_a_task_may_bring_an_image(tmp_path: Path):
    named = changed(tmp_path, ("[sandbox]", '[environment]\ndocker_image = "python:3.12-slim"\n[sandbox]'))
    assert read_task(named).environment.image == "python:3.12-slim"
    (named / "environment").mkdir()
    (named / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\n")
    assert read_task(named).environment.dockerfile == named / "environment" / "Dockerfile"


def test_the_checks_of_tasks_know_this_kind():
    assert check_task(EXAMPLE).findings == ()
