"""What a spec from the API may hold: nothing that nobody has allowed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import httpx
import pytest
from tests.server import tasks
from tests.server.conftest import Serving
from tests.server.test_auth import person, projects

from proctor.agents.registry import BUILT_IN, find_class
from proctor.model.spec import Retries, SandboxSpec
from proctor.server.submit import allowed
from proctor.server.submit.allowed import Api, Inside, Origin, Rule, refusals
from proctor.spec import bodies, grammar
from proctor.spec.node import from_plain
from proctor.tasks import overrides
from proctor.verdicts.gate import rules

__all__ = ["projects"]

FOLDER = "/uploads/a"
EVERYTHING = Origin(code=True, folders=[FOLDER])
LITTLE = Origin(code=False, folders=[FOLDER])


def _names(model: type) -> list[str]:
    return [field.name for field in fields(model)]


TASK = ("tasks", 0)
GRAMMAR: dict[tuple[str | int, ...], tuple[Iterable[str], Mapping[str, Rule]]] = {
    (): (
        {*grammar.SHARED_KEYS, *bodies.EXPERIMENT_KEYS, "experiments", "tasks"},
        allowed.SPEC,
    ),
    ("sandbox",): (_names(SandboxSpec), allowed.SANDBOX),
    ("retries",): (_names(Retries), allowed.RETRIES),
    ("gates", 0): ((*rules._SET_KEYS, *rules._RULE_KEYS), allowed.GATES),
    ("experiments", 0): (bodies.EXPERIMENT_KEYS, allowed.EXPERIMENT),
    ("experiments", 0, "iterations"): (bodies._ITERATIONS, allowed.ITERATIONS),
    TASK: (bodies.TASK_KEYS, allowed.TASK),
    (*TASK, "judge"): (bodies.JUDGE, allowed.JUDGE),
    (*TASK, "judge", "rubrics", 0): (bodies.RUBRIC, allowed.RUBRIC),
    (*TASK, "overrides"): (overrides.KEYS, allowed.OVERRIDES),
    (*TASK, "overrides", "evaluation"): (overrides.EVALUATION_KEYS, allowed.EVALUATION),
    (*TASK, "overrides", "repo"): (overrides.REPO_KEYS, {}),
}
"""Where in a spec the grammar knows which keys, and the list of those that are allowed there."""
CASES = [(place, key) for place, (keys, _) in GRAMMAR.items() for key in sorted(keys)]


def _spec(place: tuple[str | int, ...], key: str, value: Any) -> dict[str, Any]:
    """A spec with one key, at a place."""
    inner: Any = {key: value}
    for part in reversed(place):
        inner = [inner] if isinstance(part, int) else {part: inner}
    return dict(inner)


def _refused(place: tuple[str | int, ...], key: str, origin: Origin) -> bool:
    rule = GRAMMAR[place][1].get(key)
    plain = {"agent_options": {}, "tasks": []}.get(key, "harbor:x")
    value = {} if isinstance(rule, Inside) else plain
    found = list(refusals(from_plain(_spec(place, key, value)), origin))
    where = ".".join(map(str, (*place, key)))
    return any(where.startswith(at) or at.startswith(where) for at, _ in found)


def test_the_lists_hold_only_keys_of_the_grammar():
    for place, (keys, marks) in GRAMMAR.items():
        assert set(marks) <= set(keys), place


@pytest.mark.parametrize(("place", "key"), CASES)
def test_every_key_that_is_not_allowed_is_refused_alone(place, key):
    rule = GRAMMAR[place][1].get(key)
    assert _refused(place, key, EVERYTHING) == (rule is None or rule is allowed._path)
    if rule is Api.CODE:
        assert _refused(place, key, LITTLE)


@pytest.mark.parametrize("place", GRAMMAR)
def test_a_key_that_is_added_to_the_grammar_is_refused_until_somebody_allows_it(place):
    assert _refused(place, "added_later", EVERYTHING)


def test_a_mapping_that_is_written_as_a_path_is_refused():
    spec = {"tasks": [{"path": FOLDER, "overrides": "/etc/passwd"}], "retries": "/etc/passwd"}
    assert [where for where, _ in refusals(from_plain(spec), EVERYTHING)] == ["retries", "tasks.0.overrides"]


def test_what_is_said_once_for_all_tasks_is_checked_for_each():
    spec = {
        "tasks": [{"path": FOLDER, "agent": "command"}, {"path": FOLDER}],
        "agent": "replay",
        "agent_options": {"trajectory": "/etc"},
        "overrides": {"overlay_repo_files": {"a": "secret.key"}},
    }
    assert [where for where, _ in refusals(from_plain(spec), EVERYTHING)] == [
        f"tasks.{at}.{key}"
        for at in (0, 1)
        for key in ("agent_options.trajectory", "overrides.overlay_repo_files")
    ]


ALLOWED_OPTIONS = {
    "oracle": (),
    "nop": (),
    "episode": (),
    "replay": ("pause_s",),
    "command": ("command", "install", "env", "install_timeout_s", "apis"),
    "terminal": ("options", "system", "request_timeout_s", "context_tokens"),
}


@pytest.mark.parametrize("agent", BUILT_IN)
def test_an_agent_takes_the_options_that_its_class_allows_and_no_others(agent):
    options = getattr(find_class(agent), "api_options", ())
    if agent in ALLOWED_OPTIONS:
        assert options == ALLOWED_OPTIONS[agent]
    for option in (*options, "trajectory", "file", "prompt_template_path", "mcp_config", "llm_kwargs"):
        entry = {"path": FOLDER, "agent": agent, "agent_options": {option: "1"}}
        found = [where for where, _ in refusals(from_plain({"tasks": [entry]}), EVERYTHING)]
        assert found == ([] if option in options else [f"tasks.0.agent_options.{option}"])


def test_a_version_is_no_path():
    entry = {"path": FOLDER, "agent": "terminus-2", "agent_options": {"version": "../../x"}}
    assert [where for where, _ in refusals(from_plain({"tasks": [entry]}), EVERYTHING)] == [
        "tasks.0.agent_options.version"
    ]


@contextmanager
def _member(server: Serving) -> Iterator[tuple[httpx.Client, dict[str, Any]]]:
    with person(server, "red") as client:
        entry = {"path": {"upload": tasks.upload(client)["id"]}, "agent": "oracle"}
        yield client, {"name": "x", "tasks": [entry]}


HOME = {"overlay_repo_files": {"s/a": "secret.key", "s/b": "proctor.db"}}


def _ways(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way in which a spec with those overrides may come."""
    inside = {**spec, "tasks": [{**spec["tasks"][0], "overrides": HOME}]}
    above = {**spec, "overrides": HOME}
    text = {"spec": json.dumps(inside), "format": "json"}
    changed = {"spec": spec, "set": {"tasks.0.overrides.overlay_repo_files": HOME["overlay_repo_files"]}}
    for body in ({"spec": inside}, {"spec": above}, text, changed):
        for route, more in (
            ("/api/runs", {}),
            ("/api/plan", {}),
            ("/api/schedules", {"name": "nightly", "cron": "daily 02:00"}),
        ):
            yield route, {**body, **more}


def test_no_member_reads_the_home_of_the_server(team_server, projects):
    with _member(team_server) as (client, spec):
        for route, body in _ways(spec):
            answer = client.post(route, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "spec_forbidden"), (route, body)
            assert answer.json()["errors"][0]["where"].endswith("overrides.overlay_repo_files")


def test_paths_of_a_submitted_spec_are_read_in_an_empty_folder(team_server, projects):
    """Should a key that names files be forgotten, it finds none."""
    with _member(team_server) as (client, spec):
        made = client.post("/api/runs", json={"spec": spec, "start": False})
        assert made.status_code == 201, made.text
    shown = team_server.client.get(f"/api/runs/{made.json()['id']}").json()
    folder = team_server.home / ".proctor/empty"
    assert shown["resolved"]["base_dir"] == str(folder)
    assert list(folder.iterdir()) == []
