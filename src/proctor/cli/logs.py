"""`proctor logs`: what the agent and the verifier of a trial printed, also while they still do."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from proctor.errors import Exit, NotFoundError, UsageError
from proctor.quantity import some

if TYPE_CHECKING:
    from proctor.client.client import Client
    from proctor.model.plan import PlannedTrial
    from proctor.render.trial_logs import Log
    from proctor.settings import Settings

SHOWN = 200
_OVER = ("done", "interrupted", "cancelled")
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LONGEST_LINE = 1 << 16
_LOOK_S = 0.2
_MAX_TRAJECTORY = 256 << 20


@click.command("logs")
@click.argument("ref", metavar="RUN")
@click.argument("trial", metavar="[TRIAL]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print what is added until the attempt ends.")
@click.option(
    "--log", "log_name", metavar="NAME", help="Only this log: agent, verifier, trajectory, or a file's name."
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="This attempt. [the newest]")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines of each log.")
@click.option("--raw", is_flag=True, help="Send the bytes unchanged, also to a terminal.")
@click.option("--json", "as_json", is_flag=True, help="List trials and logs as JSON.")
def command(
    ref: str,
    trial: str | None,
    *,
    follow: bool,
    log_name: str | None,
    attempt: int | None,
    tail: int | None,
    raw: bool,
    as_json: bool,
) -> int:
    """Print the logs of one TRIAL of RUN; without TRIAL, list the trials and their logs.

    TRIAL is an index from the list, the beginning of a key, or task/agent#rollout, where the agent and the
    rollout may be left out if that leaves one trial. --log trajectory shows what the agent did, step by step.
    On a terminal, control codes in a log are removed; into a pipe or a file the bytes go unchanged.
    """
    from proctor.cli.remote import find_server
    from proctor.render.trial_logs import latest_attempt

    if follow and (as_json or trial is None):
        raise UsageError(
            "--follow needs a TRIAL, and cannot be combined with --json; 'proctor logs RUN' lists trials"
        )
    if follow and log_name == "trajectory":
        raise UsageError("a trajectory is written when its attempt ends; there is nothing to --follow")
    settings, client = find_server()
    if client and not (Path(ref) / "manifest.json").is_file():
        return _remotely(client, ref, trial, _Options(follow, log_name, attempt, tail, raw, as_json))
    run = _open(ref, settings)
    if as_json or trial is None:
        picked = run.trials if trial is None else [find(run.trials, trial)]
        _list(run, picked, as_json=as_json)
        return Exit.OK
    planned = find(run.trials, trial)
    number = attempt or max(latest_attempt(run.folder, planned), 1)
    wanted = _Wanted(planned, number, log_name, tail)
    if log_name == "trajectory":
        return _print_trajectory(run, wanted, _writer(raw=raw))
    return (_follow if follow else _print)(run, wanted, _writer(raw=raw))


class _Options(NamedTuple):
    """What a person asked for, besides run and trial."""

    follow: bool
    log_name: str | None
    attempt: int | None
    tail: int | None
    raw: bool
    as_json: bool


def _remotely(client: Client, ref: str, trial: str | None, asked: _Options) -> int:
    from proctor.cli.remote_logs import RemoteLogs, listing

    run_id = str(client.run(ref)["id"])
    trials = list(client.planned(run_id))
    picked = trials if trial is None else [find(trials, trial)]
    if asked.as_json or trial is None:
        shown = picked if asked.as_json else picked[:SHOWN]
        _show_list(listing(client, run_id, shown), len(picked), as_json=asked.as_json)
        return Exit.OK
    logs = RemoteLogs(client, run_id, picked[0], asked.attempt, asked.log_name, asked.tail)
    return logs.print(_writer(raw=asked.raw), follow=asked.follow)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which logs, and how much of them."""

    trial: PlannedTrial
    attempt: int
    name: str | None
    tail: int | None

    def require(self, chosen: list[Log], all_logs: list[Log]) -> None:
        """Say what there is when the wanted log is missing."""
        if chosen:
            return
        known = ", ".join(log.name for log in all_logs) or "none"
        what = f"no log named '{self.name}'" if self.name else "no logs"
        where = f"trial {self.trial.index} ({self.trial.label}), attempt {self.attempt}"
        raise NotFoundError(f"{where}: {what}; logs: {known}")


