from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.analysis.both_clocks import busy_shares, confirms, in_parallel, judge, self_check
from proctor.analysis.lockstep import DIFFERENT, LOOKS, Rules, Verdict
from proctor.model.lockstep import Pair, Schedule, Slot

DATA = Path(__file__).parent.parent / "data" / "lockstep"
MS = 1_000_000


class Machine:
    """Invents pairs of a machine with other programs: a shared speed, delays in the queue, some it hides."""

    def __init__(
        self,
        seed: int,
        *,
        load: float = 0.0,
        hidden: float = 0.0,
        spread: float = 0.004,
        others: float = 0.0,
    ) -> None:
        self.rng = random.Random(seed)
        self.load, self.hidden, self.spread, self.others = load, hidden, spread, others

    def pair(self, a: tuple[float, float], b: tuple[float, float], *, number: int = 0, cpus: int = 1) -> Pair:
        """Sides are (milliseconds of computing, milliseconds of its own waiting)."""
        luck = self.rng.gauss(0, self.spread)
        again = number % 4 == 1
        return Pair(
            number=number,
            schedule=Schedule(loops=1, warmup=1, kept=6),
            a=tuple(self.slot(a) for _ in range(7)),
            b=tuple(self.slot((b[0] * (1 + luck), b[1]), cpus) for _ in range(7)),
            again=tuple(self.slot(a) for _ in range(7)) if again else (),
            others=self.others,
        )

    def slot(self, side: tuple[float, float], cpus: int = 1) -> Slot:
        """Delays known to the kernel stand in `waited_ns`; hidden ones lengthen the wall time only."""
        speed = 1 + abs(self.rng.gauss(0, 0.02))
        cpu = side[0] * speed
        waited = sum(3.0 for _ in range(int(cpu / 3) + 1) if self.rng.random() < self.load)
        unseen = self.rng.expovariate(1 / self.hidden) if self.hidden else 0.0
        wall = cpu / cpus + side[1] + waited / cpus + unseen
        return Slot(round(wall * MS), round(cpu * MS), waited_ns=round(waited * MS))

    def judged(
        self, a: tuple[float, float], b: tuple[float, float], rules: Rules | None = None, *, cpus: int = 1
    ):
        rules = rules or Rules()
        pairs: list[Pair] = []
        while True:
            pairs.append(self.pair(a, b, number=len(pairs), cpus=cpus))
            if len(pairs) in rules.looks:
                found = judge(pairs, rules)
                if found.verdict:
                    return found


def test_a_sleep_added_to_four_milliseconds_of_work_is_not_called_the_same():
    for seed in range(10):
        found = Machine(seed).judged((4.0, 0.0), (4.0, 0.4))
        assert (found.verdict, found.changed, found.clock) == (Verdict.SLOWER, "waiting", "wall")
        assert not found.on("cpu").is_different
        assert found.change == pytest.approx(0.1, abs=0.02)


def test_the_added_sleep_is_seen_on_a_loaded_machine_too():
    for seed in range(10):
        found = Machine(seed, load=0.5).judged((4.0, 0.0), (4.0, 0.4))
        assert (found.verdict, found.changed) == (Verdict.SLOWER, "waiting")


def test_a_sleep_that_was_taken_out_is_faster_by_waiting():
    found = Machine(1).judged((4.0, 0.4), (4.0, 0.0))
    assert (found.verdict, found.changed) == (Verdict.FASTER, "waiting")


def test_a_parallel_speed_up_is_seen():
    for seed in range(5):
        found = Machine(seed).judged((6.0, 0.0), (6.0, 0.0), cpus=2)
        assert (found.verdict, found.changed, found.clock) == (Verdict.FASTER, "waiting", "wall")
        assert found.parallel
        assert found.change == pytest.approx(-0.5, abs=0.05)
        assert found.on("cpu").is_alike


def test_a_parallel_version_that_computes_more_and_takes_less_time_is_faster():
    found = Machine(2).judged((6.0, 0.0), (6.6, 0.0), cpus=2)
    assert found.verdict is Verdict.FASTER
    assert found.on("cpu").verdict is Verdict.SLOWER


def test_a_parallel_version_whose_time_is_unclear_is_not_called_slower_for_computing_more():
    found = Machine(3, others=0.6).judged((6.0, 0.0), (6.6, 0.0), cpus=2)
    assert found.on("cpu").verdict is Verdict.SLOWER
    assert found.on("wall").verdict is Verdict.INCONCLUSIVE
    assert (found.verdict, found.changed) == (Verdict.INCONCLUSIVE, "")


