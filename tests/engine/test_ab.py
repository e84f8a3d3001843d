from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.analysis.lockstep import CONFIRM_LOOKS, MOST_PAIRS, Rules, Verdict, looks_for
from proctor.engine.ab import Asked, Order, Progress, Subpoint, compare, is_aa, overall, rejudge
from proctor.engine.ab_file import call_s, read, replay, save, to_mapping
from proctor.engine.ab_run import Comparison, Contest, run
from proctor.engine.ab_words import whole_sentence
from proctor.errors import SideError, StoreError, UsageError
from proctor.model.lockstep import Calibration, Pair, Schedule, Slot
from proctor.model.spec import ExperimentBody, Spec, TaskEntry
from proctor.trial.lockstep.sides import SideRequest


def pair(order: Order, change: float, *, aa: float = 0.0, wall_s: float = 1.0) -> Pair:
    def slots(factor: float) -> tuple[Slot, ...]:
        return (Slot(round(200_000 * factor), round(200_000 * factor)),) * 4

    return Pair(
        number=order.number,
        schedule=Schedule(loops=10, warmup=1, kept=3),
        a=slots(1),
        b=slots(1 + change),
        again=slots(1 + aa) if order.again else (),
        wall_s=wall_s,
        confirms=order.confirms,
    )


class Bench:
    """Invents pairs: the true change of each point, with noise, and perhaps another one when confirming."""

    def __init__(
        self, *changes: float, spread: float = 0.004, confirmed: float | None = None, aa: float = 0.0
    ) -> None:
        self.changes, self.spread, self.confirmed, self.aa = changes, spread, confirmed, aa
        self.rng = random.Random(1)
        self.orders: list[Order] = []

    def __call__(self, order: Order) -> Pair:
        self.orders.append(order)
        true = self.changes[order.point]
        if order.confirms and self.confirmed is not None:
            true = self.confirmed
        return pair(order, true + self.rng.gauss(0, self.spread), aa=self.aa + self.rng.gauss(0, self.spread))


def points(count: int = 1) -> list[Subpoint]:
    return [Subpoint(label=f"e(n={index})", params={"n": index}) for index in range(count)]


def test_identical_code_is_the_same_and_needs_no_confirmation():
    bench = Bench(0.0)
    (result,) = compare(points(), Asked(), bench)
    assert result.verdict is Verdict.SAME
    assert result.confirmed is None
    assert len(bench.orders) < 20


def test_a_slowdown_is_confirmed_by_fresh_pairs_on_another_cpu():
    bench = Bench(0.05)
    (result,) = compare(points(), Asked(), bench)
    assert (result.verdict, result.confirmed) == (Verdict.SLOWER, True)
    fresh = [order for order in bench.orders if order.confirms]
    assert len(fresh) == 4
    last = max(order.number for order in bench.orders if not order.confirms)
    assert fresh[0].number == last + 2
    assert sum(each.confirms for each in result.pairs) == 4


def test_a_difference_that_is_not_seen_again_is_taken_back():
    bench = Bench(0.05, confirmed=-0.01)
    (result,) = compare(points(), Asked(), bench)
    assert (result.verdict, result.confirmed) == (Verdict.INCONCLUSIVE, False)
    assert "did not confirm" in result.finding.reason
    assert sum(order.confirms for order in bench.orders) == CONFIRM_LOOKS[-1]


@pytest.mark.parametrize("change", [0.05, -0.05, 0.015])
def test_identical_code_is_never_slower_or_faster_and_the_reason_says_so(change):
    (point,) = points()
    (result,) = compare([replace(point, identical=True)], Asked(), Bench(change))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.finding.reason.startswith("no verdict: A and B are identical code, so the ")
    assert whole_sentence(result) == result.finding.reason
    assert (result.confirmed, result.identical) == (None, True)


def test_a_small_difference_of_identical_code_is_the_same():
    (point,) = points()
    bench = Bench(0.006, spread=0.0003)
    assert compare([point], Asked(), bench)[0].verdict is Verdict.SMALL
    (result,) = compare([replace(point, identical=True)], Asked(), Bench(0.006, spread=0.0003))
    assert result.verdict is Verdict.SAME
    assert whole_sentence(result).startswith("A and B are identical: same: B differs from A by less than")