@dataclass(frozen=True, slots=True)
class _Run:
    """A run whose logs are wanted."""

    id: str
    folder: Path
    trials: list[PlannedTrial]
    outcomes: dict[str, str]
    """Key of a trial → how it ended."""
    store_url: str
    """Empty: only the folder is known, so nothing of it runs."""

    def over(self, trial: PlannedTrial, attempt: int) -> bool:
        """Whether that attempt has ended, or the whole run has."""
        from proctor.store.open import open_store

        if not self.store_url:
            return True
        with open_store(self.store_url, create=False) as store:
            if store.run(self.id).status in _OVER:
                return True
            return any(row.record.number >= attempt for row in store.attempts_of(self.id, trial.key))

    def failure(self, trial: PlannedTrial, attempt: int) -> str:
        """What went wrong with that attempt, in full: of an image that was not built there is no log."""
        from proctor.store.open import open_store

        if not self.store_url:
            return ""
        with open_store(self.store_url, create=False) as store:
            records = [row.record for row in store.attempts_of(self.id, trial.key)]
        found = [each.failure for each in records if each.number == attempt and each.failure]
        return found[0].message if found else ""


def _open(ref: str, settings: Settings) -> _Run:
    from proctor.store.open import open_store

    with open_store(settings.store_url, create=False) as store:
        try:
            info = store.run(ref)
        except NotFoundError:
            if not (Path(ref) / "manifest.json").is_file():
                raise
        else:
            trials = list(store.planned(info.id))
            outcomes = {
                row.key: row.outcome.value for row in store.results(info.id, bodies=False) if row.outcome
            }
            return _Run(info.id, Path(info.folder), trials, outcomes, settings.store_url)
    from proctor.runfolder.read import RunData

    data = RunData.from_folder(Path(ref))
    outcomes = {each.planned.key: each.outcome.value for each in data.trials if each.outcome}
    return _Run(data.info.id, Path(ref), [each.planned for each in data.trials], outcomes, "")


