"""The test over the complete prefix, and the verdict that it leads to."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.made_rollouts import planned

from proctor.model.document import to_mapping
from proctor.model.outcome import Outcome
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution, RunInfo, written_race
from proctor.model.trial import RunStatus
from proctor.render.document.html import html
from proctor.render.document.markdown import markdown
from proctor.render.results.race import race_document
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.gate.verdict import GateVerdict
from proctor.verdicts.race.design import RaceDesign, RacePair, design_of
from proctor.verdicts.race.judge import judge_race
from proctor.verdicts.race.prefix import Prefix
from proctor.verdicts.race.promise import Judged, Promise, shares
from proctor.verdicts.race.words import saving, sentence, unused

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))


def result(key: str, reward: float | None, outcome: Outcome | None = None) -> AttemptRecord:
    found = outcome or (Outcome.PASSED if reward else Outcome.FAILED)
    return AttemptRecord(
        key=key, number=1, outcome=found, started_at=1.0, ended_at=2.0, reward=reward, usage={"cost_usd": 0.5}
    )


def pairs(count: int) -> list[RacePair]:
    return [RacePair(task="t", rollout=at, baseline=f"a{at}", candidate=f"b{at}") for at in range(count)]


def test_results_in_any_order_give_the_same_looks():
    rewards = {f"{side}{at}": float((at * 7 + (side == "a")) % 3 > 0) for at in range(40) for side in "ab"}
    in_order, shuffled = Prefix(pairs(40), 0.05), Prefix(pairs(40), 0.05)
    for at in range(40):
        for side in "ab":
            in_order.tell(result(f"{side}{at}", rewards[f"{side}{at}"]))
    keys = list(rewards)
    random.Random(1).shuffle(keys)
    for key in keys:
        shuffled.tell(result(key, rewards[key]))
    assert shuffled.looks == in_order.looks


def test_a_pair_behind_one_that_has_not_ended_is_not_looked_at():
    prefix = Prefix(pairs(30), 0.05)
    for at in range(1, 30):
        prefix.tell(result(f"a{at}", 1.0))
        prefix.tell(result(f"b{at}", 0.0))
    assert prefix.judged == []
    prefix.tell(result("a0", 1.0))
    assert prefix.tell(result("b0", 1.0))
    assert len(prefix.judged) == 9


def test_partial_rewards_disagree_and_errors_are_no_evidence():
    prefix = Prefix(pairs(4), 0.05)
    told = [(0.5, 0.25), (0.25, 0.5), (0.5, 0.5)]
    for at, (before, after) in enumerate(told):
        prefix.tell(result(f"a{at}", before, Outcome.PARTIAL))
        prefix.tell(result(f"b{at}", after, Outcome.PARTIAL))
    prefix.tell(result("a3", None, Outcome.SANDBOX_ERROR))
    prefix.tell(result("b3", 1.0))
    tally = prefix.latest.tally
    assert (tally.losses, tally.wins, tally.agreed, prefix.void) == (1, 1, 1, 1)
    assert prefix.is_complete


def race(told: list[tuple[float | None, float | None]], count: int = 0, **more: object) -> RunData:
    """A race of which these pairs have ended; a missing reward is an error of the machine."""
    design = RaceDesign(baseline="main", candidate="change", **more)
    trials = []
    for at in range(max(count, len(told))):
        for side in (0, 1):
            trial = planned(2 * at + side, "t", rollout=at, body=side)
            record = None
            if at < len(told):
                reward = told[at][side]
                record = result(trial.key, reward, Outcome.SANDBOX_ERROR if reward is None else None)
            trials.append(TrialResult(trial, (record,) if record else (), record))
    info = RunInfo(
        id="r1", name="race", kind="task", status=RunStatus.DONE, created_at=1.0, seed=0,
        spec=written_race(design.to_mapping(), {}), execution=Execution.RACE, folder="/nowhere/r1",
    )  # fmt: skip
    return RunData(info, tuple(trials))


def test_a_regression_says_what_it_saved_and_that_its_size_is_too_large():
    found = judge_race(race([(1.0, 0.0)] * 9, 50))
    assert found.verdict is GateVerdict.REGRESSION
    assert sentence(found) == "change is worse than main. Of 8 pairs that disagree it lost 8 and won 0."
    assert saving(found).startswith(
        "The race stopped at pair 8 of 50 and saved 82 of 100 rollouts (82 %, about $41"
    )
    assert "too large" in found.to_dict()["effect"]
    assert "2 rollouts ended behind the last pair" in unused(found)


def test_a_race_without_proof_passes_only_within_its_margin():
    alike = [(1.0, 1.0), (0.0, 0.0)] * 30
    assert judge_race(race(alike, margin=0.3)).verdict is GateVerdict.PASS
    open_ = judge_race(race(alike, margin=0.01))
    assert (open_.verdict, open_.exit_code) == (GateVerdict.INCONCLUSIVE, 3)
    assert sentence(open_).startswith("Inconclusive: no proof that change is worse than main")


def rounds(count: int, tasks: int = 12) -> list[RacePair]:
    return [
        RacePair(task=f"t{task}", rollout=at, baseline=f"a{task}.{at}", candidate=f"b{task}.{at}")
        for at in range(count)
        for task in range(tasks)
    ]


def test_no_worse_is_looked_at_after_whole_rounds_and_its_error_is_shared():
    spent = shares(5)
    assert sum(spent) == pytest.approx(0.025)
    assert spent == sorted(spent)
    assert shares(1) == []
    planned = rounds(5)
    promise = Promise(planned, 0.99)
    alike = [Judged(pair, 1.0, 1.0) for pair in planned]
    assert [at for at in range(61) if promise.holds(alike[:at])] == [24, 36, 48, 60]
    mixed = Promise(sorted(planned, key=lambda each: each.task), 0.99)
    assert [at for at in range(61) if mixed.holds(alike[:at])] == [60], "no round ends before all do"


def test_a_race_may_stop_when_no_worse_and_says_what_it_saved():
    told = [(1.0, 1.0), (0.0, 0.0)] * 60
    late = judge_race(race(told, margin=0.3))
    found = judge_race(race(told, margin=0.3, stop_when_no_worse=True))
    assert (late.verdict, late.stopped_early) == (GateVerdict.PASS, False)
    assert (found.verdict, found.stopped_early) == (GateVerdict.PASS, True)
    assert len(found.judged) < 120
    assert sentence(found).startswith("change is no worse than main by more than 30 pp.")
    assert found.interval is not None
    assert found.interval[0] >= -0.3
    assert "behind the last pair looked at: no evidence" in unused(found)
    assert found.to_dict()["stop_when_no_worse"] is True
    assert (late.level, late.to_dict()["level"]) == (0.95, 0.95)
    assert 0.97 <= found.to_dict()["level"] < 1
    shown = markdown(race_document(found, race(told, stop_when_no_worse=True).info))
    assert f"difference, {100 * found.level:.4g} % for" in shown
    assert design_of(race(told, stop_when_no_worse=True).info).stop_when_no_worse


def test_a_race_that_may_stop_for_both_still_says_worse_and_what_is_lost():
    worse = judge_race(race([(1.0, 0.0)] * 9, 50, stop_when_no_worse=True))
    assert worse.verdict is GateVerdict.REGRESSION
    lost = judge_race(race([(1.0, 1.0)] * 40 + [(1.0, None)] * 10, margin=0.15, stop_when_no_worse=True))
    assert lost.verdict in {GateVerdict.PASS, GateVerdict.INFRASTRUCTURE}
    assert (lost.verdict is GateVerdict.PASS) == (len(lost.judged) <= 40), "missing pairs are read both ways"
    open_ = judge_race(race([(1.0, 1.0), (0.0, 0.0)] * 30, margin=0.01, stop_when_no_worse=True))
    assert (open_.verdict, open_.reason) == (GateVerdict.INCONCLUSIVE, "too_wide")


def test_errors_that_leave_it_open_are_infrastructure():
    lost = judge_race(race([(1.0, None)] * 10))
    assert (lost.verdict, lost.exit_code, lost.void) == (GateVerdict.INFRASTRUCTURE, 4, 10)
    partly = judge_race(race([(1.0, 1.0)] * 40 + [(1.0, None)] * 10, margin=0.15))
    assert (partly.verdict, partly.reason) == (GateVerdict.INFRASTRUCTURE, "lost")


def test_an_unfinished_race_has_no_verdict():
    found = judge_race(race([(1.0, 1.0)] * 3, 20))
    assert (found.verdict, found.reason) == (GateVerdict.INCONCLUSIVE, "unfinished")
    assert sentence(found).startswith("No verdict yet: 3 of 20 pairs have ended.")
    assert saving(found) == "6 of 40 rollouts have ended."


@pytest.mark.parametrize("told", [[(1.0, 0.0)] * 9, [(1.0, 1.0), (0.0, 0.0)] * 25, [], [(1.0, None)] * 50])
def test_every_race_is_a_document(told: list[tuple[float | None, float | None]]):
    data = race(told, 50)
    document = race_document(judge_race(data), data.info)
    page = html(document)
    assert "main against change" in page
    assert "<script" not in page
    assert markdown(document)
    assert to_mapping(document)["kind"] == "race"


def test_a_run_that_is_no_race_is_refused():
    info = RunInfo(id="r", name="n", kind="task", status=RunStatus.DONE, created_at=1.0, seed=0)
    with pytest.raises(Exception, match="is not a race"):
        design_of(info)


def test_simulated_races_keep_their_error_and_save_most_of_a_clear_regression():
    from race_quality import race as simulated
    from race_quality import suite

    generator = np.random.default_rng(3)
    alike = [simulated(generator, *suite(generator, 0.0)) for _ in range(60)]
    worse = [simulated(generator, *suite(generator, -0.14)) for _ in range(30)]
    assert sum(each.verdict == "regression" for each in alike) <= 6
    assert sum(each.verdict == "regression" for each in worse) >= 28
    assert np.mean([each.begun for each in worse]) < 0.36


def test_simulated_races_that_stop_when_no_worse_save_rollouts_and_pass_no_loss_of_the_margin():
    from race_quality import race as simulated
    from race_quality import suite

    generator = np.random.default_rng(4)
    alike = [simulated(generator, *suite(generator, 0.0), 0.10) for _ in range(20)]
    worse = [simulated(generator, *suite(generator, -0.10), 0.10) for _ in range(40)]
    assert sum(each.verdict == "pass" for each in alike) >= 16
    assert np.mean([each.begun for each in alike]) < 0.85
    assert sum(each.verdict == "pass" for each in worse) <= 4
