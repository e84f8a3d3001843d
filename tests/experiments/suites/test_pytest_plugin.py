from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.suites.listing import list_pytest
from proctor.experiments.suites.pytest_benchmark import PytestBenchmark
from proctor.experiments.suites.pytest_plugin import AlreadyUsedError, UnusableError, arguments

TESTS = """
import pytest

EVENTS = []


@pytest.fixture
def alive(made_in_conftest):
    EVENTS.append("open")
    yield made_in_conftest
    EVENTS.append("closed")


@pytest.mark.benchmark(group="sums", min_rounds=3)
@pytest.mark.parametrize("n", [3, 5])
def test_sum(benchmark, alive, n):
    benchmark.extra_info["n"] = n
    result = benchmark(lambda values: EVENTS.append("called") or sum(values), range(n))
    assert result == sum(range(n))
    assert benchmark.stats is None
    assert (benchmark.group, benchmark.name) == ("sums", f"test_sum[{n}]")
    benchmark.extra_info["later"] = object


def test_pedantic(benchmark):
    def ready():
        EVENTS.append("ready")
        return ([1, 2],), {"start": 4}

    result = benchmark.pedantic(sum, setup=ready, teardown=lambda *a, **k: EVENTS.append("away"), rounds=9)
    assert result == 7


def test_plain_pedantic(benchmark):
    assert benchmark.pedantic(sum, args=([1],), iterations=3) == 1


def test_twice(benchmark):
    benchmark(int)
    benchmark(int)


def test_raises(benchmark):
    benchmark(lambda: 1 / 0)


def test_wrong(benchmark):
    assert benchmark(int) == 1


def test_never(benchmark):
    pass


def test_weaves(benchmark):
    benchmark.weave(int)


@pytest.mark.skip(reason="not today")
def test_skipped(benchmark):
    benchmark(int)


def test_skips_itself(benchmark):
    pytest.skip("no such machine")


def test_without():
    raise AssertionError("a test without the fixture is not run")
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    here, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    project = tmp_path / "project"
    (project / "bench").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "--benchmark-sort=name --benchmark-min-time=1"\n'
    )
    (project / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef made_in_conftest():\n    return 'made'\n"
    )
    (project / "bench" / "test_made_suite.py").write_text(TESTS)
    (project / "bench" / "test_made_broken.py").write_text("import no_such_module_at_all\n")
    yield project
    os.chdir(here)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "made_suite" in name or "made_broken" in name or name == "conftest":
            del sys.modules[name]
    importlib.invalidate_caches()


class Ran:
    """One test of the suite, measured by calling it three times."""

    def __init__(self, project: Path, test: str) -> None:
        self.experiment = PytestBenchmark({"file": "bench/test_made_suite.py", "test": test})
        self.context = ExperimentContext(run_dir=project / "run", extras={"project": str(project)})
        self.returned: list[object] = []
        self.events: list[str] = []

    def work(self) -> None:
        for _ in range(3):
            if self.experiment.before_slot:
                self.experiment.before_slot(self.context)
            self.returned.append(self.experiment.execute_once(self.context))

    def run(self) -> Ran:
        self.experiment.around_measuring(self.context, self.work)
        module = next(each for name, each in sys.modules.items() if name.endswith("test_made_suite"))
        self.events = list(module.EVENTS)
        return self


def test_a_listing_has_the_tests_that_use_the_fixture_and_runs_none(suite, tmp_path):
    listed = list_pytest(str(suite), [str(suite / "bench")], str(tmp_path / "cache"))
    names = [each["test"] for each in listed["found"]]
    assert names[:2] == ["test_sum[3]", "test_sum[5]"]
    assert "test_without" not in names
    first = listed["found"][0]
    assert (first["file"], first["group"]) == ("bench/test_made_suite.py", "sums")
    assert first["not_used"] == ["min_rounds"]
    assert listed["options"] == ["--benchmark-min-time"]
    assert {each["skip"] for each in listed["found"]} == {"", "not today"}
    ((where, error),) = listed["broken"]
    assert where.endswith("test_made_broken.py")
    assert "no_such_module_at_all" in error
    assert not (suite / ".pytest_cache").exists()


def test_a_test_is_measured_with_its_fixtures_alive_and_checks_its_result(suite):
    ran = Ran(suite, "test_sum[5]").run()
    assert ran.events == ["open", *["called"] * 4, "closed"]
    assert ran.returned == [{"extra_info": {"n": 5}}] * 3
    assert "later" in ran.experiment.reader_notes[0]
    assert ran.experiment.label_of(ran.experiment.params) == "bench/test_made_suite.py::test_sum[5]"


def test_setup_and_teardown_of_pedantic_go_around_each_slot(suite):
    ran = Ran(suite, "test_pedantic").run()
    assert ran.events == ["ready", "away"] * 4
    assert ran.experiment.slot_calls == 1
    assert ran.experiment.reader_notes == ("rounds and warmup_rounds of pedantic are not used",)


def test_iterations_of_pedantic_are_the_calls_of_a_slot(suite):
    ran = Ran(suite, "test_plain_pedantic").run()
    assert (ran.experiment.slot_calls, ran.experiment.before_slot) == (3, None)


@pytest.mark.parametrize(
    ("test", "error", "said"),
    [
        ("test_twice", AlreadyUsedError, "used twice"),
        ("test_raises", ZeroDivisionError, "division by zero"),
        ("test_wrong", AssertionError, "assert 0 == 1"),
        ("test_never", UnusableError, "without calling benchmark"),
        ("test_weaves", UnusableError, "weave is not supported"),
        ("test_skipped", UnusableError, "skipped: not today"),
        ("test_skips_itself", UnusableError, "skipped: no such machine"),
        ("test_gone", UnusableError, "pytest could not run"),
    ],
)
def test_what_goes_wrong_in_a_test_is_raised(suite, test, error, said):
    with pytest.raises(error, match=said):
        Ran(suite, test).run()


def test_what_pytest_itself_refuses_is_told(suite, tmp_path):
    listed = list_pytest(str(suite), ["--no-such-option"], str(tmp_path / "cache"))
    assert listed == {"refused": "pytest ended with exit code 4"}


def test_coverage_and_parallel_runs_of_the_suite_are_switched_off(monkeypatch):
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    monkeypatch.setattr("proctor.experiments.suites.pytest_plugin.find_spec", lambda _: object())
    assert arguments("folder")[-2:] == ["-n0", "--no-cov"]
