"""`proctor compare A B`: judge two stored runs or result files."""

from __future__ import annotations

import click

from proctor.cli.outputs import Outputs, takes_outputs
from proctor.cli.quantities import Share
from proctor.cli.reading import undisturbed


@click.command(name="compare")
@click.argument("a")
@click.argument("b")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Metric to compare; may be repeated. [time, by the clock that leads, or reward]",
)
@click.option(
    "--margin",
    type=Share(10, zero=True),
    help="Tolerated loss, such as 5% or 0.05. [5%]",
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
@click.option(
    "--changed-tasks", is_flag=True, help="Compare tasks too whose content is not the same in A and B."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@takes_outputs
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@undisturbed
def command(
    a: str,
    b: str,
    metrics: tuple[str, ...],
    margin: float | None,
    higher_is_better: bool | None,
    these_tasks: bool | None,
    changed_tasks: bool,
    seed: int,
    as_json: bool,
    outputs: Outputs,
) -> int:
    """Compare run B with run A: ids, names, 'latest', 'latest~1', run folders, or result files.

    Files may be RunResult, pyperf, pytest-benchmark, hyperfine or asv JSON. Exit code: 0 no worse,
    1 worse, 2 bad input, 3 inconclusive.
    """
    from proctor.cli.remote import reading_settings
    from proctor.store.open import StorePool
    from proctor.verdicts.compare.by_task import SPENT
    from proctor.verdicts.compare.open import compare_refs

    with StorePool(reading_settings().store_url, create=False) as stores:
        found, side_a, side_b = compare_refs(
            (a, b),
            stores,
            metrics=metrics,
            also=SPENT if any(outputs) else (),
            margin=margin,
            higher_is_better=higher_is_better,
            these_tasks=these_tasks,
            changed_tasks=changed_tasks,
            seed=seed,
        )
    if any(outputs) or not as_json:
        from proctor.render.results.compare import comparison

        outputs.show(comparison(found, side_a, side_b, folder=outputs.folder, seed=seed), quiet=as_json)
    if as_json:
        from proctor.cli.table import print_json

        print_json(found.to_dict())
    return int(found.exit_code)
