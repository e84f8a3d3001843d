"""Whether this process has the same blobs as those that it works with: every run leaves a mark in them.

A worker with another place for blobs executes trials whose files nobody else ever finds.
"""

from __future__ import annotations

import time
from uuid import uuid4

from proctor.errors import UsageError
from proctor.store.blobs import Blobs
from proctor.store.inputs import Input
from proctor.store.store import Store

MARK = "mark"
"""Its name among the inputs of a run. No other blob is like it: tasks may be in several places, it is not."""
_LATEST = 5
_FRESH_S = 60.0
"""How long a mark is used for new runs: what nobody refers to yet is collected only when it is older."""
_left: dict[str, tuple[float, Input]] = {}
"""By place, when this process left its last mark there."""
_ONE_PLACE = (
    "what is written there nobody else would find. Give the setting 'blobs' (PROCTOR_BLOBS) one value on all "
    "machines, a place that all of them reach"
)


def mark(blobs: Blobs) -> Input:
    """The mark for a new run, left just now or by this process a moment ago: a submission waits for it."""
    known = _left.get(blobs.where)
    if known and time.monotonic() - known[0] < _FRESH_S:
        return known[1]
    began = time.monotonic()
    kept = blobs.put_bytes(f"{uuid4().hex}\n".encode(), MARK, "text/plain")
    found = Input(MARK, kept.digest, kept.size_bytes)
    _left[blobs.where] = began, found
    return found


def refuse_other_blobs(blobs: Blobs, stored: Input | None, run_id: str) -> None:
    """UsageError where the mark of a run is not in these blobs. Runs of earlier versions have none."""
    if stored and not blobs.has(stored.digest):
        raise UsageError(
            f"run {run_id} was started with other blobs than those in {blobs.where}; {_ONE_PLACE}"
        )


def check_blobs(store: Store, blobs: Blobs) -> None:
    """UsageError where none of the latest runs of a store has left its mark in these blobs.

    StoreError where nothing can be written to them: each trial would be executed in vain.
    """
    if not store.remote:
        return
    marks = store.inputs.latest(MARK, _LATEST)
    if marks and not any(blobs.has(digest) for digest in marks):
        raise UsageError(
            f"the runs of {store.where} have other blobs than those in {blobs.where}; {_ONE_PLACE}"
        )
    try_blobs(blobs)


def try_blobs(blobs: Blobs) -> None:
    """StoreError where nothing can be written to them, after the time that one waits for them."""
    blobs.put_bytes(b"a worker can write here\n", "probe", "text/plain")  # garbage, and soon collected
