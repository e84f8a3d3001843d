"""`report.md`, `README.md` and `SWEEP_SUMMARY.md`: the same facts for terminals and pull requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor.model.outcome import Outcome
from proctor.quantity import MISSING, duration
from proctor.render.html.view import moment
from proctor.runfolder.files import write_atomic
from proctor.runfolder.read import RunData, TrialResult, metric_of
from proctor.verdicts.run.points import HEADERS, numbers, ratio_text
from proctor.verdicts.run.story import Group, groups, headline, short, warnings

MOST_ROWS = 200
_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>|#~&"})


def plain(value: Any, limit: int = 200) -> str:
    """User text inside Markdown: on one line, with nothing in it that Markdown or HTML would act on."""
    text = " ".join(str(value).split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.translate(_SPECIAL)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already."""
    rule = ["---:" if at in right else "---" for at in range(len(headers))]
    return "".join(f"| {' | '.join(row)} |\n" for row in (list(headers), rule, *rows))


def report(data: RunData) -> str:
    """The run's report, without pictures."""
    info = data.info
    parts = [f"# {plain(info.name)}\n\n{plain(headline(data), 2000)}\n"]
    if info.notes:
        parts.append(f"> {plain(info.notes, 2000)}\n")
    if found := warnings(data):
        parts.append(
            "## Before you quote these numbers\n\n" + "".join(f"- {plain(each)}\n" for each in found)
        )
    if info.kind == "task":
        from proctor.render.rollouts.markdown import results

        parts.append(results(data))
    several = groups(data) if info.kind == "experiment" else ()
    for group in several:
        title = plain(group.subject) if len(several) > 1 else "Results"
        fixed = ", ".join(f"{name}={short(value)}" for name, value in group.fixed.items())
        lead = f"Fixed parameters: {plain(fixed, 1000)}\n\n" if fixed else ""
        parts.append(f"## {title}\n\n{lead}{points(group, metric_of(info.kind))}")
    if text := _failures(data):
        parts.append(text)
    parts.append(_facts(data))
    return "\n".join(parts)


def points(group: Group, metric: str) -> str:
    """A row per parameter point or rollout."""
    names = list(group.varying) or ["trial"]
    rows = []
    for trial in group.trials[:MOST_ROWS]:
        params = trial.planned.params
        label = [plain(short(params.get(name))) for name in group.varying] or [plain(group.label(trial))]
        rows.append([*label, *_numbers(trial, metric)])
    first = len(names)
    headers = [*map(plain, names), "outcome", *HEADERS]
    text = table(headers, rows, right=range(first + 1, first + 6))
    if len(group.trials) > MOST_ROWS:
        text += f"\nThe first {MOST_ROWS} of {len(group.trials)} points; `metrics.json` lists all of them.\n"
    return text


def _numbers(trial: TrialResult, metric: str) -> list[str]:
    found = numbers(trial, metric)
    return [found.outcome, *found.cells]


def _failures(data: RunData) -> str:
    rows = [
        [
            plain(trial.planned.label),
            trial.counted.outcome.value,
            *(plain(text) for text in (failure.phase, failure.type, failure.message)),
        ]
        for trial in data.finished
        if trial.counted and trial.outcome is not Outcome.PASSED and (failure := trial.counted.failure)
    ]
    if not rows:
        return ""
    text = "## Failures\n\n" + table(["trial", "outcome", "phase", "error", "message"], rows[:50])
    return text + (f"\nThe first 50 of {len(rows)}.\n" if len(rows) > 50 else "")


def _facts(data: RunData) -> str:
    info = data.info
    took = info.finished_at - info.started_at if info.finished_at and info.started_at else None
    commit = info.vcs.get("commit")
    facts = [
        ("run", info.id),
        ("status", info.status.value),
        ("started", moment(info.started_at or info.created_at)),
        ("took", duration(took)),
        ("seed", info.seed),
        (
            "commit",
            f"{commit}{', with local changes' if info.vcs.get('dirty') else ''}" if commit else MISSING,
        ),
        *((name, value) for name, value in info.versions.items()),
        *(
            (name, info.environment[name])
            for name in ("cpu_model", "cpu_count", "cores", "memory_bytes", "governor", "kernel", "platform")
            if isinstance(info.environment.get(name), str | int | float)
        ),
    ]
    rows = [[plain(name), plain(value)] for name, value in facts]
    return (
        "## Run\n\n"
        + table(["fact", "value"], rows)
        + "\nRun it again: `proctor run spec.json` in this folder.\n"
    )


_OF_POINTS = (
    "- `trials/<subject>/<index>/result.json`: each point's result; profiles and logs under `artifacts/`\n"
)
_OF_ROLLOUTS = (
    "- `summary.md`: scores, matrix and tasks; `task_results/<task>.json`: one file per task\n"
    "- `runs.txt`: the folder of each rollout, `trials/<task>/<index>`: "
    "`evaluation_results.json`, `scoring_results.md`, `trajectory.json`, `logs/`, `artifacts/diff.patch`\n"
)


def readme(data: RunData) -> str:
    """What the folder holds, for someone who finds it without knowing Proctor."""
    info = data.info
    when = moment(info.started_at or info.created_at)
    sweep = "- `SWEEP_SUMMARY.md`: every parameter point in one table\n" if is_sweep(data) else ""
    each = _OF_ROLLOUTS if info.kind == "task" else _OF_POINTS
    return f"""# {plain(info.name)}

{plain(headline(data), 2000)}

A Proctor {info.kind} run, `{plain(info.id)}`, {when}, {info.status.value}.

- `report.html`: open it in a browser; a single file, no network needed
- `report.md`: the same without pictures
{sweep}- `manifest.json`: what was planned: spec, environment, version control, plan
- `series.jsonl`: one JSON object per attempt, in the order they ended; all measurements
- `metrics.json`: the aggregates of each trial; `summary.json`: the run in one page
{each}- `spec.json`: the spec with all defaults

```
proctor run spec.json      # run it again
proctor import .           # read it into a store
```
"""


def is_sweep(data: RunData) -> bool:
    """Whether there is more than one parameter point to put in a table."""
    return data.info.kind == "experiment" and len(data.trials) > 1


def sweep_summary(data: RunData) -> str:
    """Every parameter point, fastest first. A ratio is given only where the 95 % intervals lie apart."""
    metric = metric_of(data.info.kind)
    parts = [f"# Sweep: {plain(data.info.name)}\n\n{plain(headline(data), 2000)}\n"]
    for group in groups(data):
        ranked = sorted(
            group.trials, key=lambda trial: (trial.stat(metric, "p50") is None, trial.stat(metric, "p50"))
        )
        rows = [
            [
                plain(group.label(trial)),
                *_numbers(trial, metric),
                ratio_text(trial, ranked[0], metric),
            ]
            for trial in ranked[:MOST_ROWS]
        ]
        headers = ["point", "outcome", *HEADERS, "against the fastest"]
        parts.append(f"## {plain(group.subject)}\n\n{table(headers, rows, right=range(2, 8))}")
        if len(ranked) > MOST_ROWS:
            parts.append(
                f"The first {MOST_ROWS} of {len(ranked)} points; `metrics.json` lists all of them.\n"
            )
    return "\n".join(parts)


def write(data: RunData, folder: Path) -> None:
    """Write the Markdown files."""
    write_atomic(folder / "report.md", report(data))
    write_atomic(folder / "README.md", readme(data))
    if is_sweep(data):
        write_atomic(folder / "SWEEP_SUMMARY.md", sweep_summary(data))
