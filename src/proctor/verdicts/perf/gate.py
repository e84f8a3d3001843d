"""The gate of the harness: five rules unless a file says otherwise, judged by `report.gate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.runfolder.files import decode

if TYPE_CHECKING:
    from proctor.verdicts.gate.rules import RuleSet
    from proctor.verdicts.gate.verdict import GateResult

USUAL_EPISODES = 24
TOTAL_BYTES = 2_000_000
"""For the usual number of episodes; the limit grows with longer runs."""
MAX_BASELINE_BYTES = 64 << 20


def default_rules(episodes: int, *, baseline: bool) -> list[str]:
    """What a run must keep when no rule file is given. Without a baseline no failure reason is known."""
    total = TOTAL_BYTES * max(episodes, USUAL_EPISODES) // USUAL_EPISODES
    return [
        "failure_count == 0",
        "max_wall_clock_s <= 15",
        f"run_artifacts.total_bytes <= {total}",
        "run_artifacts.avg_bytes <= 150_000",
        "no new failure reasons" if baseline else "failure_reasons in []",
    ]


def judge(
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    rules_file: Path | None = None,
    baseline_file: Path | None = None,
) -> GateResult:
    """Hold a run to its rules; the baseline is another run's summary, from the option or the rule file."""
    from proctor.verdicts.gate.evaluate import evaluate
    from proctor.verdicts.gate.inputs import input_of_document
    from proctor.verdicts.gate.rules import load_rules, read_rules

    if rules_file:
        rules = load_rules(rules_file)
        baseline_file = baseline_file or _named(rules, rules_file)
    else:
        rules = read_rules(default_rules(int(summary["episodes"]), baseline=baseline_file is not None))
    side = input_of_document(
        summary,
        label=f"run {summary['run_id']}",
        samples={"duration_s": [float(row["wall_clock_s"]) for row in rows]},
    )
    before = None
    if baseline_file:
        document, walls = read_baseline(baseline_file)
        before = input_of_document(document, label=baseline_file.name, samples={"duration_s": walls})
    return evaluate(rules, side, before, held_against=str(baseline_file or ""))


def _named(rules: RuleSet, file: Path) -> Path | None:
    if not rules.baseline:
        return None
    beside = file.parent / rules.baseline
    return beside if beside.exists() else Path(rules.baseline)


def read_baseline(path: Path) -> tuple[dict[str, Any], list[float]]:
    """The summary of an earlier run, and its episodes' times when its series is in the same folder."""
    document = _read(path)
    if not isinstance(document.get("failure_reasons"), dict) or "episodes" not in document:
        raise UsageError(f"{path}: not a summary of the harness; give a perf-summary-<stamp>.json")
    series = path.with_name(path.name.replace("perf-summary-", "perf-series-", 1))
    rows = _read(series).get("episodes", []) if series != path and series.is_file() else []
    return document, [float(row["wall_clock_s"]) for row in rows if isinstance(row, dict)]


def _read(path: Path) -> dict[str, Any]:
    try:
        document = decode(read_small(path, MAX_BASELINE_BYTES), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: not a JSON object")
    return document
