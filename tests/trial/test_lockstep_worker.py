from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import marshal
import os
import random
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.trial.lockstep import worker
from proctor.trial.lockstep.reads import strangers

HERE = Path(__file__).parent
_FDS: list[int] = []
"""Opened by a test and closed after it."""
EXPERIMENTS = HERE / "lockstep_experiments.py"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch):
    """What a worker does to its process is undone here: it is meant to have one of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "pycache_prefix", sys.pycache_prefix)
    folder, state = Path.cwd(), random.getstate()
    yield
    os.chdir(folder)
    random.setstate(state)
    while _FDS:
        with contextlib.suppress(OSError):
            os.close(_FDS.pop())
    gc.unfreeze()
    gc.enable()


def running(call, **more) -> SimpleNamespace:
    """An experiment that calls this."""
    return SimpleNamespace(execute_once=call, **more)


def job(tmp_path: Path, **changes) -> dict:
    return {
        "slug": "well_behaved",
        "root": str(tmp_path),
        "cwd": str(tmp_path),
        "file": str(EXPERIMENTS),
        "module": "",
        "sources": [],
        "params": {},
        "seed": 7,
        "pycache": "",
        "own_pycache": "",
        "heap_seed": None,
        "recipe": "",
        "proctor": str(Path(worker.__file__).parents[2]),
        "run_dir": str(tmp_path),
        "run_id": "ab-a",
        **changes,
    }


def run_worker(*orders: object) -> tuple[int, list[dict]]:
    """A worker's whole life inside this process, with its orders given in advance."""
    order_reader, order_writer = os.pipe()
    answer_reader, answer_writer = os.pipe()
    with os.fdopen(order_writer, "w") as file:
        file.writelines(marshal.dumps(order).hex() + "\n" for order in orders)
    code = worker.main(order_reader, answer_writer)
    with os.fdopen(answer_reader) as file:
        return code, [ast.literal_eval(line) for line in file]


def nothing() -> int:
    _FDS.append(os.open(os.devnull, os.O_RDONLY))
    return _FDS[-1]


def pipe() -> tuple[int, int]:
    ends = os.pipe()
    _FDS.extend(ends)
    return ends


def probe_order(**changes) -> dict:
    return {"do": "probe", "cpu": None, "gc": False, "slot_ns": 200_000, **changes}


def turns_order(**changes) -> dict:
    return {
        "do": "turns",
        "me": 0,
        "cpu": None,
        "gc": False,
        "schedule": [0, 0, 0],
        "loops": 4,
        "lead": 1,
        "extra_calls": 0,
        "spun_calls": 0.0,
        "warmup": 1,
        "my_turn": nothing(),
        "turns": [],
        **changes,
    }


