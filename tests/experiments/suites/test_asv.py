from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.suites import asv, asv_case
from proctor.experiments.suites.asv_benchmark import AsvBenchmark
from proctor.experiments.suites.listing import list_asv

LISTS = """
import os


def setup(*args):
    COUNTED.append("module")


COUNTED = []


class Lists:
    params = [[10, 20], ["up", sorted]]
    param_names = ["n"]
    number = 2
    repeat = 5

    def setup(self, n, order):
        if n == 20 and order == "up":
            raise NotImplementedError("not for twenty")
        self.items = list(range(n))
        COUNTED.append("class")

    def time_pop(self, n, order):
        self.items.pop()

    def teardown(self, n, order):
        COUNTED.append("gone")


class Values:
    def setup_cache(self):
        with open("written", "w") as file:
            file.write("x")
        return {"made": os.getpid()}

    def track_made(self, cache):
        assert os.path.exists("written")
        return cache["made"]

    track_made.unit = "pid"

    def mem_list(self, cache):
        return [bytes(1000), bytes(2000)]

    def peakmem_list(self, cache):
        return bytes(1000)


def time_nothing():
    pass


def timeraw_import():
    return "import json", "import sys"


def timeraw_failing():
    return "1 / 0"


def helper():
    pass


class _Hidden:
    def time_hidden(self):
        pass
"""


@pytest.fixture
def suite(tmp_path: Path):
    before = set(sys.modules)
    here = Path.cwd()
    folder = tmp_path / "asv_bench_made"
    (folder / "deeper").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "lists.py").write_text(LISTS)
    (folder / "broken.py").write_text("import no_such_module_at_all\n")
    (folder / "deeper" / "__init__.py").write_text("")
    (folder / "deeper" / "more.py").write_text("def time_more():\n    pass\n")
    (tmp_path / "asv.conf.json").write_text('{\n  // comment\n  "benchmark_dir": "asv_bench_made",\n}\n')
    yield folder
    os.chdir(here)
    for name in set(sys.modules) - before:
        if name.startswith("asv_bench_made"):
            del sys.modules[name]


def made(suite: Path, name: str, case: str = "") -> tuple[AsvBenchmark, ExperimentContext]:
    experiment = AsvBenchmark({"suite": suite.name, "name": name, "case": case})
    context = ExperimentContext(run_dir=suite.parent / "run", extras={"project": str(suite.parent)})
    return experiment, context


def test_a_suite_is_found_by_its_folder_its_file_and_its_configuration(suite):
    assert asv.find_suite(str(suite)) == (str(suite), None)
    assert asv.find_suite(str(suite.parent)) == (str(suite), None)
    assert asv.find_suite(str(suite.parent / "asv.conf.json")) == (str(suite), None)
    assert asv.find_suite(str(suite / "deeper" / "more.py")) == (str(suite), "deeper.more")


def test_a_listing_names_every_case_and_what_could_not_be_imported(suite):
    listed = list_asv(str(suite.parent), [str(suite)])
    names = {each["name"] for each in listed["found"]}
    assert names == {
        *("lists.Lists.time_pop", "lists.Values.track_made", "lists.Values.mem_list"),
        *("lists.Values.peakmem_list", "lists.time_nothing", "lists.timeraw_import"),
        *("lists.timeraw_failing", "deeper.more.time_more"),
    }
    pops = [each for each in listed["found"] if each["name"] == "lists.Lists.time_pop"]
    cases = [each["case"] for each in pops]
    assert cases == ["n=10, param2='up'", "n=10, param2=sorted", "n=20, param2='up'", "n=20, param2=sorted"]
    assert pops[0]["not_used"] == ["repeat"]
    assert listed["broken"] == [["broken", "ModuleNotFoundError: No module named 'no_such_module_at_all'"]]


def test_a_benchmark_with_a_number_is_set_up_anew_before_each_slot(suite):
    experiment, context = made(suite, "lists.Lists.time_pop", "n=10, param2=sorted")
    experiment.setup(context)
    assert experiment.slot_calls == 2
    for _ in range(3):
        experiment.before_slot(context)
        for _ in range(experiment.slot_calls):
            experiment.execute_once(context)
    experiment.teardown(context)
    counted = sys.modules["asv_bench_made.lists"].COUNTED
    assert counted == ["module", "class", *["gone", "module", "class"] * 3, "gone"]


def test_a_case_that_the_suite_leaves_out_says_so(suite):
    experiment, context = made(suite, "lists.Lists.time_pop", "n=20, param2='up'")
    with pytest.raises(asv_case.SkippedError, match="not for twenty"):
        experiment.setup(context)


def test_what_setup_cache_made_is_shared_between_processes(suite, monkeypatch, tmp_path):
    monkeypatch.setenv(asv_case.CACHE, str(tmp_path / "cache"))
    experiment, context = made(suite, "lists.Values.track_made")
    experiment.setup(context)
    assert experiment.execute_once(context) == {"value": os.getpid()}
    assert experiment.reader_notes == ("unit of value: pid",)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    again, context = made(suite, "lists.Values.track_made")
    again.setup(context)
    assert again.execute_once(context)["value"] > 0


def test_without_a_shared_folder_setup_cache_is_made_anew(suite, monkeypatch):
    monkeypatch.delenv(asv_case.CACHE, raising=False)
    experiment, context = made(suite, "lists.Values.mem_list")
    experiment.setup(context)
    assert 3000 < experiment.execute_once(context)["size_bytes"] < 3500


def test_peak_memory_is_that_of_the_process(suite):
    experiment, context = made(suite, "lists.Values.peakmem_list")
    experiment.setup(context)
    assert experiment.execute_once(context)["peak_rss_bytes"] > 1 << 20


def test_raw_code_runs_in_an_interpreter_of_its_own(suite):
    experiment, context = made(suite, "lists.timeraw_import")
    experiment.setup(context)
    assert experiment.execute_once(context) is None
    assert "interpreter's start included" in experiment.reader_notes[0]
    failing, context = made(suite, "lists.timeraw_failing")
    failing.setup(context)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        failing.execute_once(context)


def test_a_benchmark_that_is_gone_is_named(suite):
    for name, case, said in (
        ("lists.time_gone", "", "has no benchmark lists.time_gone"),
        ("lists.time_nothing", "n=1", "has no case n=1"),
    ):
        experiment, context = made(suite, name, case)
        with pytest.raises(LookupError, match=said):
            experiment.setup(context)
        experiment.teardown(context)


def test_a_plain_benchmark_is_called_with_nothing_else(suite):
    experiment, context = made(suite, "deeper.more.time_more")
    experiment.setup(context)
    assert (experiment.slot_calls, experiment.before_slot) == (0, None)
    assert experiment.execute_once(context) is None
    assert experiment.label_of(experiment.params) == "deeper.more.time_more"


def test_the_suite_limits_how_long_its_setup_may_take():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeoutError, match=r"took more than the 0\.01 s"), asv_case.limit(0.01, "setup"):
        signal.pause()
    assert signal.getsignal(signal.SIGALRM) is before


def test_values_that_look_alike_get_a_number():
    first, second = object(), object()
    assert asv._texts([first, second]) == ["object#0", "object#1"]
    assert asv._texts(["x" * 100])[0].endswith("…")
