"""`proctor ab`: measure two versions in lockstep pairs and give a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.outputs import takes_outputs
from proctor.cli.quantities import Duration, Share
from proctor.cli.spec_options import takes_sources, takes_suites
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.analysis.lockstep import Rules
    from proctor.engine.ab import Asked, Progress
    from proctor.engine.ab_run import Comparison, Contest
    from proctor.runs.suites import SuiteRequest


USUAL_PAIRS = 80
SUITE_PAIRS = 34
"""Of a suite's benchmark, whose processes take longer to start."""
SETTLING_S = 600.0
"""How long `--until-settled` goes on at most, when no budget is given."""


_JUDGING = (
    click.option(
        "--margin",
        type=Share(),
        default="1%",
        show_default=True,
        help="Smallest change of computing that matters, as a share of the time.",
    ),
    click.option(
        "--wall-margin",
        type=Share(),
        help="Smallest change of the elapsed time that matters, waiting included. [3 × margin]",
    ),
    click.option(
        "--pairs",
        type=click.IntRange(4, 2000),
        default=USUAL_PAIRS,
        show_default=True,
        help="Maximum number of pairs.",
    ),
    click.option("--time-budget", type=Duration(), help="Stop measuring after this time, such as 60s."),
    click.option(
        "--cpu-budget",
        type=Duration(),
        help="Maximum CPU time per parameter point. [12s; more for calls of over 20 ms]",
    ),
    click.option("--pin/--no-pin", default=True, help="Run both workers of a pair on the same CPU. [pin]"),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a value of the spec, such as params.n=100.",
    ),
    takes_sources,
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


