"""`proctor time`: time whole commands or Python statements, and compare them in lockstep pairs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.ab import progress_line, stopping
from proctor.cli.outputs import takes_outputs
from proctor.cli.quantities import Duration, Share
from proctor.cli.terminal import progress
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.analysis.lockstep import Verdict
    from proctor.engine.ab import Asked
    from proctor.engine.time_commands import Study
    from proctor.model.document import Document

_ONLY_COMMANDS = {
    "prepare": "--prepare", "setup": "--setup", "cleanup": "--cleanup", "no_shell": "--no-shell",
    "ignore_failure": "--ignore-failure", "output": "--output", "stdin": "--input", "variables": "--env",
    "cwd": "--cwd", "warmup": "--warmup",
}  # fmt: skip
FEWEST_TO_COMPARE = 4
COMMAND_PAIRS, STATEMENT_PAIRS = 20, 80


@click.command("time")
@click.argument("texts", metavar="COMMAND...", nargs=-1, required=True)
@click.option("-s", "--setup-python", metavar="CODE", help="Time Python statements; CODE runs once before.")
@click.option("--python", "as_python", is_flag=True, help="Time Python statements, without a setup.")
@click.option("-n", "--name", "names", multiple=True, metavar="NAME", help="Name for a command, in order.")
@click.option("-w", "--warmup", type=click.IntRange(0), help="Runs of each command not counted. [1]")
@click.option("-r", "--runs", type=click.IntRange(1, 100_000), help="Exact number of runs of each command.")
@click.option(
    "--max-pairs",
    type=click.IntRange(4, 2000),
    help=f"Maximum number of pairs. [commands: {COMMAND_PAIRS}, statements: {STATEMENT_PAIRS}]",
)
@click.option(
    "--budget-s", type=Duration(), metavar="TIME", help="Stop measuring after this time, such as 60s."
)
@click.option("--margin", type=Share(), default="2%", show_default=True, help="Smallest change that matters.")
@click.option("-p", "--prepare", metavar="CMD", help="Command to run before every run; not timed.")
@click.option("--setup", metavar="CMD", help="Command to run once at the beginning.")
@click.option("--cleanup", metavar="CMD", help="Command to run once at the end.")
@click.option("-N", "--no-shell", is_flag=True, help="Start the program directly, without 'sh -c'.")
@click.option("-i", "--ignore-failure", is_flag=True, help="Accept exit codes other than 0.")
@click.option("--output", metavar="null|inherit|FILE", help="Where commands write their output. [null]")
@click.option("--input", "stdin", metavar="FILE", help="File that commands read as standard input.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Environment variable to set.")
@click.option("--cwd", type=click.Path(file_okay=False), help="Folder in which commands run.")
@click.option(
    "--pin/--no-pin", default=None, help="Run on one CPU at a time. [commands: no-pin, statements: pin]"
)
@click.option("--export", "export_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write all values to this JSON file.")  # fmt: skip
@takes_outputs
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(texts: tuple[str, ...], **asked: Any) -> int:
    """Time each COMMAND; with two or more, compare each with the first.

    Commands run in a shell, from start to end, in pairs that take turns: whatever disturbs the machine
    disturbs both. With -s (which may be empty) or --python they are Python statements, timed in loops inside
    fresh processes. Verdicts: faster, slower, same (computing and elapsed time), same computing, small,
    inconclusive.

    Exit code: 0 measured, and nothing is slower than the first; 1 slower by more than the margin, or a
    command failed; 2 bad input; 3 inconclusive or same computing; 130 interrupted.
    """
    names = _names(texts, asked["names"])
    if asked["setup_python"] is not None or asked["as_python"]:
        return _time_statements(texts, names, asked)
    return _time_commands(texts, names, asked)


def _names(texts: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    from proctor.errors import UsageError

    if any(not text.strip() for text in texts):
        raise UsageError("a command is empty; put each command in quotes, as in: proctor time 'sleep 0.1'")
    if len(names) > len(texts):
        raise UsageError(f"--name is given {len(names)} times for {len(texts)} commands")
    return (*names, *texts[len(names) :])


def _time_commands(texts: tuple[str, ...], names: tuple[str, ...], asked: dict[str, Any]) -> int:
    from proctor.engine.time_commands import time_commands
    from proctor.engine.time_document import commands
    from proctor.engine.time_file import of_commands

    study = _study(texts, names, asked)
    _check_export(asked["export_file"])
    rules = _asked(asked, study.runs, COMMAND_PAIRS)
    with stopping(), _progress(quiet=asked["as_json"], alone=len(texts) == 1) as (on_run, tell):
        timed = time_commands(study, rules, on_run=on_run, on_progress=tell)
    _answer(of_commands(timed), asked, commands(timed))
    if timed.interrupted:
        print("stopped; no process is left", file=sys.stderr)
        return Exit.INTERRUPTED
    return _exit_code([result.verdict for result in timed.results])


def _time_statements(texts: tuple[str, ...], names: tuple[str, ...], asked: dict[str, Any]) -> int:
    from dataclasses import replace

    from proctor.engine.time_document import statements
    from proctor.engine.time_file import of_statements
    from proctor.engine.time_statements import Statements, time_statements
    from proctor.errors import UsageError

    for key, option in _ONLY_COMMANDS.items():
        if asked[key]:
            raise UsageError(f"{option} is for commands, and -s and --python are for Python statements")
    _check_export(asked["export_file"])
    if asked["runs"] and asked["runs"] < FEWEST_TO_COMPARE and len(texts) > 1:
        raise UsageError(f"a comparison needs --runs {FEWEST_TO_COMPARE} or more")
    wanted = Statements(
        statements=texts,
        names=names,
        setup=asked["setup_python"] or "pass",
        pin=asked["pin"] is not False,
        budget_s=asked["budget_s"],
        pairs=asked["runs"],
    )
    rules = replace(
        _asked(asked, asked["runs"], STATEMENT_PAIRS), thrifty=not (asked["runs"] or asked["max_pairs"])
    )
    with stopping(), progress_line(quiet=asked["as_json"]) as tell:
        timed = time_statements(wanted, rules, on_progress=tell)
    _answer(of_statements(timed), asked, statements(timed))
    return _exit_code([comparison.verdict for comparison in timed.comparisons])


def _study(texts: tuple[str, ...], names: tuple[str, ...], asked: dict[str, Any]) -> Study:
    from dataclasses import replace
    from functools import partial

    from proctor.engine.time_commands import Study
    from proctor.errors import UsageError
    from proctor.trial.lockstep.command import Command

    if asked["runs"] and asked["runs"] < FEWEST_TO_COMPARE and len(texts) > 1:
        raise UsageError(f"a comparison needs --runs {FEWEST_TO_COMPARE} or more")
    make = partial(
        Command,
        cwd=_folder(asked["cwd"]),
        env=dict(_variable(each) for each in asked["variables"]),
        shell=not asked["no_shell"],
        output=_output(asked["output"]),
    )
    in_shell: dict[str, Any] = {"shell": True}
    timed = partial(make, stdin=_input(asked["stdin"]), ignore_failure=asked["ignore_failure"])
    commands = tuple(timed(text=text, name=name) for text, name in zip(texts, names, strict=True))
    for each in commands:
        each.words()  # a quote that is not closed is told before anything runs
    around = {
        key: replace(make(text=asked[key], name=asked[key]), **in_shell) if asked[key] else None
        for key in ("prepare", "setup", "cleanup")
    }
    return Study(
        commands=commands,
        warmup=1 if asked["warmup"] is None else asked["warmup"],
        runs=asked["runs"],
        budget_s=asked["budget_s"],
        pin=bool(asked["pin"]),
        **around,
    )


def _variable(text: str) -> tuple[str, str]:
    from proctor.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals or not name or "\0" in text:
        raise UsageError(f"--env '{text}' is not NAME=VALUE")
    return name, value


def _folder(text: str | None) -> str | None:
    from proctor.errors import UsageError

    if text is not None and not Path(text).is_dir():
        raise UsageError(f"--cwd {text}: there is no such folder")
    return text


def _input(text: str | None) -> str:
    import os

    from proctor.errors import UsageError

    if text is None:
        return os.devnull
    if not Path(text).is_file():
        raise UsageError(f"--input {text}: there is no such file")
    return str(Path(text).resolve())


def _output(text: str | None) -> str:
    """A file; empty: our own output."""
    import os

    from proctor.errors import UsageError

    if text in {None, "null"}:
        return os.devnull
    if text == "inherit":
        return ""
    path = Path(str(text)).resolve()
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"--output {text}: give null, inherit or a file in a folder that exists")
    return str(path)


def _check_export(path: Path | None) -> None:
    from proctor.errors import UsageError

    if path and not path.absolute().parent.is_dir():
        raise UsageError(f"--export {path}: there is no folder {path.parent}")


def _asked(asked: dict[str, Any], runs: int | None, usual_pairs: int) -> Asked:
    """The rules of `proctor ab`. An exact number of runs means one look and no confirmation."""
    from proctor.analysis.lockstep import Rules, looks_for
    from proctor.engine.ab import Asked

    looks = (runs,) if runs else looks_for(asked["max_pairs"] or usual_pairs)
    rules = Rules(margin=asked["margin"], wall_margin=asked["margin"], looks=looks)
    return Asked(rules=rules, confirm=not runs, time_budget_s=asked["budget_s"])


def _answer(data: dict[str, Any], asked: dict[str, Any], document: Document) -> None:
    from proctor.cli.table import print_json
    from proctor.engine.time_file import save

    if asked["as_json"]:
        print_json(data)
    asked["outputs"].show(document, quiet=asked["as_json"])
    if asked["export_file"]:
        from proctor.model.document import to_mapping

        save(data | {"document": to_mapping(document, drawn=True)}, asked["export_file"])


def _exit_code(verdicts: list[Verdict]) -> Exit:
    found = {verdict.value for verdict in verdicts}
    if "slower" in found:
        return Exit.WORSE
    return Exit.INCONCLUSIVE if found & {"inconclusive", "same computing"} else Exit.OK


@contextmanager
def _progress(
    *, quiet: bool, alone: bool
) -> Iterator[tuple[Callable[[str, int], None], Callable[[Any], None]]]:
    """One line on a terminal: which run of a single command, which pair of a comparison."""
    with progress_line(quiet=quiet) as tell:
        if quiet or not alone or not sys.stderr.isatty():
            yield (lambda _name, _count: None), tell
            return

        def on_run(name: str, count: int) -> None:
            progress(f"run {count + 1} of {name}")

        yield on_run, tell