def test_parallel_code_on_a_loaded_machine_is_judged_on_its_computing_alone():
    rules = Rules()
    for b, verdict in ((6.0, Verdict.SAME_COMPUTING), (6.3, Verdict.SLOWER), (5.7, Verdict.INCONCLUSIVE)):
        machine = Machine(3, others=0.6)
        pairs = [crowded(machine, b, number) for number in range(20)]
        assert judge(pairs, rules).verdict is verdict


def test_load_does_not_widen_the_margin_of_parallel_code():
    waiting = Slot(40 * MS, 10 * MS, waited_ns=70 * MS)
    found = judge([pair(waiting, waiting, number) for number in range(6)], Rules())
    assert found.parallel
    assert found.on("cpu").margin == pytest.approx(0.01)


def crowded(machine: Machine, b: float, number: int) -> Pair:
    """Both sides have two threads, and other programs make the wall time of B half as long again."""
    a_slots, b_slots = ([machine.slot((work, 0.0), 2) for _ in range(7)] for work in (6.0, b))
    late = tuple(replace(slot, wall_ns=slot.wall_ns * 3 // 2) for slot in b_slots)
    schedule = Schedule(loops=1, warmup=1, kept=6)
    return Pair(number=number, schedule=schedule, a=tuple(a_slots), b=late, others=machine.others)


def test_identical_code_is_the_same_on_both_clocks():
    found = Machine(4).judged((4.0, 1.0), (4.0, 1.0))
    assert (found.verdict, found.changed) == (Verdict.SAME, "")
    assert [each.verdict for each in found.clocks] == [Verdict.SAME, Verdict.SAME]
    assert [each.clock for each in found.clocks] == ["cpu", "wall"]


def test_waiting_that_load_leaves_unclear_is_not_called_the_same():
    for seed in range(10):
        found = Machine(seed, hidden=4.0).judged((4.0, 0.0), (4.0, 0.0))
        assert found.verdict is Verdict.SAME_COMPUTING
        assert found.clock == "cpu"
        assert found.on("wall").verdict is Verdict.INCONCLUSIVE


def test_more_computing_is_slower_even_where_waiting_is_unclear():
    for seed in range(10):
        found = Machine(seed, hidden=4.0).judged((6.0, 0.0), (6.3, 0.0))
        assert (found.verdict, found.changed, found.clock) == (Verdict.SLOWER, "computing", "cpu")


def test_less_computing_is_not_called_faster_where_waiting_is_unclear():
    found = Machine(5, hidden=4.0).judged((6.0, 0.0), (5.7, 0.0))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert Machine(5).judged((6.0, 0.0), (5.7, 0.0)).verdict is Verdict.FASTER


def test_work_that_became_waiting_is_told_as_it_is():
    found = Machine(6).judged((6.0, 0.0), (4.0, 4.0))
    assert (found.verdict, found.changed) == (Verdict.SLOWER, "both")
    assert found.on("cpu").verdict is Verdict.FASTER


def test_computing_that_nobody_waits_for_is_told_as_computing():
    found = Machine(7).judged((6.0, 1.0), (6.6, 0.4))
    assert (found.verdict, found.changed, found.clock) == (Verdict.SLOWER, "computing", "cpu")
    assert not found.on("wall").is_different


def test_computing_counts_by_what_it_adds_to_the_time():
    found = Machine(8).judged((0.2, 10.0), (0.21, 10.0))
    assert found.verdict in {Verdict.SAME, Verdict.SMALL}
    assert found.on("cpu").margin == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("load", "hidden"), [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0)])
def test_identical_code_is_seldom_called_different(load, hidden):
    wrong = sum(
        Machine(seed, load=load, hidden=hidden).judged((6.0, 0.5), (6.0, 0.5)).verdict in DIFFERENT
        for seed in range(40)
    )
    assert wrong <= 1


def test_five_per_cent_of_computing_is_found_whatever_the_waiting():
    found = [
        Machine(seed, load=0.5, hidden=1.0, spread=0.015).judged((6.0, 0.5), (6.3, 0.5)).verdict
        for seed in range(20)
    ]
    assert found.count(Verdict.SLOWER) >= 18


def pair(a: Slot, b: Slot, number: int = 0) -> Pair:
    return Pair(number=number, schedule=Schedule(loops=1, warmup=1, kept=4), a=(a,) * 5, b=(b,) * 5)


def test_waiting_behind_other_programs_is_not_the_codes_own():
    assert Slot(700, 200, waited_ns=500).elapsed_ns == 200
    assert Slot(700, 200, waited_ns=400).elapsed_ns == 300
    assert busy_shares([pair(Slot(700, 200, waited_ns=500), Slot(300, 200))], parallel=False) == (
        pytest.approx(1.0),
        pytest.approx(2 / 3),
    )