def test_identical_code_is_not_made_different_by_the_correction_for_many_points():
    changed = [replace(point, identical=True) for point in points(3)]
    results = compare(changed, Asked(), Bench(0.05, 0.05, 0.012))
    assert {result.verdict for result in results} == {Verdict.INCONCLUSIVE}


def test_a_saved_comparison_of_identical_code_is_judged_so_again(tmp_path):
    (point,) = points()
    results = compare([replace(point, identical=True)], Asked(), Bench(0.05))
    found = Comparison(name="s", a="a", b="b", asked=Asked(), results=tuple(results))
    again = read(save(found, path=tmp_path / "f.json", folder=tmp_path, now=0.0))
    assert again.results[0].identical
    assert replay(again, Rules()).verdict is Verdict.INCONCLUSIVE


def test_without_confirmation_the_first_finding_stands():
    (result,) = compare(points(), Asked(confirm=False), Bench(0.05, confirmed=0.0))
    assert (result.verdict, result.confirmed) == (Verdict.SLOWER, None)


def test_a_measurement_that_differs_from_itself_gives_no_verdict():
    (result,) = compare(points(), Asked(), Bench(0.05, aa=0.05))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.finding.reason.startswith("no verdict: A differs from itself by +4.9%")
    assert not result.check.passed


def test_some_pairs_have_a_second_a_even_in_the_shortest_comparison():
    bench = Bench(0.2)
    compare(points(), Asked(), bench)
    assert [order.number for order in bench.orders if order.again] == [1, 4]


@pytest.mark.parametrize("cpus", [2, 3, 4, 8])
def test_pairs_with_a_second_a_take_every_cpu(cpus):
    with_a_second = [number for number in range(80) if is_aa(number)]
    assert len(with_a_second) == 20
    assert {number % cpus for number in with_a_second} == set(range(cpus))


def test_noise_that_no_look_settles_ends_after_the_last_pair():
    bench = Bench(0.0, spread=0.1)
    (result,) = compare(points(), Asked(), bench)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert len(bench.orders) == 20


def test_an_open_ended_comparison_goes_on_until_noise_is_settled():
    bench = Bench(0.0, spread=0.03)
    assert compare(points(), Asked(), bench)[0].verdict is Verdict.INCONCLUSIVE
    bench = Bench(0.0, spread=0.03)
    rules = Rules(looks=looks_for(MOST_PAIRS), open_ended=True)
    (result,) = compare(points(), Asked(rules=rules), bench)
    assert result.verdict is Verdict.SAME
    assert 20 < len(bench.orders) < 500
    assert len(bench.orders) in rules.looks


