"""`proctor perf`: measure the harness itself on many small episodes, and hold it to its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.engine.base import Listener
    from proctor.job.perf.run import PerfResult

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="perf")
@click.option("--episodes", type=click.IntRange(1, 100_000), default=24, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1, 1024), default=4, show_default=True, help="Episodes at a time."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=180.0,
    show_default=True,
    help="Seconds that an agent has for one episode.",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("deliverables/perf"),
    show_default=True,
    help="Where the perf-* files go.",
)
@click.option(
    "--strict-spec", is_flag=True, help="Check every file against its schema, its hash, the others."
)
@click.option("--compress", is_flag=True, help="Also write everything as one ZIP.")
@click.option("--scenario", type=_FILE, help="Tasks and agents to repeat; YAML, TOML or JSON.")
@click.option("--gate", type=_FILE, help="Rules in place of the five usual ones.")
@click.option("--baseline", type=_FILE, help="An earlier perf-summary-*.json that rules may speak of.")
@click.option("--sandbox", default="auto", show_default=True, help="Back end; 'fake' executes nothing.")
@click.option("-v", "--verbose", is_flag=True, help="A line per episode.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary and the verdict as JSON.")
def command(
    episodes: int,
    workers: int,
    timeout: float,
    output_dir: Path,
    strict_spec: bool,
    compress: bool,
    scenario: Path | None,
    gate: Path | None,
    baseline: Path | None,
    sandbox: str,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run a scenario of small episodes, write the perf-* files with charts, and judge them.

    Exit code 0: the gate holds; 1: an episode did not end as the scenario expects, a rule broke, or
    --strict-spec found a file that is not as it should be; 4: only the infrastructure failed; 130:
    interrupted, and what had ended is written.
    """
    from proctor.job.perf.run import PerfRequest, run_perf
    from proctor.settings import load_settings

    request = PerfRequest(
        episodes=episodes,
        workers=workers,
        timeout_s=timeout,
        output_dir=output_dir,
        strict_spec=strict_spec,
        compress=compress,
        scenario=scenario,
        gate=gate,
        baseline=baseline,
        sandbox=sandbox,
    )

    @contextmanager
    def listen() -> Iterator[Listener]:
        from proctor.cli.live import Live

        with Live(episodes, verbose=verbose, quiet=as_json or not verbose) as live:
            yield live

    result = run_perf(request, load_settings(), listen=listen)
    if as_json:
        _print_json(result)
    else:
        _print(result)
    return result.exit_code


def _print_json(result: PerfResult) -> None:
    from proctor.cli.table import print_json
    from proctor.report.gate.output.document import to_mapping

    print_json(
        {
            "summary": result.summary,
            "files": [str(path) for path in result.files],
            "problems": list(result.problems),
            "gate": to_mapping(result.gate) if result.gate else None,
        }
    )


def _print(result: PerfResult) -> None:
    from proctor.cli.table import print_table, seconds
    from proctor.report.quantity import show

    summary = result.summary
    count = max(1, summary["episodes"])
    left = summary["run_artifacts"]
    print(
        f"{summary['episodes']} episodes, {summary['failure_count']} not as expected, "
        f"{seconds(summary['wall_clock_total_s'])} with {summary['summary']['workers']} workers "
        f"({summary['throughput_eps']:g} per second)"
    )
    print(
        f"an episode: median {seconds(summary['summary']['p50_wall_clock_s'])}, "
        f"p95 {seconds(summary['summary']['p95_wall_clock_s'])}, "
        f"longest {seconds(summary['max_wall_clock_s'])}; "
        f"{100 * summary['overhead_share']:.1f} % of it is the harness's own"
    )
    print_table(
        list(summary["overhead_s"]), [[seconds(value / count) for value in summary["overhead_s"].values()]]
    )
    print(
        f"left on disk: {left['file_count']} files, {show('_bytes', left['total_bytes'])} in {left['root']}"
    )
    growing = ", ".join(f"{name} {word}" for name, word in summary["growth"].items())
    print(f"growth: {growing}")
    for reason, times in summary["failure_reasons"].items():
        print(f"failure: {reason} ({times}×)")
    for problem in result.problems:
        print(f"not as specified: {problem}")
    if result.gate:
        for each in result.gate.results:
            print(f"{'✓' if each.verdict == 'pass' else '✗'} {each.written.title}: {each.sentence}")
        print(result.gate.sentence)
    else:
        print("interrupted: what had ended is written, and nothing was judged")
    print(f"files: {result.files[-1]} and {len(result.files) - 1} beside it")
