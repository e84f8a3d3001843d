"""From a scenario file to episodes: who, what, which seed, how often, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from proctor.errors import NotFoundError, SpecError, TaskError, UsageError
from proctor.model.outcome import Outcome
from proctor.runs.perf.scenario import DEFAULT, Episodes, load_scenario, plan_episodes
from proctor.settings import Settings

TASKS = DEFAULT.parent


def planned(settings: Settings, file: Path | None = None, episodes: int = 24) -> Episodes:
    return plan_episodes(
        load_scenario(file), episodes=episodes, workers=4, timeout_s=180.0, sandbox="fake", settings=settings
    )


def written(tmp_path: Path, text: str, name: str = "own.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_default_scenario_repeats_each_seed(settings: Settings):
    episodes = planned(settings)
    seen = Counter((trial.subject, trial.agent, trial.seed) for trial in episodes.plan.trials)
    assert len(episodes.plan) == 24
    assert episodes.pass_length == 6
    assert set(seen.values()) == {2}
    assert {trial.agent for trial in episodes.plan.trials} == {"oracle", "replay", "nop"}


def test_every_episode_has_a_key_of_its_own_and_the_same_one_again(settings: Settings):
    first, second = planned(settings), planned(settings)
    keys = [trial.key for trial in first.plan.trials]
    assert len(set(keys)) == 24
    assert keys == [trial.key for trial in second.plan.trials]
    assert [trial.index for trial in first.plan.trials] == list(range(24))


def test_a_nop_is_expected_to_fail(settings: Settings):
    episodes = planned(settings)
    nops = [trial for trial in episodes.plan.trials if trial.agent == "nop"]
    assert {episodes.expect[trial.key] for trial in nops} == {(Outcome.FAILED,)}


def test_weights_and_own_seeds_are_kept(settings: Settings, tmp_path: Path):
    text = f"""
scenario:
  - {{task: {TASKS / "word-count"}, agent: oracle, weight: 3, seed: 11}}
  - {{task: {TASKS / "ini-edit"}, agent: nop, repeat: 1, expect: [failed, partial]}}
"""
    episodes = planned(settings, written(tmp_path, text), 8)
    assert [trial.agent for trial in episodes.plan.trials] == ["oracle", "oracle", "oracle", "nop"] * 2
    assert {trial.seed for trial in episodes.plan.trials if trial.agent == "oracle"} == {11}
    assert Outcome.PARTIAL in episodes.expect[episodes.plan.trials[3].key]


def test_two_entries_of_the_same_task_and_agent_both_run(settings: Settings, tmp_path: Path):
    line = f"- {{task: {TASKS / 'word-count'}, agent: nop, seed: 1, expect: failed}}\n"
    episodes = planned(settings, written(tmp_path, line * 2), 4)
    assert len({trial.key for trial in episodes.plan.trials}) == 4


def test_a_dataset_puts_all_its_tasks_into_the_pass(settings: Settings, tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("word-count", "ini-edit"):
        (data / name).symlink_to(TASKS / name)
    file = written(tmp_path, '[[scenario]]\ntask = "data"\nagent = "nop"\n', "own.toml")
    assert {trial.subject for trial in planned(settings, file, 2).plan.trials} == {
        "perf/word-count",
        "perf/ini-edit",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "empty"),
        ("{name: x}", "'scenario' is missing"),
        ("- {agent: nop}", "'task' is missing"),
        ("- {task: t, agnet: nop}", "did you mean 'agent'"),
        ("- {task: t, expect: pased}", "did you mean 'passed'"),
        ("- {task: t, expect: []}", "'expect' is empty"),
        ("- {task: t, weight: 0}", "at least 1"),
        ("- {task: t, weight: 1, repeat: 2}", "another name for 'weight'"),
        ("- {task: t, options: [1]}", "a mapping"),
        ("- just text", "a mapping with 'task'"),
        ("scenario: 7", "a list"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said_with_its_place(tmp_path: Path, text: str, message: str):
    with pytest.raises(SpecError, match=message) as caught:
        load_scenario(written(tmp_path, text))
    assert "own.yaml:1" in str(caught.value)


def test_a_task_or_an_agent_that_is_not_there_stops_before_the_run(settings: Settings, tmp_path: Path):
    with pytest.raises(TaskError, match="no such task folder"):
        planned(settings, written(tmp_path, "- {task: nowhere, agent: nop}"))
    with pytest.raises(NotFoundError, match="did you mean 'oracle'"):
        planned(settings, written(tmp_path, f"- {{task: {TASKS / 'word-count'}, agent: orcale}}"))


def test_an_absurd_number_of_episodes_is_refused(settings: Settings, tmp_path: Path):
    with pytest.raises(UsageError, match="from 1 to"):
        planned(settings, episodes=0)
    file = written(tmp_path, f"- {{task: {TASKS / 'word-count'}, agent: nop, weight: 100000}}\n" * 2)
    with pytest.raises(UsageError, match="one pass of the scenario"):
        planned(settings, file)
