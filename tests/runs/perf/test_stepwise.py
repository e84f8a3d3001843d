"""Rows of agent, task_ref and seed: what they mean, what is refused, and the budgets in the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.trial.episode.stage import AGENT, SOLVE, write_task

from proctor.errors import SpecError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.spec import Spec, TaskEntry
from proctor.runfolder.perf.documents import _spread
from proctor.runs.perf.scenario import Episodes, load_scenario, plan_episodes
from proctor.runs.planning import plan_spec
from proctor.settings import Settings

ROOT = Path(__file__).parents[3]
HARBOR = ROOT / "tasks" / "config-edit"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_task(tmp_path / "tasks" / "vault")
    (tmp_path / "solve.py").write_text(AGENT.format(body=SOLVE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(file: Path, settings: Settings, episodes: int = 4) -> Episodes:
    return plan_episodes(
        load_scenario(file),
        episodes=episodes,
        workers=2,
        timeout_s=10.0,
        sandbox="bubblewrap",
        host_root=True,
        settings=settings,
    )


def written(project: Path, *rows: dict[str, object], name: str = "scenario.json") -> Path:
    file = project / name
    file.write_text(json.dumps(rows))
    return file


def test_rows_of_agent_task_ref_and_seed_are_found_and_planned(project: Path, settings: Settings):
    rows = [{"agent": "solve.py", "task_ref": ref, "seed": 3} for ref in ("vault@1", "tasks/vault")]
    episodes = planned(written(project, *rows), settings)
    assert {(trial.agent, trial.subject, trial.seed) for trial in episodes.plan.trials} == {
        ("episode", "vault", 3)
    }
    assert episodes.expect[episodes.plan.trials[0].key] == (Outcome.PASSED,)
    (digest,) = {trial.subject_digest for trial in episodes.plan.trials}
    assert episodes.ceilings == {digest: {"steps": 5, "tool_calls": 4}}
    assert len({trial.key for trial in episodes.plan.trials}) == 4


def test_a_scenario_elsewhere_means_what_is_here(project: Path, settings: Settings):
    (project / "apart").mkdir()
    file = written(project / "apart", {"agent": "solve.py", "task_ref": "vault"})
    assert load_scenario(file).imageless
    assert len(planned(file, settings).plan) == 4


def test_an_agent_of_several_files_is_a_folder(project: Path):
    (project / "agents/keen").mkdir(parents=True)
    file = written(project, {"agent": "agents/keen", "task_ref": "vault"})
    with pytest.raises(SpecError, match=r"no agent at agents/keen: no file, and no folder with an agent\.py"):
        load_scenario(file)
    (project / "agents/keen/agent.py").write_text(AGENT.format(body=SOLVE))
    (entry,) = load_scenario(file).entries
    assert (entry.agent, entry.options) == ("episode", {"file": str(project / "agents/keen")})


def test_the_option_of_the_agent_is_read_against_the_scenario(project: Path, tmp_path_factory):
    row = {"agent": "episode", "task": "tasks/vault", "options": {"file": "solve.py"}}
    (entry,) = load_scenario(written(project, row)).entries
    assert entry.options == {"file": str(project / "solve.py")}


def test_a_scenario_with_an_image_or_another_kind_of_task_does_not_take_this_machine(project: Path):
    mixed = [{"agent": "solve.py", "task_ref": "vault"}, {"agent": "nop", "task": str(HARBOR)}]
    assert not load_scenario(written(project, *mixed)).imageless
    (project / "tasks/vault/environment").mkdir()
    (project / "tasks/vault/environment/Dockerfile").write_text("FROM scratch\n")
    assert not load_scenario(written(project, mixed[0])).imageless


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"agent": "solve.py", "task_ref": "vault@2"}, "'vault@2' is not there: .* has version 1"),
        ({"agent": "solve.py", "task_ref": "valut@1"}, "no task 'valut@1': there is no folder tasks/valut"),
        ({"agent": "none.py", "task_ref": "vault@1"}, "no agent at none.py"),
        ({"agent": "solve.py", "task_ref": "vault", "task": "tasks/vault"}, "both name the task"),
    ],
)
def test_a_row_that_means_nothing_is_refused_with_its_place(project: Path, row: dict[str, object], said: str):
    with pytest.raises(SpecError, match=said) as caught:
        load_scenario(written(project, row))
    assert "scenario.json:1" in str(caught.value)


def test_an_agent_and_a_task_of_different_kinds_are_refused_before_the_run(project: Path, settings: Settings):
    stepwise = TaskEntry(path="tasks/vault", agents=("nop",))
    with pytest.raises(UsageError, match="vault is a step-by-step task, which agent 'nop' cannot do"):
        plan_spec(Spec(name="x", tasks=(stepwise,), base_dir=str(project)), settings)
    other = TaskEntry(path=str(HARBOR), agents=("episode",), agent_options={"file": "solve.py"})
    with pytest.raises(UsageError, match=r"agent 'episode' is for step-by-step tasks, and .* is none"):
        plan_spec(Spec(name="x", tasks=(other,), base_dir=str(project)), settings)


def test_the_ceiling_is_the_tasks_budget_or_the_most_that_was_used():
    assert _spread([1, 3], 12)["ceiling"] == 12
    assert _spread([1, 3])["ceiling"] == 3
