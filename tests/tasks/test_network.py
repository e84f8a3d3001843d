"""The network keys of task.toml, as Harbor reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.model.task import Task
from proctor.tasks.read import read_task


def task(folder: Path, toml: str, steps: tuple[str, ...] = ()) -> Task:
    contents = {"task.toml": f'schema_version = "1.4"\n{toml}', "environment/Dockerfile": "FROM x\n"}
    places = [f"steps/{step}/" for step in steps] or [""]
    for place in places:
        contents |= {f"{place}instruction.md": "Do it.", f"{place}tests/test.sh": "#!/bin/sh\n"}
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_task(folder)


def test_a_task_without_a_network_key_has_a_public_network(tmp_path):
    found = task(tmp_path, "[environment]\ncpus = 1\n")
    assert found.environment.network == "public"
    assert found.agent.network is None
    assert found.verifier.network is None
    assert found.warnings == ()


def test_agent_and_verifier_have_networks_of_their_own(tmp_path):
    found = task(
        tmp_path,
        '[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n'
        '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org", "*.example.org", '
        '"192.0.2.0/24"]\n',
    )
    assert (found.environment.network, found.agent.network) == ("public", "none")
    assert found.verifier.network == "allowlist"
    assert found.verifier.allowed_hosts == ("pypi.org", "*.example.org", "192.0.2.0/24")


def test_a_step_takes_its_network_from_one_table(tmp_path):
    found = task(
        tmp_path,
        '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\ntimeout_sec = 7\n'
        '[verifier]\nnetwork_mode = "no-network"\n'
        '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n[steps.agent]\nnetwork_mode = "public"\n',
        steps=("a", "b"),
    )
    first, second = found.steps
    assert (first.agent.network, first.agent.allowed_hosts) == ("allowlist", ("pypi.org",))
    assert (second.agent.network, second.agent.allowed_hosts) == ("public", ())
    assert second.agent.timeout_s == 7
    assert {step.verifier.network for step in found.steps} == {"none"}


@pytest.mark.parametrize(
    ("toml", "network"),
    [
        ("allow_internet = true", "public"),
        ("allow_internet = false", "none"),
        ('allow_internet = true\nnetwork_mode = "no-network"', "none"),
    ],
)
def test_the_older_key_counts_where_the_newer_is_missing(tmp_path, toml, network):
    assert task(tmp_path, f"[environment]\n{toml}\n").environment.network == network


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[verifier]\nnetwork_mode = "off"\n', "public, no-network or allowlist"),
        ('[agent]\nnetwork_mode = "public"\nallowed_hosts = ["a.example"]\n', "left out unless"),
        ('[environment]\nallowed_hosts = ["a.example"]\n', "left out unless"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["https://a.example"]\n', "without ports"),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = [5]\n', "a list of host names"),
        ("[environment]\nallow_internet = 1\n", "true or false"),
    ],
)
def test_a_network_that_nobody_can_mean_is_refused_with_its_line(tmp_path, toml, said):
    with pytest.raises(TaskError, match=rf"task\.toml:\d+: .*{said}"):
        task(tmp_path, toml)
