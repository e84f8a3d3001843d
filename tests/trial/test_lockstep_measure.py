from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.analysis.both_clocks import busy_shares
from proctor.errors import SideError
from proctor.model.lockstep import AT_ONCE, Calibration, ProcessLayout, Schedule
from proctor.processes import marked
from proctor.trial.lockstep import process
from proctor.trial.lockstep.measure import (
    KEPT,
    ProbedSide,
    Turn,
    measure_pair,
    plan_slots,
    probe,
    turns,
)
from proctor.trial.lockstep.process import Side, Worker, environment, gather

HERE = Path(__file__).parent
SHORT = Calibration(schedule=Schedule(loops=2, warmup=1, kept=6), call_wall_s=1e-6, call_cpu_s=1e-6)


def side(slug: str = "well_behaved", *, name: str = "A", **params: object) -> Side:
    return Side(
        name=name,
        label=name.lower(),
        python=sys.executable,
        root=str(HERE),
        slug=slug,
        cwd=str(HERE),
        file=str(HERE / "lockstep_experiments.py"),
        params=params,
    )


def measured(a: Side, b: Side, *, turn: Turn | None = None, timeout_s: float = 30.0):
    turn = turn or Turn(number=0, cpu=None)
    return measure_pair(a, b, turn, SHORT, rng=random.Random(1), timeout_s=timeout_s)


def probed(a: Side, *, cpu: int | None = None) -> ProbedSide:
    return probe(a, cpu=cpu, rng=random.Random(1))


