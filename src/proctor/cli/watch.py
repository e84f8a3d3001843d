"""`proctor watch`: follow a run on any machine, event by event; continue after a known event."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.model.run import Event
    from proctor.store.store import Store

_OVER = ("done", "interrupted", "cancelled")
_PAGE = 1000


@click.command(name="watch")
@click.argument("ref", metavar="RUN", default="latest")
@click.option(
    "--after", type=click.IntRange(0), default=0, metavar="ID", help="Show only events after this one."
)
@click.option(
    "--interval",
    type=click.FloatRange(0.05),
    default=0.5,
    show_default=True,
    help="Seconds between two looks at the run's status; events are shown at once.",
)
@click.option("--no-follow", is_flag=True, help="Print what has happened so far and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
def command(ref: str, after: int, interval: float, no_follow: bool, as_json: bool) -> int:
    """Follow RUN (an id, a name, 'latest') until it ends. Events are numbered; --after continues from one."""
    from proctor.cli.remote import reading_settings
    from proctor.store.open import open_store

    with open_store(reading_settings().store_url, create=False) as store:
        run_id = store.run(ref).id
        last = after
        try:
            last = _follow(store, run_id, after, interval, follow=not no_follow, as_json=as_json)
        except KeyboardInterrupt as stopped:
            last = stopped.args[0] if stopped.args else last
            print(f"continue with: proctor watch {run_id} --after {last}", file=sys.stderr)
            return Exit.INTERRUPTED
        if not as_json and store.run(run_id).status not in _OVER:
            print(f"continue with: proctor watch {run_id} --after {last}", file=sys.stderr)
    return Exit.OK


def _follow(store: Store, run_id: str, after: int, interval_s: float, *, follow: bool, as_json: bool) -> int:
    """Print events until the run is over; the number of the last one. An interruption carries it."""
    labels: dict[str, str] = {}
    try:
        while True:
            # Asked before the events are read: what happened before the end is then surely among them.
            over = store.run(run_id).status in _OVER
            last = store.last_event(run_id) if over else 0
            while events := store.events(after=after, run_id=run_id, limit=_PAGE):
                for event in events:
                    _print(store, event, labels, as_json=as_json)
                    after = event.id
                sys.stdout.flush()
            # What is written may become readable a little later, when transactions that began before it end.
            if not follow or (over and after >= last):
                return after
            store.wait_events(after, interval_s, run_id=run_id)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(after) from None


def _print(store: Store, event: Event, labels: dict[str, str], *, as_json: bool) -> None:
    from proctor.cli.table import line_width, printable, seconds
    from proctor.render.layout import shorten, wrapped

    if event.trial_key and event.trial_key not in labels:
        labels[event.trial_key] = store.trial(event.run_id, event.trial_key).label
    label = labels.get(event.trial_key or "", "")
    if as_json:
        plain = {
            "id": event.id,
            "run_id": event.run_id,
            "at": event.at,
            "kind": event.kind,
            "trial_key": event.trial_key,
            "label": label or None,
            "data": dict(event.data),
        }
        print(json.dumps(plain, ensure_ascii=False))
        return
    when = time.strftime("%H:%M:%S", time.localtime(event.at))
    said = [label] if label else []
    if event.data.get("outcome"):
        said.append(str(event.data["outcome"]))
        said.append(seconds(event.data.get("duration_s")))
    elif event.data:
        said.append(", ".join(f"{name} {value}" for name, value in event.data.items()))
    left = f"{event.id:>8}  {when}  {event.kind:<16}  "
    room = line_width()
    if room is not None and label:  # the numbers after it stay
        others = sum(len(each) + 2 for each in said[1:])
        said[0] = shorten(printable(label), max(12, room - len(left) - others))
    text = printable("  ".join(said))
    first, *rest = [text] if room is None else wrapped(text, max(20, room - len(left)))
    print(f"{left}{first}".rstrip())
    for line in rest:
        print(" " * len(left) + line)
