"""`proctor compare A B`: judge two stored runs or result files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.reading import undisturbed

if TYPE_CHECKING:
    from proctor.analysis.times import PointComparison
    from proctor.report.compare.judge import Comparison, MetricComparison
    from proctor.report.compare.results import ResultSet
    from proctor.settings import Settings

MAX_ROWS = 200


@click.command(name="compare")
@click.argument("a")
@click.argument("b")
@click.option(
    "--metric", "metrics", multiple=True, help="What to compare; may be repeated. [duration_s, or reward]"
)
@click.option(
    "--margin",
    default=None,
    help="Loss that is tolerated, as 5% or 0.05. [5%, or what the data can settle if that is more]",
)
@click.option(
    "--higher-is-better/--lower-is-better", default=None, help="Direction, when the name does not tell."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path, dir_okay=False), help="Also write a page here."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@undisturbed
def command(
    a: str,
    b: str,
    metrics: tuple[str, ...],
    margin: str | None,
    higher_is_better: bool | None,
    seed: int,
    html_file: Path | None,
    as_json: bool,
) -> int:
    """Compare run B with run A: ids, names, 'latest', 'latest~1', run folders, or result files.

    Files may be RunResult, pyperf, pytest-benchmark, hyperfine or asv JSON. Exit code: 0 no worse,
    1 worse, 2 bad input, 3 inconclusive.
    """
    from proctor.report.compare.by_task import SPENT
    from proctor.report.compare.judge import compare
    from proctor.settings import load_settings

    settings = load_settings()
    tolerated = _fraction(margin)
    also = SPENT if html_file else ()
    side_a, side_b = (_load(ref, metrics, also, settings) for ref in (a, b))
    wanted = metrics or (side_a.metric,)
    found = compare(
        side_a,
        side_b,
        metrics=wanted,
        margin=tolerated,
        higher_is_better=higher_is_better,
        noise=_noise(side_a, side_b, wanted, settings),
        seed=seed,
    )
    if html_file:
        from proctor.report.compare.page import write
        from proctor.report.files import make_folder

        make_folder(html_file.parent)
        write(found, side_a, side_b, html_file, seed=seed)
    if as_json:
        from proctor.cli.table import print_json
        from proctor.report.compare.document import to_mapping

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


def _load(ref: str, metrics: tuple[str, ...], also: tuple[str, ...], settings: Settings) -> ResultSet:
    """A run folder, a result file, or a run in the store, in that order; `also` is read of rollouts."""
    from proctor.report.compare.by_task import with_spent
    from proctor.report.compare.foreign import read_file
    from proctor.report.compare.results import from_run
    from proctor.report.compare.stored import from_store
    from proctor.report.data import RunData
    from proctor.store.open import open_store

    path = Path(ref)
    if path.is_dir() and (path / "manifest.json").is_file():
        data = RunData.from_folder(path)
        return from_run(data, with_spent(data.info, metrics, also), source="folder")
    if path.is_file():
        return read_file(path)
    with open_store(settings.store_url, create=False) as store:
        info = store.run(ref)
        return from_store(store, info.id, with_spent(info, metrics, also))


def _noise(a: ResultSet, b: ResultSet, metrics: tuple[str, ...], settings: Settings) -> dict[str, Any]:
    from proctor.report.compare.history import noise_from_store
    from proctor.report.compare.judge import is_time
    from proctor.store.open import open_store

    with open_store(settings.store_url, create=False) as store:
        found = {metric: noise_from_store(store, a, b, metric) for metric in metrics if is_time(metric)}
    return {metric: noise for metric, noise in found.items() if noise}


def _print(found: Comparison) -> None:
    from proctor.cli.table import bold, printable
    from proctor.report.compare.sentence import caution, sentence

    print(bold(printable(sentence(found))))
    print(f"A: {printable(found.label_a)}\nB: {printable(found.label_b)}")
    for warning in found.warnings:
        print(f"! {printable(warning)}")
    if found.score:
        _print_score(found)
    for each in found.metrics:
        if each.times.points:
            _print_metric(each)
    _print_apart(found)
    for text in dict.fromkeys(filter(None, map(caution, found.metrics))):
        print(f"\n{printable(text)}")


def _print_metric(each: MetricComparison) -> None:
    from proctor.cli.table import print_table, printable
    from proctor.report.quantity import show

    rows = [
        (
            printable(point.name),
            show(each.metric, point.median_a),
            show(each.metric, point.median_b),
            f"{point.ratio:.3f}",
            f"{point.interval.low:.3f} – {point.interval.high:.3f}",
            f"{point.p_holm:.3f}",
            f"{point.count_a}/{point.count_b}",
            f"{point.verdict.value}{f' ({point.note})' if point.note else ''}",
        )
        for point in _most_telling(each)
    ]
    better = "higher is better" if each.times.higher_is_better else "lower is better"
    level = 100 * each.times.points[0].interval.level
    margin = f"margin {100 * each.times.margin:.3g} %"
    print(f"\n{printable(each.metric)}, {better}; {margin}; p after Holm")
    headers = ("point", "A", "B", "B/A", f"{level:.3g} % interval", "p", "n", "verdict")
    print_table(headers, rows, right=(1, 2, 3, 5, 6))
    if len(rows) < len(each.times.points):
        print(f"and {len(each.times.points) - len(rows)} more points; --json has them all")


def _most_telling(each: MetricComparison) -> list[PointComparison]:
    """All points in their order, or of very many those with the smallest p-values."""
    points = list(each.times.points)
    return points if len(points) <= MAX_ROWS else sorted(points, key=lambda point: point.p_value)[:MAX_ROWS]


def _print_score(found: Comparison) -> None:
    from proctor.cli.table import print_table
    from proctor.report.compare.sentence import points

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
        ("score", "A", "B", "B - A", "tasks like these, 95 %", "these tasks, 95 %"), rows, right=(1, 2, 3)
    )
    print(f"errors that were not the agent's: A {found.score.a.errors}, B {found.score.b.errors}")
    if found.score.bounds.excluded:
        reach = 100 * found.score.bounds.excluded.detectable
        print(f"a difference of {reach:.1f} pp would be found 4 times in 5")


def _print_apart(found: Comparison) -> None:
    """What was not compared, each with its reason."""
    from proctor.cli.table import print_table, printable

    if found.failures:
        rows = [tuple(map(printable, (each.name, each.a, each.b))) for each in found.failures[:MAX_ROWS]]
        print("\nnot compared, because a side has no result:")
        print_table(("point", "A", "B"), rows)
        if len(rows) < len(found.failures):
            print(f"and {len(found.failures) - len(rows)} more; --json has them all")
    for each in found.metrics:
        if each.absent:
            print(f"\nwithout {printable(each.metric)} on a side: {_some(each.absent)}")
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            print(f"\nonly in {side}: {_some(names)}")


def _some(names: tuple[str, ...]) -> str:
    from proctor.cli.table import printable

    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return printable(", ".join(names[:10]) + more)
