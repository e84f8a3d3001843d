"""`proctor compare A B`: judge two stored runs or result files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed

if TYPE_CHECKING:
    from proctor.analysis.times import PointComparison
    from proctor.verdicts.compare.judge import Comparison, MetricComparison

MAX_ROWS = 200


@click.command(name="compare")
@click.argument("a")
@click.argument("b")
@click.option(
    "--metric", "metrics", multiple=True, help="Metric to compare; may be repeated. [duration_s, or reward]"
)
@click.option(
    "--margin",
    default=None,
    help="Tolerated loss, such as 5% or 0.05. [5%, or more where the data cannot settle that]",
)
@click.option(
    "--higher-is-better/--lower-is-better",
    default=None,
    help="Which direction is better, when the metric's name does not tell.",
)
@click.option(
    "--these-tasks/--tasks-like-these",
    default=None,
    help="What scores claim something about. [tasks like these; with too few tasks for that, these tasks]",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write an HTML page to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@undisturbed
def command(
    a: str,
    b: str,
    metrics: tuple[str, ...],
    margin: str | None,
    higher_is_better: bool | None,
    these_tasks: bool | None,
    seed: int,
    html_file: Path | None,
    as_json: bool,
) -> int:
    """Compare run B with run A: ids, names, 'latest', 'latest~1', run folders, or result files.

    Files may be RunResult, pyperf, pytest-benchmark, hyperfine or asv JSON. Exit code: 0 no worse,
    1 worse, 2 bad input, 3 inconclusive.
    """
    from proctor.settings import load_settings
    from proctor.verdicts.compare.by_task import SPENT
    from proctor.verdicts.compare.open import compare_refs

    found, side_a, side_b = compare_refs(
        (a, b),
        load_settings(),
        metrics=metrics,
        also=SPENT if html_file else (),
        margin=_fraction(margin),
        higher_is_better=higher_is_better,
        these_tasks=these_tasks,
        seed=seed,
    )
    if html_file:
        from proctor.render.compare.page import write
        from proctor.runfolder.files import make_folder

        make_folder(html_file.parent)
        write(found, side_a, side_b, html_file, seed=seed)
    if as_json:
        from proctor.cli.table import print_json
        from proctor.verdicts.compare.document import to_mapping

        print_json(to_mapping(found))
    else:
        _print(found)
        if html_file:
            print(f"\nwritten: {html_file}")
    return int(found.exit_code)


def _fraction(text: str | None) -> float | None:
    from proctor.errors import UsageError

    if text is None:
        return None
    cleaned = text.strip().replace("pp", "%")
    try:
        value = float(cleaned.removesuffix("%")) / (100 if cleaned.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise UsageError(f"--margin {text!r}: give a share such as 5% or 0.05")
    return value


def _print(found: Comparison) -> None:
    from proctor.cli.table import printable, say
    from proctor.render.document.terminal import clean
    from proctor.verdicts.compare.sentence import caution, sentence

    say(clean(sentence(found)), heading=True)
    print(f"A: {printable(found.label_a)}\nB: {printable(found.label_b)}")
    for warning in found.warnings:
        say(f"! {printable(warning)}", indent="  ")
    if found.score:
        _print_score(found)
    for each in found.metrics:
        if each.times.points:
            _print_metric(each)
    _print_apart(found)
    for text in dict.fromkeys(filter(None, map(caution, found.metrics))):
        print()
        say(clean(text))


def _print_metric(each: MetricComparison) -> None:
    from proctor.cli.table import print_table, printable, say
    from proctor.quantity import MISSING, show
    from proctor.render.labels import apart, heading
    from proctor.verdicts.compare.sentence import ratio_text
    from proctor.verdicts.run.story import NOT_DISTINGUISHABLE

    chosen = _most_telling(each)
    shared, own = apart([point.name for point in chosen])
    head, labels = heading(own)
    rows = [
        (
            printable(label),
            show(each.metric, point.median_a),
            show(each.metric, point.median_b),
            ratio_text(point),
            f"{point.interval.low:.3f} – {point.interval.high:.3f}",
            f"{point.p_holm:.3f}",
            f"{point.count_a}/{point.count_b}",
            f"{point.verdict.value}{f' ({point.note})' if point.note else ''}",
        )
        for point, label in zip(chosen, labels, strict=True)
    ]
    better = "higher is better" if each.times.higher_is_better else "lower is better"
    level = 100 * each.times.points[0].interval.level
    margin = f"margin {100 * each.times.margin:.3g} %"
    print()
    say(f"{printable(each.metric)}, {better}; {margin}; p after Holm")
    if "=" in shared:
        say(f"fixed: {printable(shared)}", indent="  ")
    headers = (printable(head), "A", "B", "B/A", f"{level:.3g} % interval", "p", "n", "verdict")
    print_table(headers, rows, right=(1, 2, 3, 5, 6), whole=(4,), spare=(6,), wrap=(0,))
    if any(row[3] == MISSING for row in rows):
        say(f"B/A {MISSING}: {NOT_DISTINGUISHABLE}, because the interval of the ratio includes 1")
    if len(rows) < len(each.times.points):
        print(f"and {len(each.times.points) - len(rows)} more points; --json lists all of them")


def _most_telling(each: MetricComparison) -> list[PointComparison]:
    """All points in their order, or of very many those with the smallest p-values."""
    points = list(each.times.points)
    return points if len(points) <= MAX_ROWS else sorted(points, key=lambda point: point.p_value)[:MAX_ROWS]


def _print_score(found: Comparison) -> None:
    from proctor.cli.table import print_table, say
    from proctor.verdicts.compare.sentence import points, reach, ways_out

    assert found.score is not None
    rows = []
    for title, name in (
        ("errors excluded", "excluded"),
        ("errors as zero", "as_zero"),
        ("best case", "best_case"),
    ):
        a, b, both = (getattr(side, name) for side in (found.score.a, found.score.b, found.score.bounds))
        rows.append(
            (
                title,
                f"{100 * a.value:.1f} %" if a else "–",
                f"{100 * b.value:.1f} %" if b else "–",
                points(both.difference) if both else "–",
                f"{points(both.tasks_like_these.low)} – {points(both.tasks_like_these.high)}"
                if both
                else "–",
                f"{points(both.these_tasks.low)} – {points(both.these_tasks.high)}" if both else "–",
            )
        )
    print()
    print_table(
        ("score", "A", "B", "B - A", "tasks like these, 95 %", "these tasks, 95 %"),
        rows,
        right=(1, 2, 3),
        whole=(4, 5),
    )
    print(f"errors not caused by the agent: A {found.score.a.errors}, B {found.score.b.errors}")
    for text in (reach(found.score), *ways_out(found.score)):
        if text:
            say(text)


def _print_apart(found: Comparison) -> None:
    """What was not compared, each with its reason."""
    from proctor.cli.table import print_table, printable

    if found.failures:
        rows = [tuple(map(printable, (each.name, each.a, each.b))) for each in found.failures[:MAX_ROWS]]
        print("\nnot compared, because one side has no result:")
        print_table(("point", "A", "B"), rows)
        if len(rows) < len(found.failures):
            print(f"and {len(found.failures) - len(rows)} more; --json lists all of them")
    for each in found.metrics:
        if each.absent:
            print(f"\nwithout {printable(each.metric)} on one side: {_some(each.absent)}")
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            print(f"\nonly in {side}: {_some(names)}")


def _some(names: tuple[str, ...]) -> str:
    from proctor.cli.table import printable

    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return printable(", ".join(names[:10]) + more)
