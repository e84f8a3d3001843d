"""Run a spec on a server and follow it here, with the lines, the summary and the exit code of a local run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proctor.cli.live import Live
from proctor.cli.live_tasks import TaskLive
from proctor.errors import Exit
from proctor.model.plan import PlannedTrial
from proctor.model.trial import Lease, RunStatus

if TYPE_CHECKING:
    from proctor.client.client import Client, Happened
    from proctor.client.remote_store import Feed
    from proctor.model.spec import Spec
    from proctor.settings import Settings

LOOK_S = 2.0
"""How often to look at the status when no event comes."""
_ENDINGS = ("run.finished", "run.cancelled", "run.interrupted", "run.failed", "run.paused")


def submit(spec: Spec, client: Client, settings: Settings, *, verbose: int, as_json: bool) -> int:
    """Submit a spec and follow its run to the end; the exit code."""
    from proctor.cli.table import printable
    from proctor.client.submission import submission

    def say(text: str) -> None:
        if not as_json:
            print(printable(text), file=sys.stderr, flush=True)

    run = client.submit(submission(spec, client, settings, say))
    return follow(client, run, verbose=verbose, as_json=as_json)


def follow(client: Client, run: Mapping[str, Any], *, verbose: int, as_json: bool, after: int = 0) -> int:
    """Show a run of a server until it ends, then its summary; the exit code is that of a local run.

    Ctrl-C ends the showing, not the run.
    """
    from proctor.cli.gate import Judged, judged_elsewhere
    from proctor.cli.run import conclude
    from proctor.client.remote_store import Feed, as_store
    from proctor.runfolder.read import RunData

    run_id = str(run["id"])
    store = as_store(client)
    trials = {each.index: each for each in store.planned(run_id)}
    shown = _shown(run, list(trials.values()), verbose=verbose, quiet=as_json)
    try:
        with shown as live:
            live.say(f"run {run_id}: {run['name']}, {len(trials)} trials, on {client.url}")
            for warning in run["warnings"]:
                live.say(f"note: {warning}")
            last = _until_the_end(client, run_id, trials, live, Feed(client, run_id, after))
    except KeyboardInterrupt:
        print(
            f"the run goes on at the server; 'proctor watch {run_id}' shows it again, 'proctor cancel "
            f"{run_id}' ends it",
            file=sys.stderr,
        )
        return Exit.INTERRUPTED
    data = RunData.from_store(store, run_id)

    def judge() -> Judged | None:
        return judged_elsewhere(client.gate(run_id)) if data.info.resolved.get("gates") else None

    return conclude(
        data,
        data.info.status,
        judge,
        report=client.page(f"/runs/{run_id}"),
        reason=str(last.get("failure") or ""),
        as_json=as_json,
    )


def _shown(
    run: Mapping[str, Any], trials: Sequence[PlannedTrial], *, verbose: int, quiet: bool
) -> Live | TaskLive:
    done = int(run["done"])
    if run["kind"] == "task":
        return TaskLive(trials, done=done, verbose=verbose, quiet=quiet)
    from proctor.render.labels import apart

    names = apart([trial.label for trial in trials]).own
    labels = {trial.key: name for trial, name in zip(trials, names, strict=True)}
    return Live(len(trials), done=done, verbose=bool(verbose), quiet=quiet, labels=labels)


def _until_the_end(
    client: Client, run_id: str, trials: Mapping[int, PlannedTrial], live: Live | TaskLive, feed: Feed
) -> dict[str, Any]:
    """Tell the display what happens; the run as it is when nothing of it is to be executed any more."""
    told: set[tuple[int, int]] = set()
    while True:
        come = feed.wait(LOOK_S)
        happened = feed.take()
        _tell(client, run_id, trials, live, happened, told)
        if come and not any(each.kind in _ENDINGS for each in happened):
            continue
        now = client.run(run_id)
        if _over(now):
            _tell(client, run_id, trials, live, feed.take(int(now["last_event"])), told)
            return now


def _over(run: Mapping[str, Any]) -> bool:
    """Whether nothing more will happen by itself.

    A run that a server was to continue is not over, and one with gates is when the server has judged it.
    """
    gated = bool(run["resolved"].get("gates"))
    if run["status"] == RunStatus.CANCELLED or (run["status"] == RunStatus.DONE and not gated):
        return True
    return not run["wanted"] and not run["running"]


def _tell(
    client: Client,
    run_id: str,
    trials: Mapping[int, PlannedTrial],
    live: Live | TaskLive,
    happened: Iterable[Happened],
    told: set[tuple[int, int]],
) -> None:
    ended: dict[int, None] = {}
    for each in happened:
        if each.kind == "run.waiting":
            live.say(str(each.data["reason"]))
        if each.index is None:
            continue
        if each.kind == "trial.running":
            attempt = int(each.data.get("attempt") or 1)
            trial = trials[each.index]
            live.started(trial, Lease(run_id, trial.key, trial.index, "", 0, attempt, 0.0))
        elif each.kind == "attempt.ended":
            ended[each.index] = None
    for row in client.records_of(run_id, trials, list(ended)) if ended else ():
        place = row.trial.index, row.record.number
        if place not in told:
            told.add(place)
            live.ended(row.trial, row.record, row.counts)