def test_an_open_ended_comparison_ends_with_its_time():
    seconds = iter(range(1000))
    asked = Asked(rules=Rules(looks=looks_for(MOST_PAIRS), open_ended=True), time_budget_s=60.0)
    (result,) = compare(points(), asked, Bench(0.0, spread=0.2), clock=lambda: float(next(seconds)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.finding.reason == "the time budget was spent"


def test_a_time_budget_ends_it_early_with_what_there_is():
    seconds = iter(range(1000))
    bench = Bench(0.0, spread=0.1)
    asked = Asked(time_budget_s=9.0)
    (result,) = compare(points(), asked, bench, clock=lambda: float(next(seconds)))
    assert result.finding.reason == "the time budget was spent"
    assert 4 <= len(bench.orders) < 12


def short() -> list[Subpoint]:
    calibration = Calibration(schedule=Schedule(loops=10), call_wall_s=0.00005, call_cpu_s=0.00005)
    return [replace(point, calibration=calibration) for point in points()]


def costing(bench: Bench, cpu_s: float) -> Callable[[Order], Pair]:
    return lambda order: replace(bench(order), cpu_s=cpu_s)


def test_a_short_function_costs_twelve_seconds_of_cpu_at_most_and_says_so():
    bench = Bench(0.0, spread=0.1)
    (result,) = compare(short(), Asked(thrifty=True), costing(bench, 0.8))
    assert result.finding.reason == "the budget of 12 s CPU was spent"
    assert sum(each.cpu_s for each in result.pairs) + 2 * 0.8 <= 12
    assert 6 < len(result.pairs) < 20


def test_a_function_of_a_second_may_cost_more_than_twelve():
    calibration = Calibration(schedule=Schedule(loops=1, warmup=1, kept=5), call_wall_s=1, call_cpu_s=1)
    (point,) = short()
    noise = costing(Bench(0.0, spread=0.1), 12.1)
    (result,) = compare([replace(point, calibration=calibration)], Asked(thrifty=True), noise)
    assert (len(result.pairs), result.finding.reason) == (20, "")


def test_a_slowdown_within_the_budget_is_still_found_and_confirmed():
    bench = Bench(0.05)
    (result,) = compare(short(), Asked(thrifty=True), costing(bench, 0.8))
    assert (result.verdict, result.confirmed) == (Verdict.SLOWER, True)
    assert sum(each.cpu_s for each in result.pairs) + 2 * 0.8 <= 12


def test_a_confirmation_ends_when_the_budget_does():
    bench = Bench(0.05, confirmed=0.0)
    (result,) = compare(short(), Asked(cpu_budget_s=6.0), costing(bench, 0.4))
    assert result.confirmed is False
    assert sum(order.confirms for order in bench.orders) in {4, 6}


def test_long_functions_and_those_who_ask_for_more_pairs_pay_what_it_takes():
    noise = Bench(0.0, spread=0.1)
    second = Calibration(schedule=Schedule(loops=1), call_wall_s=1.0, call_cpu_s=1.0)
    long = [replace(point, calibration=second) for point in points()]
    (result,) = compare(long, Asked(thrifty=True), costing(noise, 10.0))
    assert len(result.pairs) == 20
    (result,) = compare(short(), Asked(), costing(noise, 10.0))
    assert len(result.pairs) == 20


def test_a_time_budget_is_shared_by_the_points():
    now = [0.0]

    def measure(order: Order) -> Pair:
        now[0] += 1
        return pair(order, random.Random(order.number).gauss(0, 0.1))

    results = compare(points(2), Asked(time_budget_s=20.0), measure, clock=lambda: now[0])
    assert [9 <= len(result.pairs) <= 11 for result in results] == [True, True]


def test_of_many_points_only_the_slower_one_is_called_slower():
    results = compare(points(6), Asked(), Bench(0, 0, 0.05, 0, 0, 0))
    assert [result.verdict for result in results].count(Verdict.SLOWER) == 1
    assert results[2].verdict is Verdict.SLOWER
    assert overall(results) is Verdict.SLOWER


def test_no_point_gets_a_verdict_from_the_other_points_that_its_own_interval_denies():
    from proctor.engine.ab import corrected

    results = compare(points(2), Asked(confirm=False), Bench(0.05, 0.0, spread=0.1))
    clear = replace(results[0], finding=replace(results[0].finding, p_value=0.001))
    open_one = replace(results[1], finding=replace(results[1].finding, p_value=0.015, change=0.05))
    assert open_one.finding.low < 0 < open_one.finding.high
    found = corrected([clear, open_one])
    assert found[1].verdict is Verdict.INCONCLUSIVE
    assert found[1].finding.p_value == 0.015
    assert corrected([open_one])[0] is open_one


def test_what_fresh_processes_did_not_confirm_stays_without_a_verdict_among_other_points():
    from proctor.engine.ab import corrected, unconfirmed

    results = compare(points(2), Asked(confirm=False), Bench(0.05, 0.05))
    doubted = replace(results[0], finding=unconfirmed(results[0].finding), confirmed=False)
    found = corrected([doubted, results[1]])
    assert [each.verdict for each in found] == [Verdict.INCONCLUSIVE, Verdict.SLOWER]
    assert "did not confirm it" in found[0].finding.reason


def test_the_worst_news_is_the_overall_verdict():
    (slower,) = compare(points(), Asked(), Bench(0.05))
    (same,) = compare(points(), Asked(), Bench(0.0))
    (faster,) = compare(points(), Asked(), Bench(-0.05))
    (open_one,) = compare(points(), Asked(), Bench(0.0, spread=0.1))
    assert overall([same, faster, open_one, slower]) is Verdict.SLOWER
    assert overall([same, faster, open_one]) is Verdict.INCONCLUSIVE
    assert overall([same, faster]) is Verdict.FASTER
    unclear = replace(same, finding=replace(same.finding, verdict=Verdict.SAME_COMPUTING))
    assert overall([same, faster, unclear]) is Verdict.SAME_COMPUTING
    assert overall([same]) is Verdict.SAME


def test_progress_tells_where_it_stands():
    heard: list[Progress] = []
    compare(points(), Asked(), Bench(0.05), on_progress=heard.append)
    assert [each.pairs for each in heard if not each.confirming] == list(range(6))
    assert heard[0].change is None
    assert heard[-1].confirming
    assert heard[-1].change == pytest.approx(0.05, abs=0.01)


def comparison(*results, **changes) -> Comparison:
    return Comparison(
        name="s", a="HEAD", b=".", asked=Asked(), results=tuple(results), notes=("n",), **changes
    )


def made(bench: Bench, count: int = 1) -> Comparison:
    return comparison(*compare(points(count), Asked(), bench), cpu_s=3.0, wall_s=4.0)


def test_a_saved_comparison_is_read_back_whole(tmp_path):
    calibration = Calibration(schedule=Schedule(loops=3), call_wall_s=1.0, call_cpu_s=1.0)
    before = made(Bench(0.05, 0.0), 2)
    before = replace(before, results=(replace(before.results[0], calibration=calibration), before.results[1]))
    path = save(before, path=tmp_path / "deep" / "x.json", folder=tmp_path, now=0.0)
    assert read(path) == replace(before, asked=read(path).asked)
    assert read(path).asked.rules == before.asked.rules


def test_two_comparisons_of_one_second_do_not_collide(tmp_path):
    paths = {save(made(Bench(0.0)), path=None, folder=tmp_path, now=1e9) for _ in range(3)}
    assert {path.name for path in paths} == {f"ab-20010909T014640Z{tail}.json" for tail in ("", "-2", "-3")}


def test_a_comparison_is_judged_the_same_when_it_is_replayed(tmp_path):
    before = made(Bench(0.05, 0.0), 2)
    again = replay(before, before.asked.rules)
    assert [result.verdict for result in again.results] == [result.verdict for result in before.results]
    assert [result.confirmed for result in again.results] == [True, None]


def test_a_replay_under_a_wider_margin_judges_anew():
    before = made(Bench(0.05))
    again = replay(before, replace(before.asked.rules, margin=0.2, wall_margin=0.6))
    assert again.verdict in {Verdict.SAME, Verdict.SMALL, Verdict.INCONCLUSIVE}
    assert again.verdict is not Verdict.SLOWER


def test_a_replay_refuses_and_takes_back_as_the_original_did():
    for bench in (Bench(0.05, aa=0.05), Bench(0.05, confirmed=0.0)):
        (result,) = compare(points(), Asked(), bench)
        again = rejudge(result, Rules())
        assert (again.verdict, again.finding.reason) == (result.verdict, result.finding.reason)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a file that 'proctor ab' wrote"),
        ('{"kind": "proctor.ab", "schema_version": 99}', "later version"),
        ('{"kind": "proctor.ab", "schema_version": 1}', "damaged"),
    ],
)
def test_a_file_that_is_no_comparison_is_refused(tmp_path, content, said):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=said):
        read(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.json")


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be saved"):
        save(made(Bench(0.0)), path=None, folder=tmp_path / "file" / "below", now=0.0)


def test_the_summary_has_the_numbers_and_not_the_slots():
    data = json.loads(json.dumps(to_mapping(made(Bench(0.05)), slots=False)))
    point = data["points"][0]
    assert data["verdict"] == point["verdict"] == "slower"
    assert point["ratio"] == pytest.approx(1.05, abs=0.01)
    assert point["call_s"]["a"] == pytest.approx(2e-5)
    assert len(point["log_ratios"]) == 10
    assert set(point["machine"]) == {
        "involuntary_switches",
        "page_faults",
        "steal_s",
        "cpu_pressure_s",
        "cpus",
    }
    assert "pairs_data" not in point
    assert point["sentence"].startswith("slower: B is ")
    assert [each["clock"] for each in point["clocks"]] == ["cpu", "wall"]
    assert all(each["low"] < each["change"] < each["high"] for each in point["clocks"])


def test_the_time_of_a_call_is_on_the_clock_that_was_judged():
    (result,) = compare(points(), Asked(), Bench(0.0))
    assert call_s(result, "b") == pytest.approx(2e-5, rel=0.05)


EXPERIMENTS = Path(__file__).parent.parent / "trial" / "lockstep_experiments.py"


def contest(slug: str, folder: Path, b: SideRequest | None = None, **params: object) -> Contest:
    body = ExperimentBody(experiment=slug, params=params)
    spec = Spec(name="s", experiments=(body,), base_dir=str(folder), timeout_s=20.0)
    return Contest(
        spec=spec, sources=(str(EXPERIMENTS),), a=SideRequest(folder="."), b=b or SideRequest(folder=".")
    )


@pytest.fixture
def _short_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.trial.lockstep.measure.KEPT", 20)


FEW = Asked(rules=Rules(looks=(4,)), confirm=False)


@pytest.mark.usefixtures("_short_slots")
def test_real_processes_find_a_large_difference(tmp_path):
    asked = contest("well_behaved", tmp_path, SideRequest(folder=".", params={"n": 40}), n=10)
    found = run(asked, FEW, rng=random.Random(1))
    assert found.verdict is Verdict.SLOWER
    assert found.results[0].label == "well_behaved(n=10)"
    assert found.results[0].finding.change > 0.3
    assert found.cpu_s > 0
    assert f"side A has no {EXPERIMENTS.name} of its own; it runs {EXPERIMENTS}" in found.notes


@pytest.mark.usefixtures("_short_slots")
def test_every_point_of_a_sweep_is_compared(tmp_path):
    asked = contest("well_behaved", tmp_path, n=[10, 20])
    found = run(asked, FEW)
    assert [result.label for result in found.results] == ["well_behaved(n=10)", "well_behaved(n=20)"]


@pytest.mark.usefixtures("_short_slots")
def test_a_swept_parameter_that_both_sides_set_is_compared_once(tmp_path):
    asked = contest("well_behaved", tmp_path, SideRequest(folder=".", params={"n": 12}), n=[10, 20, 30])
    asked = replace(asked, a=SideRequest(folder=".", params={"n": 10}))
    assert [result.label for result in run(asked, FEW).results] == ["well_behaved"]


@pytest.mark.usefixtures("_short_slots")
def test_a_machine_that_does_not_pin_is_noted(tmp_path, monkeypatch):
    from proctor.engine import ab_run

    monkeypatch.setattr(ab_run, "allowed_cpus", lambda: (100_000,))
    asked = replace(contest("well_behaved", tmp_path, n=[10, 20]), first_point_only=True)
    found = run(asked, FEW)
    assert len(found.results) == 1
    assert any("pinned" in note for note in found.notes)
    assert {each.cpu for each in found.results[0].pairs} == {None}


def test_a_failing_side_is_an_error_of_that_side(tmp_path):
    with pytest.raises(SideError, match="side A"):
        run(contest("misbehaves", tmp_path, phase="setup"), FEW)


def test_tasks_cannot_be_compared_in_lockstep(tmp_path):
    spec = Spec(name="s", tasks=(TaskEntry(path="t"),), base_dir=str(tmp_path))
    with pytest.raises(UsageError, match="only experiments"):
        run(Contest(spec=spec, sources=(), a=SideRequest(folder="."), b=SideRequest(folder=".")), FEW)
