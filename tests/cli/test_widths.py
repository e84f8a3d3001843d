"""In a terminal of 80 or of 60 columns every table fits, and every number of it can be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from proctor.cli.main import main
from proctor.model.describe import describe
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.layout import width
from proctor.settings import load_settings
from proctor.store.open import open_store

sys.path.insert(0, str(Path(__file__).parent))
from terminal import shown_in

WIDTHS = (80, 60)
EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("an_experiment_with_a_long_name", summary="Adds up what should not be", tags=["a", "b"])
class Adding(Experiment):
    def __init__(self, number_of_values: int = 1, kind_of_values: str = "i", repeat_every_value: int = 3):
        self.n = number_of_values

    def execute_once(self, context):
        return {"sum": sum(range(self.n))}
"""
SPEC = """
experiment: an_experiment_with_a_long_name
sources: [adding.py]
sweep:
  number_of_values: [1000, 2000]
  kind_of_values: [integers-of-the-long-sort, floats]
iterations: {measured: 7}
"""
NUMBER = re.compile(r"(?<![\w.])\d[\d.,]*\d|(?<![\w.])\d")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
Lines = list[str]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "adding.py").write_text(EXPERIMENT)
    (tmp_path / "adding.yaml").write_text(SPEC)
    return tmp_path


def measured(run_id: str, scale: float, *, at: float) -> None:
    """A sweep of four points with long names, in the store."""
    rng = np.random.default_rng(int(at))
    trials, attempts = [], []
    for index in range(4):
        params = {
            "number_of_records": 2000,
            "payload_of_a_record_in_bytes": 100 * 10**index,
            "profile_of_the_database": "a-profile-with-a-very-long-name-of-its-own",
        }
        key = trial_key(subject_digest=f"v{at}", params=params)
        trials.append(
            PlannedTrial(
                key=key, index=index, kind="experiment", subject="database_with_pragmas",
                subject_digest=f"v{at}", body=0, params=params,
            )
        )  # fmt: skip
        values = [float(each) for each in scale * (index + 1) * np.exp(rng.normal(0, 0.005, 9))]
        attempts.append(
            AttemptRecord(
                key=key, number=1, outcome=Outcome.PASSED, started_at=at, ended_at=at + 1,
                iterations=tuple({"duration_s": each} for each in values),
                metrics={"duration_s": describe(values), "throughput_per_s": 1234.5678},
            )
        )  # fmt: skip
    attempts[-1] = structs.replace(
        attempts[-1],
        outcome=Outcome.FAILED,
        failure=Failure(phase="execute_once", type="RuntimeError", message="a message " * 20),
    )
    info = RunInfo(
        id=run_id, name="a_series_of_runs_with_a_name", kind="experiment", status=RunStatus.DONE,
        created_at=at, started_at=at, finished_at=at + 61.5, seed=0, total=4, notes="one note " * 20,
        environment={"hostname": "h", "cpu_model": "a processor " * 10},
    )  # fmt: skip
    with open_store(load_settings().store_url) as store:
        store.import_run(info, trials, [(record, True) for record in attempts])


@pytest.fixture
def runs() -> None:
    for number in range(7):
        measured(f"2026010{number + 1}T000000-aaaaaa", 0.00123 * (1 + number / 30), at=1000.0 * number + 1)


@pytest.fixture
def rolled(store_rollouts: Callable[..., object]) -> None:
    names = ("a-task-with-a-long-name-of-its-own", "another-task-with-quite-a-long-name", "short")
    agents = ("an-agent-with-a-name", "a-second-agent-of-the-same-kind", "third")
    ends = {(task, agent): [1.0, 0.25, "sandbox_error", 0.0, 1.0] for task in names for agent in agents}
    for number in range(3):
        store_rollouts(ends, name="a_study_of_agents", run_id=f"2026020{number + 1}T000000-aaaaaa")


def numbers(lines: Sequence[str], pattern: re.Pattern[str] = NUMBER) -> set[str]:
    return {found for line in lines for found in pattern.findall(line)}


