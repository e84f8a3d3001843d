"""Races from plan to verdict, through the real coordinator, worker and store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.resources import Resources
from tests.runs.race.racing import Drawn, carried_out, prepared
from tests.taking import take

from proctor.analysis.sequential import Decision
from proctor.errors import UsageError
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData
from proctor.runs.running import create, reopen
from proctor.settings import load_settings
from proctor.spec.load import load, written
from proctor.store.open import open_store
from proctor.verdicts.gate.verdict import GateVerdict
from proctor.verdicts.race.design import design_of, pairs_of
from proctor.verdicts.race.judge import RaceResult, judge_race

pytestmark = pytest.mark.needs("bubblewrap")
WORSE, ALIKE = (0.8, 0.35), (0.5, 0.5)


@pytest.fixture
def spec_file(tmp_path: Path, make_task, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "three"):
        make_task(name, solve=f"echo {name}")
    path = tmp_path / "suite.toml"
    path.write_text(
        'name = "suite"\nparallel = 4\n[sandbox]\nhost_root = true\n[retries]\nbackoff_s = 0.0\n'
        '[[tasks]]\npath = "tasks"\nrollouts = 30\n'
    )
    return path


def judged(run_id: str) -> RaceResult:
    with open_store(load_settings().store_url, create=False) as store:
        return judge_race(RunData.from_store(store, run_id))


def test_a_race_stops_at_the_verdict_and_cancels_the_rest(spec_file: Path):
    job = prepared(spec_file)
    executor = Drawn(WORSE)
    assert carried_out(job, executor) is RunStatus.DONE
    found = judged(job.info.id)
    assert found.verdict is GateVerdict.REGRESSION
    assert found.exit_code == 1
    assert found.stopped_early
    spent = found.spending
    assert spent.planned == 180
    assert spent.ended + spent.cancelled + spent.saved == 180
    assert spent.saved > 90
    assert len(executor.begun) == spent.ended + spent.cancelled
    assert spent.cancelled <= 8
    data = RunData.from_folder(job.folder)
    assert judge_race(data).to_dict() == found.to_dict()
    assert data.info.execution is Execution.RACE
    assert (job.folder / "race.html").is_file()


def test_both_sides_run_next_to_each_other_and_tasks_take_turns(spec_file: Path):
    job = prepared(spec_file)
    design = design_of(job.info)
    trials = job.plan.trials
    for before, after in zip(trials[::2], trials[1::2], strict=True):
        assert (before.subject, before.rollout, before.seed) == (after.subject, after.rollout, after.seed)
        assert (before.body % 2, after.body % 2) == (0, 1)
    rounds = [{trial.subject for trial in trials[at : at + 6]} for at in range(0, len(trials), 6)]
    assert all(len(each) == 3 for each in rounds)
    assert [pair.candidate for pair in pairs_of(trials, design)] == [trial.key for trial in trials[1::2]]


def test_a_race_that_proves_nothing_runs_every_pair(spec_file: Path):
    job = prepared(spec_file, margin=0.5)
    executor = Drawn(ALIKE)
    assert carried_out(job, executor) is RunStatus.DONE
    found = judged(job.info.id)
    assert found.verdict is GateVerdict.PASS
    assert len(executor.begun) == 180
    assert found.spending.saved == 0
    assert found.interval is not None
    assert found.interval[0] > -0.5


def test_a_race_may_stop_when_the_candidate_is_no_worse(spec_file: Path):
    job = prepared(spec_file, margin=0.5, stop_when_no_worse=True)
    executor = Drawn(ALIKE)
    assert carried_out(job, executor) is RunStatus.DONE
    found = judged(job.info.id)
    assert (found.verdict, found.exit_code) == (GateVerdict.PASS, 0)
    assert found.stopped_early
    assert len(found.judged) % 3 == 0, "only whole rounds of the three tasks are looked at"
    assert found.spending.saved == 180 - len(executor.begun) > 0


def test_a_lost_attempt_is_tried_again_and_is_no_evidence(spec_file: Path):
    plain, flaky = prepared(spec_file), prepared(spec_file)
    carried_out(plain, Drawn(WORSE))
    carried_out(flaky, Drawn(WORSE, flaky=True))
    one, two = judged(plain.info.id), judged(flaky.info.id)
    assert two.void == 0
    assert [each.e_value for each in two.looks] == [each.e_value for each in one.looks]


@pytest.mark.parametrize("kill_after", [9, 25])
def test_a_killed_race_goes_on_to_the_same_verdict(spec_file: Path, kill_after: int):
    whole = prepared(spec_file)
    carried_out(whole, Drawn(WORSE))
    killed = subprocess.run(
        [sys.executable, "-m", "tests.runs.race.racing", str(spec_file), str(kill_after)],
        check=False,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        env=_environment(spec_file),
    )
    assert killed.returncode == -9, killed.stderr.decode()
    with open_store(load_settings().store_url) as store:
        run_id = store.run("latest").id
    assert run_id != whole.info.id
    job = reopen(run_id, Resources(load_settings()), wait=True)
    assert carried_out(job, Drawn(WORSE)) is RunStatus.DONE
    one, two = judged(whole.info.id), judged(run_id)
    assert two.verdict is one.verdict is GateVerdict.REGRESSION
    assert two.looks == one.looks
    assert [each.pair for each in two.judged] == [each.pair for each in one.judged]


def _environment(spec_file: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def test_a_verdict_that_was_committed_but_not_acted_on_ends_the_race_at_once(spec_file: Path):
    job = prepared(spec_file)
    with open_store(load_settings().store_url) as store:
        for lease in take(store, job.info.id, worker="gone:1:1:x", limit=40):
            trial = job.plan.trials[lease.index]
            passed = trial.body % 2 == 0
            outcome = Outcome.PASSED if passed else Outcome.FAILED
            reward = float(passed)
            record = AttemptRecord(
                key=lease.key, number=1, outcome=outcome, started_at=1.0, ended_at=2.0, reward=reward
            )
            store.finish(lease, record, counts=True)
    executor = Drawn(ALIKE)
    assert carried_out(job, executor) is RunStatus.DONE
    assert executor.begun == []
    found = judged(job.info.id)
    assert found.latest.decision is Decision.WORSE
    assert len(found.judged) == 8
    assert found.spending.unused == 24


def test_a_stored_run_is_a_baseline(spec_file: Path):
    spec = load(spec_file, overrides=["tasks.0.rollouts=9"])
    stored = create(spec, written(spec_file), Resources(load_settings()))
    carried_out(stored, Drawn((1.0, 1.0)))
    job = prepared(spec_file, baseline="run:suite")
    assert len(job.plan) == 27
    assert any("no rollout to compare them with" in each for each in job.plan.warnings)
    carried_out(job, Drawn((0.1, 0.1)))
    found = judged(job.info.id)
    assert found.verdict is GateVerdict.REGRESSION
    assert found.design.stored_run == stored.info.id
    assert found.spending.planned == 27
    with pytest.raises(UsageError, match="only the baseline may be one"):
        prepared(spec_file, candidate="run:suite")


def test_a_baseline_with_several_agents_or_other_tasks_is_refused(spec_file: Path):
    job = prepared(spec_file)
    carried_out(job, Drawn(WORSE))
    with pytest.raises(UsageError, match="one agent with one model"):
        prepared(spec_file, baseline=f"run:{job.info.id}")
