"""What the words of a race mean, and which of them are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.resources import Resources
from tests.runs.race.racing import prepared

from proctor.errors import UsageError
from proctor.runs.race.sides import read_side
from proctor.settings import load_settings

pytestmark = pytest.mark.needs("bubblewrap")
ENTRY = '[[tasks]]\npath = "tasks"\nrollouts = 10\n'


@pytest.fixture
def folder(tmp_path: Path, make_task, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_task("one")
    spec(tmp_path, "suite", ENTRY)
    return tmp_path


def spec(folder: Path, name: str, body: str, head: str = "") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\n{head}[sandbox]\nhost_root = true\n{body}')
    return path


@pytest.mark.parametrize(
    ("text", "agent", "model"),
    [
        ("oracle", "oracle", None),
        ("terminal/openai/gpt-5.2", "terminal", "openai/gpt-5.2"),
        ("openai/gpt-5.2", None, "openai/gpt-5.2"),
        ("agent:oracle", "oracle", None),
        ("model:openai/oracle", None, "openai/oracle"),
        ("some.module:Agent", "some.module:Agent", None),
    ],
)
def test_a_side_is_an_agent_a_model_or_both(folder: Path, text: str, agent: str | None, model: str | None):
    side = read_side(text, "candidate", Resources(load_settings()))
    assert (side.agent, side.model, side.label) == (
        agent,
        model,
        text.removeprefix("agent:").removeprefix("model:"),
    )


def test_a_word_that_is_nothing_says_what_it_could_be(folder: Path):
    with pytest.raises(UsageError, match="neither a spec file, an agent, a stored run nor a model"):
        read_side("nobody", "baseline", Resources(load_settings()))


def test_specs_bring_their_agent_its_options_and_their_variables(folder: Path):
    before = spec(folder, "main", ENTRY + 'agent = "oracle"\n')
    after = spec(folder, "change", ENTRY + 'agent = "nop"\n[tasks.environment_variables]\nMODE = "b"\n')
    job = prepared(folder / "suite.toml", str(before), str(after))
    assert [entry.agents for entry in job.spec.tasks] == [("oracle",), ("nop",)]
    assert [dict(entry.environment_variables) for entry in job.spec.tasks] == [{}, {"MODE": "b"}]
    assert (job.info.race["baseline"], job.info.race["candidate"]) == ("main", "change")
    assert job.info.name == "race-suite"


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("timeout_s = 5\n", ENTRY + 'agent = "nop"\n', "'timeout_s' differs"),
        ("", ENTRY + 'agent = ["nop", "oracle"]\n', "names 2 agents"),
        ("", ENTRY + 'agent = "nop"\n' + ENTRY + 'agent = "oracle"\n', "task entries differ in 'agents'"),
    ],
)
def test_a_side_that_is_not_one_agent_under_the_same_limits_is_refused(
    folder: Path, head: str, body: str, said: str
):
    side = spec(folder, "side", body, head)
    with pytest.raises(UsageError, match=said):
        prepared(folder / "suite.toml", "oracle", str(side))
    assert not (folder / "data").exists()


def test_two_equal_sides_too_few_pairs_and_sweeps_are_refused(folder: Path):
    suite = folder / "suite.toml"
    with pytest.raises(UsageError, match="baseline and candidate are the same"):
        prepared(suite, "oracle", "oracle")
    with pytest.raises(UsageError, match="at least 8"):
        prepared(suite, rollouts=7)
    swept = spec(folder, "swept", ENTRY + '[tasks.sweep]\nMODE = ["a", "b"]\n')
    with pytest.raises(UsageError, match="'sweep' is not possible"):
        prepared(swept)
    measured = folder / "measured.json"
    measured.write_text('{"experiment": "memory_db"}')
    with pytest.raises(UsageError, match="a race is for tasks"):
        prepared(measured)