def find(trials: list[PlannedTrial], text: str) -> PlannedTrial:
    """The trial that a person means, or a sentence with those it could be."""
    if text.isdecimal() and int(text) < len(trials):
        return trials[int(text)]
    found = [each for each in trials if text in _names(each)]
    if not found and len(text) >= 4:
        found = [each for each in trials if each.key.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFoundError(f"no trial named '{text}'; 'proctor logs RUN' lists them")
    named = some([f"{each.index} ({each.label})" for each in found], 5)
    raise UsageError(f"'{text}' is the name of {len(found)} trials: {named}; give an index")


def _names(trial: PlannedTrial) -> set[str]:
    subjects = {trial.subject, trial.subject.rpartition("/")[2]}
    bases = subjects | {f"{each}/{trial.agent}" for each in subjects if trial.agent}
    bases |= {f"{each}/{trial.agent}/{trial.model}" for each in subjects if trial.agent and trial.model}
    return {trial.label} | bases | {f"{each}#{trial.rollout + 1}" for each in bases}


def _list(run: _Run, trials: list[PlannedTrial], *, as_json: bool) -> None:
    from proctor.render.trial_logs import folder_of, latest_attempt, logs_in

    def rows() -> Iterator[Sequence[Any]]:
        for trial in trials if as_json else trials[:SHOWN]:
            attempts = latest_attempt(run.folder, trial)
            found = logs_in(folder_of(run.folder, trial, max(attempts, 1)))
            state = run.outcomes.get(trial.key) or ("running" if attempts else "pending")
            yield trial, state, attempts, [(log.name, str(log.path), log.size_bytes) for log in found]

    _show_list(rows(), len(trials), as_json=as_json)


def _show_list(found: Iterator[Sequence[Any]], total: int, *, as_json: bool) -> None:
    """Print rows of (trial, how it ended, attempts, logs with name, place and size)."""
    from proctor.cli.show import size_text
    from proctor.cli.table import print_json, print_table, printable

    if as_json:
        print_json([_as_json(*row) for row in found])
        return
    print_table(
        ("#", "outcome", "logs", "trial"),
        [
            (
                trial.index,
                state,
                ", ".join(f"{printable(name)} {size_text(size)}" for name, _, size in logs) or "–",
                printable(trial.label) + (f" (attempt {attempts})" if attempts > 1 else ""),
            )
            for trial, state, attempts, logs in found
        ],
        right=(0,),
    )
    if total > SHOWN:
        print(f"… and {total - SHOWN} more; --json lists them all")


def _as_json(trial: PlannedTrial, state: str, attempts: int, logs: Sequence[Any]) -> dict[str, object]:
    return {
        "index": trial.index,
        "key": trial.key,
        "label": trial.label,
        "outcome": state,
        "attempts": attempts,
        "logs": [{"name": name, "path": place, "size_bytes": size} for name, place, size in logs],
    }


def _print(run: _Run, wanted: _Wanted, show: Callable[[str, bytes], None]) -> int:
    from proctor.cli.table import printable
    from proctor.model.place import attempt_folder
    from proctor.render.trial_logs import chosen, folder_of, logs_in, read

    logs = logs_in(folder_of(run.folder, wanted.trial, wanted.attempt))
    picked = chosen(logs, wanted.name)
    # Nothing empty is written: an attempt that was judged and has no log printed nothing.
    silent = not logs and (run.folder / attempt_folder(wanted.trial, wanted.attempt)).is_dir()
    if not silent:
        wanted.require(picked, logs)
    if not any(log.size_bytes for log in picked):
        print(f"empty: {', '.join(log.name for log in picked) or 'no log'}", file=sys.stderr)
        if why := run.failure(wanted.trial, wanted.attempt):
            print("\n".join(map(printable, why.splitlines())), file=sys.stderr)
    for log in picked:
        for piece in read(log, tail=wanted.tail):
            show(log.name if len(picked) > 1 else "", piece)
    show("", b"")
    return Exit.OK


def _print_trajectory(run: _Run, wanted: _Wanted, show: Callable[[str, bytes], None]) -> int:
    """What the agent did, step by step, from a trajectory in any version of ATIF."""
    from proctor.agents import atif
    from proctor.disk import read_small
    from proctor.render.trial_logs import folder_of

    path = folder_of(run.folder, wanted.trial, wanted.attempt) / "trajectory.json"
    try:
        recording = atif.read(read_small(path, _MAX_TRAJECTORY))
    except OSError:
        raise NotFoundError(f"{path}: the attempt left no trajectory") from None
    except atif.NotATIF as error:
        raise UsageError(f"{path}: {error}") from error
    lines = "".join(atif.text_of(recording)).splitlines(keepends=True)
    kept = lines if wanted.tail is None else lines[len(lines) - min(wanted.tail, len(lines)) :]
    show("", "".join(kept).encode(errors="replace"))
    show("", b"")
    return Exit.OK


def _follow(run: _Run, wanted: _Wanted, show: Callable[[str, bytes], None]) -> int:
    """Look at the end before looking at the files: what was written before the end is then surely printed."""
    from proctor.render.trial_logs import Follower, chosen, folder_of, logs_in

    followers: dict[str, Follower] = {}
    try:
        while True:
            over = run.over(wanted.trial, wanted.attempt)
            logs = logs_in(folder_of(run.folder, wanted.trial, wanted.attempt))
            for log in chosen(logs, wanted.name):
                followers.setdefault(log.name, Follower(log, tail=wanted.tail))
            several = len(followers) > 1 or (wanted.name is None and not over)
            for follower in followers.values():
                for piece in follower.more():
                    show(follower.log.name if several else "", piece)
            if over:
                show("", b"")
                wanted.require([each.log for each in followers.values()], logs)
                return Exit.OK
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    finally:
        for follower in followers.values():
            follower.close()


def _writer(*, raw: bool) -> Callable[[str, bytes], None]:
    """Takes (log, bytes); prints a heading when the log changes. A call with nothing ends the last line."""
    plain = raw or not sys.stdout.isatty()
    lines = _Lines()
    shown, ended = "", True

    def write(name: str, piece: bytes) -> None:
        nonlocal shown, ended
        if name and name != shown:
            sys.stdout.write(
                "".join(lines.end()) + ("" if ended or not plain else "\n") + f"==> {name} <==\n"
            )
            shown, ended = name, True
        if plain:
            sys.stdout.flush()
            sys.stdout.buffer.write(piece)
            ended = piece.endswith(b"\n") if piece else ended
        else:
            sys.stdout.writelines(lines.feed(piece) if piece else lines.end())
        sys.stdout.flush()

    return write


class _Lines:
    """Turns bytes of strangers into lines that cannot steer a terminal."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """Whole lines; the last one waits for its end unless it is very long."""
        self._rest += piece
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            yield harmless(line) + "\n"
        if len(self._rest) > _LONGEST_LINE:
            yield harmless(self._rest)
            self._rest = b""

    def end(self) -> Iterator[str]:
        """What is left."""
        if self._rest:
            yield harmless(self._rest) + "\n"
        self._rest = b""


def harmless(line: bytes) -> str:
    """Text without colours and other control codes. Of a line that rewrote itself, the last state."""
    from proctor.cli.table import printable

    text = _SEQUENCE.sub("", line.decode("utf-8", "replace")).rstrip("\r").rpartition("\r")[2]
    return "\t".join(printable(each) for each in text.split("\t"))
