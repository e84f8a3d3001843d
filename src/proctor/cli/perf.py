"""`proctor perf`: measure the harness itself on many small episodes, and check its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.engine.base import Listener
    from proctor.runs.perf.run import PerfResult

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="perf")
@click.option(
    "--episodes",
    type=click.IntRange(1, 100_000),
    default=24,
    show_default=True,
    help="Number of episodes to run.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    help="Number of episodes at a time.",
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
    help="Folder for the perf-* files.",
)
@click.option(
    "--strict-spec", is_flag=True, help="Check every file against its schema, its hash and the other files."
)
@click.option("--compress", is_flag=True, help="Also write everything as one ZIP.")
@click.option("--scenario", type=_FILE, help="Tasks and agents to repeat; YAML, TOML or JSON.")
@click.option("--gate", type=_FILE, help="File of rules, instead of the five built-in ones.")
@click.option("--baseline", type=_FILE, help="An earlier perf-summary-*.json that rules may compare with.")
@click.option(
    "--sandbox", default="auto", show_default=True, help="Sandbox back end; 'fake' executes nothing."
)
@click.option(
    "--host-root",
    is_flag=True,
    help="Use this machine's own system instead of a scenario's images; the built-in scenario always does.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print a line per episode.")
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
    host_root: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run a scenario of small episodes, write the perf-* files with charts, and judge them.

    Exit code 0: the gate holds; 1: an episode did not end as the scenario expects, a rule broke, or
    --strict-spec found a file that is not as it should be; 4: only the infrastructure failed; 130:
    interrupted or cancelled, and what had ended is written.
    """
    from proctor.runs.perf.run import PerfRequest, run_perf
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
        host_root=host_root,
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

    print_json(
        {
            "summary": result.summary,
            "files": [str(path) for path in result.files],
            "problems": list(result.problems),
            "gate": result.gate.to_dict() if result.gate else None,
            "status": result.status.value,
        }
    )


def _print(result: PerfResult) -> None:
    from proctor.cli.table import print_table, say, seconds
    from proctor.model.trial import RunStatus
    from proctor.quantity import show

    summary = result.summary
    count = max(1, summary["episodes"])
    left = summary["run_artifacts"]
    say(
        f"{summary['episodes']} episodes, {summary['failure_count']} not as expected, "
        f"{seconds(summary['wall_clock_total_s'])} with {summary['summary']['workers']} workers "
        f"({summary['throughput_eps']:g} per second)"
    )
    say(
        f"an episode: median {seconds(summary['summary']['p50_wall_clock_s'])}, "
        f"p95 {seconds(summary['summary']['p95_wall_clock_s'])}, "
        f"longest {seconds(summary['max_wall_clock_s'])}; "
        f"{100 * summary['overhead_share']:.1f} % of it is harness overhead"
    )
    spent = summary["overhead_s"]
    print_table(
        ["an episode", *spent],
        [["mean", *(seconds(value / count) for value in spent.values())]],
        right=range(1, 1 + len(spent)),
    )
    say(f"left on disk: {left['file_count']} files, {show('_bytes', left['total_bytes'])} in {left['root']}")
    growing = ", ".join(f"{name} {word}" for name, word in summary["growth"].items())
    say(f"growth: {growing}")
    for reason, times in summary["failure_reasons"].items():
        say(f"failure: {reason} ({times}×)")
    for problem in result.problems:
        say(f"not as specified: {problem}")
    if result.gate:
        for each in result.gate.results:
            say(f"{'✓' if each.verdict == 'pass' else '✗'} {each.written.title}: {each.sentence}")
        say(result.gate.sentence)
    else:
        how = "cancelled" if result.status is RunStatus.CANCELLED else "interrupted"
        say(f"{how}: finished episodes are saved; there is no verdict")
    say(f"files: {result.files[-1]} and {len(result.files) - 1} more in that folder")