def wait_until_gone(entry: str, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while marked(entry):
        assert time.monotonic() < deadline, f"still running: {marked(entry)}"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An entry in the environment of every process that the test starts."""
    value = f"{os.getpid()}-{abs(hash(request.node.name))}"
    monkeypatch.setenv("LOCKSTEP_TEST", value)
    return f"LOCKSTEP_TEST={value}"


def test_a_pair_has_every_slot_of_both_sides_and_leaves_nothing(mark):
    pair = measured(side(), side(name="B"), turn=Turn(number=3, cpu=min(os.sched_getaffinity(0))))
    assert (pair.number, len(pair.a), len(pair.b), pair.again) == (3, 7, 7, ())
    assert Counter(pair.order) == {"a": 7, "b": 7}
    assert pair.cpu == min(os.sched_getaffinity(0))
    assert all(slot.cpu_ns > 0 for slot in (*pair.a, *pair.b))
    assert pair.cpu_s > 0
    assert marked(mark) == []


def test_a_second_a_takes_part_when_asked(mark):
    pair = measured(side(), side(name="B"), turn=Turn(number=1, cpu=None, again=True, confirms=True))
    assert len(pair.again) == 7
    assert Counter(pair.order) == {"a": 7, "b": 7, "c": 7}
    assert pair.cpu is None
    assert pair.confirms


def test_sleeping_code_is_recognised():
    pair = measured(side("sleeps"), side("sleeps", name="B"))
    assert max(busy_shares([pair], parallel=False)) < 0.9
    assert all(slot.elapsed_ns >= 1_000_000 for slot in pair.a)


def test_the_cpu_time_and_the_waiting_of_children_are_counted():
    pair = measured(side("starts_a_child"), side("starts_a_child", name="B"))
    assert all(slot.children_ns > 0 for slot in (*pair.a, *pair.b))
    assert all(slot.cpu_ns > slot.children_ns for slot in pair.a)
    assert 0 <= pair.others <= 1


def test_threads_that_compute_at_once_are_told_by_the_probe():
    found = probed(side("two_threads"), cpu=min(os.sched_getaffinity(0))).calibration
    assert found.at_once > AT_ONCE
    found = probed(side("starts_a_child"), cpu=min(os.sched_getaffinity(0))).calibration
    assert found.at_once <= AT_ONCE


def test_a_probe_tells_how_long_a_call_is():
    found = probed(side(n=20_000)).calibration
    assert found.schedule.loops == 1
    assert found.call_cpu_s > 1e-5
    short = probed(side(n=10)).calibration
    assert short.schedule.loops > 10


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "execute_once raised ValueError: out of order"),
        ("exit", "ended with exit code 3"),
        ("segfault", "was ended by SIGSEGV"),
        ("hang", "did not end within"),
    ],
)
def test_a_side_that_misbehaves_in_the_middle_is_named_and_cleaned_up(mark, how, said):
    bad = side("misbehaves", name="B", how=how, call=4)
    with pytest.raises(SideError, match=said) as caught:
        measured(side(), bad, timeout_s=3.0 if how == "hang" else 30.0)
    assert "side B (b)" in str(caught.value)
    if how == "exit":
        assert "going now" in str(caught.value)
    wait_until_gone(mark)


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_a_raising_phase_is_named(mark, phase):
    with pytest.raises(SideError, match=f"side A .*{phase} raised ValueError"):
        measured(side("misbehaves", phase=phase), side(name="B"))
    assert marked(mark) == []


def test_a_hang_in_setup_ends_at_the_time_limit(mark):
    with pytest.raises(SideError, match="loading or its first call did not end within 1 s"):
        measured(side("misbehaves", phase="setup", how="hang"), side(name="B"), timeout_s=1.0)
    wait_until_gone(mark)


def test_what_an_experiment_left_running_is_ended(mark):
    measured(side("misbehaves", how="leave a child", call=10), side(name="B"))
    wait_until_gone(mark)


def test_a_wrong_parameter_is_one_sentence_without_a_traceback():
    with pytest.raises(SideError) as caught:
        probed(side(m=3))
    assert "'m' is not a parameter" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_an_interpreter_that_cannot_start_is_named():
    with pytest.raises(SideError, match="/nowhere/python cannot be started"):
        probed(replace(side(), python="/nowhere/python"))


def test_code_from_the_wrong_folder_is_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mylib_y.py").write_text("")
    (tmp_path / "experiment.py").write_text(
        (HERE / "lockstep_experiments.py").read_text() + "\nimport mylib_y\n"
    )
    wrong = replace(
        side(),
        root=str(tmp_path / "a"),
        foreign=(str(tmp_path / "b"),),
        path=(str(tmp_path / "b"),),
        file=str(tmp_path / "experiment.py"),
    )
    with pytest.raises(SideError, match=r"module 'mylib_y' was imported from .*b/mylib_y\.py"):
        probed(wrong)
    probed(replace(wrong, path=(str(tmp_path / "a"),)))


def test_workers_of_a_killed_parent_end_even_inside_a_hanging_call(tmp_path, mark):
    note = tmp_path / "pid"
    script = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(HERE)!r})
        from test_lockstep_measure import side
        from proctor.model.lockstep import ProcessLayout
        from proctor.trial.lockstep.process import Worker
        worker = Worker(side("misbehaves", how="hang", note={str(note)!r}), ProcessLayout())
        worker.process.wait()
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < deadline
        assert parent.poll() is None
    parent.kill()
    parent.wait()
    wait_until_gone(mark)


def test_a_worker_that_will_not_leave_is_ended(mark, monkeypatch):
    monkeypatch.setattr(process, "_EXIT_GRACE_S", 0.2)
    slow = side("misbehaves", phase="teardown", how="hang")
    with closing(Worker(slow, ProcessLayout())) as worker:
        gather([worker], timeout_s=30, doing="loading")
    assert marked(mark) == []


def test_workers_that_lost_each_other_are_an_error(monkeypatch):
    class Lost:
        side = side()

        def receive(self) -> dict:
            return {"abandoned": True}

    monkeypatch.setattr(process, "wait_for", lambda workers, _timeout: list(workers))
    with pytest.raises(SideError, match="lost contact"):
        gather([Lost()], timeout_s=1, doing="waiting")  # type: ignore[list-item]


def test_the_order_is_balanced_and_differs_from_pair_to_pair():
    schedule = Schedule(loops=1, warmup=2, kept=20)
    orders = [turns(schedule, 2, random.Random(seed)) for seed in range(3)]
    for order in orders:
        rounds = [tuple(order[at : at + 2]) for at in range(0, len(order), 2)]
        assert Counter(rounds) == {(0, 1): 11, (1, 0): 11}
    assert len({tuple(order) for order in orders}) == 3


def test_three_workers_take_every_place_in_turn():
    order = turns(Schedule(loops=1, warmup=0, kept=60), 3, random.Random(1))
    rounds = Counter(tuple(order[at : at + 3]) for at in range(0, len(order), 3))
    assert set(rounds.values()) == {10}
    assert len(rounds) == 6


@pytest.mark.parametrize(
    ("call_s", "loops", "kept", "lead"),
    [
        (1e-5, 20, KEPT, 1),
        (0.0004, 1, 62, 1),
        (0.001, 1, 50, 0),
        (0.005, 1, 20, 0),
        (0.02, 1, 5, 0),
        (1, 1, 5, 0),
    ],
)
def test_long_calls_get_fewer_slots_and_no_lead(call_s, loops, kept, lead):
    schedule = plan_slots(call_s, loops)
    assert (schedule.kept, schedule.lead) == (kept, lead)
    assert 1 <= schedule.warmup <= kept


def test_deliberate_slowness_reaches_the_worker_as_calls_and_a_fraction(monkeypatch):
    sent = []
    real = Worker.send
    monkeypatch.setattr(Worker, "send", lambda self, order: (sent.append(order), real(self, order))[1])
    measured(side(), replace(side(name="B"), slow=0.75))
    extra = sorted((each["extra_calls"], each["spun_calls"]) for each in sent if each.get("do") == "turns")
    assert extra == [(0, 0.0), (1, 0.5)]


def test_both_sides_share_the_hash_seed_and_import_from_their_own_folders():
    base = {"PATH": "/bin", "PYTHONPATH": "/other", "PYTHONHASHSEED": "0"}
    env = environment(replace(side(), path=("/x/src", "/y")), ProcessLayout(hash_seed=42), base)
    assert env == {"PATH": "/bin", "PYTHONPATH": "/x/src:/y", "PYTHONHASHSEED": "42"}
    assert "PYTHONPATH" not in environment(side(), ProcessLayout(), base)


def test_an_interrupt_while_waiting_leaves_nothing(mark):
    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            measured(side("misbehaves", how="hang"), side(name="B"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert marked(mark) == []
