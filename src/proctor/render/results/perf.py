"""A run of the performance harness as a document: the verdict, the phases, growth, groups and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.model.document import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Section,
    Table,
    Text,
    Tone,
    filled,
    number,
    outcome,
)
from proctor.quantity import MISSING, show
from proctor.render.charts.perf import TITLES, drawings
from proctor.render.results.cells import time_cell
from proctor.verdicts.gate.verdict import GateResult

MOST_EPISODES = 50
_CAPTIONS = {
    "latency": "One dot per episode in the order of its start; red: not as the scenario expects.",
    "overhead": "Mean of one episode. Orange: the harness itself; blue: agent and verifier.",
    "system": "Samples of the whole machine while the episodes ran.",
    "groups": "Bar: median of a task and agent; line: p95.",
}
_GROWTH: dict[str, Tone] = {"steady": "good", "linear": "good", "falls": "good", "unknown": ""}
_GROUPS = ("episodes", "as expected", "same trace", "median", "p95", "artifact bytes", "tokens")


def perf(
    summary: Mapping[str, Any],
    metrics: Mapping[str, Any],
    series: Mapping[str, Any],
    *,
    gate: GateResult | None,
    problems: Sequence[str] = (),
    stopped: str = "",
    files: Sequence[Path] = (),
) -> Document:
    """The whole result. `stopped`: how a run without a verdict ended."""
    numbers = summary["summary"]
    tone: dict[str, Tone] = {"pass": "good", "regression": "bad"}
    said = (
        f"{summary['episodes']} episodes, {summary['failure_count']} not as expected, "
        f"{time_cell(summary['wall_clock_total_s']).text} with {numbers['workers']} workers "
        f"({summary['throughput_eps']:.3g} per second)"
    )
    charts = drawings(summary, metrics, series)
    return Document(
        kind="perf",
        title=f"Performance of the harness, {summary['scenario']}",
        headline=f"{said}.",
        verdict=str(gate.verdict.value) if gate else stopped,
        tone=tone.get(gate.verdict.value, "warn") if gate else "warn",
        about=(
            ("run", Cell(text=str(summary["run_id"]), code=True)),
            ("written", f"{str(summary['generated_at'])[:19].replace('T', ' ')} UTC"),
            ("sandbox", str(summary["sandbox"])),
        ),
        warnings=tuple(_warnings(summary, problems, stopped)),
        sections=filled(
            [
                _episode(summary, charts),
                _gate(gate),
                _groups(metrics, charts),
                _growth(metrics["growth"]),
                Section(
                    title="The machine",
                    blocks=_charts(charts, "latency", "system"),
                    name="machine",
                    aside=True,
                ),
                _failed(series["episodes"]),
            ]
        ),
        links=tuple(Cell(text=path.name, href=path.name) for path in files),
        footer="Written by 'proctor perf'.",
    )


def _warnings(summary: Mapping[str, Any], problems: Sequence[str], stopped: str) -> list[str]:
    found = [f"failure: {reason} ({times}×)" for reason, times in summary["failure_reasons"].items()]
    found += [f"not as specified: {problem}" for problem in problems]
    return [*found, *([f"{stopped}: finished episodes are saved; there is no verdict"] if stopped else [])]


def _charts(charts: Mapping[str, Any], *names: str) -> tuple[Chart, ...]:
    return tuple(
        Chart(title=TITLES[name], draw=charts[name], caption=_CAPTIONS[name])
        for name in names
        if name in charts
    )


def _episode(summary: Mapping[str, Any], charts: Mapping[str, Any]) -> Section:
    numbers, spent, left = summary["summary"], summary["overhead_s"], summary["run_artifacts"]
    count = max(1, summary["episodes"])
    tiles = Facts(
        pairs=(
            *(
                (name, time_cell(numbers[f"{at}_wall_clock_s"]))
                for name, at in (("median", "p50"), ("p95", "p95"))
            ),
            ("longest", time_cell(summary["max_wall_clock_s"])),
            ("of it harness", f"{100 * summary['overhead_share']:.1f} %"),
            ("left on disk", f"{left['file_count']} files, {show('_bytes', left['total_bytes'])}"),
        ),
        tiles=True,
    )
    table = Table(
        columns=(Column("an episode"), *(Column(name, "number") for name in spent)),
        rows=(("mean", *(time_cell(value / count) for value in spent.values())),),
        caption=f"Its files are in {left['root']}.",
    )
    return Section(title="An episode", blocks=(tiles, table, *_charts(charts, "overhead")), name="episode")


def _gate(gate: GateResult | None) -> Section:
    if gate is None:
        return Section()
    tones: dict[str, Tone] = {"pass": "good", "regression": "bad"}
    rows = tuple(
        (
            outcome(each.verdict.value, tones.get(each.verdict.value, "warn")),
            Cell(text=each.written.title),
            each.sentence,
        )
        for each in gate.results
    )
    columns = (Column("verdict", "whole"), Column("rule", "prose"), Column("result", "prose"))
    return Section(
        title="Gate", blocks=(Text(text=gate.sentence), Table(columns=columns, rows=rows)), name="gate"
    )


def _groups(metrics: Mapping[str, Any], charts: Mapping[str, Any]) -> Section:
    rows = []
    for each in metrics["groups"]:
        same = each["determinism_rate"]
        rows.append(
            (
                f"{each['task_ref'].partition('@')[0]} × {each['agent'].rpartition(':')[2]}",
                str(each["run_count"]),
                number(f"{100 * each['success_rate']:.0f} %", each["success_rate"]),
                number(f"{100 * same:.0f} %" if same is not None else MISSING, same),
                time_cell(each["p50_wall_clock_s"]),
                time_cell(each["p95_wall_clock_s"]),
                show("_bytes", each["artifact_bytes_avg"]),
                str(each["tokens_used_total"]),
            )
        )
    table = Table(
        columns=(Column("task and agent", "prose"), *(Column(name, "number") for name in _GROUPS)),
        rows=tuple(rows),
        caption="Same trace: of the episodes whose seed came more than once, how many left the same trace.",
    )
    blocks: tuple[Block, ...] = (table, *_charts(charts, "groups")) if rows else ()
    return Section(title="Tasks and agents", blocks=blocks, name="groups", aside=True)


def _growth(growth: Mapping[str, Mapping[str, Any]]) -> Section:
    rows = []
    for name, found in growth.items():
        word = str(found["verdict"])
        how = [
            f"{key.replace('_', ' ')} {value:g}"
            for key, value in found.items()
            if isinstance(value, int | float)
        ]
        rows.append((name.replace("_", " "), outcome(word, _GROWTH.get(word, "bad")), ", ".join(how)))
    columns = (Column("what must not grow"), Column("growth", "whole"), Column("figures", "prose"))
    return Section(
        title="Growth", blocks=(Table(columns=columns, rows=tuple(rows)),) if rows else (), name="growth"
    )


def _failed(episodes: Sequence[Mapping[str, Any]]) -> Section:
    bad = [row for row in episodes if not row["success"]]
    table = Table(
        columns=(
            Column("episode", "number"),
            Column("task", "prose"),
            Column("agent", "prose"),
            Column("why", "prose"),
        ),
        rows=tuple(
            (str(row["episode_index"]), str(row["task_ref"]), str(row["agent"]), str(row["error"] or MISSING))
            for row in bad[:MOST_EPISODES]
        ),
        total=len(bad),
        rest="perf-series lists all of them",
    )
    return Section(
        title="Episodes not as expected", blocks=(table,) if bad else (), name="failures", aside=True
    )
