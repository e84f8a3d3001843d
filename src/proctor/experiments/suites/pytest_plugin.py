"""The pytest plugin that stands in for pytest-benchmark: its fixture, its options and its marker.

It is handed to pytest as an object, so nothing of it has to be installed where the suite is.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

HONOURED = frozenset({"group"})
"""Of the marker's keys."""
_FLAGS = (
    "autosave",
    "cprofile-dump",
    "disable",
    "disable-gc",
    "enable",
    "json-stdout",
    "only",
    "quiet",
    "save-data",
    "skip",
    "verbose",
)
_OPTIONS = (
    "calibration-precision",
    "columns",
    "compare",
    "compare-fail",
    "cprofile",
    "cprofile-loops",
    "cprofile-top",
    "csv",
    "group-by",
    "histogram",
    "json",
    "max-time",
    "min-rounds",
    "min-time",
    "name",
    "netrc",
    "save",
    "sort",
    "storage",
    "time-unit",
    "timer",
    "warmup",
    "warmup-iterations",
)
_OPTIONAL = frozenset({"compare", "csv", "histogram", "warmup", "cprofile"})
_SHOWN_ONLY = frozenset(
    {"columns", "sort", "group-by", "name", "verbose", "quiet", "time-unit", "storage", "save"}
)
"""Options about the other tool's own tables and files: nobody misses them here."""


class UnusableError(Exception):
    """The test cannot be measured; the message says why."""


class AlreadyUsedError(Exception):
    """A test may call the fixture once."""


class SuitePlugin:
    """What both the listing and the measuring of a suite need: options, marker, and errors as they come."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, BaseException]] = []
        self.skipped: list[tuple[str, str]] = []

    def pytest_addoption(self, parser: Any) -> None:
        """Accept what pytest-benchmark accepts: a suite's configuration may name any of it."""
        group = parser.getgroup("benchmark")
        for name in _FLAGS:
            group.addoption(f"--benchmark-{name}", action="store_true", default=False)
        for name in _OPTIONS:
            more = {"nargs": "?", "const": True} if name in _OPTIONAL else {}
            group.addoption(f"--benchmark-{name}", default=None, **more)

    def pytest_configure(self, config: Any) -> None:
        """Make the marker known."""
        config.addinivalue_line("markers", "benchmark: how a benchmark is measured")

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        """Keep what was raised in a module, a fixture or a test."""
        self.errors.append((node.nodeid, call.excinfo.value))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep why a test was skipped."""
        self._skip(report)

    def pytest_collectreport(self, report: Any) -> None:
        """The same of a module."""
        self._skip(report)

    def _skip(self, report: Any) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


class Lister(SuitePlugin):
    """Finds the tests that use the fixture; none of them is run."""

    def __init__(self, project: str) -> None:
        super().__init__()
        self.project = project
        self.found: list[dict[str, Any]] = []
        self.options: list[str] = []

    @pytest.fixture
    def benchmark(self) -> None:
        """Only its name is needed."""

    @pytest.fixture
    def benchmark_weave(self) -> None:
        """The same."""

    def pytest_collection_finish(self, session: Any) -> None:
        """Everything has been collected."""
        self.options = _unused_options(session.config)
        for item in session.items:
            if "benchmark" not in getattr(item, "fixturenames", ()):
                continue
            file = os.path.relpath(str(item.path), self.project)
            marks = {
                key: value for mark in item.iter_markers("benchmark") for key, value in mark.kwargs.items()
            }
            self.found.append(
                {
                    "file": file.replace(os.sep, "/"),
                    "test": item.nodeid.partition("::")[2],
                    "group": str(marks.get("group") or ""),
                    "not_used": sorted(marks.keys() - HONOURED),
                    "skip": _skip_mark(item),
                }
            )


def _unused_options(config: Any) -> list[str]:
    given = [name for name in (*_FLAGS, *_OPTIONS) if name not in _SHOWN_ONLY]
    return [f"--benchmark-{name}" for name in given if config.getoption(f"--benchmark-{name}")]


def _skip_mark(item: Any) -> str:
    """Why a marker of the test skips it, as far as pytest tells before running it."""
    try:
        from _pytest.skipping import evaluate_skip_marks

        found = evaluate_skip_marks(item)
    except Exception:  # noqa: BLE001 - pytest's own business, asked only to save time; running it says the same
        return ""
    return found.reason or "skipped by a marker" if found else ""


class Runner(SuitePlugin):
    """Runs one test; where it calls the fixture, everything is measured."""

    def __init__(self, experiment: Any, work: Callable[[], None]) -> None:
        super().__init__()
        self.experiment = experiment
        self.work = work
        self.measured = False
        self.escaped: BaseException | None = None

    @pytest.fixture
    def benchmark(self, request: Any) -> Iterator[Benchmark]:
        """The fixture of pytest-benchmark, as far as tests use it."""
        fixture = Benchmark(self, request.node)
        yield fixture
        fixture.end()

    @pytest.fixture
    def benchmark_weave(self) -> None:
        """Not possible from outside."""
        raise UnusableError(
            "benchmark_weave measures a function inside others; call benchmark(function) instead"
        )

    def measure(self) -> None:
        """Let the harness work, here on the test's own stack."""
        self.measured = True
        try:
            self.work()
        except BaseException as error:
            self.escaped = error
            raise