class Counting:
    """A function that knows how often it was called."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.calls = 0
        self.pause_s = pause_s

    def __call__(self, _context: object) -> None:
        self.calls += 1
        if self.pause_s:
            time.sleep(self.pause_s)


def test_a_probe_fits_the_calls_of_a_slot_to_its_length(tmp_path):
    code, answers = run_worker(job(tmp_path), probe_order())
    assert code == 0
    assert answers[0]["ready"]
    result = answers[1]["result"]
    assert result["loops"] > 1
    assert not result["pinned"]
    assert len(result["slot"]) == 7


def test_turns_give_one_row_each_and_tear_down_at_the_end(tmp_path):
    note = tmp_path / "note"
    params = {"phase": "never", "note": str(note)}
    code, answers = run_worker(job(tmp_path, slug="misbehaves", params=params), turns_order())
    assert code == 0
    assert len(answers[1]["result"]["slots"]) == 3
    assert answers[1]["result"]["peak_rss_bytes"] > 1_000_000
    assert note.read_text() == "torn down"


def test_without_a_further_order_the_worker_tears_down_and_leaves(tmp_path):
    note = tmp_path / "note"
    code, answers = run_worker(job(tmp_path, slug="misbehaves", params={"phase": "never", "note": str(note)}))
    assert (code, answers[-1]) == (0, {"result": {}})
    assert note.exists()


@pytest.mark.parametrize("phase", ["setup", "execute_once", "teardown"])
def test_a_raising_phase_is_told_with_its_traceback(tmp_path, phase):
    note = tmp_path / "note"
    params = {"phase": phase, "note": str(note)}
    code, answers = run_worker(job(tmp_path, slug="misbehaves", params=params), turns_order())
    failure = answers[-1]["failure"]
    assert code == 1
    assert (failure["phase"], failure["type"], failure["message"]) == (phase, "ValueError", "out of order")
    assert "lockstep_experiments.py" in failure["traceback"]
    assert note.read_text() == "torn down"


def test_a_teardown_that_fails_as_well_does_not_hide_the_first_failure(tmp_path, monkeypatch, capsys):
    class Broken:
        def setup(self, context):
            raise ValueError("first")

        def teardown(self, context):
            raise ValueError("second")

    monkeypatch.setattr(worker, "load", lambda job, seeds: (Broken(), None, ""))
    _, answers = run_worker(job(tmp_path))
    assert answers[-1]["failure"]["message"] == "first"
    assert "second" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slug": "well_behavd"}, "did you mean 'well_behaved'"),
        ({"params": {"m": 1}}, "'m' is not a parameter"),
        ({"cwd": "/nowhere/at/all"}, "No such file"),
    ],
)
def test_what_cannot_be_loaded_is_told(tmp_path, changes, said):
    code, answers = run_worker(job(tmp_path, sources=[str(EXPERIMENTS)], **changes))
    assert code == 1
    assert answers[0]["failure"]["phase"] == "load"
    assert said in answers[0]["failure"]["message"]


def test_an_experiment_is_found_by_its_module_or_by_searching(tmp_path):
    built_in = {"slug": "pragma_profile", "file": "", "module": "proctor.experiments.database.pragma_profile"}
    found, context, _ = worker.load(job(tmp_path, **built_in), worker.Seeds(7))
    assert type(found).__module__ == "proctor.experiments.database.pragma_profile"
    assert (context.seed, context.run_id) == (7, "ab-a")
    sources = [str(HERE / "lockstep_experiments.py")]
    searched, _, _ = worker.load(job(tmp_path, file="", sources=sources), worker.Seeds(7))
    assert searched.n == 50


def test_random_numbers_start_from_the_seed(tmp_path):
    worker.load(job(tmp_path), worker.Seeds(7))
    first = random.random()
    worker.load(job(tmp_path), worker.Seeds(7))
    assert random.random() == first


def test_a_generator_that_is_loaded_late_is_seeded_late_and_only_once(monkeypatch):
    monkeypatch.delitem(sys.modules, "random")
    seeds = worker.Seeds(7)
    seeds.sow()
    assert "random" in seeds.left
    monkeypatch.setitem(sys.modules, "random", random)
    seeds.sow()
    first = random.random()
    seeds.sow()
    second = random.random()
    assert [first, second] == [(same := random.Random(7)).random(), same.random()]


def test_a_generator_is_seeded_as_soon_as_it_is_imported_and_nothing_is_left_behind(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("def manual_seed(seed):\n    global seeded\n    seeded = seed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    finders = list(sys.meta_path)
    seeds = worker.Seeds(2**40 + 7)
    seeds.watch()
    try:
        torch = importlib.import_module("torch")
        assert torch.seeded == 7
        assert importlib.reload(torch).__spec__.loader.exec_module.__self__ is torch.__spec__.loader
    finally:
        seeds.close()
        sys.modules.pop("torch", None)
    seeds.close()
    assert sys.meta_path == finders


@pytest.mark.parametrize(
    "found",
    [
        {"file": str(EXPERIMENTS)},
        {"file": "", "module": "lockstep_experiments"},
        {"file": "", "module": "", "sources": [str(EXPERIMENTS)]},
    ],
)
def test_the_recipe_of_one_worker_makes_the_same_experiment_in_the_next(tmp_path, found):
    sys.path.append(str(HERE))
    first, _, recipe = worker.load(job(tmp_path, **found), worker.Seeds(7))
    assert bool(recipe) == bool(found["file"] or found["module"])
    again, context, same = worker.load(job(tmp_path, **found, recipe=recipe), worker.Seeds(7))
    assert (type(again).__qualname__, again.params, same) == (type(first).__qualname__, first.params, recipe)
    assert context.run_dir == tmp_path


def test_bytecode_goes_where_it_was_asked_to(tmp_path):
    worker.load(job(tmp_path, pycache=str(tmp_path / "pyc")), worker.Seeds(7))
    assert sys.pycache_prefix == str(tmp_path / "pyc")


def test_a_side_without_proctor_gets_the_one_that_started_it(monkeypatch):
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "proctor"}
    for name in kept:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    worker.provide_proctor(str(Path(worker.__file__).parents[2]))
    assert sys.modules["proctor"] is not kept["proctor"]
    assert "Experiment" in sys.modules["proctor"].__all__


def fake_module(monkeypatch, name: str, file: Path) -> None:
    module = types.ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)


def test_code_of_the_other_side_is_noticed(tmp_path, monkeypatch):
    mine, theirs = tmp_path / "a", tmp_path / "b"
    fake_module(monkeypatch, "mylib_x", theirs / "mylib_x.py")
    assert strangers([str(mine)], [str(theirs)], []) == [["mylib_x", str(theirs / "mylib_x.py")]]
    assert strangers([str(mine)], [str(theirs)], [str(theirs)]) == []
    assert strangers([str(theirs)], [str(mine)], []) == []


def test_an_installed_copy_of_the_project_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "src" / "mylib_x").mkdir(parents=True)
    (tmp_path / "src" / "mylib_x" / "__init__.py").write_text("")
    fake_module(monkeypatch, "mylib_x", Path("/installed/mylib_x/__init__.py"))
    assert [name for name, _ in strangers([str(tmp_path)], [], [])] == ["mylib_x"]


def test_a_slot_makes_its_calls_and_its_lead_is_not_counted():
    call = Counting()
    wall, cpu, *counters = worker.Clocks().slot(call, None, 5, lead=2)
    assert call.calls == 7
    assert wall > 0
    assert cpu > 0
    assert len(counters) == 5


def test_a_spin_takes_cpu_time():
    plain = min(worker.Clocks().slot(Counting(), None, 1)[1] for _ in range(3))
    assert worker.Clocks().slot(Counting(), None, 1, spins=50_000)[1] > plain


def test_a_machine_without_scheduler_statistics_still_measures(monkeypatch):
    real = os.open

    def refuse(path, *rest):
        if "schedstat" in str(path):
            raise FileNotFoundError(path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    assert worker.Clocks().slot(Counting(), None, 1)[5] == 0


def test_unreadable_scheduler_statistics_count_as_none(monkeypatch):
    clocks = worker.Clocks()
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    assert clocks.slot(Counting(), None, 1)[5] == 0


def test_code_that_waits_is_calibrated_on_the_wall_clock():
    call = Counting(pause_s=0.001)
    result = worker.probe(running(call), None, {"slot_ns": 200_000})
    assert result["loops"] == 1
    assert call.calls < 50


def test_a_worker_passes_the_turn_on_and_waits_for_its_own(tmp_path):
    mine, theirs = pipe(), pipe()
    os.write(mine[1], b".")
    order = turns_order(schedule=[0, 1, 0, 1], my_turn=mine[0], turns=[mine[1], theirs[1]])
    call = Counting()
    result = worker.take_turns(running(call), ExperimentContext(), order)
    assert len(result["slots"]) == 2
    assert os.read(theirs[0], 10) == b".."
    assert call.calls == 2 * (4 + 1)


def test_deliberate_slowness_is_more_calls():
    call = Counting()
    worker.take_turns(running(call), ExperimentContext(), turns_order(schedule=[0], lead=0, extra_calls=3))
    assert call.calls == 7


def test_slowness_of_less_than_a_call_is_a_spin_calibrated_in_the_warm_up():
    slowness = worker.Slowness(0.5, warmup=2)
    slowness.learn([1_000_000, 1_000_000, 0, 0, 0, 0], loops=1)
    assert slowness.spins == 0
    slowness.learn([1_000_000, 1_000_000, 0, 0, 0, 0], loops=1)
    assert slowness.spins > 0
    before = slowness.spins
    slowness.learn([9_000_000, 9_000_000, 0, 0, 0, 0], loops=1)
    assert slowness.spins == before
    none = worker.Slowness(0.0, warmup=1)
    none.learn([1_000_000, 1_000_000, 0, 0, 0, 0], loops=1)
    assert none.spins == 0


def test_a_worker_whose_partner_has_gone_says_only_that(tmp_path):
    gone = turns_order(me=0, schedule=[1, 0], turns=[0, 0])
    code, answers = run_worker(job(tmp_path), gone)
    assert (code, answers[-1]) == (1, {"abandoned": True})


def test_a_turn_that_nobody_can_take_means_the_partner_has_gone():
    reader, writer = pipe()
    os.close(reader)
    _FDS.remove(reader)
    order = turns_order(schedule=[0, 1], turns=[0, writer])
    with pytest.raises(worker.AbandonedError):
        worker.take_turns(running(Counting()), ExperimentContext(), order)


def test_garbage_is_collected_between_slots_not_inside():
    class Cyclic:
        def __init__(self):
            self.me = self

    def litter(_context: object) -> None:
        for _ in range(600):
            Cyclic()

    gc.disable()
    result = worker.take_turns(running(litter), ExperimentContext(), turns_order(loops=1, lead=0))
    assert result["collected"] > 0


def test_orders_decide_whether_the_collector_may_run(tmp_path):
    run_worker(job(tmp_path), turns_order(gc=True))
    assert gc.isenabled()
    run_worker(job(tmp_path), turns_order(gc=False))
    assert not gc.isenabled()


def test_pinning_is_tried_and_its_failure_is_no_failure(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: asked.append((pid, cpus)))
    assert worker.pin(1)
    assert (os.getpid(), {1}) in asked
    assert len(asked) == len(list(Path("/proc/self/task").iterdir()))
    assert not worker.pin(None)

    def refuse(pid, cpus):
        raise OSError("no")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert not worker.pin(1)
    monkeypatch.delattr(os, "sched_setaffinity")
    assert not worker.pin(1)


def test_an_experiment_that_prepares_each_slot_has_the_calls_it_asked_for_and_none_before_them():
    events: list[str] = []
    experiment = running(
        lambda _: events.append("call"), before_slot=lambda _: events.append("ready"), slot_calls=2
    )
    assert worker.probe(experiment, None, {"slot_ns": 200_000})["loops"] == 2
    events.clear()
    worker.take_turns(experiment, ExperimentContext(), turns_order(schedule=[0, 0], loops=2, lead=1))
    assert events == ["ready", "call", "call"] * 2