def check(columns: int, work: Callable[[], object]) -> Lines:
    """What a terminal of that width gets; held against what a file of any width gets."""
    whole = shown_in(1000, work)
    lines = shown_in(columns, work)
    for line in lines:
        unbroken = max(map(width, line.split()), default=0) > columns - 20  # a path is never broken
        assert width(line) <= columns or unbroken, line
    assert numbers(lines, DECIMAL) >= numbers(whole, DECIMAL), "a number has gone"
    assert numbers(lines, DECIMAL) <= numbers(whole, DECIMAL), "a number was cut"
    for line in lines:
        for part in re.findall(r"\d[\d.,]*…|…[\d.,]*\d", line):
            assert part.strip("…").strip(".,") in numbers(whole), line
    return lines


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["show", "latest"],
        ["compare", "latest~6", "latest"],
        ["compare", "latest~1", "latest"],
        ["history", "a_series_of_runs_with_a_name"],
        ["gate", "latest", "--fields"],
        ["aa", "latest", "--simulations", "100"],
        ["watch", "latest", "--no-follow"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]) if isinstance(arguments, list) else str(arguments),
)
def test_runs_of_experiments_fit(columns, arguments):
    assert check(columns, lambda: main(arguments))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.usefixtures("rolled")
@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["summarize"],
        ["show", "latest"],
        ["compare", "latest~1", "latest"],
        ["history", "a_study_of_agents"],
        ["aa", "latest", "--simulations", "100"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]) if isinstance(arguments, list) else str(arguments),
)
def test_runs_of_agents_fit(columns, arguments):
    assert check(columns, lambda: main(arguments))


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_sweep_shows_its_medians_and_intervals(columns):
    lines = shown_in(columns, lambda: main(["run", "adding.yaml"]))
    assert all(width(line) <= columns or line.startswith("report: ") for line in lines)
    from proctor.runfolder.read import RunData
    from proctor.verdicts.run.story import numbers as of_point

    with open_store(load_settings().store_url) as store:
        data = RunData.from_store(store, "latest")
    text = "\n".join(lines)
    assert text.count("repeat_every_value=3") == 1
    for trial in data.trials:
        found = of_point(trial, "duration_s")
        for cell in found.cells:
            assert cell.replace("\u202f", " ") in text


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "adding.yaml"],
        ["list", "--experiments", "adding.py"],
        ["list", "an_experiment_with_a_long_name", "--experiments", "adding.py"],
        ["images", "ls"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]) if isinstance(arguments, list) else str(arguments),
)
def test_what_is_not_a_run_fits(columns, arguments):
    assert check(columns, lambda: main(arguments))


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_doctor_fits(columns):
    """What it finds changes from one look to the next, and its numbers with it."""
    lines = shown_in(columns, lambda: main(["doctor"]))
    assert len(lines) > 10
    assert all(width(line) <= columns or len(line.split()) == 1 for line in lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.usefixtures("runs")
def test_baselines_and_exports_fit(columns, tmp_path):
    main(["baseline", "pin", "a_baseline_with_a_name", "latest", "--reason", "because " * 20])
    assert check(columns, lambda: main(["baseline", "list"]))
    assert check(columns, lambda: main(["baseline", "show", "a_baseline_with_a_name"]))
    places = iter(range(10))
    shown = lambda: main(["export", "latest", f"out-{next(places)}", "--format", "csv"])  # noqa: E731
    assert any("iterations" in line for line in check(columns, shown))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.usefixtures("runs")
def test_a_gate_fits(columns, project):
    (project / "gate.yaml").write_text(
        "- duration_s not slower than baseline by more than 3%\n- failure_count == 0\n"
    )
    assert check(columns, lambda: main(["gate", "latest", "--rules", "gate.yaml", "--baseline", "latest~6"]))


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_comparison_in_lockstep_fits(columns, tmp_path):
    import gzip

    from proctor.cli.table import print_document
    from proctor.engine.ab_document import comparison
    from proctor.engine.ab_file import read

    place = Path(__file__).parents[1] / "data" / "lockstep"
    (tmp_path / "ab.json").write_bytes(gzip.decompress((place / "slower-5-sort.json.gz").read_bytes()))
    one = read(tmp_path / "ab.json")
    points = [replace(one.results[0], label=f"sorting(size={10**at}, order=random)") for at in range(2, 5)]
    long = replace(one, a="a side with a very long name " * 4, b="b " * 30)
    assert check(columns, lambda: print_document(comparison(long)))
    assert check(columns, lambda: print_document(comparison(replace(long, results=tuple(points)))))