class Benchmark:
    """What a test gets as `benchmark`."""

    def __init__(self, runner: Runner, node: Any) -> None:
        self._runner = runner
        self._kept: dict[str, Any] = {}
        self._after: Callable[[], None] = _nothing
        case = getattr(node, "callspec", None)
        mark = node.get_closest_marker("benchmark")
        self.name: str = node.name
        self.fullname: str = node.nodeid
        self.param: str | None = case.id if case else None
        self.params: dict[str, Any] | None = case.params if case else None
        self.group: str | None = mark.kwargs.get("group") if mark else None
        self.extra_info: dict[str, Any] = {}
        self.stats = None
        """As with `--benchmark-disable`: the figures are not known before the test has ended."""
        self.disabled, self.enabled = True, False

    def __call__(self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Measure a function; what it returns is the test's to check."""
        self._measure(lambda: (args, kwargs), function_to_benchmark)
        return function_to_benchmark(*args, **kwargs)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
        teardown: Callable[..., Any] | None = None,
    ) -> Any:
        """Measure with a `setup` before each slot and a `teardown` after it. The harness decides how many."""
        if setup and (args or kwargs):
            raise TypeError("pedantic: give args and kwargs, or a setup that returns them")
        if setup and iterations != 1:
            raise ValueError("pedantic: with a setup there is one iteration per round")
        if rounds > 1 or warmup_rounds:
            self._runner.experiment.note("rounds and warmup_rounds of pedantic are not used")
        given = (tuple(args), dict(kwargs or {}))

        def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
            made = setup() if setup else None
            return given if made is None else (tuple(made[0]), dict(made[1]))

        experiment = self._runner.experiment
        experiment.slot_calls = iterations if setup or teardown or iterations > 1 else 0
        self._measure(fresh, target, renewed=bool(setup or teardown), teardown=teardown)
        positional, named = fresh()
        result = target(*positional, **named)
        if teardown:
            teardown(*positional, **named)
        return result

    def weave(self, *_args: Any, **_named: Any) -> Any:
        """Not possible from outside."""
        raise UnusableError("benchmark.weave is not supported; call benchmark(function) instead")

    patch = weave

    def end(self) -> None:
        """What the test has said after it was measured."""
        if plain(self.extra_info) != self._kept:
            self._runner.experiment.note(f"extra_info: {json.dumps(plain(self.extra_info))}")

    def _measure(
        self,
        arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
        function: Callable[..., Any],
        *,
        renewed: bool = False,
        teardown: Callable[..., Any] | None = None,
    ) -> None:
        if self._runner.measured:
            raise AlreadyUsedError("the fixture benchmark was used twice in this test")
        experiment = self._runner.experiment
        self._kept = plain(self.extra_info)
        returned = {"extra_info": self._kept} if self._kept else None
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if renewed:

            def renew(_context: Any) -> None:
                nonlocal args, kwargs
                self._after()
                args, kwargs = arguments()
                if teardown:
                    self._after = lambda: teardown(*args, **kwargs)

            experiment.before_slot = renew
        else:
            args, kwargs = arguments()

        def once(_context: Any) -> dict[str, Any] | None:
            function(*args, **kwargs)
            return returned

        experiment.execute_once = once
        self._runner.measure()
        self._after()


def _nothing() -> None:
    """When there is nothing to clean up."""


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON can hold it; what it cannot is kept as text."""
    found: dict[str, Any] = json.loads(json.dumps(values, default=str, skipkeys=True))
    return found


def arguments(folder: str) -> list[str]:
    """What pytest is told besides the tests: nobody else's `benchmark`, no files in the project."""
    given = [
        "-qq",
        "-s",
        "--no-header",
        "-p",
        "no:benchmark",
        "-p",
        "no:codspeed",
        "-o",
        f"cache_dir={folder}",
    ]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return given
    quiet = {"xdist": "-n0", "pytest_cov": "--no-cov"}
    return [*given, *(option for module, option in quiet.items() if find_spec(module))]


def run_test(experiment: Any, project: str, test: str, folder: str, work: Callable[[], None]) -> None:
    """Run one test, and `work` where it calls its fixture. Raises what went wrong."""
    os.chdir(project)
    runner = Runner(experiment, work)
    code = pytest.main([*arguments(folder), test], plugins=[runner])
    if runner.escaped:
        raise runner.escaped
    for _, error in runner.errors:
        raise error
    if runner.measured:
        return
    for _, reason in runner.skipped:
        raise UnusableError(f"skipped: {reason}")
    if code == pytest.ExitCode.OK:
        raise UnusableError("the test ended without calling benchmark")
    sys.stderr.flush()
    raise UnusableError(f"pytest could not run {test} (exit code {int(code)})")
