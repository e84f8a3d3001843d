"""`summary.md`, and the results part of a task run's `report.md`: matrix, scores and tasks in plain text."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.quantity import MISSING, duration, metric_title, show
from proctor.render.html.view import moment
from proctor.render.markdown import MOST_ROWS, plain, table
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts import scores
from proctor.verdicts.rollouts.images import images_of
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, rollouts
from proctor.verdicts.rollouts.suspects import HEADERS, suspects_of
from proctor.verdicts.rollouts.table import is_error
from proctor.verdicts.rollouts.words import (
    STABILITY,
    denominators_text,
    glyph,
    meaning,
    outcomes_in_order,
    rate,
    reward_text,
    span,
    use_text,
)
from proctor.verdicts.run.story import headline


def summary(data: RunData) -> str:
    """The rollout folder's summary: for a terminal, a pull request or a chat."""
    info = data.info
    when = moment(info.started_at or info.created_at)
    lead = f"# {plain(info.name)}\n\n{plain(headline(data), 2000)}\n\nRun `{plain(info.id)}`, {when}, "
    return f"{lead}{info.status.value}.\n\n{results(data)}"


def results(data: RunData) -> str:
    """Scores, the matrix, each task, and what was used."""
    run = rollouts(data)
    parts = [_scores(run), _matrix(run, data), _tasks(run), _use(run), _suspects(data), _images(data)]
    return "\n".join(part for part in parts if part)


def _scores(run: Rollouts) -> str:
    most = run.shared_k
    headers = [
        "agent",
        "model",
        "pass rate",
        "95 %, these tasks",
        "95 %, tasks like these",
        "errors as zero – best case",
    ]
    headers += [f"pass@{most}", f"pass^{most}"] if most > 1 else []
    headers += ["mean reward", "passed", "errors", "flaky tasks", "median time"]
    rows = [_score(arm, most) for arm in run.arms]
    note = (
        "\nThe pass rate leaves out errors not caused by the agent. The first interval is for new "
        "rollouts of "
        "these tasks, the second for other tasks like them.\n"
    )
    return "## Score\n\n" + table(headers, rows, right=range(2, len(headers))) + note


def _score(arm: ArmScore, most: int) -> list[str]:
    excluded = arm.passes.excluded
    cells = [
        plain(arm.arm.who),
        plain(arm.arm.model or MISSING),
        rate(excluded.value if excluded else None),
        span(excluded.these_tasks if excluded else None),
        span(excluded.tasks_like_these if excluded else None),
        denominators_text(arm),
    ]
    if most > 1:
        cells += [rate(each) for each in arm.at(most)]
    return [
        *cells,
        reward_text(arm.rewards.excluded.value if arm.rewards.excluded else None),
        f"{arm.passed} of {arm.scored}",
        str(arm.errors),
        f"{arm.flaky} of {len(arm.cells)}",
        duration(scores.durations(arm.trials).get("p50")),
    ]


def _matrix(run: Rollouts, data: RunData) -> str:
    rows = []
    for row in run.table.rows[:MOST_ROWS]:
        cells = [run.table.cells.get((row, arm.arm)) for arm in run.arms]
        signs = [
            f"`{''.join(glyph(trial.outcome) for trial in cell.trials)}`" if cell else MISSING
            for cell in cells
        ]
        rows.append([plain(row.label), *signs])
    text = table(["task", *(plain(arm.arm.label) for arm in run.arms)], rows)
    if len(run.table.rows) > MOST_ROWS:
        text += (
            f"\nThe first {MOST_ROWS} of {len(run.table.rows)} tasks; `task_results/` lists all of them.\n"
        )
    return f"## Every rollout\n\n{text}\n{legend(data)}\n"


def legend(data: RunData) -> str:
    """What each sign means; only those that occur."""
    found = outcomes_in_order(list(data.trials))
    return ", ".join(
        f"`{glyph(each)}` {meaning(each)}" + (" (not scored)" if is_error(each) else "") for each in found
    )


def _tasks(run: Rollouts) -> str:
    rows = []
    for row in run.table.rows[:MOST_ROWS]:
        for arm in run.arms:
            cell = run.table.cells.get((row, arm.arm))
            if cell is None:
                continue
            found = arm.stability[cell.row]
            scored = len(cell.rewards)
            rows.append(
                [
                    plain(row.label),
                    plain(arm.arm.label),
                    f"{cell.passed} of {scored}" if scored else MISSING,
                    span(found.interval),
                    STABILITY[found.stability],
                    reward_text(sum(cell.rewards) / scored if scored else None),
                    str(cell.errors),
                    duration(scores.durations(cell.trials).get("p50")),
                ]
            )
    headers = [
        "task",
        "agent",
        "passed",
        "95 % interval",
        "stability",
        "mean reward",
        "errors",
        "median time",
    ]
    return "## Tasks\n\n" + table(headers, rows, right=(2, 3, 5, 6, 7))


def _phase_table(title: str, phases: Mapping[str, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for each in phases.values() for name in each))
    if not names:
        return ""
    rows = [[plain(label), *(duration(each.get(name)) for name in names)] for label, each in phases.items()]
    return "\n" + table([title, *names], rows, right=range(1, len(names) + 1))


def _suspects(data: RunData) -> str:
    found = suspects_of(data)
    rows = [
        [plain(each.label), reward_text(each.first), reward_text(each.second), plain(each.reason, 500)]
        for each in found[:MOST_ROWS]
    ]
    return "## Suspect rollouts\n\n" + table(list(HEADERS), rows, right=(1, 2)) if rows else ""


def _images(data: RunData) -> str:
    found = images_of(data)
    if not found:
        return ""
    rows = [[plain(each.title), plain(each.digest or MISSING), str(each.trials)] for each in found]
    return "## Images\n\n" + table(["image", "digest", "trials"], rows, right=(2,))


def _use(run: Rollouts) -> str:
    text = "## Time and resources\n"
    text += _phase_table(
        "mean of a trial", {a.arm.label: scores.means(scores.work(a.trials)) for a in run.arms}
    )
    text += _phase_table(
        "around a trial, median", {a.arm.label: scores.middles(scores.around(a.trials)) for a in run.arms}
    )
    if "|" not in text:
        return ""
    used = {
        arm.arm.label: {
            **dict.fromkeys(scores.unknown(arm.trials)),
            **scores.middles(scores.ledger(arm.trials)),
            **scores.usage(arm.trials),
        }
        for arm in run.arms
    }
    columns = list(dict.fromkeys(name for each in used.values() for name in each))
    if not columns:
        return text
    rows = [
        [
            plain(label),
            *(_used(name, each) for name in columns),
        ]
        for label, each in used.items()
    ]
    headers = ["median of a trial; totals of tokens, cost and calls", *map(metric_title, columns)]
    return f"{text}\n{table(headers, rows, right=range(1, len(headers)))}"


def _used(name: str, found: Mapping[str, float | None]) -> str:
    """What an arm used, with its unit; a quantity without a number could not be measured."""
    if name in found and found[name] is None:
        return scores.UNKNOWN
    return (use_text if name in scores.USAGE else show)(name, found.get(name))
