"""`proctor selftest`: prove that the gate detects a slowdown of the user's own experiment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.ab import judging_options
from proctor.cli.quantities import Share
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.engine.ab_run import Comparison


@click.command(name="selftest")
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option("--slow", type=Share(), default="5%", show_default=True, help="How much slower to make side B.")
@judging_options
def command(spec_file: Path, *, slow: float, as_json: bool, **asked: Any) -> int:
    """Compare SPEC's first parameter point with itself, then with itself made slower on purpose.

    The slower side does more of its own work: extra calls of execute_once, and for what is less than a whole
    call a calibrated spin. Exit code: 0 the first comparison found no difference and the second one did,
    1 one of them was wrong, 3 the machine could not tell.
    """
    same, slower = _compare_both(spec_file, slow, as_json, asked)
    code = judge(same, slower)
    if as_json:
        _print_json(same, slower, slow, code)
    else:
        _print(same, slower, slow, code)
    return code


def judge(same: Comparison, slower: Comparison) -> Exit:
    """Whether both comparisons came out as they must."""
    from proctor.analysis.lockstep import DIFFERENT

    if same.verdict in DIFFERENT or slower.verdict.value in {"faster", "same"}:
        return Exit.WORSE
    return Exit.OK if slower.verdict.value == "slower" else Exit.INCONCLUSIVE


def _compare_both(
    spec_file: Path, slow: float, quiet: bool, asked: dict[str, Any]
) -> tuple[Comparison, Comparison]:
    from dataclasses import replace

    from proctor.cli.ab import asked_from, progress_line, stopping
    from proctor.engine.ab_run import Contest, run
    from proctor.runs.planning import experiment_sources, with_sources
    from proctor.spec.load import load
    from proctor.trial.lockstep.sides import SideRequest

    spec = with_sources(load(spec_file, overrides=asked["overrides"]), asked["sources"])
    here = SideRequest(folder=".")
    contest = Contest(
        spec=spec,
        sources=experiment_sources(spec),
        a=here,
        b=here,
        pin=asked["pin"],
        first_point_only=True,
        tests_itself=True,
    )
    budget_s = asked["time_budget"] and asked["time_budget"] / 2
    how = asked_from(asked, time_budget_s=budget_s)
    with stopping(), progress_line(quiet=quiet) as tell:
        return run(contest, how, on_progress=tell), run(replace(contest, slow=slow), how, on_progress=tell)


def _print(same: Comparison, slower: Comparison, slow: float, code: Exit) -> None:
    from proctor.cli.table import bold
    from proctor.engine.ab_words import whole_sentence

    words = {
        Exit.OK: f"the gate works here: no false alarm, and a slowdown of {slow:.1%} was detected",
        Exit.WORSE: "the gate was wrong here: do not rely on it on this machine now",
        Exit.INCONCLUSIVE: f"no verdict: a slowdown of {slow:.1%} may not be detected on this machine now",
    }
    print(bold(words[code]))
    print(f"  {same.results[0].label}")
    for name, comparison in (("the same code", same), (f"{slow:.1%} slower", slower)):
        result = comparison.results[0]
        print(
            f"  {name:14} {whole_sentence(result)}; {len(result.pairs)} pairs, {comparison.cpu_s:.1f} s CPU"
        )
    for note in dict.fromkeys((*same.notes, *slower.notes)):
        if not note.startswith("both sides"):
            print(f"  note: {note}")


def _print_json(same: Comparison, slower: Comparison, slow: float, code: Exit) -> None:
    from proctor.cli.table import print_json
    from proctor.engine.ab_file import to_mapping

    documents = {"same": to_mapping(same, slots=False), "slower": to_mapping(slower, slots=False)}
    print_json({"slow": slow, "works": code is Exit.OK, "exit_code": int(code), **documents})