def judging_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `ab` and `selftest` share."""
    for option in reversed(_JUDGING):
        function = option(function)
    return function


@click.command(name="ab")
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path), required=False)
@click.option("--a", "a", multiple=True, metavar="SIDE", help="The version to compare with. [HEAD]")
@click.option("--b", "b", multiple=True, metavar="SIDE", help="The new version. [. (the working tree)]")
@takes_suites
@judging_options
@click.option(
    "--confirm/--no-confirm",
    default=True,
    help="Confirm a difference with new processes before reporting it. [confirm]",
)
@click.option(
    "--until-settled",
    is_flag=True,
    help="Go on with pairs until there is a verdict, or the time budget is spent. [10 min]",
)
@click.option("--output", type=click.Path(path_type=Path), help="File to save all measurements in.")
@takes_outputs
@click.option(
    "--replay", type=click.Path(path_type=Path), help="Judge a saved comparison again, without measuring."
)
def command(spec_file: Path | None, *, replay: Path | None, **asked: Any) -> int:
    """Compare two versions of the code at every parameter point of SPEC: is B slower than A?

    \b
    A SIDE is
      HEAD~1, main, v1.2      a git revision, checked out and removed again
      . or path:DIR           the working tree, or another folder with the code
      python:PATH             another interpreter or environment
      params:n=10,mode=fast   other parameters
    Give --a or --b several times to combine them.

    Computing (CPU time, children included) and elapsed time are judged side by side: 'same' needs both.

    Exit code: 0 no worse, 1 slower by more than the margin, 2 bad input, 3 inconclusive, or the computing
    is the same and waiting could not be judged.
    """  # noqa: D301 - click wants the character itself
    from proctor.errors import UsageError

    source = click.get_current_context().get_parameter_source
    if asked["until_settled"] and (replay or source("pairs") is click.core.ParameterSource.COMMANDLINE):
        raise UsageError(
            f"--until-settled takes as many pairs as it needs, so it cannot be combined with "
            f"{'--replay' if replay else '--pairs'}; limit it with --time-budget"
        )
    if replay:
        return _answer(_replayed(replay, asked), asked, saved=None)
    suites = _suites(asked)
    if spec_file is None and suites is None:
        raise UsageError("name a spec, a suite with --pytest or --asv, or a saved comparison with --replay")
    if spec_file is not None and suites is not None:
        raise UsageError(f"{suites.option} cannot be combined with the file {spec_file}")
    comparison = _measured(spec_file, asked, suites)
    return _answer(comparison, asked, saved=_save(comparison, asked["output"]))


def rules_from(asked: dict[str, Any]) -> Rules:
    """The rules that the options mean."""
    from proctor.analysis.lockstep import MOST_PAIRS, Rules, looks_for

    margin = asked["margin"]
    settling = bool(asked.get("until_settled"))
    return Rules(
        margin=margin,
        wall_margin=asked["wall_margin"] or min(3 * margin, 0.9),
        looks=looks_for(MOST_PAIRS if settling else asked["pairs"]),
        open_ended=settling,
    )


def asked_from(asked: dict[str, Any], **more: Any) -> Asked:
    """How to compare, from the options. Who wants more pairs than usual wants to pay for them."""
    from proctor.engine.ab import Asked

    return Asked(
        rules=rules_from(asked),
        cpu_budget_s=asked["cpu_budget"],
        thrifty=asked["pairs"] <= USUAL_PAIRS and not asked.get("until_settled"),
        **more,
    )


def _suites(asked: dict[str, Any]) -> SuiteRequest | None:
    names = ("pytest_paths", "asv_paths", "python", "include", "exclude")
    given = [asked.pop(name) for name in names]
    if not any(given):
        return None
    from proctor.errors import UsageError
    from proctor.runs.suites import request_from

    found = request_from(*given)
    if found is None:
        raise UsageError("--include and --exclude go with --pytest or --asv")
    return found


def _measured(spec_file: Path | None, asked: dict[str, Any], suites: SuiteRequest | None) -> Comparison:
    from contextlib import ExitStack

    from proctor.engine.ab_run import run

    with ExitStack() as stack:
        if suites:
            from proctor.runs.suites import cache_of_setup

            stack.enter_context(cache_of_setup())
        contest = _suite_contest(suites, asked) if suites else _contest(spec_file, asked)
        budget_s = asked["time_budget"] or (SETTLING_S if asked["until_settled"] else None)
        how = asked_from(asked, confirm=asked["confirm"], time_budget_s=budget_s)
        if suites and asked["cpu_budget"] is None:
            from dataclasses import replace

            from proctor.analysis.lockstep import looks_for

            # Most of a process's CPU time goes into importing the suite, which the usual budget is not for.
            how = replace(how, thrifty=False)
            source = click.get_current_context().get_parameter_source("pairs")
            if source is not click.core.ParameterSource.COMMANDLINE and not asked["until_settled"]:
                how = replace(how, rules=replace(how.rules, looks=looks_for(SUITE_PAIRS)))
        stack.enter_context(stopping())
        tell = stack.enter_context(progress_line(quiet=asked["as_json"]))
        return run(contest, how, on_progress=tell)


def _contest(spec_file: Path | None, asked: dict[str, Any]) -> Contest:
    from proctor.engine.ab_run import Contest
    from proctor.runs.planning import experiment_sources, with_sources
    from proctor.spec.load import load
    from proctor.trial.lockstep.sides import parse

    assert spec_file is not None
    spec = with_sources(load(spec_file, overrides=asked["overrides"]), asked["sources"])
    return Contest(
        spec=spec,
        sources=experiment_sources(spec),
        a=parse(asked["a"], "--a"),
        b=parse(asked["b"], "--b"),
        pin=asked["pin"],
    )


def _suite_contest(suites: SuiteRequest, asked: dict[str, Any]) -> Contest:
    from dataclasses import replace

    from proctor.engine.ab_run import Contest
    from proctor.errors import UsageError
    from proctor.runs.suites import read_suite
    from proctor.trial.lockstep.sides import parse

    if asked["overrides"] or asked["sources"]:
        raise UsageError(f"--set and --experiments go with a spec, not with {suites.option}")
    a, b = parse(asked["a"], "--a"), parse(asked["b"], "--b")
    # Two environments with the project installed are compared by what is in them, not by the folder around.
    installed = bool(a.python or b.python) and not (a.has_code or b.has_code)
    asked_for = suites.python or a.python or b.python or None
    suite = read_suite(replace(suites, python=asked_for, installed=installed)).timed()
    for each in (*suite.broken, *suite.notes):
        click.echo(f"note: {each}", err=True)
    return Contest(
        spec=suite.spec(),
        sources=(),
        a=a,
        b=b,
        pin=asked["pin"],
        project=suite.project,
        installed=installed,
        goes_on=True,
        python=suite.python if suites.python else None,
    )


def _replayed(path: Path, asked: dict[str, Any]) -> Comparison:
    from dataclasses import replace

    from proctor.engine.ab_file import read, replay

    comparison = read(path)
    rules = comparison.asked.rules
    source = click.get_current_context().get_parameter_source
    chosen = rules_from(asked)
    if source("margin") is click.core.ParameterSource.COMMANDLINE:
        rules = replace(rules, margin=chosen.margin, wall_margin=chosen.wall_margin)
    if source("pairs") is click.core.ParameterSource.COMMANDLINE:
        rules = replace(rules, looks=chosen.looks, open_ended=False)
    return replay(comparison, rules)


def _save(comparison: Comparison, output: Path | None) -> Path:
    import time

    from proctor.engine.ab_file import save
    from proctor.settings import load_settings

    return save(comparison, path=output, folder=load_settings().output_dir, now=time.time())


def _answer(comparison: Comparison, asked: dict[str, Any], *, saved: Path | None) -> int:
    from proctor.engine.ab_document import comparison as shown

    asked["outputs"].show(shown(comparison, saved=saved), quiet=asked["as_json"])
    code = exit_code(comparison)
    if asked["as_json"]:
        from proctor.cli.table import print_json
        from proctor.engine.ab_file import to_mapping

        data = to_mapping(comparison, slots=False)
        print_json(data | {"file": saved and str(saved), "exit_code": int(code)})
    return code


def exit_code(comparison: Comparison) -> Exit:
    """What the verdict means to a shell."""
    codes = {
        "slower": Exit.WORSE,
        "inconclusive": Exit.INCONCLUSIVE,
        "same computing": Exit.INCONCLUSIVE,
    }
    return codes.get(comparison.verdict.value, Exit.INCONCLUSIVE if comparison.lost else Exit.OK)


@contextmanager
def stopping() -> Iterator[None]:
    """Ctrl-C and termination unwind once; while we clean up, neither is heard again."""
    import signal

    from proctor.engine.stop import heard_terminations
    from proctor.errors import Interrupted

    def stop(signum: int, frame: object) -> None:  # noqa: ARG001 - the interpreter's signature
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted("stopped: no verdict; no process or worktree is left behind")

    heard = (signal.SIGINT, *heard_terminations())
    before = {each: signal.getsignal(each) for each in heard}
    for each in before:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def progress_line(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """One line on a terminal that says how far it is; nothing anywhere else."""
    import sys

    from proctor.cli.terminal import progress as draw

    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return

    def tell(progress: Progress) -> None:
        where = f"point {progress.point + 1}/{progress.points}  " if progress.points > 1 else ""
        what = "confirming" if progress.confirming else "pair"
        change = f"  {progress.change:+.1%}" if progress.change is not None else ""
        line = f"{where}{progress.label}  {what} {progress.pairs + 1}/{progress.most}{change}"
        draw(line)

    try:
        yield tell
    finally:
        draw()