def test_a_delay_that_two_tasks_had_at_once_is_taken_out_once():
    assert Slot(700, 300, waited_ns=800).elapsed_ns == 300


def test_code_whose_tasks_want_a_cpu_at_once_runs_in_parallel():
    alone, two_cpus, one_cpu = Slot(2 * MS, 2 * MS), Slot(MS, 2 * MS), Slot(2 * MS, 2 * MS, waited_ns=2 * MS)
    assert in_parallel([pair(alone, two_cpus)]) == (False, True)
    assert in_parallel([pair(one_cpu, alone)]) == (True, False)
    assert in_parallel([pair(alone, Slot(9 * MS, 2 * MS, waited_ns=6 * MS))]) == (False, False)


def test_reading_the_clocks_of_a_very_short_slot_does_not_look_like_a_second_thread():
    assert in_parallel([pair(Slot(16_000, 18_000), Slot(1_000, 2_000))]) == (False, False)


def test_without_the_kernels_word_the_undisturbed_slots_tell_what_the_code_does():
    computing = (Slot(100, 100),) * 2 + (Slot(250, 100),) * 3
    undisturbed = replace(pair(computing[0], computing[0]), a=computing, b=computing)
    assert busy_shares([undisturbed], parallel=False) == (1.0, 1.0)


def test_a_clock_that_stands_still_is_no_crash():
    found = judge([pair(Slot(0, 0), Slot(0, 0))] * 6, Rules())
    assert found.verdict is Verdict.SAME


def test_a_finding_is_confirmed_on_the_clock_that_led_it():
    waits = Machine(9).judged((4.0, 0.0), (4.0, 0.4))
    fresh = [Machine(10 + each).pair((4.0, 0.0), (4.0, 0.4), number=each) for each in range(4)]
    assert confirms(waits, fresh)
    less = [Machine(20 + each).pair((4.0, 0.4), (4.1, 0.0), number=each) for each in range(4)]
    assert not confirms(waits, less)


def test_a_that_waits_longer_than_itself_fails_the_check():
    machine, pairs = Machine(11), []
    for number in range(12):
        made = machine.pair((4.0, 0.0), (4.0, 0.0), number=number)
        pairs.append(replace(made, again=tuple(machine.slot((4.0, 0.5)) for _ in range(7))))
    assert not self_check(pairs, judge(pairs, Rules(looks=(12,))), Rules()).passed
    pairs = [machine.pair((4.0, 0.0), (4.0, 0.0), number=number) for number in range(12)]
    assert self_check(pairs, judge(pairs, Rules(looks=(12,))), Rules()).passed


def test_what_is_open_on_one_clock_says_how_many_pairs_it_needs():
    found = Machine(13, hidden=2.0).judged((4.0, 0.0), (4.0, 0.0))
    assert found.verdict is Verdict.SAME_COMPUTING
    assert found.pairs_needed == found.on("wall").pairs_needed


def recorded(name: str) -> list[Pair]:
    data = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return [Pair.from_mapping(each) for each in data["points"][0]["pairs_data"]]


def replayed(pairs: list[Pair]):
    main = [each for each in pairs if not each.confirms]
    for look in LOOKS:
        found = judge(main[:look], Rules(), final=look >= len(main))
        if found.verdict:
            return found
    raise AssertionError


RECORDINGS = {
    "identical-sort": {Verdict.SAME},
    "identical-json": {Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.SAME_COMPUTING},
    "slower-5-sort": {Verdict.SLOWER},
    "slower-5-json": {Verdict.SLOWER},
    "slower-2-sort": {Verdict.SLOWER},
    "slower-2-json": {Verdict.SLOWER},
    "sleeping": {Verdict.SAME},
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_pairs_of_a_loaded_machine_are_judged_as_they_should_be(name):
    assert replayed(recorded(name)).verdict in RECORDINGS[name]


@pytest.mark.parametrize("name", ["identical-sort", "identical-json", "slower-2-json"])
def test_recorded_computing_code_is_led_by_the_cpu_clock(name):
    found = replayed(recorded(name))
    assert found.clock == "cpu"
    assert not found.parallel


def test_recorded_sleeping_code_is_led_by_the_wall_clock():
    found = replayed(recorded("sleeping"))
    assert found.clock == "wall"
    assert found.busy < 0.5


def test_the_recorded_a_a_pairs_pass():
    for name in ("identical-sort", "slower-5-json", "sleeping"):
        pairs = recorded(name)
        assert self_check(pairs, judge(pairs, Rules(), final=True), Rules()).passed
        assert sum(bool(each.again) for each in pairs) >= 2
